"""Random sequences of commands of two homes on one lake, with kills, lost answers, other homes in the middle and long
stops, against a model of what must be published: nothing lost, doubled, stale, or green with nothing.

    python -m cc_pipeline_tests.extraction.sequences FIRST COUNT [SECONDS]
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import duckdb
import pytest

from cc_pipeline.commoncrawl.slice_slugs import subset_of, subsets_in, whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.blocklist import block, read_blocklist, unblock
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.run import extract
from cc_pipeline.lake import compaction, slices
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.purge import purge
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
    ``behind`` it, its answer is ``lost``, the ``other`` step happens (``crossed``), or it is ``stopped`` for long: the
    target is purged, and ``again`` added and run, and rows that no longer count are dropped. ``via`` names the index of
    a WARC year."""

    home: int
    command: str
    crawl: str = NEW
    text: str = TEXTS[0]
    subsets: tuple[str, ...] = ("warc",)
    fate: str = ""
    commit: int = 0
    other: Step | None = None
    again: bool = False
    via: str = "auto"

    @property
    def target(self) -> Target:
        return parse_target(self.text)


def steps_of(seed: int, count: int = 5) -> list[Step]:
    """The steps of a seed."""
    draw = random.Random(seed)
    return [_step(draw, draw.randrange(2)) for _ in range(count)]


def _step(draw: random.Random, home: int, crosses: Step | None = None) -> Step:
    command = draw.choice(["run"] * 8 + ["purge", "purge", "purge", "block", "unblock", "maintenance", "publish"])
    fate = "" if crosses else draw.choice(["", "before", "behind", "lost", "crossed", "crossed", "stopped"])
    if command not in ("run", "purge", "maintenance") or (command != "run" and fate in ("stopped", "lost")):
        fate = ""
    crawl, text = draw.choice(CRAWLS), draw.choice(TEXTS)
    if crosses is not None and draw.random() < 0.6:
        # what two homes do with one target, however it is defined, is what may go wrong
        crawl = crosses.crawl
        text = draw.choice([one for one in TEXTS if parse_target(one).slug == crosses.target.slug])
    subsets = tuple(sorted(draw.sample(SUBSETS, draw.choice([1, 1, 2]))))
    step = Step(home, command, crawl, text, subsets, fate, draw.randint(1, 12), again=draw.random() < 0.5)
    if crawl != ARC:
        step = replace(step, via=draw.choice(["auto", "auto", "parquet", "zipnum"]))
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
    #: The newest definition of each target, also of those that were purged.
    texts: dict[str, str] = field(default_factory=dict)
    #: How often a target was run, and how often it was purged.
    changes: Counter[str] = field(default_factory=Counter)
    purges: Counter[str] = field(default_factory=Counter)
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

    def hidden(self) -> set[tuple[str, str, int]]:
        """The captures of the blocked site, which no publication shows."""
        site = parse_target(SITE)
        return {
            (crawl, one.warc_filename, one.warc_record_offset)
            for crawl in (set(CRAWLS) if self.blocked else ())
            for one in self.truth.captures_of(crawl)
            if site.matches(one.url)
        }

    def of(self, slug: str, subset: str | None = None) -> list[At]:
        """The slices that were ever made of a target."""
        return [at for at in self.slices if at[1] == slug and subset in (None, at[2])]

    def made(self, at: At, then: frozenset[Key]) -> None:
        """A run of the slice ended well. What it would have found when it began differs from now if a site was blocked
        meanwhile, perhaps just before its last commit."""
        now = self.expected(*at)
        self.slices[at] = Known(now & then, now | then)

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

    def open(self, home: int, subsets: Collection[str] = ("warc",), via: str = "auto") -> Workspace:
        home_path, lake = self._root / f"home{home}", str(self._root / "lake")
        return workspace_of(self._source, home_path, subsets=tuple(subsets), index=via, workers=1, lake=lake)

    def do(self, step: Step) -> None:
        """Does a step and notes in the model what it said."""
        workspace = self.open(step.home, step.subsets, step.via)
        with workspace_closed(workspace), self._fated(step):
            {
                "run": self._run,
                "purge": self._purge,
                "block": self._block,
                "unblock": self._block,
                "maintenance": self._maintain,
                "publish": lambda workspace, _: publish(workspace),
            }[step.command](workspace, step)

    def _run(self, workspace: Workspace, step: Step) -> None:
        model, target = self.model, step.target
        slices = [(step.crawl, target.slug, subset) for subset in subsets_in(step.crawl, step.subsets)]
        with unfated():
            workspace.register_targets([target])
            model.defined[target.slug] = model.texts[target.slug] = step.text
        before = model.changes[target.slug], model.purges[target.slug]
        then = {at: model.expected(*at) for at in slices}
        try:
            [made] = extract(workspace, [(step.crawl, target.slug)], TABLES, SMALL_ENGINE)
        except (Killed, LeaseExpired) as ended:
            self.said.append(repr(ended))
            is_made = False
        else:
            self.said.append(repr(made.error))
            is_made = made.error is None
        if model.purges[target.slug] != before[1] and target.slug not in model.defined:
            return  # what it committed since does not count, nor what it commits later
        for at in slices:
            if is_made and (model.changes[target.slug], model.purges[target.slug]) == before:
                model.made(at, then[at])
            else:
                model.perhaps_made(at)
        model.changes[target.slug] += 1
        if is_made and step.fate not in ("crossed", "stopped"):
            assert not plan_crawl(workspace, step.crawl, [target.slug]).plan.slice_plans, "what was run is due"

    def _purge(self, workspace: Workspace, step: Step) -> None:
        slug, model = step.target.slug, self.model
        before, killed = model.changes[slug], False
        try:
            purge(workspace, plan_purge(workspace, slug, slug))
        except Killed:
            killed = True
        is_sure = not killed and model.changes[slug] == before
        for at in model.of(slug):
            model.gone(at, perhaps=not is_sure)
        if is_sure:
            model.defined.pop(slug, None)
        model.purges[slug] += 1

    def _maintain(self, workspace: Workspace, step: Step) -> None:
        try:
            run_maintenance(workspace, retention_hours=0)
        except Killed as ended:
            self.said.append(repr(ended))

    def _block(self, workspace: Workspace, step: Step) -> None:
        site = parse_target(SITE)
        if step.command == "block":
            block(workspace, [site])
        elif read_blocklist(workspace).blocks:
            unblock(workspace, [site])
        self.model.blocked = step.command == "block"

    @contextmanager
    def _fated(self, step: Step) -> Iterator[None]:
        if not step.fate:
            with unfated():
                yield
            return

        def does() -> None:
            if step.fate in ("before", "behind"):
                raise Killed
            if step.fate == "lost":
                return
            if step.other is not None:
                self.do(step.other)
                return
            with nothing_is_kept(), leases_run_out():
                other = Step(1 - step.home, "purge", step.crawl, step.text, step.subsets)
                self.do(other)
                if step.again:
                    self.do(replace(other, command="run"))
                self.do(replace(other, command="maintenance"))
            patch.setattr(file_leases.FileLease, "has_expired", lambda lease: lease._expires is not None)

        with pytest.MonkeyPatch.context() as patch, at_commit(step.commit, does, step.fate):
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
        hidden = self.model.hidden()
        low = {(at[0], *key) for at, known in self.model.slices.items() for key in known.low} - hidden
        high = {(at[0], *key) for at, known in self.model.slices.items() for key in known.high} - hidden
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


#: What happens at commits: how many are left until then, what, and the fate.
_FATES: list[tuple[list[int], Callable[[], None], str] | None] = []


@contextmanager
def at_commit(number: int, does: Callable[[], None], fate: str) -> Iterator[None]:
    _FATES.append(([number], does, fate))
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
    """A commit (``Lake.append`` or ``Lake.swap``) at which something may happen."""

    def commits(*given: Any, **named: Any) -> Any:
        fate = _FATES[-1] if _FATES else None
        now = False
        if fate is not None:
            fate[0][0] -= 1
            now = fate[0][0] == 0
        if fate is not None and now and fate[2] not in ("behind", "lost"):
            fate[1]()
        answer = real(*given, **named)
        if fate is not None and now and fate[2] == "lost":
            return None if answer is None else False
        if fate is not None and now and fate[2] == "behind":
            fate[1]()
        return answer

    return commits


@contextmanager
def nothing_is_kept() -> Iterator[None]:
    """Rows that do not count are dropped at once, as if weeks had gone by."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "_READING", timedelta(0))
        patch.setattr(compaction, "_RETENTION", timedelta(0))
        yield


@contextmanager
def leases_run_out() -> Iterator[None]:
    """Has everybody take the leases of fetches for those of machines that were stopped for long."""
    real = file_leases._read

    def read(*given: Any) -> Iterator[tuple[file_leases.Holding, bool]]:
        yield from ((holding, False) for holding, _ in real(*given))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_leases, "_read", read)
        yield


def prepare(source: Path, root: Path) -> None:
    """A lake and two homes on it, each of which has harvested all crawls."""
    homes = Homes(source, root, MiniCrawlTruth(0, (), ()))
    for home in range(2):
        workspace = homes.open(home, SUBSETS)
        for crawl in (NEW, OLD, ARC):
            harvest(workspace, crawl)
        workspace.close()


def run_sequence(source: Path, prepared: Path, truth: MiniCrawlTruth, seed: int) -> None:
    """Does the steps of a seed in a copy of ``prepared``. Raises ``AssertionError`` where anything is not as the model
    says; it prints the seed and the steps before."""
    steps = steps_of(seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(shutil.copytree(prepared, Path(folder) / "all"))
        for name in ("append", "swap"):
            patch.setattr(Lake, name, _commits(getattr(Lake, name)))
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
                homes.do(Step(0, "run", crawl, homes.model.texts[slug], tuple(sorted(subsets))))
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
    first, count, seconds = (int(word) for word in (*sys.argv[1:4], 10**9)[:3])
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
