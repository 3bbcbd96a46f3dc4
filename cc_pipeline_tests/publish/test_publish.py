"""What is published of a lake that a killed run left in the middle of something."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.lake.lake import Lake, PinnedTable
from cc_pipeline.lake.slice import PAGE_TABLES, Slice
from cc_pipeline.publish.publish import find_partial_slices
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, Killed, extract, harvested, publish, workspace_of

SITE, OTHER = "example.com", "example-foo.com"


def rows(workspace: Workspace, table: str) -> Counter[str]:
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return Counter(str(row) for row in connection.execute(f"SELECT * FROM {table}").fetchall())


def die_before(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    replace = Lake.replace_slices

    def dying(self: Lake, name, *arguments, **named) -> None:
        if name == table:
            raise Killed
        replace(self, name, *arguments, **named)

    monkeypatch.setattr(Lake, "replace_slices", dying)


@pytest.fixture
def workspace(bucket: Bucket, tmp_path: Path) -> Workspace:
    return harvested(bucket[0], tmp_path)


@pytest.mark.xdist_group("questions")
def test_an_empty_home_publishes_every_table_empty_and_typed(
    bucket: Bucket, tmp_path: Path, in_views: duckdb.DuckDBPyConnection
) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    publication = publish(workspace)
    assert set(publication.rows.values()) == {0}
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        for table in ("captures", "records", "ledger", "quarantine", *PAGE_TABLES):
            described = connection.execute(f"DESCRIBE {table}").fetchall()
            assert {row[0] for row in described} >= {"crawl", "warc_filename", "warc_record_offset"}, table
            assert not [row for row in described if row[1] == '"NULL"'], table
    # of the same types as in a home that has rows
    names = ("captures", "records", *PAGE_TABLES)
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as empty:
        described = [[one.execute(f"DESCRIBE {name}").fetchall() for name in names] for one in (empty, in_views)]
    assert described[0] == described[1]


@pytest.mark.matrix
@pytest.mark.parametrize("status", [None, -1])
def test_captures_of_an_index_without_status_have_that_of_their_page(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    monkeypatch.setattr("cc_pipeline.index.zipnum.locator._status", lambda _: status)
    if status is not None:
        # as homes of before have it, also in records and pages
        monkeypatch.setattr("cc_pipeline.records.outcomes.NO_STATUS", None)
    workspace = workspace_of(bucket[0], tmp_path, index="zipnum", subsets=("warc", "crawldiagnostics"))
    extract(workspace, SITE)
    publish(workspace)
    located = workspace.lake.read("captures")["fetch_status"].unique().to_pylist()
    assert located == [status]
    truth = {
        (capture.warc_filename, capture.warc_record_offset): capture.fetch_status
        for capture in bucket[1].captures_of(NEW, domain=SITE)
    }
    assert len(set(truth.values())) > 1
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        for table in ("captures", "page_metadata", "page_text"):
            query = f"SELECT warc_filename, warc_record_offset, fetch_status FROM {table}"
            found = connection.execute(query).fetchall()
            assert found, table
            assert all(truth[file, offset] == code for file, offset, code in found), table
        pages = connection.execute("SELECT sum(captures) FROM timeline()").fetchall()
    wanted = [capture for capture in bucket[1].captures_of(NEW, domain=SITE) if capture.subset == "warc"]
    assert pages == [(len(wanted),)]


def beside_a_published_one(workspace: Workspace) -> dict[str, Counter[str]]:
    """Publishes the pages of a domain and fetches another one; the rows of each page table."""
    extract(workspace, OTHER)
    publish(workspace)
    other = {name: rows(workspace, name) for name in PAGE_TABLES}
    workspace.targets([SITE])
    locate_captures(workspace, NEW, [SITE])
    fetch_captures(workspace, NEW, [SITE])
    return other


def test_pages_of_an_interrupted_parse_are_held_back_until_it_has_run_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = beside_a_published_one(workspace)
    with monkeypatch.context() as patch:
        die_before(patch, "page_links")
        with pytest.raises(Killed):
            parse_records(workspace, NEW, [SITE])
    assert workspace.lake.read("page_text", {"target": SITE}).num_rows > 0
    assert find_partial_slices(workspace) == [Slice(NEW, SITE)]
    publish(workspace)
    assert {name: rows(workspace, name) for name in PAGE_TABLES} == other
    parse_records(workspace, NEW, [SITE])
    assert find_partial_slices(workspace) == []
    publish(workspace)
    grown = {name: rows(workspace, name) for name in PAGE_TABLES}
    assert all(grown[name] >= other[name] for name in PAGE_TABLES)
    assert grown["page_metadata"].total() > other["page_metadata"].total()


@pytest.mark.process
def test_a_slice_that_two_targets_share_is_held_back_for_the_interrupted_one_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(workspace, SITE)
    publish(workspace)
    before = {name: rows(workspace, name) for name in ("captures", *PAGE_TABLES)}
    workspace.targets(["example.com"])
    both = f"set:both = {SITE}, {OTHER}"
    with monkeypatch.context() as patch:
        die_before(patch, "page_metadata")
        with pytest.raises(Killed):
            extract(workspace, both)
    publish(workspace)
    assert {name: rows(workspace, name) for name in PAGE_TABLES} == {name: before[name] for name in PAGE_TABLES}
    assert rows(workspace, "captures") > before["captures"]
    extract(workspace, both)
    publish(workspace)
    assert all(rows(workspace, name) >= before[name] for name in PAGE_TABLES)
    assert rows(workspace, "page_metadata").total() == rows(workspace, "captures").total()


@pytest.mark.process
def test_a_parse_that_ends_while_tables_are_pinned_is_not_shown_by_halves(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = beside_a_published_one(workspace)
    pin = Lake.pin

    def pin_then_parse(self: Lake, table: str) -> PinnedTable:
        pinned = pin(self, table)
        if table == "page_metadata":
            parse_records(workspace, NEW, [SITE])
        return pinned

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "pin", pin_then_parse)
        publish(workspace)
    assert {name: rows(workspace, name) for name in PAGE_TABLES} == other
    publish(workspace)
    assert all(rows(workspace, name) > other[name] for name in ("page_metadata", "page_text", "page_links"))


@pytest.mark.process
def test_pages_of_a_target_that_lost_its_captures_are_not_shown_by_halves(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(workspace, f"set:one = {SITE}")
    publish(workspace)
    assert rows(workspace, "page_metadata")
    with monkeypatch.context() as patch:
        die_before(patch, "page_metadata")
        with pytest.raises(Killed):
            extract(workspace, "set:one = nobody.example")
    publish(workspace)
    assert {name: rows(workspace, name).total() for name in PAGE_TABLES} == dict.fromkeys(PAGE_TABLES, 0)


def test_a_capture_that_one_target_missed_is_shown_by_the_pages_of_another(bucket: Bucket, tmp_path: Path) -> None:
    mine = bucket[1].captures_of(NEW, subset="warc", domain=SITE)
    refused = sorted({capture.warc_filename for capture in mine})[0]
    with FaultServer(bucket[0], rules=[Rule("500", key=refused, times=None)]) as server:
        workspace = harvested(server.url, tmp_path, max_pending=1)
        extract(workspace, SITE)
        server.set_rules([])
        extract(workspace, f"set:later = {SITE}")
    publish(workspace)
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        asked = "SELECT DISTINCT outcome FROM records UNION SELECT DISTINCT failure_reason FROM page_metadata"
        assert set(connection.execute(asked).fetchall()) == {("fetched",), (None,)}


@pytest.mark.process
def test_settings_set_back_after_an_interrupted_stage_are_not_taken_for_done(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = harvested(bucket[0], tmp_path)
    extract(workspace, SITE)
    publish(workspace)
    before = {name: rows(workspace, name) for name in ("captures", *PAGE_TABLES)}
    wider = harvested(bucket[0], tmp_path, subsets=("warc", "crawldiagnostics"))
    better = workspace_of(bucket[0], tmp_path, markdown=True, workers=1)
    for other, table in ((wider, "records"), (better, "page_metadata")):
        with monkeypatch.context() as patch:
            die_before(patch, table)
            with pytest.raises(Killed):
                extract(other, SITE)
        extract(workspace, SITE)
        assert find_partial_slices(workspace) == []
        publish(workspace)
        now = {name: rows(workspace, name) for name in before}
        # what the killed run located of another subset stays
        assert now["captures"] >= before.pop("captures") if other is wider else "captures" not in before
        assert {name: now[name] for name in before} == before
