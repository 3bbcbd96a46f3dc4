"""What is published: as views, and as a copy, which is one file with all rows and needs neither lake nor network."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.blocklist import block, unblock
from cc_pipeline.lake import snapshot
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.publish.publish import find_publication_lag
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.tables import all_tables
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested, publish, workspace_of

SITE = "example.com"


def rows(path: Path) -> dict[str, Counter[str]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        names = [
            name
            for (name,) in connection.execute(
                "SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE NOT internal UNION ALL "
                "SELECT schema_name || '.' || table_name FROM duckdb_tables()"
            ).fetchall()
            if name != "main.publication"
        ]
        return {name: Counter(map(str, connection.execute(f"FROM {name}").fetchall())) for name in sorted(names)}


@pytest.fixture
def workspace(bucket: Bucket, tmp_path: Path) -> Workspace:
    return harvested(bucket[0], tmp_path / "home")


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


@pytest.mark.xdist_group("questions")
def test_a_copy_has_the_rows_of_the_views_and_needs_nothing_beside_it(asked_home: Settings, asked_copy: Path) -> None:
    views, copied = rows(asked_home.published_path), rows(asked_copy)
    assert views["main.captures"]
    assert copied == {name: found for name, found in views.items() if name != "lake.index_manifest"}
    with duckdb.connect(str(asked_copy), read_only=True) as connection:
        stored = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'lake'").fetchall()
        assert {spec.name for spec in all_tables() if spec.is_published} <= {name for (name,) in stored}
        reading = connection.execute("SELECT count(*) FROM duckdb_views() WHERE contains(sql, 'parquet')")
        assert reading.fetchone() == (0,)


def test_a_copy_lags_behind_a_block(bucket: Bucket, tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path, publish="copy")
    block(workspace, [parse_target(SITE)])
    publish(workspace)
    assert find_publication_lag(workspace) is None
    unblock(workspace, [parse_target(SITE)])
    assert find_publication_lag(workspace) is not None


@pytest.mark.bomb
def test_a_copy_is_made_with_bounded_memory_and_leaves_nothing_behind(
    workspace: Workspace, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    bound = snapshot._bound_memory

    def bounded(connection: duckdb.DuckDBPyConnection, scratch: Path) -> None:
        bound(connection, scratch)
        for name in ("memory_limit", "temp_directory", "preserve_insertion_order"):
            told.append(str(connection.execute(f"SELECT current_setting('{name}')").fetchall()[0][0]))

    monkeypatch.setattr(snapshot, "_bound_memory", bounded)
    home = tmp_path / "home"
    publish(workspace_of(bucket[0], home, publish="copy"))
    assert told[0] == "953.6 MiB"
    assert Path(told[1]).is_relative_to(home / "scratch")
    assert not Path(told[1]).exists()
    assert told[2].lower() == "false"


def test_a_copy_that_cannot_fit_is_refused_before_it_is_begun(
    workspace: Workspace, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(workspace)
    before = workspace.settings.published_path.read_bytes()
    monkeypatch.setattr(snapshot.shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000))
    with pytest.raises(EnvironmentFault, match="a copy of the tables takes about") as refused:
        publish(workspace_of(bucket[0], tmp_path / "home", publish="copy"))
    assert "CC_PIPELINE_PUBLISH=views" in refused.value.advice
    assert workspace.settings.published_path.read_bytes() == before
