"""docs/tables.md against a published file: every table, every column, in its order, with its type."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.stages.publish import publish_warehouse
from cc_pipeline_tests.stages.lake_pages import make_workspace

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


def test_the_page_refers_to_pages_that_are_there() -> None:
    for target in re.findall(r"\]\(([\w./-]+\.md)\)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).exists(), target
