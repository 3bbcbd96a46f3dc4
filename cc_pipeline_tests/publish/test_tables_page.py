"""docs/tables.md against a published file: every table, every column, with its type and note."""

from __future__ import annotations

import pytest

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


def test_the_pages_have_exactly_their_columns(published: dict[str, list[Column]]) -> None:
    made = blocks(published)
    for path in (PAGE, *PAGES_OF_EXTENSIONS):
        text = path.read_text("utf-8")
        assert page_of(text, made) == text, f"make docs writes {path.name} anew"
    for name, columns in published.items():
        told = made[name] + made["records"] if name == "quarantine" else made[name]
        assert [column for column, _, _ in columns if f"`{column}`" not in told] == []
