"""``doctor --migrate``: what it says, what it asks, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline import home as homes
from cc_pipeline.home import LAYOUT, HomeNote, read_note, write_note
from cc_pipeline.lake.evolution import Migration, find_pending
from cc_pipeline.workspace import tables
from cc_pipeline_tests.cli.conftest import Cli
from cc_pipeline_tests.world import Bucket, workspace_of


def layout_of(home: Path) -> int | None:
    note = read_note(home)
    return None if note is None else note.layout


def test_a_home_of_this_layout_needs_no_migration_and_a_folder_that_is_no_home_is_an_error(
    cli: Cli, bucket: Bucket, tmp_path: Path
) -> None:
    workspace_of(bucket[0], tmp_path / "home").claim()
    assert f"needs no migration (layout {LAYOUT})" in cli("doctor", "--migrate", "--home", tmp_path / "home").shown
    refused = cli("doctor", "--migrate", "--home", tmp_path / "none")
    assert refused.status == 1
    assert "no home yet" in refused.err


def test_a_made_up_step_is_priced_and_asked_for(
    cli: Cli, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    lake = workspace_of(bucket[0], home).lake
    lake.prepare("targets")
    lake.commit("targets", lake.specs["targets"].schema.empty_table(), [{"slug": "none"}], {"test": "abc"})
    monkeypatch.setattr(homes, "OLDEST_LAYOUT", LAYOUT - 1)
    write_note(home, HomeNote(str(bucket[0]), LAYOUT - 1))
    ran: list[int] = []
    step = Migration(LAYOUT, "targets are laid out anew", lambda _: ran.append(1), ("targets",))
    monkeypatch.setattr(Migration, "price", lambda *_: 5)
    monkeypatch.setattr(tables, "MIGRATIONS", (step,))
    monkeypatch.setattr("typer.confirm", lambda _: False)
    refused = cli("doctor", "--migrate", "--home", home)
    assert (refused.status, ran, layout_of(home)) == (1, [], LAYOUT - 1)
    assert "rewrites 5 bytes" in refused.out
    assert cli("doctor", "--migrate", "--home", home, "--yes").status == 0
    assert (ran, layout_of(home)) == ([1], LAYOUT)
    assert find_pending(home, (step,)) == []
