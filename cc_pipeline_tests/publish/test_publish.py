"""What is published of a lake that a killed run left in the middle of something."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, Killed, extract, harvested, publish, workspace_of

SITE, OTHER = "example.com", "example-foo.com"


def rows(workspace: Workspace, table: str) -> Counter[str]:
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return Counter(str(row) for row in connection.execute(f"SELECT * FROM {table}").fetchall())


def die_before(monkeypatch: pytest.MonkeyPatch, method: str, table: str) -> None:
    plain = getattr(Lake, method)

    def dying(self: Lake, name: str, *arguments: Any, **named: Any) -> Any:
        if name == table:
            raise Killed
        return plain(self, name, *arguments, **named)

    monkeypatch.setattr(Lake, method, dying)


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


@pytest.mark.parametrize(
    ("method", "table"), [("append", "page_links"), ("append", "page_metadata"), ("swap", "slices")]
)
def test_pages_of_an_interrupted_parse_are_not_shown_until_it_has_run_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, method: str, table: str
) -> None:
    extract(workspace, OTHER)
    publish(workspace)
    other = {name: rows(workspace, name) for name in PAGE_TABLES}
    workspace.targets([SITE])
    locate_captures(workspace, NEW, [SITE])
    fetch_captures(workspace, NEW, [SITE])
    with monkeypatch.context() as patch:
        die_before(patch, method, table)
        with pytest.raises(Killed):
            parse_records(workspace, NEW, [SITE])
    publish(workspace)
    assert {name: rows(workspace, name) for name in PAGE_TABLES} == other
    parse_records(workspace, NEW, [SITE])
    publish(workspace)
    grown = {name: rows(workspace, name) for name in PAGE_TABLES}
    assert all(grown[name] > other[name] for name in ("page_metadata", "page_text", "page_links"))
    assert grown["page_metadata"].total() == rows(workspace, "captures").total()


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
            die_before(patch, "append", table)
            with pytest.raises(Killed):
                extract(other, SITE)
        extract(workspace, SITE)
        publish(workspace)
        now = {name: rows(workspace, name) for name in before}
        # what the killed run located of another subset stays
        assert now["captures"] >= before.pop("captures") if other is wider else "captures" not in before
        assert {name: now[name] for name in before} == before
