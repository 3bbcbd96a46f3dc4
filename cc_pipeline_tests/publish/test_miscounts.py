"""A slice that has other rows than it was committed with is not published, and is named until it is made again."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from cc_pipeline.checks.doctor import examine
from cc_pipeline.checks.outputs import publication_verdict
from cc_pipeline.cli.commands.doctor import verify_and_repair
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.layout import list_stored_files
from cc_pipeline.lake.slice import PAGE_TABLES, Slice
from cc_pipeline.workspace import miscounts
from cc_pipeline.workspace.miscounts import describe_miscounts, find_changed_miscounts, find_new_miscounts, make_again
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested, publish, workspace_of

LOSES, KEEPS = "example.com", "example-foo.com"
TABLES = ("captures", "records", *PAGE_TABLES)


def made(bucket: Bucket, home: Path, kind: str = "views") -> Workspace:
    workspace = harvested(bucket[0], home, publish=kind)
    extract(workspace, LOSES)
    extract(workspace, KEEPS)
    return workspace


def lose(lake: Lake, table: str, target: str) -> None:
    """Somebody takes a row of a slice away, and says nothing of it."""
    every = lake.read(table)
    mine = pc.equal(every["target"], target)
    kept = pa.concat_tables([every.filter(pc.invert(mine)), every.filter(mine).slice(1)])
    write_deltalake(DeltaTable(lake.address(table)), kept, mode="overwrite")
    lake.invalidate(table)


def shown(workspace: Workspace) -> dict[str, dict[str, int]]:
    """Rows of each published table by domain."""
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return {
            table: dict(connection.execute(f"SELECT domain, count(*) FROM {table} GROUP BY ALL").fetchall())
            for table in ("captures", "records", "page_metadata")
        }


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("table", "kind"), [("captures", "views"), ("records", "views"), ("records", "copy"), ("page_text", "views")]
)
def test_a_slice_that_lost_rows_is_left_out_and_named_until_it_is_made_again(
    bucket: Bucket, tmp_path: Path, table: str, kind: str
) -> None:
    workspace = made(bucket, tmp_path / "home", kind)
    publish(workspace)
    before = shown(workspace)
    assert all(set(of_table) == {LOSES, KEEPS} for of_table in before.values())
    lose(workspace.lake, table, LOSES)
    # a home that is opened next knows it
    found = find_new_miscounts(workspace.settings, workspace.lake)
    rows = workspace.lake.read(table, {"target": LOSES}).num_rows
    assert found[table].slices == {(NEW, LOSES): (rows + 1, rows)}
    published = publish(workspace)
    kept = {name: {KEEPS: of_table[KEEPS]} for name, of_table in before.items()}
    assert shown(workspace) == kept
    assert published.rows["captures"] == before["captures"][KEEPS]
    verdict = publication_verdict(workspace)
    assert (verdict.severity, f"{table}: 1 slice " in verdict.message, LOSES in verdict.message) == (
        "error",
        True,
        True,
    )
    assert "doctor --repair" in verdict.advice
    assert [one.level for one in examine(workspace.settings) if one.topic == "rows"] == ["bad"]
    # and again, though nothing changed since
    publish(workspace)
    assert shown(workspace) == kept
    assert make_again(workspace.lake, found) == [Slice(NEW, LOSES)]
    publish(workspace)
    assert shown(workspace) == kept
    extract(workspace, LOSES, KEEPS)
    publish(workspace)
    assert shown(workspace) == before
    assert publication_verdict(workspace).passed
    assert [one.level for one in examine(workspace.settings) if one.topic == "rows"] == ["ok"]


@pytest.mark.matrix
@pytest.mark.parametrize("damage", [b"", b"PAR1"])
def test_a_file_that_is_not_whole_costs_its_slices_and_no_publication(
    bucket: Bucket, tmp_path: Path, damage: bytes
) -> None:
    workspace = made(bucket, tmp_path / "home")
    lake = workspace.lake
    handle = lake.open(lake.specs["records"])
    assert handle is not None
    [file] = [one for one in list_stored_files(lake.specs["records"], handle) if one.first == one.last == LOSES]
    Path(lake.address("records"), file.path).write_bytes(damage)
    publish(workspace)
    assert {name: set(of_table) for name, of_table in shown(workspace).items()} == {
        name: {KEEPS} for name in ("captures", "records", "page_metadata")
    }
    [sentence] = describe_miscounts(find_new_miscounts(workspace.settings, lake))
    assert file.path in sentence and "records: 1 slice " in sentence


@pytest.mark.process
def test_a_torn_file_is_remembered_though_its_rows_were_not_counted(bucket: Bucket, tmp_path: Path) -> None:
    workspace = made(bucket, tmp_path / "home")
    for entry in Path(workspace.lake.address("records"), "_delta_log").glob("*.json"):
        # as before commits counted rows
        entry.write_text("".join(line for line in entry.open() if '"rows:' not in line))
    workspace = workspace_of(bucket[0], tmp_path / "home")
    publish(workspace)
    assert publication_verdict(workspace).passed
    path = Path(workspace.lake.pin("records").files[0])
    path.write_bytes(b"")
    for _ in range(2):
        publish(workspace)
        assert sum(shown(workspace)["records"].values())
        verdict = publication_verdict(workspace)
        assert (verdict.severity, path.name in verdict.message) == ("error", True)


@pytest.mark.process
def test_a_file_that_is_brought_back_is_published_again(bucket: Bucket, tmp_path: Path) -> None:
    workspace = made(bucket, tmp_path / "home")
    publish(workspace)
    before = shown(workspace)
    handle = workspace.lake.open(workspace.lake.specs["records"])
    assert handle is not None
    path = Path(workspace.lake.address("records"), list_stored_files(workspace.lake.specs["records"], handle)[0].path)
    path.rename(path.with_suffix(".away"))
    publish(workspace)
    assert shown(workspace) != before
    path.with_suffix(".away").rename(path)
    verdict = publication_verdict(workspace)
    assert (verdict.severity, "correct now" in verdict.message) == ("error", True)
    publish(workspace)
    assert shown(workspace) == before
    assert publication_verdict(workspace).passed


def test_only_what_changed_is_looked_at(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    extract(workspace, LOSES)
    looked: list[tuple[str, set[tuple[str, ...]] | None]] = []
    plain = miscounts.find_miscounted

    def noted(lake: Lake, table: str, keys: set[tuple[str, ...]] | None, version: int | None = None) -> object:
        looked.append((table, keys))
        return plain(lake, table, keys, version)

    monkeypatch.setattr(miscounts, "find_miscounted", noted)
    publish(workspace)
    assert {table for table, keys in looked if keys is None} >= {"records", "captures"}
    looked.clear()
    publish(workspace)
    assert {table for table, keys in looked if keys != set()} == set()
    extract(workspace, KEEPS)
    looked.clear()
    again = workspace_of(bucket[0], tmp_path / "home")
    assert find_new_miscounts(again.settings, again.lake) == {}
    assert ("records", {(NEW, KEEPS)}) in looked
    assert all(keys is not None for _, keys in looked)
    # nothing is opened where nothing was committed since
    publish(workspace)
    monkeypatch.setattr(Lake, "open", None)
    assert find_new_miscounts(again.settings, again.lake) == {}


def test_a_note_that_says_nothing_has_all_looked_at(bucket: Bucket, tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    extract(workspace, LOSES)
    lose(workspace.lake, "records", LOSES)
    publish(workspace)
    note = workspace.settings.cache_path / "row_counts.json"
    said = json.loads(note.read_text())
    for broken in ("", "{", "[]", json.dumps({**said, "records": {**said["records"], "commit_id": "another's"}})):
        note.write_text(broken)
        assert set(find_changed_miscounts(workspace.settings, workspace.lake)) == {"records"}


@pytest.mark.process
def test_doctor_repairs_a_slice_that_lost_rows_without_a_request_for_what_is_stored(
    bucket: Bucket, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    workspace = made(bucket, home)
    publish(workspace)
    before = shown(workspace)
    lose(workspace.lake, "records", LOSES)
    stored = {path: path.stat().st_mtime_ns for path in (home / "lake" / "records").rglob("*.warc.gz")}
    found = verify_and_repair(workspace.settings, verify=False, everything=False, repair=True)
    # its counts say so, and so does the check that compares tables
    assert [(LOSES in one.text, "records: 1 slice " in one.text) for one in found] == [(True, False), (True, True)]
    assert shown(workspace) == before
    assert {path: path.stat().st_mtime_ns for path in (home / "lake" / "records").rglob("*.warc.gz")} == stored
    assert [one.level for one in examine(workspace.settings) if one.topic == "rows"] == ["ok"]


@pytest.mark.process
@pytest.mark.parametrize("table", ["index_manifest", "row_groups"])
def test_doctor_makes_index_tables_again_that_lost_rows(bucket: Bucket, tmp_path: Path, table: str) -> None:
    workspace = made(bucket, tmp_path / "home")
    publish(workspace)
    lake = workspace.lake
    before = lake.read(table)
    write_deltalake(DeltaTable(lake.address(table)), before.slice(1), mode="overwrite")
    lake.invalidate(table)
    found = verify_and_repair(workspace.settings, verify=False, everything=False, repair=True)
    assert [f"{table}: 1 slice " in one.text for one in found] == [True]
    lake.invalidate(table)
    assert lake.read(table).num_rows == before.num_rows
    assert [one.level for one in examine(workspace.settings) if one.topic == "rows"] == ["ok"]
