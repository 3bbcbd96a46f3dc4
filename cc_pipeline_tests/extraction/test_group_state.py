"""A commit belongs to what it was made from: what is purged, blocked, defined anew or committed by another run while a
run is at work is neither published again nor written over, and neither side says success where anything is left."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction import fetch, parse
from cc_pipeline.extraction.blocklist import block
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.engine import LocalEngine
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.group_state import MAX_PLANS
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.extraction.run import PartitionResult, extract
from cc_pipeline.lake import slices
from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, LOCATE, PAGE_TABLES, PARSE, Slice
from cc_pipeline.lake.slices import SlicesChanged, invalidate_slices
from cc_pipeline.lake.target_definitions import delete_definitions
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, Bucket, harvest, slice_row, workspace_of

GOES, STAYS = "example.com", "example.org"
BOTH, ONE = "set:some = example.com, example.org", "set:some = example.org"
TABLES = ("captures", "records", *PAGE_TABLES)
#: The first table of each stage: its rows are made, and nothing of the stage is committed yet.
STAGES = ("captures", "records", "page_text")
Homes = tuple[Workspace, Workspace]


@pytest.fixture(scope="module")
def prepared(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake and two homes on it that have harvested a crawl."""
    root = tmp_path_factory.mktemp("states")
    for name in ("one", "two"):
        harvest(workspace_of(bucket[0], root / name, lake=str(root / "lake")))
    return root


@pytest.fixture
def homes(bucket: Bucket, prepared: Path, tmp_path: Path) -> Homes:
    shutil.copytree(prepared, tmp_path / "all")
    one, two = (
        workspace_of(bucket[0], tmp_path / "all" / name, lake=str(tmp_path / "all" / "lake")) for name in ("one", "two")
    )
    return one, two


def run(workspace: Workspace, *texts: str) -> list[PartitionResult]:
    targets = [parse_target(text) for text in texts]
    workspace.register_targets(targets)
    return list(extract(workspace, [(NEW, target.slug) for target in targets], TABLES))


def is_complete(workspace: Workspace, slug: str) -> bool:
    """Whether a target has captures, each once in each table, and nothing is due."""
    names = ["warc_filename", "warc_record_offset"]
    found = [
        Counter(tuple(row.values()) for row in workspace.lake.read(table, {"target": slug}, names).to_pylist())
        for table in ("captures", "records", "page_metadata")
    ]
    is_once = all(found) and found[0] == found[1] == found[2] and max(found[0].values()) == 1
    return is_once and not plan_crawl(workspace, NEW, [slug]).plan.slice_plans


def urls(workspace: Workspace) -> list[str]:
    tables = [table for table in TABLES if "url" in workspace.lake.specs[table].schema.names]
    return [url for table in tables for url in workspace.lake.read(table, columns=["url"])["url"].to_pylist()]


@contextmanager
def before_rows(table: str, does: Callable[[], object], times: int = 1) -> Iterator[None]:
    """Has ``does`` happen when rows of ``table`` were made and are about to be added."""
    real, left = Lake.append, [times]

    def append(self: Lake, name: str, files: Any) -> None:
        if name == table and left[0]:
            left[0] -= 1
            does()
        real(self, name, files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "append", append)
        yield


@pytest.mark.matrix
@pytest.mark.parametrize("change", ["block", "redefinition"])
@pytest.mark.parametrize("table", STAGES)
def test_what_is_blocked_or_redefined_during_a_run_is_located_again(homes: Homes, table: str, change: str) -> None:
    one, two = homes
    changes = {
        "block": lambda: block(two, [parse_target(GOES)]),
        "redefinition": lambda: two.register_targets([parse_target(ONE)]),
    }
    with before_rows(table, changes[change]):
        [made] = run(one, BOTH)
    assert made.error is None
    assert urls(one)
    assert not [url for url in urls(one) if GOES in url]
    assert is_complete(one, "set-some")


def test_definitions_that_change_at_each_plan_end_with_a_message(homes: Homes) -> None:
    one, two = homes
    texts = cycle([ONE, BOTH])
    with before_rows("captures", lambda: two.register_targets([parse_target(next(texts))]), times=MAX_PLANS):
        [made] = run(one, BOTH)
    assert isinstance(made.error, SlicesChanged)
    assert "set-some in CC-MAIN-2024-22 was redefined" in str(made.error)
    assert urls(one) == []


@pytest.mark.parametrize(("table", "stage"), [("records", fetch_captures), ("page_text", parse_records)])
def test_a_stage_alone_does_not_go_on_with_another_definition(
    homes: Homes, table: str, stage: Callable[..., object]
) -> None:
    """Another home takes a member out of the set, and has run it by then."""
    one, two = homes
    one.register_targets([parse_target(BOTH)])
    for before in (locate_captures, fetch_captures)[: STAGES.index(table)]:
        before(one, NEW, ["set-some"])
    with before_rows(table, lambda: run(two, ONE)), pytest.raises(SlicesChanged, match="redefined") as changed:
        stage(one, NEW, ["set-some"])
    assert changed.value.relocate
    stage(one, NEW, ["set-some"])
    assert not [url for url in urls(one) if GOES in url]
    assert is_complete(one, "set-some")


def test_a_block_of_another_site_disturbs_no_stage(homes: Homes) -> None:
    one, two = homes
    one.register_targets([parse_target(BOTH)])
    locate_captures(one, NEW, ["set-some"])
    with before_rows("records", lambda: block(two, [parse_target("absent.example")])):
        fetch_captures(one, NEW, ["set-some"])
    parse_records(one, NEW, ["set-some"])
    assert is_complete(one, "set-some")


@pytest.mark.parametrize("table", STAGES)
def test_what_another_run_commits_of_the_same_slice_is_not_written_over(homes: Homes, table: str) -> None:
    one, two = homes
    there: list[object] = []

    def run_all() -> None:
        [made] = run(two, GOES)
        assert made.error is None
        there.extend(slice_row(two, stage, GOES) for stage in (LOCATE, FETCH, PARSE))

    with before_rows(table, run_all):
        [made] = run(one, GOES)
    assert made.error is None
    assert [slice_row(one, stage, GOES) for stage in (LOCATE, FETCH, PARSE)] == there
    assert is_complete(one, GOES)


def test_other_slices_of_the_group_are_committed_and_not_made_again(
    homes: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = homes
    one.register_targets([parse_target(text) for text in (GOES, STAYS)])
    locate_captures(one, NEW, [GOES, STAYS])
    fetched: list[list[str]] = []
    real = LocalEngine.fetch

    def noted(self: LocalEngine, workspace: Workspace, request: Any) -> Any:
        if workspace is one:
            fetched.append([slice_.target for slice_ in request.slices])
        return real(self, workspace, request)

    monkeypatch.setattr(LocalEngine, "fetch", noted)
    with before_rows("records", lambda: fetch_captures(two, NEW, [GOES])):
        fetch_captures(one, NEW, [GOES, STAYS])
    assert fetched == [[GOES, STAYS]]
    parse_records(one, NEW, [GOES, STAYS])
    assert is_complete(one, GOES)
    assert is_complete(one, STAYS)


@pytest.mark.parametrize("table", STAGES)
def test_a_run_does_not_undo_a_purge(homes: Homes, table: str) -> None:
    one, two = homes
    with before_rows(table, lambda: delete_definitions(two.lake, [GOES])):
        gone, other = run(one, GOES, STAYS)
    assert f"{GOES} was removed during this run" in str(gone.error)
    assert other.error is None
    assert is_complete(one, STAYS)
    assert [one.lake.read(name, {"target": GOES}).num_rows for name in TABLES] == [0] * len(TABLES)
    assert GOES not in one.lake.read("targets")["slug"].to_pylist()


@pytest.mark.parametrize("changes", [True, False])
def test_a_lookup_and_a_refetch_from_one_state(homes: Homes, changes: bool) -> None:
    """Neither loses what the other committed, whether the lookup changes captures or not."""
    one, two = homes
    run(one, BOTH)

    def locate_again() -> None:
        if changes:
            two.register_targets([parse_target(ONE)])
        else:
            invalidate_slices(two.lake, LOCATE, [Slice(NEW, "set-some")])
        locate_captures(two, NEW, ["set-some"])

    invalidate_slices(one.lake, FETCH, [Slice(NEW, "set-some")])
    with before_rows("records", locate_again):
        if changes:
            with pytest.raises(SlicesChanged):
                fetch_captures(one, NEW, ["set-some"])
        else:
            fetch_captures(one, NEW, ["set-some"])
    row = slice_row(one, LOCATE, "set-some")
    assert row is not None
    assert row.seq == (2 if changes else 3)
    run(one, ONE if changes else BOTH)
    assert is_complete(one, "set-some")


@pytest.mark.parametrize("stage", [LOCATE, FETCH])
def test_rows_that_are_dropped_while_a_stage_reads_them_do_not_become_none(
    homes: Homes, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another home makes the same rows again, and maintenance drops those that were there when the stage began."""
    one, two = homes
    run(one, GOES)
    later = PARSE if stage is FETCH else FETCH
    invalidate_slices(one.lake, later, [Slice(NEW, GOES)])
    monkeypatch.setattr(slices, "_READING", timedelta(0))

    def replace_rows() -> None:
        invalidate_slices(two.lake, stage, [Slice(NEW, GOES)])
        (fetch_captures if stage is FETCH else locate_captures)(two, NEW, [GOES])
        compact(two.lake, stage.main_table, Bounds())

    module, name = (parse, "stream_rows") if stage is FETCH else (fetch, "stream_rows")
    real, left = getattr(module, name), [1]

    def read(lake: Lake, *given: Any) -> Any:
        if lake is one.lake and left[0]:
            left[0] = 0
            replace_rows()
        return real(lake, *given)

    monkeypatch.setattr(module, name, read)
    (parse_records if stage is FETCH else fetch_captures)(one, NEW, [GOES])
    assert left == [0]
    assert is_complete(one, GOES)
