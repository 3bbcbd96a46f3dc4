"""Every column of a table of the core is declared with a note."""

from __future__ import annotations

from cc_pipeline.columns import Column, notes_of
from cc_pipeline.commoncrawl import index_schema
from cc_pipeline.documents import schemas as documents
from cc_pipeline.index.catalog import schemas as catalog
from cc_pipeline.publish.views import Sharing, publication_views
from cc_pipeline.records import schema as records
from cc_pipeline.workspace import schemas as workspace


def test_each_note_is_a_line_and_no_view_has_a_note_for_a_column_twice() -> None:
    declared = [
        column
        for module in (index_schema, documents, catalog, records, workspace)
        for value in vars(module).values()
        for columns in (value.values() if isinstance(value, dict) else [value])
        if isinstance(columns, tuple) and columns and isinstance(columns[0], Column)
        for column in columns
    ]
    assert len(declared) > 400
    assert [column.name for column in declared if not column.note.strip() or "\n" in column.note] == []
    assert [column.name for column in declared if column.note.endswith(".") or len(column.note) > 200] == []


def test_views_of_one_table_say_the_same_of_its_columns() -> None:
    views = {view.name: view for view in publication_views([], Sharing((), ()))}
    assert views["ledger"].notes == views["quarantine"].notes == notes_of(records.RECORD_COLUMNS)
