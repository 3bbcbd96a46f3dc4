"""Random sequences of commands of two homes on one lake, with kills, other homes in the middle and long stops, against
a model of what must be published: nothing lost, doubled, stale, or green with nothing.

    python -m cc_pipeline_tests.extraction.sequences FIRST COUNT [SECONDS]
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import duckdb
import pytest

from cc_pipeline.commoncrawl.slice_slugs import subset_of, subsets_in, whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction import run_inputs
from cc_pipeline.extraction.blocklist import block, read_blocklist, unblock
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.run import extract
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.purge import drop_subset, purge
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.maintenance.stored_files import find_lost_records
from cc_pipeline.records import file_leases
from cc_pipeline.records.file_leases import LeaseExpired
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import TEST
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.closing import close_all
from cc_pipeline_tests.thresholds import SMALL_ENGINE, shrunk
from cc_pipeline_tests.world import ARC, NEW, OLD, Killed, harvest, publish, workspace_of

TABLES: Final = ("captures", "records", *PAGE_TABLES)
CRAWLS: Final = (NEW, NEW, OLD, ARC)
SUBSETS: Final = ("warc", "robotstxt", "crawldiagnostics")
_ABSENT: Final = ", ".join(f"absent-{one}.example" for one in range(4))
#: Definitions; those of a set have one slug.
TEXTS: Final = (
    "example.org",
    "host:www.example.com",
    "set:some = example.org, example-foo.com",
    "set:some = example.org",
    f"set:many = example.co.uk, example-foo.com, {_ABSENT}",
    f"set:many = example-foo.com, example.org, {_ABSENT}",
)
#: What is blocked now and then: no target has captures of it alone.
SITE: Final = "example-foo.com"
Key: TypeAlias = tuple[str, int]
#: Crawl, target and subset.
At: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True)
class Step:
    """A command of a ``home``. ``fate`` is what happens at its commit of number ``commit``: it is killed ``before`` or
    ``behind`` it, the ``other`` step happens (``crossed``), or it is ``stopped`` for long, and the target purged."""

    home: int
    command: str
    crawl: str = NEW
    text: str = TEXTS[0]
    subsets: tuple[str, ...] = ("warc",)
    fate: str = ""
    commit: int = 0
    other: Step | None = None

    @property
    def target(self) -> Target:
        return parse_target(self.text)


def steps_of(seed: int, count: int = 5) -> list[Step]:
    """The steps of a seed."""
    draw = random.Random(seed)
    return [_step(draw, draw.randrange(2)) for _ in range(count)]


def _step(draw: random.Random, home: int, crosses: Step | None = None) -> Step:
    command = draw.choice(["run"] * 8 + ["purge", "purge", "drop", "block", "unblock", "maintenance", "publish"])
    fate = "" if crosses else draw.choice(["", "", "before", "behind", "crossed", "crossed", "stopped"])
    if command not in ("run", "purge") or (command == "purge" and fate == "stopped"):
        fate = ""
    crawl, text = draw.choice(CRAWLS), draw.choice(TEXTS)
    if crosses is not None and draw.random() < 0.6:
        # what two homes do with one target, however it is defined, is what may go wrong
        crawl = crosses.crawl
        text = draw.choice([one for one in TEXTS if parse_target(one).slug == crosses.target.slug])
    subsets = tuple(sorted(draw.sample(SUBSETS, draw.choice([1, 1, 2]))))
    step = Step(home, command, crawl, text, subsets, fate, draw.randint(1, 12))
    return step if fate != "crossed" else replace(step, other=_step(draw, 1 - home, step))


@dataclass
class Known:
    """What must be there of a slice: at least ``low``, and nothing but ``high``."""

    low: frozenset[Key] = frozenset()
    high: frozenset[Key] = frozenset()


@dataclass
class Model:
    """What must be published, by what was done."""

    truth: MiniCrawlTruth
    slices: dict[At, Known] = field(default_factory=dict)
    defined: dict[str, str] = field(default_factory=dict)
    blocked: bool = False

    def expected(self, crawl: str, slug: str, subset: str) -> frozenset[Key]:
        """What a run finds now."""
        target = parse_target(self.defined[slug])
        members = target.members or (target,)
        site = parse_target(SITE)
        return frozenset(
            (one.warc_filename, one.warc_record_offset)
            for one in self.truth.captures_of(crawl, subset=subset)
            if any(member.matches(one.url) for member in members) and not (self.blocked and site.matches(one.url))
        )

    def of(self, slug: str, subset: str | None = None) -> list[At]:
        """The slices that were ever made of a target."""
        return [at for at in self.slices if at[1] == slug and subset in (None, at[2])]

    def made(self, at: At) -> None:
        """A run of the slice ended well."""
        now = self.expected(*at)
        self.slices[at] = Known(now, now)

    def perhaps_made(self, at: At) -> None:
        """A run of the slice ended somewhere."""
        now, known = self.expected(*at), self.slices.get(at, Known())
        self.slices[at] = Known(known.low & now, known.high | now)

    def gone(self, at: At, *, perhaps: bool = False) -> None:
        """The slice was taken away."""
        self.slices[at] = Known(frozenset(), self.slices[at].high if perhaps else frozenset())


class Homes:
    """Two homes on one lake, and the model of it."""

    def __init__(self, source: Path, root: Path, truth: MiniCrawlTruth) -> None:
        self._source, self._root = source, root
        self.model = Model(truth)
        self.said: list[str] = []

    def open(self, home: int, subsets: Collection[str] = ("warc",)) -> Workspace:
        return workspace_of(
            self._source, self._root / f"home{home}", lake=str(self._root / "lake"), subsets=tuple(subsets), workers=1
        )

    def do(self, step: Step) -> None:
        """Does a step and notes in the model what it said."""
        workspace = self.open(step.home, step.subsets)
        with workspace_closed(workspace), self._fated(workspace, step):
            {
                "run": self._run,
                "purge": self._purge,
                "drop": self._drop,
                "block": self._block,
                "unblock": self._block,
                "maintenance": lambda workspace, _: run_maintenance(workspace, retention_hours=0),
                "publish": lambda workspace, _: publish(workspace),
            }[step.command](workspace, step)

    def _run(self, workspace: Workspace, step: Step) -> None:
        model, target = self.model, step.target
        slices = [(step.crawl, target.slug, subset) for subset in subsets_in(step.crawl, step.subsets)]
        try:
            with unfated():
                workspace.register_targets([target])
                model.defined[target.slug] = step.text
            made = list(extract(workspace, [(step.crawl, target.slug)], TABLES, SMALL_ENGINE))
        except (Killed, LeaseExpired) as ended:
            self.said.append(repr(ended))
            if isinstance(ended, Killed):
                for at in slices:
                    model.perhaps_made(at)
            return
        for one in made:
            self.said.append(repr(one.error))
            for at in slices:
                if one.error is None:
                    model.made(at)
                else:
                    model.perhaps_made(at)
            if one.error is None and step.fate != "crossed":
                assert not plan_crawl(workspace, step.crawl, [target.slug]).plan.slice_plans, "what was run is due"

    def _purge(self, workspace: Workspace, step: Step) -> None:
        slug, killed = step.target.slug, False
        try:
            purge(workspace, plan_purge(workspace, slug, slug))
        except EnvironmentFault as refused:
            self.said.append(str(refused))
            return
        except Killed:
            killed = True
        for at in self.model.of(slug):
            self.model.gone(at, perhaps=killed)

    def _drop(self, workspace: Workspace, step: Step) -> None:
        subset = step.subsets[0]
        try:
            drop_subset(workspace, step.target.slug, subset)
        except EnvironmentFault as refused:
            self.said.append(str(refused))
            return
        for at in self.model.of(step.target.slug, subset):
            self.model.gone(at)

    def _block(self, workspace: Workspace, step: Step) -> None:
        site = parse_target(SITE)
        if step.command == "block":
            block(workspace, [site])
        elif read_blocklist(workspace).blocks:
            unblock(workspace, [site])
        self.model.blocked = step.command == "block"

    @contextmanager
    def _fated(self, workspace: Workspace, step: Step) -> Iterator[None]:
        if not step.fate:
            with unfated():
                yield
            return

        def does() -> None:
            if step.fate in ("before", "behind"):
                raise Killed
            if step.other is not None:
                self.do(step.other)
                return
            running = workspace.command_value(run_inputs._RunningRuns).runs
            with leases_run_out():
                self.do(Step(1 - step.home, "purge", text=step.text))
            for run in running:
                run._lease._clock = lambda: time.time() + file_leases.LIFE

        with at_commit(step.commit, does, behind=step.fate == "behind"):
            yield

    def check(self, home: int) -> None:
        """Raises ``AssertionError`` where what the home publishes now, or the lake has, is not as the model says."""
        workspace = self.open(home)
        with workspace_closed(workspace):
            publish(workspace)
            assert find_lost_records(workspace) == []
            for table in ("captures", "records", "page_metadata"):
                keys = _keys(workspace, table)
                assert len(keys) == len(set(keys)), f"{table} has captures of a slice twice"
            rows = {table: _by_slice(_keys(workspace, table)) for table in ("captures", "records", "page_metadata")}
            shown = _published(workspace.settings.published_path)
        for at, known in self.model.slices.items():
            for table, found in rows.items():
                here = found.get(at, set())
                assert known.low <= here, f"{at}: {len(known.low - here)} of {table} were lost"
                assert here <= known.high, f"{at}: {len(here - known.high)} of {table} should not be there"
        for table, found in rows.items():
            others = {at: len(here) for at, here in found.items() if at not in self.model.slices}
            assert not others, f"{table} has slices that nobody made: {others}"
        low = {(at[0], *key) for at, known in self.model.slices.items() for key in known.low}
        high = {(at[0], *key) for at, known in self.model.slices.items() for key in known.high}
        for view, keys in shown.items():
            assert len(keys) == len(set(keys)), f"{view} shows captures twice"
            assert low <= set(keys), f"{len(low - set(keys))} are lacking in {view}"
            assert set(keys) <= high, f"{len(set(keys) - high)} too many in {view}"


def _keys(workspace: Workspace, table: str) -> list[tuple[str, str, str, int]]:
    columns = ["crawl", "target", "warc_filename", "warc_record_offset"]
    found = workspace.lake.read(table, columns=columns).to_pydict()
    return list(zip(*(found[name] for name in columns), strict=True))


def _by_slice(keys: list[tuple[str, str, str, int]]) -> dict[At, set[Key]]:
    found: dict[At, set[Key]] = {}
    for crawl, target, file, offset in keys:
        own = found.setdefault((crawl, whole_slug(target), subset_of(target)), set())
        assert (file, offset) not in own, f"two parts of {target} have the same capture"
        own.add((file, offset))
    return found


def _published(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return {
            view: connection.execute(f"SELECT crawl, warc_filename, warc_record_offset FROM {view}").fetchall()
            for view in ("captures", "records", "page_metadata")
        }


@contextmanager
def workspace_closed(workspace: Workspace) -> Iterator[None]:
    try:
        yield
    finally:
        workspace.close()


#: What happens at commits: how many are left until then, what, and whether behind the commit.
_FATES: list[tuple[list[int], Callable[[], None], bool] | None] = []


@contextmanager
def at_commit(number: int, does: Callable[[], None], *, behind: bool) -> Iterator[None]:
    _FATES.append(([number], does, behind))
    try:
        yield
    finally:
        _FATES.pop()


@contextmanager
def unfated() -> Iterator[None]:
    """Nothing happens at the commits in the block."""
    _FATES.append(None)
    try:
        yield
    finally:
        _FATES.pop()


def _commits(real: Callable[..., Any]) -> Callable[..., Any]:
    def commits(*given: Any, **named: Any) -> Any:
        fate = _FATES[-1] if _FATES else None
        now = False
        if fate is not None:
            fate[0][0] -= 1
            now = fate[0][0] == 0
        if fate is not None and now and not fate[2]:
            fate[1]()
        answer = real(*given, **named)
        if fate is not None and now and fate[2]:
            fate[1]()
        return answer

    return commits


@contextmanager
def leases_run_out() -> Iterator[None]:
    """Has everybody take the leases of runs and fetches for those of machines that were stopped for long."""
    real = file_leases._read

    def read(*given: Any) -> Iterator[tuple[file_leases.Holding, bool]]:
        for holding, lives in real(*given):
            yield holding, lives and given[1] == file_leases.PURGES

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_leases, "_read", read)
        yield


def prepare(source: Path, root: Path) -> None:
    """A lake and two homes on it, each of which has harvested all crawls."""
    for home in range(2):
        workspace = workspace_of(source, root / f"home{home}", lake=str(root / "lake"), subsets=SUBSETS, workers=1)
        for crawl in (NEW, OLD, ARC):
            harvest(workspace, crawl)
        workspace.close()


def run_sequence(source: Path, prepared: Path, truth: MiniCrawlTruth, seed: int) -> None:
    """Does the steps of a seed. Raises ``AssertionError`` where anything is not as the model says; it prints the seed
    and the steps before."""
    steps = steps_of(seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(shutil.copytree(prepared, Path(folder) / "all"))
        patch.setattr(Lake, "replace_slices", _commits(Lake.replace_slices))
        homes = Homes(source, root, truth)
        number = -1
        try:
            for step in steps:
                number += 1
                homes.do(step)
                homes.check(step.home)
            # whatever was killed, the next run brings it
            for crawl, slug in sorted({(at[0], at[1]) for at in homes.model.slices}):
                subsets = [at[2] for at in homes.model.of(slug) if at[0] == crawl]
                homes.do(Step(0, "run", crawl, homes.model.defined[slug], tuple(sorted(subsets))))
            homes.check(1)
        except BaseException:
            print(f"seed {seed}, step {number}; {homes.said}")
            for number, step in enumerate(steps):
                print(f"  {number}: {step}")
            raise
        finally:
            close_all()


def main() -> None:
    """Runs so many seeds from the first on, for so many seconds at most, and says which failed."""
    first, count, seconds = (int(one) for one in (*sys.argv[1:], 10**9)[:3])
    failed, done, started = [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "bucket"
        truth = ensure(source, TEST)
        prepare(source, Path(folder) / "all")
        for seed in range(first, first + count):
            if time.monotonic() - started > seconds:
                break
            done += 1
            try:
                with shrunk():
                    run_sequence(source, Path(folder) / "all", truth, seed)
            except Exception:
                traceback.print_exc()
                failed.append(seed)
            print(f"{done} sequences, failed: {failed}", flush=True)


if __name__ == "__main__":
    main()
