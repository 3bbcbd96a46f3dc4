"""Formats of ``export``: each is declared once, and an extension adds some."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cc_pipeline.api.export import export
from cc_pipeline.errors import UserInputError
from cc_pipeline.export import formats
from cc_pipeline.export.format import RowFormat, RowsRequest, Written
from cc_pipeline.extension import Extension
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


def test_the_page_of_commands_has_the_formats_of_the_core() -> None:
    section = PAGE.read_text("utf-8").split("### Formats of export\n", 1)[1].split("\n#", 1)[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    named = {name: cells[1] for cells in rows for name in re.findall("`(.*?)`", cells[0])}
    assert [*named] == [*formats.FORMATS]
    for name, each in formats.FORMATS.items():
        assert not each.suffixes or f"`{each.suffixes[0]}`" in named[name], name


def test_a_format_of_an_extension_is_chosen_by_name_and_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toy = Extension(name="toy", summary="A toy.", export_formats=lambda: {"urls": URLS})
    monkeypatch.setattr(formats, "extensions", lambda: (toy,))
    assert "[bold]urls[/]: a line for each row." in formats.describe_formats()
    workspace = make_workspace(tmp_path / "home")
    publish_warehouse(workspace)
    query = "SELECT url FROM (VALUES ('http://a.example/'), ('http://b.example/')) AS rows (url)"
    done = export(workspace.settings, tmp_path / "out.urls", query=query)
    assert (tmp_path / "out.urls").read_text("utf-8") == "http://a.example/\nhttp://b.example/\n"
    assert [*done.rows] == [{"name": "query", "rows": 2}]


def test_a_format_that_nobody_has_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="duckdb, parquet, jsonl"):
        export(load_settings({}, home=str(tmp_path)), tmp_path / "x", format="xml")
