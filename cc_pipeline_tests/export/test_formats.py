"""Formats of ``export``: each is declared once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cc_pipeline.api.export import export
from cc_pipeline.errors import UserInputError
from cc_pipeline.export import formats
from cc_pipeline.settings import load_settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_the_page_of_commands_has_the_formats() -> None:
    section = PAGE.read_text("utf-8").split("### Formats of export\n", 1)[1].split("\n#", 1)[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    named = {name: cells[1] for cells in rows for name in re.findall("`(.*?)`", cells[0])}
    assert [*named] == [*formats.FORMATS]
    for name, each in formats.FORMATS.items():
        assert not each.suffixes or f"`{each.suffixes[0]}`" in named[name], name


def test_a_format_that_nobody_has_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="duckdb, parquet, jsonl"):
        export(load_settings({}, home=str(tmp_path)), tmp_path / "x", format="xml")
