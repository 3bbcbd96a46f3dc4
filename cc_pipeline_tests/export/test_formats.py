"""Formats of ``export``: each is declared once, and an extension adds some."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.api.export import export
from cc_pipeline.errors import UserInputError
from cc_pipeline.export import formats
from cc_pipeline.export.format import RowFormat, RowsRequest, Written
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.publish.lake_pages import make_workspace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def write_urls(request: RowsRequest) -> Written:
    """A line for each row: its first column."""
    [selection] = request.selections
    rows = request.connection.execute(selection.sql).fetchall()
    request.out.write_text("".join(f"{row[0]}\n" for row in rows), "utf-8")
    return Written((request.out,), ("name", "rows"), ((selection.name, len(rows)),))


URLS = RowFormat(summary="a line for each row", write=write_urls, suffixes=(".urls",))


def hand_in(monkeypatch: pytest.MonkeyPatch, **handed_in: Mapping[str, Any]) -> dict[str, str]:
    """Lets extensions hand in formats, and gives what is refused."""
    refused: dict[str, str] = {}
    monkeypatch.setattr(formats, "collect", lambda joint, reserved_names: handed_in)
    monkeypatch.setattr(formats, "refuse", refused.__setitem__)
    return refused


def test_the_page_of_commands_has_the_formats_of_the_core() -> None:
    section = PAGE.read_text("utf-8").split("### Formats of export\n", 1)[1].split("\n#", 1)[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    named = {name: cells[1] for cells in rows for name in re.findall("`(.*?)`", cells[0])}
    assert [*named] == [*formats.FORMATS]
    for name, each in formats.FORMATS.items():
        assert not each.suffixes or f"`{each.suffixes[0]}`" in named[name], name


def test_a_format_of_an_extension_is_chosen_by_name_and_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = hand_in(monkeypatch, toy={"urls": URLS})
    assert "[bold]urls[/]: a line for each row." in formats.describe_formats()
    workspace = make_workspace(tmp_path / "home")
    publish_warehouse(workspace)
    query = "SELECT url FROM (VALUES ('http://a.example/'), ('http://b.example/')) AS rows (url)"
    done = export(workspace.settings, tmp_path / "out.urls", query=query)
    assert (tmp_path / "out.urls").read_text("utf-8") == "http://a.example/\nhttp://b.example/\n"
    assert [*done.rows] == [{"name": "query", "rows": 2}]
    assert refused == {}


def test_an_extension_with_no_format_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = hand_in(monkeypatch, odd={"odd": print}, toy={"urls": URLS})
    assert {*formats.find_formats()} == {*formats.FORMATS, "urls"}
    assert "odd is neither" in refused["odd"]


def test_a_format_that_nobody_has_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="duckdb, parquet, jsonl"):
        export(load_settings({}, home=str(tmp_path)), tmp_path / "x", format="xml")
