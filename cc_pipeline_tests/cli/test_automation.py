"""``automation``: the hands-off set from a terminal, and the price of parsing again."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cc_pipeline.automation import reparse
from cc_pipeline.cli.app import app
from cc_pipeline.extraction.plan import Price
from cc_pipeline.lake.slice import Slice
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.claim import claim_home


def said(home: Path, *words: str) -> str:
    result = CliRunner().invoke(app, ["automation", *words, "--home", str(home)], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())  # however wide the screen is


def test_a_question_makes_no_home(tmp_path: Path) -> None:
    for words in (["status"], ["off"], ["reparse"]):
        assert "is no home yet" in said(tmp_path / "new", *words)
    assert not (tmp_path / "new").exists()


def test_all_are_turned_on_shown_and_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim_home(load_settings(home=str(tmp_path)))
    assert "all sensors and schedules are off; to turn them on: cc-pipeline automation on" in said(tmp_path, "status")
    assert "automation is on" in said(tmp_path, "on")
    assert "automation is on already" in said(tmp_path, "on")
    monkeypatch.setenv("CC_PIPELINE_HOME", str(tmp_path))
    shown = said(tmp_path, "status")
    assert "backfill_missing on" in shown and " off" not in shown
    assert "automation is off" in said(tmp_path, "off")
    assert "all sensors and schedules are off" in said(tmp_path, "status")


def test_parsing_again_has_a_price_and_takes_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim_home(load_settings(home=str(tmp_path)))
    assert "all pages are up to date" in said(tmp_path, "reparse")
    slices = [Slice("CC-MAIN-2024-22", slug) for slug in ("example.com", "example.org")]
    price = Price(pages=600_000, stored=2_500_000_000)
    monkeypatch.setattr(reparse, "find_all_outdated", lambda _: dict.fromkeys(slices, price))
    shown = said(tmp_path, "reparse")
    assert "1,200,000 pages of 2 partitions" in shown
    assert "reads 5,000.0 MB of stored records and fetches nothing" in shown
    assert "Schedules keep these pages" in shown
    assert "The sensor backfill_missing parses those of watched targets again" in said(tmp_path, "reparse", "--yes")
    assert "The sensor backfill_missing parses those of watched targets again" in said(tmp_path, "reparse")
    assert "Schedules keep these pages" in said(tmp_path, "reparse", "--no")
