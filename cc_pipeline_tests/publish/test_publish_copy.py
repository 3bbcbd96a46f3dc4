"""A copy: one file with all rows, which needs neither the lake nor a network."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake import snapshot
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.tables import all_tables
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import Bucket, harvested, publish, workspace_of


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
def test_a_copy_has_the_rows_of_the_views_and_needs_nothing_beside_it(asked_home: Settings, asked_copy: Path) -> None:
    views, copied = rows(asked_home.published_path), rows(asked_copy)
    assert views["main.captures"]
    assert copied == {name: found for name, found in views.items() if name != "lake.index_manifest"}
    with duckdb.connect(str(asked_copy), read_only=True) as connection:
        stored = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'lake'").fetchall()
        assert {spec.name for spec in all_tables()} - {"index_manifest"} <= {name for (name,) in stored}
        reading = connection.execute("SELECT count(*) FROM duckdb_views() WHERE contains(sql, 'parquet')")
        assert reading.fetchone() == (0,)


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
