"""The selections of an export, and of one table in Python: published tables, and ``page_html``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import duckdb

from cc_pipeline.advice import option
from cc_pipeline.errors import UserInputError
from cc_pipeline.export import page_html
from cc_pipeline.export.new_rows import ExportedRows, select_new_rows
from cc_pipeline.export.row_choice import RowChoice
from cc_pipeline.export.table_files import Selection, select_tables
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import open_workspace


@contextmanager
def open_selections(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    tables: Sequence[str],
    targets: Sequence[str],
    crawls: Sequence[str],
    choice: RowChoice,
    earlier: ExportedRows | None = None,
) -> Iterator[list[Selection]]:
    """Yields the chosen rows of ``tables`` (none: all that are published), of ``targets`` (slugs) and ``crawls`` if
    some are named, without the rows of an ``earlier`` export. They can be read inside the block.

    Raises ``UserInputError`` as ``select_tables`` and the choice do, and for a choice among several tables.
    """
    published = [name for name in tables if name != page_html.NAME]
    selections = select_tables(connection, published, targets, crawls) if published or not tables else []
    if choice and len(selections) + (page_html.NAME in tables) > 1:
        raise UserInputError(f"columns, a condition and a limit are for one table; name it with {option(table=None)}")
    if earlier is not None:
        selections = [select_new_rows(connection, each, each.name, earlier) for each in selections]
    with ExitStack() as stack:
        selections = [choice.narrow(connection, each) if choice else each for each in selections]
        if page_html.NAME in tables:
            [records] = select_tables(connection, ["records"], targets, crawls)
            if earlier is not None:
                records = select_new_rows(connection, records, "page_metadata", earlier)
            storage = stack.enter_context(open_workspace(settings)).storage
            opened = page_html.open_page_html(connection, storage, records, choice)
            selections.append(stack.enter_context(opened))
        yield selections
