"""Each file of a last commit cut to nothing and to half: said, taken back, made again from what is stored."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import duckdb
import pytest

from cc_pipeline.checks.doctor import examine
from cc_pipeline.checks.finding import Finding
from cc_pipeline.checks.outputs import publication_verdict
from cc_pipeline.cli.commands.doctor import _invalidate, _mend_tables
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.blocklist import block
from cc_pipeline.harvesting.crawls import commit_crawls
from cc_pipeline.lake.slices import read_purged
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.workspace.tables import CORE_TABLES, all_tables
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
    rows: dict[str, int]


def counts(workspace: Workspace) -> dict[str, int]:
    """Rows of the published views: of one crawl, and all targets."""
    queries = {name: f"SELECT count(*) FROM {name} WHERE crawl = '{NEW}'" for name in SHOWN}
    queries["targets"] = "SELECT count(*) FROM targets"
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        rows = {name: connection.execute(query).fetchone() for name, query in queries.items()}
    return {name: row[0] for name, row in rows.items() if row is not None}


def rows_of(workspace: Workspace) -> dict[str, int]:
    """Rows of each table: of one crawl, where it has crawls."""
    lake = open_lake(workspace.settings)
    where = {spec.name: {"crawl": NEW} if "crawl" in (*spec.slice_columns, *spec.key) else {} for spec in all_tables()}
    return {name: lake.read(name, own, lake.specs[name].schema.names[:1]).num_rows for name, own in where.items()}


@pytest.fixture(scope="module")
def world(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("torn") / "home"
    workspace = workspace_of(bucket[0], home)
    commit_crawls(workspace)
    for crawl in (NEW, OLD):
        harvest(workspace, crawl)
    for target in TARGETS:
        extract(workspace, target)
    publish(workspace)
    assert not [one for one in examine(workspace.settings) if one.level == "bad"]
    return World(bucket[0], home, counts(workspace), rows_of(workspace))


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
    if publication_verdict(workspace).severity == "error":
        return
    shown = counts(workspace)
    assert all(shown[name] >= count for name, count in world.shown.items()), (shown, world.shown)


def mend(workspace: Workspace) -> list[Finding]:
    findings, is_whole = _mend_tables(workspace)
    assert is_whole
    _invalidate(workspace)
    publish(workspace)
    return findings


def run_again(workspace: Workspace, world: World) -> None:
    """One run brings all of it back, and fetches no record that is stored."""
    commit_crawls(workspace)
    for crawl in (NEW, OLD):
        harvest(workspace, crawl)
    fetched = extract(workspace, *TARGETS)[1]
    assert fetched.requests == 0
    publish(workspace)
    assert counts(workspace) == world.shown
    assert rows_of(workspace) == world.rows
    assert bad(workspace) == []
    assert _invalidate(workspace) == {}


#: Table and kind of file: one of each kind for the first gear, all others are of the matrix.
Cell: TypeAlias = tuple[str, str]
FIRST: tuple[Cell, ...] = (("captures", "entry"), ("records", "rows"))
EMPTY_HERE = {"blocked", "named_captures", "feed_items", "source_files", "source_faults"}
EVERY: tuple[Cell, ...] = tuple(
    (spec.name, ("entry", "rows")[number % 2])
    for number, spec in enumerate(spec for spec in CORE_TABLES if spec.name not in EMPTY_HERE)
)


@pytest.mark.parametrize(
    "cell",
    [*FIRST, *(pytest.param(cell, marks=pytest.mark.matrix) for cell in EVERY if cell not in FIRST)],
    ids="-".join,
)
def test_one_repair_and_one_run_bring_back_what_a_torn_commit_held(
    world: World, workspace: Workspace, cell: Cell
) -> None:
    table, kind = cell
    path = last_entry(workspace, table) if kind == "entry" else last_file(workspace, table)
    cut(path, "half")
    assert any(path.name in one.text and "doctor --repair" in one.advice for one in bad(workspace))
    attempt(workspace, world, crawl=OLD)
    assert any(path.name in one.text for one in mend(workspace))
    assert (workspace.settings.home / "lake" / "tables" / table / "_torn" / path.name).exists()
    assert _mend_tables(workspace_of(workspace.settings.source, workspace.settings.home)) == ([], True)
    run_again(workspace_of(world.bucket, workspace.settings.home), world)


def test_a_torn_checkpoint_loses_nothing(world: World, workspace: Workspace) -> None:
    lake = open_lake(workspace.settings)
    handle = lake.open(lake.specs["records"])
    assert handle is not None
    handle.create_checkpoint()
    path = max((Path(lake.address("records")) / "_delta_log").glob("*.checkpoint.parquet"))
    cut(path, "half")
    workspace = workspace_of(world.bucket, workspace.settings.home)
    assert any(path.name in one.text and "doctor --repair" in one.advice for one in bad(workspace))
    mend(workspace)
    run_again(workspace_of(world.bucket, workspace.settings.home), world)


def test_a_torn_list_of_blocked_sites_stops_fetches_until_a_person_mends_it(workspace: Workspace) -> None:
    for target in TARGETS:
        block(workspace, [parse_target(target)])
    cut(last_file(workspace, "blocked"), "empty")
    assert "Restore the file from a backup: until then nothing is fetched" in bad(workspace)[0].advice
    assert _mend_tables(workspace)[1] is False
    with pytest.raises(EnvironmentFault, match="blocked"):
        extract(workspace_of(Path(workspace.settings.source), workspace.settings.home), *TARGETS)


def test_what_others_built_on_is_not_taken_back(world: World, workspace: Workspace) -> None:
    last = last_entry(workspace, "captures")
    before = last.with_name(f"{int(last.stem) - 1:020}.json")
    whole = before.read_bytes()
    cut(before, "half")
    [finding] = [one for one in bad(workspace) if "from a backup" in one.advice]
    assert before.name in finding.text
    assert _mend_tables(workspace_of(workspace.settings.source, workspace.settings.home)) == ([], False)
    with pytest.raises(EnvironmentFault, match="could not open"):
        publish(workspace)
    before.write_bytes(whole)
    run_again(workspace_of(world.bucket, workspace.settings.home), world)


def test_a_lost_definition_comes_back_with_its_rows_and_until_then_nothing_is_dropped(
    world: World, workspace: Workspace
) -> None:
    shutil.rmtree(Path(workspace.settings.lake) / "tables" / "targets")
    lost = workspace_of(world.bucket, workspace.settings.home)
    run_maintenance(lost)
    assert lost.lake.read("records").num_rows == 0
    assert read_purged(lost.lake).num_rows == 0
    run_again(lost, world)
