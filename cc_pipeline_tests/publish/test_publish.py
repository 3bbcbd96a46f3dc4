"""What is published of a lake that a killed run left in the middle of something."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested, publish, workspace_of

SITE, OTHER = "example.com", "example-foo.com"


def rows(workspace: Workspace, table: str) -> Counter[str]:
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return Counter(str(row) for row in connection.execute(f"SELECT * FROM {table}").fetchall())


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
