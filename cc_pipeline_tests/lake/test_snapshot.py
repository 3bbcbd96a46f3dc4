"""A published file is a snapshot: whole for who has it open, replaced at once, or not at all."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.live_rows import LiveTable, find_live_rows
from cc_pipeline.lake.snapshot import Copying, Publication, ViewSpec, publish
from cc_pipeline.lake.streaming import stream_live_rows
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.lake.things import SCHEMA, TARGETS, commit, define, lake_in
from cc_pipeline_tests.world import fill, small_disk

VIEWS = (
    ViewSpec("things", "SELECT * EXCLUDE (target) FROM lake.things", "What's in it: it's all."),
    ViewSpec("lake.counted", "SELECT crawl, count(*) AS n FROM lake.things GROUP BY crawl", "Helper.", True),
)


def live(lake: Lake) -> list[LiveTable]:
    return [*find_live_rows(lake, [lake.pin("slices"), lake.pin("things")]).tables.values()]


def published(lake: Lake, path: Path, copying: Copying | None = None) -> Publication:
    return publish(path, live(lake), VIEWS, copying=copying)


def ask(path: Path, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_in(tmp_path / "lake")


def test_a_lake_nobody_wrote_publishes_empty_tables_of_the_right_types(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "cc.duckdb"
    assert published(lake, path).rows == {"things": 0}
    assert ask(path, "DESCRIBE things")[0][:2] == ("crawl", "VARCHAR")
    empty = {row[0]: row[1] for row in ask(path, "DESCRIBE things")}
    commit(lake, {"x": [1]}, "C")
    published(lake, path)
    assert {row[0]: row[1] for row in ask(path, "DESCRIBE things")} == empty
    assert empty["value"] == "BIGINT"
    assert empty["at"] == "TIMESTAMP WITH TIME ZONE"
    asked = 'SELECT crawl, value, epoch("at"), links[1].rel FROM things'
    assert ask(path, asked) == [("C", 1, 1_700_000_001.0, ["x", None])]


@pytest.mark.parametrize("way", ["views", "copy", "copy of a stream"])
def test_rows_that_count_are_shown_without_hidden_columns(lake: Lake, tmp_path: Path, way: str) -> None:
    commit(lake, {"x": [1, 2]}, "C")
    commit(lake, {"o'hara": [3]}, "D")
    commit(lake, {"a": [4], "b": [5]})
    commit(lake, {"x": [6]}, "C")
    commit(lake, {"b": []}, "C")
    define(lake, "y.example")
    scratch = tmp_path / "scratch"
    rows = (lambda table: stream_live_rows(lake, table)) if way == "copy of a stream" else None
    done = published(lake, tmp_path / "cc.duckdb", None if way == "views" else Copying(scratch, rows))
    assert done.rows == {"things": 3}
    shown = ask(tmp_path / "cc.duckdb", "SELECT crawl, target, value FROM lake.things ORDER BY value")
    assert shown == [("D", "o'hara", 3), ("C", "a", 4), ("C", "x", 6)]
    described = ask(tmp_path / "cc.duckdb", "DESCRIBE lake.things")
    assert [row[0] for row in described] == SCHEMA.names
    keyed = [LiveTable(lake.pin(name), lake.pin(name).files) for name in ("targets", "slices")]
    publish(tmp_path / "keyed.duckdb", keyed, [])
    assert ask(tmp_path / "keyed.duckdb", "SELECT slug FROM lake.targets") == [("y.example",)]
    assert [row[0] for row in ask(tmp_path / "keyed.duckdb", "DESCRIBE lake.targets")] == TARGETS.schema.names
    newest = ask(tmp_path / "keyed.duckdb", "SELECT target, seq FROM lake.slices ORDER BY target")
    assert newest == [("a", 1), ("b", 2), ("o'hara", 1), ("x", 2)]


@pytest.mark.parametrize("name", ["a b", "o'hara", 'with "quotes"', "Jürgen", "#1", "a+b&c=d", "~x", "100,5"])
def test_homes_with_odd_names_are_published_as_well(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    lake = lake_in(home / "lake")
    commit(lake, {"x": [1, 2]}, "C")
    published(lake, home / "cc.duckdb")
    assert ask(home / "cc.duckdb", "SELECT sum(value) FROM things") == [(3,)]
    assert all(Path(file).exists() for file in lake.pin("things").files)


@pytest.mark.parametrize("name", ["[1]", "a*b", "what?", "{x}", "a|b", "a^b", "100%", "back\\slash"])
def test_homes_whose_names_would_be_patterns_are_refused(tmp_path: Path, name: str) -> None:
    for setting in ({"home": str(tmp_path / name)}, {"home": str(tmp_path), "lake": str(tmp_path / name)}):
        with pytest.raises(UserInputError, match="choose another"):
            load_settings({}, source=str(tmp_path), **setting)


def test_views_name_files_and_never_a_pattern(lake: Lake, tmp_path: Path) -> None:
    commit(lake, {"x": [1]}, "C")
    published(lake, tmp_path / "cc.duckdb")
    [[sql]] = ask(tmp_path / "cc.duckdb", "SELECT sql FROM duckdb_views() WHERE schema_name = 'lake'")
    assert "*" not in str(sql).split("read_parquet", 1)[1]
    assert str(tmp_path) in str(sql)
    # a file nobody committed does not appear
    stray = next((tmp_path / "lake" / "tables" / "things").rglob("*.parquet"))
    stray.with_name("stray.parquet").write_bytes(stray.read_bytes())
    assert ask(tmp_path / "cc.duckdb", "SELECT count(*) FROM things") == [(1,)]


def test_an_open_reader_keeps_its_snapshot_through_commits_and_publications(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "cc.duckdb"
    commit(lake, {"x": [1]}, "C")
    published(lake, path)
    # a second process would do; within one, DuckDB shares a file's handle by its name
    with duckdb.connect() as reader:
        reader.execute(f"ATTACH '{path}' AS old (READ_ONLY)")
        for places in ([1, 2], [], [5, 6, 7]):
            commit(lake, {"x": places}, "C")
            published(lake, path)
            assert reader.execute("SELECT value FROM old.lake.things").fetchall() == [(1,)]


def test_a_publication_that_fails_leaves_the_one_before_and_no_litter(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "out" / "cc.duckdb"
    commit(lake, {"x": [1]}, "C")
    published(lake, path)
    before = path.read_bytes()
    wrong = (*VIEWS, ViewSpec("broken", "SELECT nothing FROM nowhere", "Not to be."))
    with pytest.raises(EnvironmentFault, match=r"could not build .*cc\.duckdb") as refused:
        publish(path, live(lake), wrong)
    assert "untouched" in refused.value.advice
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["cc.duckdb"]


def test_a_full_disk_leaves_the_file_published_before(lake: Lake, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2_048) as disk:
        path = disk / "cc.duckdb"
        commit(lake, {"x": [1]}, "C")
        published(lake, path)
        before = path.read_bytes()
        commit(lake, {"x": [1, 2]}, "C")
        filler = fill(disk, leave=8_192)
        with pytest.raises(EnvironmentFault, match="could not build") as refused:
            published(lake, path)
        assert refused.value.advice.startswith("Free some space, then run the command again.")
        assert path.read_bytes() == before
        assert sorted(file.name for file in disk.iterdir()) == ["cc.duckdb", "filler"]
        filler.unlink()
        assert published(lake, path).rows == {"things": 2}
