"""Every column of a table of the core is declared with a note."""

from __future__ import annotations

from cc_pipeline.columns import Column
from cc_pipeline.commoncrawl import index_schema
from cc_pipeline.documents import schemas as documents
from cc_pipeline.index.catalog import schemas as catalog
from cc_pipeline.records import schema as records
from cc_pipeline.workspace import schemas as workspace


def test_each_note_is_one_short_line() -> None:
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
