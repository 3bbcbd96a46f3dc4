"""Each file of a last commit cut to nothing and to half: said, taken back, made again from what is stored."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pytest

from cc_pipeline.checks.doctor import examine
from cc_pipeline.checks.finding import Finding
from cc_pipeline.checks.outputs import refuse_unpublished
from cc_pipeline.cli.commands.doctor import _invalidate, _mend_tables
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.harvesting.crawls import commit_crawls
from cc_pipeline.lake.damaged_files import DamagedTable
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slices import read_purged
from cc_pipeline.maintenance import repair
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.repair import restore_definitions
from cc_pipeline.workspace.tables import CORE_TABLES, all_tables
from cc_pipeline.workspace.workspace import Workspace, open_lake
from cc_pipeline_tests.world import NEW, OLD, Bucket, Killed, extract, harvest, publish, workspace_of

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
        refuse_unpublished(workspace)
    except EnvironmentFault:
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


#: Table, kind of file, and what is left of it.
Cell: TypeAlias = tuple[str, str, str]
#: One of each kind for the first gear; all others are of the matrix.
FIRST: tuple[Cell, ...] = (("captures", "entry", "empty"), ("records", "rows", "half"))
EMPTY_HERE = {"named_captures", "feed_items", "source_files", "source_faults"}
#: Both kinds of files of each table, cut to nothing and to half in turns.
EVERY: tuple[Cell, ...] = tuple(
    (spec.name, kind, ("empty", "half")[(number + turn) % 2])
    for number, spec in enumerate(spec for spec in CORE_TABLES if spec.name not in EMPTY_HERE)
    for turn, kind in enumerate(("entry", "rows"))
)
LOGS: tuple[Cell, ...] = tuple(
    (table, kind, to)
    for table in ("captures", "records")
    for kind in ("checkpoint", "hint")
    for to in ("empty", "half")
)


def torn_file(workspace: Workspace, table: str, kind: str) -> Path:
    if kind == "entry":
        return last_entry(workspace, table)
    if kind == "rows":
        return last_file(workspace, table)
    return workspace.settings.home / "lake" / "tables" / table / "_delta_log" / kind


@pytest.mark.parametrize(
    "cell",
    [*FIRST, *(pytest.param(cell, marks=pytest.mark.matrix) for cell in EVERY if cell not in FIRST)],
    ids="-".join,
)
def test_one_repair_and_one_run_bring_back_what_a_torn_commit_held(
    world: World, workspace: Workspace, cell: Cell
) -> None:
    table, kind, to = cell
    path = torn_file(workspace, table, kind)
    cut(path, to)
    assert any(path.name in one.text and "doctor --repair" in one.advice for one in bad(workspace))
    for crawl in (OLD, NEW) if cell in FIRST else (OLD,):
        attempt(workspace, world, crawl=crawl)
    findings = mend(workspace)
    assert any(path.name in one.text for one in findings)
    assert list((workspace.settings.home / "lake" / "tables" / table / "_torn").glob(f"{path.name}.*"))
    assert _mend_tables(workspace_of(workspace.settings.source, workspace.settings.home)) == ([], True)
    run_again(workspace_of(world.bucket, workspace.settings.home), world)


@pytest.mark.matrix
@pytest.mark.parametrize("cell", LOGS, ids="-".join)
def test_a_torn_checkpoint_or_hint_loses_nothing(world: World, workspace: Workspace, cell: Cell) -> None:
    table, kind, to = cell
    lake = open_lake(workspace.settings)
    handle = lake.open(lake.specs[table])
    assert handle is not None
    handle.create_checkpoint()
    log = Path(lake.address(table)) / "_delta_log"
    path = max(log.glob("*.checkpoint.parquet")) if kind == "checkpoint" else log / "_last_checkpoint"
    cut(path, to)
    workspace = workspace_of(world.bucket, workspace.settings.home)
    named = [one for one in examine(workspace.settings) if path.name in one.text and "doctor --repair" in one.advice]
    assert {one.level for one in named} == {"bad" if kind == "checkpoint" else "note"}
    attempt(workspace, world, crawl=NEW)
    mend(workspace)
    run_again(workspace_of(world.bucket, workspace.settings.home), world)


def test_what_others_built_on_is_not_taken_back(world: World, workspace: Workspace) -> None:
    last = last_entry(workspace, "captures")
    before = last.with_name(f"{int(last.stem) - 1:020}.json")
    half = before.read_bytes()
    cut(before, "half")
    [finding] = [one for one in bad(workspace) if one.topic == "captures"]
    assert before.name in finding.text
    assert "1 later ones were built on it" in finding.text
    assert "from a backup" in finding.advice
    assert _mend_tables(workspace_of(workspace.settings.source, workspace.settings.home)) == ([], False)
    with pytest.raises(DamagedTable, match="built on it"):
        publish(workspace)
    before.write_bytes(half)
    run_again(workspace_of(world.bucket, workspace.settings.home), world)


@pytest.mark.parametrize("watched", [True, False])
def test_a_lost_definition_is_restored_with_its_rows_and_until_then_nothing_is_dropped(
    world: World, workspace: Workspace, watched: bool
) -> None:
    target = parse_target("example.com")
    table = Path(workspace.settings.lake) / "tables" / "targets"
    shutil.rmtree(table)
    lost = workspace_of(world.bucket, workspace.settings.home)
    run_maintenance(lost)
    assert lost.lake.read("records").num_rows == 0
    assert read_purged(lost.lake).num_rows == 0
    assert restore_definitions(lost.lake, [target] if watched else []) == []
    run_again(lost, world)


def test_a_definition_that_only_its_text_names_is_not_guessed(workspace: Workspace, world: World) -> None:
    workspace.register_targets([parse_target("set:press = example.com, example.org")])
    extract(workspace, "set:press = example.com, example.org")
    shutil.rmtree(Path(workspace.settings.lake) / "tables" / "targets")
    lost = workspace_of(world.bucket, workspace.settings.home)
    assert restore_definitions(lost.lake) == ["set-press"]
    rows = extract(lost, "set:press = example.com, example.org")
    assert [report.fresh_slices for report in rows] == [0, 0, 0], "named again, it has its rows again"


@pytest.mark.parametrize("table", ["captures", "records", "page_text"])
def test_a_run_after_a_killed_repair_makes_the_slices_of_the_file_again(
    world: World, workspace: Workspace, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(last_file(workspace, table), "half")

    def killed(*args: Any, **named: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(repair, "_keep_copy", killed)
        _mend_tables(workspace)
    workspace = workspace_of(world.bucket, workspace.settings.home)
    extract(workspace, *TARGETS)
    publish(workspace)
    assert (counts(workspace), rows_of(workspace)) == (world.shown, world.rows)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("kind", "at"),
    [("entry", "_write"), ("entry", "_keep_copy"), ("rows", "_keep_copy"), ("rows", "swap")],
)
def test_a_repair_that_is_killed_goes_on(
    world: World, workspace: Workspace, kind: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(torn_file(workspace, "captures", kind), "half")
    owner = Lake if at == "swap" else repair
    real = getattr(owner, at)
    for before in (True, False):

        def killed(*args: Any, before: bool = before, **named: Any) -> object:
            if not before:
                real(*args, **named)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(owner, at, killed)
            with suppress(Killed):
                _mend_tables(workspace_of(workspace.settings.source, workspace.settings.home))
    mend(workspace)
    run_again(workspace_of(world.bucket, workspace.settings.home), world)
