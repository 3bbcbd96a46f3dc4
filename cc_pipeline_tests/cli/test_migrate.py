"""``migrate``: what it says, what it asks, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.home import LAYOUT, read_note
from cc_pipeline.lake import evolution
from cc_pipeline.lake.evolution import Migration
from cc_pipeline.workspace import tables
from cc_pipeline_tests.cli.conftest import Cli
from cc_pipeline_tests.homes.unpack import unpack


def layout_of(home: Path) -> int | None:
    note = read_note(home)
    return None if note is None else note.layout


def test_an_old_home_is_migrated_once(cli: Cli, tmp_path: Path) -> None:
    home, _ = unpack(1, tmp_path)
    said = cli("migrate", "--home", home)
    assert (said.status, layout_of(home)) == (0, LAYOUT)
    assert "fetch plan" in said.out
    assert "needs no migration" in cli("migrate", "--home", home).out


def test_a_folder_that_is_no_home_is_an_error(cli: Cli, tmp_path: Path) -> None:
    said = cli("migrate", "--home", tmp_path)
    assert said.status == 1
    assert "no home yet" in said.err


@pytest.mark.process
def test_a_rewriting_is_priced_and_asked_for(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = unpack(1, tmp_path)
    ran: list[int] = []
    step = Migration(LAYOUT, "records are laid out anew", lambda _: ran.append(1), ("records",))
    monkeypatch.setattr(tables, "MIGRATIONS", (step,))
    monkeypatch.setattr("typer.confirm", lambda _: False)
    refused = cli("migrate", "--home", home)
    assert (refused.status, ran, layout_of(home)) == (1, [], 1)
    assert "rewrites" in refused.out
    assert cli("migrate", "--home", home, "--yes").status == 0
    assert (ran, layout_of(home)) == ([1], LAYOUT)
    assert evolution.pending(home, (step,)) == []
