"""Tables of extensions: purged, swept and left alone by the rest, also where the extension is not in use any more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cc_pipeline import extension
from cc_pipeline.checks.doctor import examine
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extension import Extension, find_extensions
from cc_pipeline.lake.lake import TableSpec
from cc_pipeline.lake.slice import Slice, Stage, write_notes
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.purge import drop_subset, purge, remove_empty_targets
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.publish.publish import find_publication_lag
from cc_pipeline.workspace.tables import all_tables
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, Bucket, publish, workspace_of

GOES, STAYS = "example.com", "example.org"
SCHEMA = pa.schema([*(pa.field(name, pa.string(), nullable=False) for name in ("crawl", "target", "title"))])
TITLES = Stage("titles", ("titles",), "titles:{crawl}:{target}")
SPEC = TableSpec("titles", SCHEMA, ("crawl", "target"), ("target",), stage=TITLES)
Installer = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Installer]:
    """Installs these extensions, and no others, as if they were ours."""

    def forget() -> None:
        extension._find.cache_clear()
        extension._BROKEN.clear()

    def installed(*values: Extension) -> None:
        found = [(value.name, "cc_pipeline", lambda value=value: value) for value in values]
        monkeypatch.setattr(extension, "_find_own", lambda: found)
        forget()

    yield installed
    monkeypatch.undo()
    forget()


def titles(*specs: TableSpec, name: str = "titles") -> Extension:
    return Extension(name=name, summary="Titles of pages.", tables=lambda: specs or (SPEC,))


def made(workspace: Workspace, slug: str, subset: str = "") -> None:
    """Commits two rows of a target, which no other target has."""
    row = {"crawl": NEW, "target": f"{slug}{subset}"}
    rows = pa.Table.from_pylist([row | {"title": f"{number} of {slug}"} for number in range(2)], schema=SCHEMA)
    slice_ = Slice(**row)
    TITLES.commit(workspace.lake, {slice_: TITLES.digest(slug=slug)}, {"titles": rows})


def stored(lake: Path) -> list[str]:
    """The titles in the Delta table, whatever this program knows of it."""
    return sorted(DeltaTable(lake / "tables" / "titles").to_pyarrow_table()["title"].to_pylist())


def files_with(lake: Path, text: str) -> list[Path]:
    paths = sorted((lake / "tables" / "titles").rglob("*.parquet"))
    return [path for path in paths if text in repr(duckdb.read_parquet(str(path)).fetchall())]


def test_a_purge_clears_a_table_whose_extension_is_left_out(
    bucket: Bucket, tmp_path: Path, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(titles())
    home, lake = tmp_path / "home", tmp_path / "home" / "lake"
    with_it = workspace_of(bucket[0], home)
    for slug in (GOES, STAYS):
        made(with_it, slug)
    noted = {"titles": {"titles": {"removed_with": "subset", "digests": "titles:{crawl}:{target}"}}}
    for note in (home / "home.json", lake / "cc_pipeline.json"):
        assert json.loads(note.read_text())["extensions"] == noted
    publish(with_it)
    with_it.close()

    monkeypatch.setenv("CC_PIPELINE_WITHOUT", "titles")
    without = workspace_of(bucket[0], home)
    assert "titles" not in {spec.name for spec in all_tables()}
    [finding] = [finding for finding in examine(without.settings) if finding.topic == "titles"]
    assert finding.level == "note"
    assert "The extension titles made them and is not in use" in finding.text
    run_maintenance(without)
    publish(without)
    with duckdb.connect(str(without.settings.published_path), read_only=True) as connection:
        [(shown,)] = connection.execute("SELECT count(*) FROM duckdb_views() WHERE view_name = 'titles'").fetchall()
    every = sorted(f"{number} of {slug}" for number in range(2) for slug in (GOES, STAYS))
    assert (shown, stored(lake)) == (0, every)

    plan = plan_purge(without, GOES, GOES)
    assert (plan.rows["titles"], plan.slices) == (2, (Slice(NEW, GOES),))
    assert files_with(lake, GOES)
    report = purge(without, plan, now=True)
    assert report.leftovers is not None and report.leftovers.is_clean
    assert stored(lake) == [f"{number} of {STAYS}" for number in range(2)]
    assert files_with(lake, GOES) == [] and files_with(lake, STAYS)
    without.close()

    monkeypatch.delenv("CC_PIPELINE_WITHOUT")
    again = workspace_of(bucket[0], home)
    assert TITLES.list_slices(again.lake) == [Slice(NEW, STAYS)], "what was purged is not taken for made"
    again.close()


@pytest.mark.parametrize(("removed_with", "left"), [("subset", 2), ("target", 4)])
def test_rows_go_with_a_subset_where_they_belong_to_one(
    bucket: Bucket, tmp_path: Path, install: Installer, monkeypatch: pytest.MonkeyPatch, removed_with: str, left: int
) -> None:
    install(titles(TableSpec("titles", SCHEMA, ("crawl", "target"), stage=TITLES, removed_with=removed_with)))
    workspace = workspace_of(bucket[0], tmp_path / "home")
    made(workspace, GOES)
    made(workspace, GOES, "~robotstxt")
    workspace.close()
    monkeypatch.setenv("CC_PIPELINE_WITHOUT", "titles")
    workspace = workspace_of(bucket[0], tmp_path / "home")
    drop_subset(workspace, GOES, "robotstxt")
    assert len(stored(tmp_path / "home" / "lake")) == left
    workspace.close()


def test_another_home_of_a_lake_knows_the_tables_that_an_extension_left_there(
    bucket: Bucket, tmp_path: Path, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(titles())
    lake = tmp_path / "lake"
    first = workspace_of(bucket[0], tmp_path / "first", lake=str(lake))
    made(first, GOES)
    first.close()
    monkeypatch.setenv("CC_PIPELINE_WITHOUT", "titles")
    second = workspace_of(bucket[0], tmp_path / "second", lake=str(lake))
    purge(second, plan_purge(second, GOES, GOES), now=True)
    assert (stored(lake), files_with(lake, GOES)) == ([], [])
    second.close()


def forget_tables(home: Path) -> None:
    """Takes the tables of extensions out of the notes, as in a home whose note somebody wrote by hand."""
    for note in (home / "home.json", home / "lake" / "cc_pipeline.json"):
        said = json.loads(note.read_text())
        del said["extensions"]
        note.write_text(json.dumps(said))


def test_no_target_is_purged_where_a_table_is_in_nobodys_hands(
    bucket: Bucket, tmp_path: Path, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(titles())
    home = tmp_path / "home"
    workspace = workspace_of(bucket[0], home)
    made(workspace, GOES)
    workspace.close()
    forget_tables(home)

    monkeypatch.setenv("CC_PIPELINE_WITHOUT", "titles")
    without = workspace_of(bucket[0], home)
    for ask in (
        lambda: plan_purge(without, GOES, GOES),
        lambda: drop_subset(without, GOES, "robotstxt"),
        lambda: remove_empty_targets(without, [GOES], []),
    ):
        with pytest.raises(EnvironmentFault, match="tables/titles may have rows of targets"):
            ask()
    [finding] = [finding for finding in examine(without.settings) if finding.topic == "titles"]
    assert finding.level == "bad"
    without.close()

    monkeypatch.delenv("CC_PIPELINE_WITHOUT")
    again = workspace_of(bucket[0], home)
    made(again, STAYS)
    assert json.loads((home / "home.json").read_text())["extensions"]["titles"], "what writes to a table notes it"
    again.close()
    monkeypatch.setenv("CC_PIPELINE_WITHOUT", "titles")
    without = workspace_of(bucket[0], home)
    purge(without, plan_purge(without, GOES, GOES), now=True)
    assert stored(home / "lake") == [f"{number} of {STAYS}" for number in range(2)]
    without.close()


def test_a_table_that_an_extension_left_and_nobody_can_read_is_not_taken_for_none(
    bucket: Bucket, tmp_path: Path, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(titles())
    workspace = workspace_of(bucket[0], tmp_path / "home")
    made(workspace, GOES)
    workspace.close()
    entry = tmp_path / "home" / "lake" / "tables" / "titles" / "_delta_log" / f"{0:020}.json"
    entry.write_text(entry.read_text()[:40])
    monkeypatch.setenv("CC_PIPELINE_WITHOUT", "titles")
    without = workspace_of(bucket[0], tmp_path / "home")
    with pytest.raises(EnvironmentFault, match="the table cannot be read") as refused:
        plan_purge(without, GOES, GOES)
    [finding] = [finding for finding in examine(without.settings) if finding.topic == "titles"]
    # a table that cannot be read may have rows, so nobody is told to delete it
    assert finding.level == "bad" and "delete its folder" not in f"{finding.advice} {refused.value.advice}"
    without.close()


def test_a_table_is_noted_although_its_extension_was_refused_meanwhile(
    bucket: Bucket, tmp_path: Path, install: Installer
) -> None:
    install(titles())
    workspace = workspace_of(bucket[0], tmp_path / "home")
    assert "titles" in workspace.lake.specs
    extension.refuse("titles", "a command of it has a name that is taken")
    made(workspace, GOES)
    workspace.close()
    without = workspace_of(bucket[0], tmp_path / "home")
    purge(without, plan_purge(without, GOES, GOES), now=True)
    assert stored(tmp_path / "home" / "lake") == []
    without.close()


def test_a_purge_clears_rows_beside_a_stage_and_rows_without_digests(
    bucket: Bucket, tmp_path: Path, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = TableSpec("title_notes", SCHEMA, ("crawl", "target"), stage=TITLES)
    install(titles(SPEC, notes))
    lake = tmp_path / "home" / "lake"
    workspace = workspace_of(bucket[0], tmp_path / "home")
    slice_ = Slice(NEW, GOES)
    write_notes(workspace.lake, "title_notes", {slice_: {"title": "noted"}}, ignored_column="at")
    workspace.lake.commit(
        "titles", pa.Table.from_pylist([slice_.where | {"title": "bare"}], SCHEMA), [slice_.where], {}
    )
    workspace.close()
    monkeypatch.setenv("CC_PIPELINE_WITHOUT", "titles")
    without = workspace_of(bucket[0], tmp_path / "home")
    plan = plan_purge(without, GOES, GOES)
    assert (plan.slices, plan.rows["title_notes"], plan.rows["titles"]) == ((slice_,), 1, 1)
    purge(without, plan, now=True)
    assert stored(lake) == [] and DeltaTable(lake / "tables" / "title_notes").to_pyarrow_table().num_rows == 0
    without.close()


def test_no_extension_takes_a_table_that_another_one_left(bucket: Bucket, tmp_path: Path, install: Installer) -> None:
    install(titles())
    workspace = workspace_of(bucket[0], tmp_path / "home")
    made(workspace, GOES)
    workspace.close()
    install(titles(name="thief"))
    other = workspace_of(bucket[0], tmp_path / "home")
    assert other.lake.specs["titles"].former_extension == "titles"
    assert [(one.name, "that the extension titles made" in one.problem) for one in find_extensions()] == [
        ("thief", True)
    ]
    other.close()


def test_a_published_file_is_made_anew_when_an_extension_with_tables_alone_goes(
    bucket: Bucket, tmp_path: Path, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(titles())
    workspace = workspace_of(bucket[0], tmp_path / "home")
    made(workspace, GOES)
    publish(workspace)
    assert find_publication_lag(workspace) is None
    workspace.close()
    monkeypatch.setenv("CC_PIPELINE_WITHOUT", "titles")
    without = workspace_of(bucket[0], tmp_path / "home")
    assert find_publication_lag(without) is not None
    publish(without)
    assert find_publication_lag(without) is None
    without.close()


@pytest.mark.parametrize(
    ("specs", "problem"),
    [
        ([TableSpec("captures", SCHEMA)], "its table captures has the name of a table of the core"),
        ([SPEC], "its table titles has the name of a table of the extension titles"),
        ([TableSpec("more", SCHEMA), TableSpec("more", SCHEMA)], "it declares its table more twice"),
        ([TableSpec("more", SCHEMA, ("crawl", "target"))], "its table more has rows of targets, but no stage"),
        ([TableSpec("more", SCHEMA, ("crawl",), stage=TITLES)], "its table more has rows of targets, but its slice"),
        (
            [TableSpec("more", SCHEMA, ("crawl", "target"), stage=Stage("more", ("more",), "more:{target}"))],
            "its table more has rows of targets, but the digests of its stage",
        ),
        (["more"], "it declares 'more', which is no TableSpec"),
    ],
)
def test_an_extension_whose_tables_cannot_be_used_costs_itself(
    specs: list[TableSpec], problem: str, install: Installer
) -> None:
    install(titles(), titles(*specs, name="wrong"))
    assert [spec.name for spec in all_tables()].count("titles") == 1
    assert {found.name: found.problem.startswith(problem) for found in find_extensions() if found.problem} == {
        "wrong": True
    }
    assert "more" not in {spec.name for spec in all_tables()}


def test_maintenance_calls_extensions_and_names_those_that_fail(
    bucket: Bucket, tmp_path: Path, install: Installer
) -> None:
    homes: list[Path] = []

    def fails(workspace: Workspace) -> int:
        raise KeyError("shelf")

    def counts(workspace: Workspace) -> int:
        homes.append(workspace.settings.home)
        return 3

    install(
        Extension(name="broken", summary="Raises.", maintenance=fails),
        Extension(name="sound", summary="Counts.", maintenance=counts),
    )
    workspace = workspace_of(bucket[0], tmp_path / "home")
    report = run_maintenance(workspace)
    assert homes == [tmp_path / "home"]
    assert (report.deleted["files of sound"], report.failed) == (3, {"broken": "KeyError: 'shelf'"})
    workspace.close()
