"""Homes that are moved, and tables that get new columns."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import Workspace, open_lake
from cc_pipeline_tests.closing import closed_later
from cc_pipeline_tests.oracles.published import list_differences
from cc_pipeline_tests.world import NEW, OLD, Bucket, copy_of, extract, harvest, publish, workspace_of

SITE = "example.com"
#: Compared views; times of the publication are its own.
VIEWS = ("crawls", "targets", "captures", "capture_targets", "records", "ledger", *PAGE_TABLES)


def published_rows(home: Path) -> dict[str, Counter[str]]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return {name: Counter(map(str, connection.execute(f"FROM {name}").fetchall())) for name in VIEWS}


def workspace_in(home: Path) -> Workspace:
    return closed_later(Workspace(load_settings({}, home=str(home))))


@pytest.fixture(scope="module")
def published(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published home with its source inside. Tests work on copies."""
    home = tmp_path_factory.mktemp("published") / "home"
    home.mkdir()
    workspace = workspace_of(copy_of(bucket[0], home / "minicrawl"), home)
    harvest(workspace, NEW)
    extract(workspace, SITE)
    publish(workspace)
    return home


def test_a_home_that_is_moved_has_what_it_had_and_goes_on(published: Path, tmp_path: Path) -> None:
    before = published_rows(published)
    assert before["records"].total() > 0
    home = shutil.copytree(published, tmp_path / "elsewhere" / "a home")
    workspace = workspace_in(home)
    publish(workspace)
    assert list_differences(published / "cc.duckdb", home / "cc.duckdb") == []
    assert [stage(workspace, NEW, [SITE]).written for stage in (locate_captures, fetch_captures)] == [0, 0]
    # the files of the bucket are new ones on this disk, and their footers say which they belong to
    shutil.rmtree(home / "footers")
    harvest(workspace, OLD)
    extract(workspace, "example.co.uk", crawl=OLD)
    publish(workspace)
    assert published_rows(home)["page_metadata"].total() > before["page_metadata"].total()


def test_a_source_within_the_home_moves_with_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    workspace_of(home / "minicrawl", home).lake.read("crawls")
    assert json.loads((home / "home.json").read_text())["source"] == "minicrawl"
    home.rename(tmp_path / "moved")
    assert load_settings({}, home=str(tmp_path / "moved")).source == str(tmp_path / "moved" / "minicrawl")


def test_a_source_within_the_home_may_become_a_link(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "minicrawl").mkdir(parents=True)
    workspace_of(home / "minicrawl", home).lake.read("crawls")
    (home / "minicrawl").rename(elsewhere)
    (home / "minicrawl").symlink_to(elsewhere)
    assert workspace_of(home / "minicrawl", home).lake.read("crawls").num_rows == 0


def widened(lake: Lake, table: str) -> pa.Schema:
    """The lake with one more column in the middle of ``table``, as a later version would have it."""
    spec = lake.specs[table]
    fields = list(spec.schema)
    fields.insert(3, pa.field("added", pa.list_(pa.struct([pa.field("name", pa.string())]))))
    lake.specs[table] = replace(spec, schema=pa.schema(fields))
    return lake.specs[table].schema


@pytest.mark.matrix
@pytest.mark.parametrize("table", ["captures", "records", *PAGE_TABLES, "source_faults", "targets"])
def test_an_added_column_is_null_in_rows_of_before(published: Path, tmp_path: Path, table: str) -> None:
    home = shutil.copytree(published, tmp_path / "home")
    workspace = workspace_in(home)
    before = published_rows(published)
    lake = workspace.lake
    count = lake.read(table).num_rows
    schema = widened(lake, table)
    assert lake.read(table)["added"].null_count == count
    for written in (False, True):  # the column is in no file, and then in the log but still in no file
        if written:
            nothing = dict.fromkeys(lake.specs[table].slice_columns, "none")
            lake.commit(table, schema.empty_table(), [nothing], {"none": "abc"})
        publish(workspace)
        with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
            (rows,) = connection.execute(f"SELECT count(added) FROM lake.{table}").fetchone() or (None,)
        assert rows == 0
    row = dict.fromkeys(schema.names) | {
        **{field.name: "new" for field in schema if field.type == pa.string() and not field.nullable},
        **{field.name: 1 for field in schema if pa.types.is_integer(field.type) and not field.nullable},
        "crawl": NEW,
        "added": [{"name": "value"}],
    }
    fresh = pa.Table.from_pylist([{name: row[name] for name in schema.names}], schema=schema)
    where = {name: str(row[name]) for name in lake.specs[table].slice_columns}
    lake.commit(table, fresh, [where], {"test": "abc"})
    assert lake.read(table)["added"].null_count == count
    assert lake.read(table, where).to_pylist() == fresh.to_pylist()
    publish(workspace)
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        (rows,) = connection.execute(f"SELECT count(added) FROM lake.{table}").fetchone() or (None,)
    assert rows == 1
    grown = published_rows(home)
    assert all(grown[name].total() >= before[name].total() for name in VIEWS)
    assert all(grown[name] == before[name] for name in VIEWS if name not in (table, "ledger", "capture_targets"))


def test_a_table_of_a_newer_version_is_not_written(published: Path, tmp_path: Path) -> None:
    home = shutil.copytree(published, tmp_path / "home")
    newer = workspace_in(home).lake
    schema = widened(newer, "targets")
    newer.commit("targets", schema.empty_table(), [{"slug": "none"}], {"test": "abc"})
    older = open_lake(load_settings({}, home=str(home)))
    assert older.read("targets").num_rows > 0
    with pytest.raises(EnvironmentFault, match=r"(?s)columns this version does not know: added.*newer version"):
        older.commit("targets", older.read("targets"), [], {"test": "abd"})
