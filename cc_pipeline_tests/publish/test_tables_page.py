"""docs/tables.md against a published file: every table, every column, with its type and note."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.closing import closed_later
from cc_pipeline_tests.publish.lake_pages import make_workspace
from cc_pipeline_tests.tables_page import (
    PAGE,
    PAGES_OF_EXTENSIONS,
    Column,
    blocks,
    columns_by_table,
    page_of,
)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Column]]:
    return columns_by_table(tmp_path_factory.mktemp("published"))


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


def test_the_pages_have_exactly_their_columns(published: dict[str, list[Column]]) -> None:
    made = blocks(published)
    for path in (PAGE, *PAGES_OF_EXTENSIONS):
        text = path.read_text("utf-8")
        assert page_of(text, made) == text, f"make docs writes {path.name} anew"
    for name, columns in published.items():
        told = made[name] + made["records"] if name == "quarantine" else made[name]
        assert [column for column, _, _ in columns if f"`{column}`" not in told] == []
