"""An index with holes is not an answer: what is found over them, how it is marked, and what fills them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_pipeline.checks.omissions import describe_omitted_subsets
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import IndexIncomplete
from cc_pipeline.extraction.lookup_notes import describe_gaps, find_incomplete_slices
from cc_pipeline.extraction.plan import ReasonKind
from cc_pipeline.harvesting.crawl_index import refused_gaps
from cc_pipeline.lake.slice import LOCATE
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, due, extract, harvest, harvested, notes_of, workspace_of

SITE = "example.com"
HOLE = Rule("404", key="*subset=warc/part-00000*", times=None)
NO_ZIPNUM = Rule("404", key="*cluster.idx", times=None)


@pytest.fixture
def server(bucket: Bucket) -> Iterator[FaultServer]:
    with FaultServer(bucket[0], rules=[HOLE]) as running:
        yield running


def found_in(workspace: Workspace) -> set[tuple[str, int]]:
    rows = workspace.lake.read("captures", {"crawl": NEW}).to_pylist()
    return {(row["warc_filename"], row["warc_record_offset"]) for row in rows}


def truth_of(bucket: Bucket) -> set[tuple[str, int]]:
    return {(c.warc_filename, c.warc_record_offset) for c in bucket[1].captures_of(NEW, subset="warc", domain=SITE)}


def row_of(workspace: Workspace) -> dict[str, object]:
    (row,) = notes_of(workspace, LOCATE, {"crawl": NEW})
    return row


@pytest.mark.process
def test_another_index_that_is_whole_answers(bucket: Bucket, server: FaultServer, tmp_path: Path) -> None:
    workspace = harvested(server.url, tmp_path)
    located, *_ = extract(workspace, SITE)
    assert found_in(workspace) == truth_of(bucket)
    assert (
        f"index: zipnum, which is complete, since 1 of 2 index files of {NEW} warc could not be read" in located.notes
    )
    assert row_of(workspace) | {"located_by": "zipnum", "complete": True} == row_of(workspace)
    assert located.per_target[SITE]["index complete"] == "yes"
    assert find_incomplete_slices(workspace) == {}
    # what was not asked for may have holes
    server.set_rules([Rule("404", key="*subset=robotstxt/*", times=None)])
    other = harvested(server.url, tmp_path / "other")
    assert refused_gaps(other, [NEW]) == []
    assert "parquet" in extract(other, SITE)[0].notes[0]


@pytest.mark.parametrize("via", ["auto", "parquet"])
def test_without_another_index_it_is_an_error_that_names_the_files(
    server: FaultServer, tmp_path: Path, via: str
) -> None:
    if via == "auto":
        server.set_rules([HOLE, NO_ZIPNUM])
    workspace = harvested(server.url, tmp_path, index=via)
    with pytest.raises(IndexIncomplete, match=rf"1 of 2 index files of {NEW} warc.*part-00000.*not_found") as refused:
        extract(workspace, SITE)
    assert "--allow-gaps" in refused.value.advice
    assert notes_of(workspace, LOCATE) == workspace.lake.read("captures").to_pylist() == []


def test_what_was_located_over_holes_is_marked_and_becomes_whole_when_they_are_filled(
    bucket: Bucket, server: FaultServer, tmp_path: Path
) -> None:
    allowed = harvested(server.url, tmp_path, index="parquet", max_index_gaps=1.0)
    located, *_ = extract(allowed, SITE)
    assert found_in(allowed) < truth_of(bucket)
    assert located.per_target[SITE]["index complete"] == "no, 1 of 2 files could not be read"
    row = row_of(allowed)
    assert (row["complete"], row["index_files"], row["unread_files"], row["located_by"]) == (False, 2, 1, "parquet")
    assert [path for path in row["unread"] if "part-00000" in path]
    assert row["captures"] == len(found_in(allowed))
    (note,) = describe_gaps(allowed, [NEW], [parse_target(SITE)])
    assert "captures in them are missing from 1 of 1 targets" in note
    assert "part-00000" in note
    # nothing changed: nothing is done again, by a person or a schedule
    again = extract(allowed, SITE)
    assert [report.fresh_slices for report in again] == [0, 0, 0]
    assert again[0].per_target[SITE]["index complete"] == "no, 1 of 2 files could not be read"
    assert due(allowed, LOCATE, SITE, but=(ReasonKind.GAPS_FORBIDDEN,)) == set()
    # who does not allow it gets no answer out of it
    strict = workspace_of(server.url, tmp_path, index="parquet")
    assert due(strict, LOCATE, SITE, but=(ReasonKind.GAPS_FORBIDDEN,)) == set()
    with pytest.raises(IndexIncomplete):
        extract(strict, SITE)
    server.set_rules([])
    assert harvest(strict).written == 1
    assert due(strict, LOCATE, SITE, but=(ReasonKind.GAPS_FORBIDDEN,)) == {SITE}
    assert [report.fresh_slices for report in extract(strict, SITE)] == [1, 1, 1]
    assert found_in(strict) == truth_of(bucket)
    assert row_of(strict)["complete"] is True
    assert find_incomplete_slices(strict) == {}


def test_the_advice_on_subsets_names_no_set_with_its_members(bucket: Bucket, tmp_path: Path) -> None:
    targets = [parse_target("set:press = a.com, b.org"), parse_target("c.net")]
    (note,) = describe_omitted_subsets(workspace_of(bucket[0], tmp_path), [NEW], targets)
    assert f"lookup c.net --crawl {NEW} --count" in note
