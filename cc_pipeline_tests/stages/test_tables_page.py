"""docs/tables.md against a published file: every table, every column, in its order, with its type."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.stages.publish import publish_warehouse
from cc_pipeline.stages.workspace import Workspace
from cc_pipeline_tests.closing import closed_later
from cc_pipeline_tests.stages.lake_pages import commit_pages, make_workspace, page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
SHARED = "Shared columns"
PAGES = ("page_metadata", "page_text", "page_links", "feed_items")
Columns = list[tuple[str, str]]


def described() -> dict[str, Columns | str]:
    """Columns by section of the page, or the section whose columns it refers to."""
    found: dict[str, Columns | str] = {}
    for section in PAGE.read_text("utf-8").split("\n### ")[1:]:
        name = section.partition("\n")[0].strip()
        same = re.search(r"Columns: those of \[(\w+)\]", section)
        rows = re.findall(r"^\| (`.+?) \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
        listed = [(column, kind.strip()) for names, kind, _ in rows for column in re.findall(r"`(\w+)`", names)]
        found[name] = same.group(1) if same else listed
    return found


def shortened(kind: str) -> str:
    if kind.endswith("[]"):
        return f"list of {shortened(kind[:-2])}"
    for word in ("STRUCT", "MAP"):
        if kind.startswith(f"{word}("):
            return word.lower()
    return {"TIMESTAMP WITH TIME ZONE": "timestamptz"}.get(kind, kind.lower())


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Columns]:
    workspace = make_workspace(tmp_path_factory.mktemp("published"))
    publish_warehouse(workspace)
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'")
        return {
            name: [(row[0], shortened(row[1])) for row in connection.execute(f"DESCRIBE {name}").fetchall()]
            for (name,) in names.fetchall()
        }


def test_the_file_says_what_every_table_and_column_holds(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    for mode in ("views", "copy"):
        here = closed_later(Workspace(replace(workspace.settings, publish=mode)))
        publish_warehouse(here)
        with duckdb.connect(str(here.settings.published_path), read_only=True) as connection:
            columns = connection.execute(
                "SELECT table_name, column_name, comment FROM duckdb_columns() "
                "WHERE schema_name = 'main' AND NOT internal"
            ).fetchall()
            tables = connection.execute(
                "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal UNION ALL "
                "SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal"
            ).fetchall()
        assert len(columns) > 350
        assert [f"{table}.{column}" for table, column, note in columns if not note] == []
        assert [name for name, note in tables if not note] == []
        notes = {(table, column): note for table, column, note in columns}
        assert notes["feed_items", "content"] != notes["page_metadata", "content"]


def test_the_page_has_exactly_the_published_tables(published: dict[str, Columns]) -> None:
    assert set(described()) - {SHARED} == set(published)


def test_the_page_has_exactly_their_columns(published: dict[str, Columns]) -> None:
    page = described()
    shared = page[SHARED]
    assert isinstance(shared, list)
    assert len(shared) == 15
    for name, columns in published.items():
        section = page[name]
        listed = page[section] if isinstance(section, str) else section
        assert isinstance(listed, list)
        if name in PAGES:
            listed = [*shared[:11], *listed, *shared[11:]]
        assert listed == columns, f"docs/tables.md, section {name}"


def test_lists_are_lists_and_rel_is_told_once(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    commit_pages(workspace, [page(0)])
    publish_warehouse(workspace)
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        asked = "SELECT content_languages FROM page_text"
        assert connection.execute(asked).fetchall() == [(["eng"],)]
        assert connection.execute(asked.replace("page_text", "lake.page_text")).fetchall() == [("eng",)]
        asked = "SELECT rel, attributes FROM page_links WHERE type = 'a'"
        assert connection.execute(asked).fetchall() == [("next", {"class": "x y"})]


def test_the_page_refers_to_pages_that_are_there() -> None:
    for target in re.findall(r"\]\(([\w./-]+\.md)\)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).exists(), target
