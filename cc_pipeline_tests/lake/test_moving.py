"""A home that was moved, renamed or copied, and a published file that was handed on: questions go on being answered."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.published_file import open_home_publication
from cc_pipeline.lake.snapshot import Copying
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline_tests.lake.test_snapshot import published
from cc_pipeline_tests.lake.things import commit, lake_in

COUNT = "SELECT count(*) FROM things"
VIEW = "SELECT sql FROM duckdb_views() WHERE view_name = 'things' AND schema_name = 'lake'"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A published home with a quote in its name."""
    folder = tmp_path / "it's a home"
    show(folder)
    return folder


def show(folder: Path, copying: Copying | None = None) -> None:
    folder.mkdir()
    (folder / "home.json").write_text('{"source": "/a/bucket"}')
    lake = lake_in(folder / "lake")
    commit(lake, {"x": [1, 2, 3]})
    commit(lake, {"y": [4]}, "D")
    published(lake, folder / "cc.duckdb", copying)


def settings(folder: Path, **more: str) -> Settings:
    return load_settings({}, home=str(folder), source="/a/bucket", **more)


def ask(of: Settings, query: str = COUNT) -> object:
    with open_home_publication(of) as connection:
        [(value,)] = connection.execute(query).fetchall()
    return value


def test_a_home_that_was_moved_answers_through_a_copy(home: Path, tmp_path: Path) -> None:
    assert ask(settings(home)) == 4
    moved = tmp_path / "else" / "where"
    moved.parent.mkdir()
    home.rename(moved)
    before = (moved / "cc.duckdb").read_bytes()
    with duckdb.connect(str(moved / "cc.duckdb"), read_only=True) as plain, pytest.raises(duckdb.IOException):
        plain.execute(COUNT)
    assert ask(settings(moved)) == 4
    assert (moved / "cc.duckdb").read_bytes() == before
    assert {path.name for path in moved.iterdir()} == {"home.json", "lake", "cc.duckdb"}


def test_a_copied_home_shows_its_own_tables(home: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(home, tmp_path / "copy")
    assert str(copy / "lake") in str(ask(settings(copy), VIEW))
    shutil.rmtree(home)
    assert ask(settings(copy)) == 4


def test_a_file_that_was_handed_on_reads_the_lake_where_it_is(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "handed on"
    elsewhere.mkdir()
    shutil.copy(home / "cc.duckdb", elsewhere)
    assert ask(settings(elsewhere)) == 4
    assert str(home / "lake").replace("'", "''") in str(ask(settings(elsewhere), VIEW))
    home.rename(tmp_path / "gone")
    with pytest.raises(EnvironmentFault) as refused:
        ask(settings(elsewhere))
    assert str(home) in refused.value.problem
    assert "CC_PIPELINE_LAKE" in str(refused.value.advice)
    assert ask(settings(elsewhere, lake=str(tmp_path / "gone" / "lake"))) == 4


def test_a_copy_of_the_rows_needs_no_lake(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    show(folder, Copying(folder / "scratch"))
    shutil.rmtree(folder / "lake")
    assert ask(settings(folder.rename(tmp_path / "moved"))) == 4


def test_what_was_never_published_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as refused:
        ask(settings(tmp_path))
    assert "cc-pipeline run" in str(refused.value.advice)
