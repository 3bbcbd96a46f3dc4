"""Whatever commands come in whatever order, and wherever they are killed: no capture that was there is there no more,
and what is published is what a model says. Thresholds are small here, so that a few captures go the ways of a million.

Rows go by a purge, also of one subset, when a member is taken out of a set, and where the index that named them changed
and, whole, does not list them. Of these only the member of a set is among the steps here. A file of each columnar index
cannot be read, and commands that ask it go without.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cc_pipeline.automation import watch_list
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.lake import Lake
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extraction.sequences import prepare, run_sequence
from cc_pipeline_tests.thresholds import shrunk
from cc_pipeline_tests.world import ARC, NEW, OLD, Bucket, Killed, copy_of, extract, harvest, publish, workspace_of

pytestmark = pytest.mark.matrix

SUBSETS = ("warc", "robotstxt", "crawldiagnostics")
#: A set of many members has parts: most of these have no captures.
_ABSENT = ", ".join(f"absent-{one:02}.example" for one in range(66))
SMALL, LARGE = "set:some = example.org", "set:some = example.org, example-foo.com"
DIVIDED = f"set:many = example.co.uk, example-foo.com, {_ABSENT}"
TARGETS = ("example.org", "host:www.example-foo.com", "example.co.uk", SMALL, LARGE, DIVIDED)
#: Where a capture is, with the target that it was asked for.
Capture: TypeAlias = tuple[str, str, str, int]


@dataclass(frozen=True)
class Step:
    """A command: ``dies`` at the commit of that number, 0 for none, and ``via`` names the index of a WARC year. One
    that only locates and fetches is what commands do that hand records on."""

    command: str
    crawl: str = NEW
    target: str = TARGETS[0]
    subsets: tuple[str, ...] = ("warc",)
    dies: int = 0
    via: str = "auto"


STEPS = st.builds(
    Step,
    st.sampled_from(["run", "run", "run", "copy", "remove", "maintenance"]),
    st.sampled_from([NEW, OLD, ARC]),
    st.sampled_from(TARGETS),
    st.sets(st.sampled_from(SUBSETS), min_size=1).map(lambda some: tuple(sorted(some))),
    st.sampled_from([0, 0, 1, 2, 3, 4, 6, 9]),
    st.sampled_from(["auto", "parquet", "zipnum"]),
)


@pytest.fixture(scope="module")
def source(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    holed = copy_of(bucket[0], tmp_path_factory.mktemp("monotone") / "bucket")
    for file in (holed / "cc-index/table").rglob("part-00001*"):
        file.unlink()
    return holed


@pytest.fixture(scope="module")
def harvested(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("monotone") / "home"
    workspace = workspace_of(source, home, subsets=SUBSETS, max_index_gaps=1.0)
    for crawl in (NEW, OLD, ARC):
        harvest(workspace, crawl)
    return home


def do(workspace: Workspace, step: Step) -> None:
    target = parse_target(step.target)
    if step.command == "run":
        extract(workspace, step.target, crawl=step.crawl)
    elif step.command == "copy":
        workspace.register_targets([target])
        for stage in (locate_captures, fetch_captures):
            stage(workspace, step.crawl, [target.slug])
    elif step.command == "remove":
        watch_list.add(workspace.settings.watch_list_path, [target])
        watch_list.remove(workspace.settings.watch_list_path, [target.slug])
    else:
        run_maintenance(workspace, retention_hours=0)


def killed_at(number: int) -> pytest.MonkeyPatch:
    """Has the process end before its commit of that number; undo it afterwards."""
    patch, left = pytest.MonkeyPatch(), [number]

    def dying(plain: Callable[..., Any]) -> Callable[..., Any]:
        def commit(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return plain(*given, **named)

        return commit

    for name in ("append", "swap") if number else ():
        patch.setattr(Lake, name, dying(getattr(Lake, name)))
    return patch


def here(workspace: Workspace, table: str) -> dict[Capture, str]:
    """The captures of a table (of ``records`` those that were fetched), and their URLs."""
    rows = workspace.lake.read(table).to_pylist()
    return {
        (row["crawl"], whole_slug(row["target"]), row["warc_filename"], row["warc_record_offset"]): row["url"]
        for row in rows
        if row.get("outcome") in (None, "fetched")
    }


@pytest.fixture(scope="module", autouse=True)
def thresholds_are_small() -> Iterator[None]:
    with shrunk():
        yield


@pytest.fixture(scope="module")
def two_homes(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sequences") / "all"
    prepare(bucket[0], root)
    return root


@pytest.mark.parametrize("seed", range(4))
def test_two_homes_on_a_lake_publish_what_the_model_says(bucket: Bucket, two_homes: Path, seed: int) -> None:
    """More of them: ``python -m cc_pipeline_tests.extraction.sequences FIRST COUNT SECONDS``."""
    run_sequence(bucket[0], two_homes, bucket[1], seed)


@settings(max_examples=4, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=6))
@example([Step("run"), Step("run", subsets=("robotstxt",)), Step("run", subsets=("crawldiagnostics", "warc"))])
@example([Step("run", OLD), Step("copy", OLD, subsets=("robotstxt",)), Step("maintenance"), Step("run", OLD, dies=2)])
@example([Step("run", target=LARGE), Step("run", target=SMALL, subsets=("robotstxt",), dies=3), Step("maintenance")])
@example([Step("run"), Step("run", via="parquet", dies=2), Step("run", via="parquet"), Step("maintenance")])
@example([Step("run", target=LARGE, via="zipnum"), Step("run", target=SMALL, via="parquet"), Step("run", target=LARGE)])
@example(
    [Step("run", target=DIVIDED), Step("run", target=DIVIDED, subsets=("robotstxt",), dies=4), Step("maintenance")]
)
def test_what_is_there_stays_there(source: Path, harvested: Path, steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(shutil.copytree(harvested, Path(folder) / "home"))
        before: dict[str, dict[Capture, str]] = {"captures": {}, "records": {}}
        defined: dict[str, str] = {}
        for step in steps:
            via = "auto" if step.crawl == ARC else step.via
            workspace = workspace_of(source, home, subsets=step.subsets, index=via, max_index_gaps=1.0)
            patch = killed_at(step.dies)
            with suppress(Killed):
                do(workspace, step)
            patch.undo()
            workspace.close()
            left_to_go = set()
            if step.target in (SMALL, LARGE) and step.command in ("run", "copy"):
                defined["set-some"] = step.target
            if defined.get("set-some") == SMALL:
                left_to_go = {parse_target("example-foo.com")}
            after_all = workspace_of(source, home)
            for table, known in before.items():
                now = here(after_all, table)
                lost = {
                    one
                    for one in known.keys() - now.keys()
                    if not (one[1] == "set-some" and any(member.matches(known[one]) for member in left_to_go))
                }
                assert lost == set(), (step, table)
                before[table] = now
            after_all.close()
        # all of it is shown, and a run of all that was asked brings what was killed
        last = workspace_of(source, home, subsets=SUBSETS)
        asked = dict.fromkeys((step.crawl, step.target) for step in steps if step.command in ("run", "copy"))
        for crawl, target in asked:
            extract(last, target, crawl=crawl)
        publish(last)
        now = here(last, "captures")
        assert here(last, "records").keys() == now.keys() >= {one for one in before["captures"] if one[1] != "set-some"}
        last.close()
