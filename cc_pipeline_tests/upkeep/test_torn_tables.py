"""Each file of a last commit cut to nothing and to half: said, taken back, made again from what is stored."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.checks.health import Finding, examine
from cc_pipeline.cli.commands.doctor import _mend_tables
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.indexing.catalog import catalog_has
from cc_pipeline.upkeep.torn_tables import torn_slices
from cc_pipeline.workspace.workspace import Workspace, open_lake
from cc_pipeline_tests.world import NEW, OLD, Bucket, extract, harvest, publish, workspace_of

SHOWN = ("captures", "ledger", "page_metadata", "page_text", "lookups", "fetches")
#: Two targets, so that the last commit of each table is not the first one.
TARGETS = ("example.org", "example.com")


@dataclass(frozen=True)
class World:
    bucket: Path
    home: Path
    shown: dict[str, int]


def counts(workspace: Workspace) -> dict[str, int]:
    """Rows of the published views: of one crawl, and all targets."""
    queries = {name: f"SELECT count(*) FROM {name} WHERE crawl = '{NEW}'" for name in SHOWN}
    queries["targets"] = "SELECT count(*) FROM targets"
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        rows = {name: connection.execute(query).fetchone() for name, query in queries.items()}
    return {name: row[0] for name, row in rows.items() if row is not None}


@pytest.fixture(scope="module")
def world(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("torn") / "home"
    workspace = workspace_of(bucket[0], home)
    for crawl in (NEW, OLD):
        harvest(workspace, crawl)
    for target in TARGETS:
        extract(workspace, target)
    publish(workspace)
    assert not [one for one in examine(workspace.settings) if one.level == "bad"]
    return World(bucket[0], home, counts(workspace))


@pytest.fixture
def workspace(world: World, tmp_path: Path) -> Workspace:
    home = Path(shutil.copytree(world.home, tmp_path / "home", copy_function=os.link))
    return workspace_of(world.bucket, home)


def last_entry(workspace: Workspace, table: str) -> Path:
    return max((workspace.settings.home / "lake" / "tables" / table / "_delta_log").glob("*.json"))


def last_file(workspace: Workspace, table: str) -> Path:
    """The last file of rows that any entry of the log added."""
    folder = workspace.settings.home / "lake" / "tables" / table
    for entry in sorted((folder / "_delta_log").glob("*.json"), reverse=True):
        for line in entry.read_text().splitlines():
            if add := json.loads(line).get("add"):
                return folder / add["path"]
    raise AssertionError(table)


def cut(path: Path, to: str) -> None:
    """Cuts a linked file, leaving the other name's bytes alone."""
    data = path.read_bytes()
    path.unlink()
    if to != "missing":
        path.write_bytes(b"" if to == "empty" else data[: len(data) // 2])


def bad(workspace: Workspace) -> list[Finding]:
    return [one for one in examine(workspace.settings) if one.level == "bad"]


def attempt(workspace: Workspace, world: World, *, crawl: str) -> None:
    """A run and a publication end with an error, or show no less than before."""
    try:
        extract(workspace, *TARGETS, crawl=crawl)
        publish(workspace)
    except EnvironmentFault:
        return
    shown = counts(workspace)
    assert all(shown[name] >= count for name, count in world.shown.items()), (shown, world.shown)


def mend(workspace: Workspace) -> list[Finding]:
    findings, is_whole = _mend_tables(workspace, open_lake(workspace.settings))
    assert is_whole
    publish(workspace)
    return findings


def run_again(workspace: Workspace, world: World) -> None:
    """One run brings all of it back, and fetches no record that is stored."""
    fetched = extract(workspace, *TARGETS)[1]
    assert fetched.requests == 0
    publish(workspace)
    assert counts(workspace) == world.shown
    assert bad(workspace) == []
    assert torn_slices(workspace.lake) == []


CELLS = [
    (table, kind, to)
    for table in ("captures", "records", "page_metadata", "targets")
    for kind in ("entry", "rows")
    for to in ("empty", "half")
]


@pytest.mark.parametrize(("table", "kind", "to"), CELLS)
def test_one_repair_and_one_run_bring_back_what_a_torn_commit_held(
    world: World, workspace: Workspace, table: str, kind: str, to: str
) -> None:
    path = last_entry(workspace, table) if kind == "entry" else last_file(workspace, table)
    cut(path, to)
    assert any(path.name in one.text and "doctor --repair" in one.advice for one in bad(workspace))
    for crawl in (OLD, NEW):
        attempt(workspace, world, crawl=crawl)
    findings = mend(workspace)
    assert any(path.name in one.text for one in findings)
    assert list((workspace.settings.home / "lake" / "tables" / table / "_torn").glob(f"{path.name}.*"))
    assert mend(workspace) == []
    run_again(workspace_of(world.bucket, workspace.settings.home), world)


@pytest.mark.parametrize("name", ["contents.json", f"{NEW}.duckdb"])
@pytest.mark.parametrize("to", ["empty", "half"])
def test_a_file_of_the_catalog_that_cannot_be_read_is_built_anew(workspace: Workspace, name: str, to: str) -> None:
    path = workspace.settings.catalog_path / name
    cut(path, to)
    assert any(str(path) in one.text and "doctor --repair" in one.advice for one in bad(workspace))
    mend(workspace)
    assert bad(workspace) == []
    assert list(path.parent.glob(f"{name}.torn-*"))
    assert catalog_has(workspace, NEW)
    assert catalog_has(workspace, OLD)
