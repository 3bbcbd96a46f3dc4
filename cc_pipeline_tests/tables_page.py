"""The lists of columns of docs/tables.md and of pages of extensions, made from a published file and the notes in it.

``make docs`` (``python -m cc_pipeline_tests.tables_page``) writes them between the pages' markers; a test compares.
"""

from __future__ import annotations

import re
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import duckdb

from cc_pipeline.extension import extensions
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline_tests.publish.lake_pages import make_workspace

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables.md"
PAGES_OF_EXTENSIONS = sorted((PAGE.parent / "extensions").glob("*.md"))
#: Columns that so many tables have, with one type and one note, stand in a table of their own.
_MANY = 3
SHARED = "columns of many tables"
_BLOCK = re.compile(r"(<!-- columns: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
Column = tuple[str, str, str]


def columns_by_table(folder: Path) -> dict[str, list[Column]]:
    """Name, type and note of each column of each table that a home in an empty ``folder`` publishes."""
    workspace = make_workspace(folder)
    publish_warehouse(workspace)
    found: dict[str, list[Column]] = {}
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        rows = connection.execute(
            "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
            "WHERE schema_name = 'main' AND NOT internal ORDER BY table_name, column_index"
        ).fetchall()
    for table, column, kind, note in rows:
        found.setdefault(table, []).append((column, _shortened(kind), _linked(note or "")))
    return found


def blocks(tables: dict[str, list[Column]]) -> dict[str, str]:
    """Markdown by the name of a block: each table, and the columns that many tables of the core have."""
    added = tables_of_extensions()
    core = {name: columns for name, columns in tables.items() if name not in added}
    count = Counter(column for columns in dict.fromkeys(map(tuple, core.values())) for column in columns)
    shared = {column: None for column, times in count.items() if times >= _MANY}
    made = {SHARED: _table(shared)}
    for name, columns in tables.items():
        twin = max((each for each in core if each != name and tables[each] == columns), default="")
        if name < twin:
            made[name] = f"The columns of [{twin}](#{twin}).\n"
            continue
        common = ", ".join(f"`{column[0]}`" for column in columns if column in shared)
        said = f"[Shared](#{SHARED.replace(' ', '-')}): {common}." if common else ""
        own = _table(column for column in columns if column not in shared)
        if name in added:
            # the pages of extensions lie in a folder of their own
            said, own = (text.replace("](", "](../").replace("(../#", f"(../{PAGE.name}#") for text in (said, own))
        made[name] = "\n\n".join(filter(None, (textwrap.fill(said, 118, break_on_hyphens=False), own)))
    return made


def tables_of_extensions() -> set[str]:
    """The views that extensions add to a published file."""
    return {view.name for extension in extensions() for view in extension.views()}


def page_of(text: str, made: dict[str, str]) -> str:
    """The page with its blocks as they should be. A block that nothing makes is an error (``KeyError``)."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{made[block[2]]}\n{block[3]}", text)


def _table(columns: Iterable[Column]) -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for name, kind, note in columns:
        rows.setdefault((kind, note), []).append(f"`{name}`")
    # most are text, and the page says so once
    kinds = {kind: "" if kind == "varchar" else f" ({kind})" for kind, _ in rows}
    lines = (f"- {', '.join(names)}{kinds[kind]}: {note}" for (kind, note), names in rows.items())
    return "\n".join(textwrap.fill(line, 119, subsequent_indent="  ", break_on_hyphens=False) for line in lines) + "\n"


def _shortened(kind: str) -> str:
    if kind.endswith("[]"):
        return f"list of {_shortened(kind[:-2])}"
    for word in ("STRUCT", "MAP"):
        if kind.startswith(f"{word}("):
            return word.lower()
    return {"TIMESTAMP WITH TIME ZONE": "timestamptz"}.get(kind, kind.lower())


def _linked(note: str) -> str:
    """A note as the page has it: with links to pages."""
    return re.sub(r"docs/(\w[\w-]*\.md)", r"[\1](\1)", note)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        made = blocks(columns_by_table(Path(scratch)))
        for page in (PAGE, *PAGES_OF_EXTENSIONS):
            page.write_text(page_of(page.read_text("utf-8"), made), "utf-8")
