"""A target whose captures come in groups is as one that comes in one go: rows, faults, and what a kill leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cc_pipeline import progress
from cc_pipeline.extraction import fetch as fetch_stage
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.slice import FETCH, PAGE_TABLES
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.segments import SegmentWriter
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultmatrix import OPTIONS, Cell, Place, place_at, run_cell
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import NEW, Bucket, Killed, extract, harvested, notes_of

#: Two targets that share captures, and another one.
TARGETS = ("example.com", "host:www.example.com", "example-foo.com")
#: What is another one each time.
_VARYING = ("fetched_at", "stored_file", "stored_offset", "stored_length")


def in_groups(patched: pytest.MonkeyPatch, captures: int, in_memory: int = 0) -> None:
    """Has captures worked on so many at a time, and rows sorted on disk."""
    patched.setattr(fetch_stage, "RecordOptions", partial(RecordOptions, group=captures))
    patched.setattr("cc_pipeline.lake.ordered.IN_MEMORY", in_memory)


#: What differs from run to run, also of what a fetch notes.
_APART = (*_VARYING, "last_attempt_at", "stored_files", "stored_bytes")


def rows_of(workspace: Workspace) -> dict[str, list[dict[str, object]]]:
    found = {}
    for table in ("records", *PAGE_TABLES):
        rows = workspace.lake.read(table)
        rows = rows.drop_columns([name for name in _APART if name in rows.column_names])
        found[table] = sorted(rows.to_pylist(), key=repr)
    notes = [{name: value for name, value in row.items() if name not in _APART} for row in notes_of(workspace, FETCH)]
    return found | {"notes": sorted(notes, key=repr)}


def test_groups_give_the_same_rows_and_read_each_record_once(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = harvested(bucket[0], tmp_path / "whole")
    extract(whole, *TARGETS)
    expected = rows_of(whole)
    assert len({row["warc_filename"] for row in expected["records"]}) > 1
    with monkeypatch.context() as patched, FaultServer(bucket[0]) as server:
        in_groups(patched, 3)
        workspace = harvested(server.url, tmp_path / "groups")
        _, fetched, _ = extract(workspace, *TARGETS)
        assert rows_of(workspace) == expected
        places = {(row["warc_filename"], row["warc_record_offset"]) for row in expected["records"]}
        assert fetched.requests <= len(places)
        assert fetch_captures(workspace, NEW, list(fetched.per_target)).requests == 0
        assert [path for path in (tmp_path / "groups" / "scratch").rglob("*") if path.is_file()] == []


def test_a_run_killed_between_groups_goes_on_there_and_says_so(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int | None]] = []

    def sink(stage: str, done: int, total: int | None, detail: str) -> None:
        if stage == "fetch":
            seen.append((done, total))

    with FaultServer(bucket[0]) as server:
        workspace = harvested(server.url, tmp_path)
        workspace.targets(["example.com"])
        locate_captures(workspace, NEW, ["example.com"])
        total = workspace.lake.read("captures").num_rows
        in_groups(monkeypatch, 5)
        left = total // 2
        add = SegmentWriter.add

        def add_some(self: SegmentWriter, *record: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            add(self, *record)

        with monkeypatch.context() as patched, pytest.raises(Killed), progress.progress_to(sink):
            patched.setattr(SegmentWriter, "add", add_some)
            fetch_captures(workspace, NEW, ["example.com"])
        assert workspace.lake.read("records").num_rows == 0
        asked = len(server.hits)
        with progress.progress_to(sink):
            again = fetch_captures(workspace, NEW, ["example.com"])
        assert [note for note in again.notes if f"{total // 2:,} records that a stopped run had fetched" in note]
        assert again.per_target["example.com"]["fetched"] == total
        assert again.requests == len(server.hits) - asked <= total - total // 2
    assert {of for _, of in seen} == {total}
    assert max(done for done, _ in seen) == total
    assert workspace.storage.journals(NEW) == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_at("http", tmp_path_factory.mktemp("http")) as place:
        yield place


@pytest.mark.matrix
@pytest.mark.parametrize(
    "cell",
    [
        Cell("http", "404", "file", "lasting"),
        Cell("http", "403", "some", "run"),
        Cell("http", "500", "some", "lasting"),
        Cell("http", "500", "all", "lasting"),
        Cell("http", "bit_flip", "some", "run"),
        Cell("http", "changed_etag", "file", "run"),
    ],
    ids=lambda cell: "-".join((cell.kind, cell.scope, cell.time)),
)
def test_faults_cost_groups_no_more_than_one_go(place: Place, cell: Cell) -> None:
    one, several = (run_cell(place, cell, replace(OPTIONS, group=captures)) for captures in (50_000, 40))
    assert several.wrongs() == []
    # whether a 403 is the host's, which is no ask, or the object's depends on the answers beside it
    told = [run.told().partition(", asked")[0] for run in (several.first, several.second)]
    assert told == [run.told().partition(", asked")[0] for run in (one.first, one.second)]
