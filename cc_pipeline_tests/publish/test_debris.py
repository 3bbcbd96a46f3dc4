"""What killed processes left in a home goes at the next publication or run, and nothing of the living does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.processes import this_process
from cc_pipeline.publish.publish import delete_leftovers
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import publish, workspace_of


@pytest.fixture
def dead() -> str:
    """The mark of a process that is gone."""
    code = "from cc_pipeline.processes import this_process; print(this_process())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_of(tmp_path / "bucket", tmp_path / "home")


def left_by(workspace: Workspace, mark: str) -> list[Path]:
    """A half-built file, its journal, another file and a scratch folder."""
    home = workspace.settings.home
    scratch = home / "scratch" / mark
    scratch.mkdir(parents=True)
    (scratch / "page_text.arrow").write_bytes(b"half")
    new = f".cc.duckdb.0123abcd.{mark}.part"
    building = [
        home / new,
        home / f"{new}.wal",
        home / f".note.9876abcd.{mark}.part",
    ]
    for path in building:
        path.write_bytes(b"half")
    return [*building, scratch]


def test_a_publication_clears_what_dead_processes_left(workspace: Workspace, dead: str) -> None:
    left = left_by(workspace, dead)
    publish(workspace)
    assert [path for path in left if path.exists()] == []
    assert workspace.settings.published_path.exists()


def test_a_run_clears_it_before_it_needs_the_room(workspace: Workspace, dead: str) -> None:
    left = left_by(workspace, dead)
    with StageRunner(workspace):
        assert [path for path in left if path.exists()] == []


def test_what_belongs_to_the_living_and_to_others_stays(workspace: Workspace, dead: str) -> None:
    number, start, _, _ = dead.split("-")
    elsewhere = f"{number}-{start}-1-00000000"  # the same id on another machine that shares the home
    kept = [path for mark in (this_process(), elsewhere) for path in left_by(workspace, mark)]
    other = workspace.settings.home / "cc.duckdb.backup"
    other.write_bytes(b"somebody's")
    assert delete_leftovers(workspace.settings) == 0
    assert all(path.exists() for path in (*kept, other))


def test_what_nobody_can_know_goes_when_nobody_has_touched_it_for_a_day(workspace: Workspace, dead: str) -> None:
    number, start, _, _ = dead.split("-")
    left = left_by(workspace, f"{number}-{start}-1-00000000")
    for path in left:
        os.utime(path, (1, 1))
    assert delete_leftovers(workspace.settings) == len(left)
    assert [path for path in left if path.exists()] == []
