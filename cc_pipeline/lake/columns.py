"""The columns of tables: within a layout (``home.LAYOUT``) they never change."""

from __future__ import annotations

import pyarrow as pa
from deltalake import Schema

from cc_pipeline.errors import EnvironmentFault


def refuse_other_columns(table: str, stored_schema: Schema, schema: pa.Schema) -> None:
    """Raises ``EnvironmentFault``, which names the columns, if the table with the schema ``stored_schema`` has not
    exactly the columns of ``schema`` and their types."""
    stored = {field.name: field.type for field in stored_schema.fields}
    declared = {field.name: field.type for field in Schema.from_arrow(schema).fields}
    differing = sorted(name for name in stored.keys() | declared.keys() if stored.get(name) != declared.get(name))
    if differing:
        raise EnvironmentFault(
            f"the table {table} has other columns than this version of cc_pipeline writes: {', '.join(differing)}",
            "Another version, or another program, wrote the table. Use that version, or make a new home.",
        )


def with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """``table`` in ``schema``: in its order and types. Raises ``pa.ArrowInvalid`` if a column or a value is missing."""
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        position = table.schema.get_field_index(field.name)
        if position < 0:
            raise pa.ArrowInvalid(f"no column {field.name}")
        column = table.column(position)
        if not field.nullable and column.null_count:
            raise pa.ArrowInvalid(f"no value in column {field.name}, which must have one")
        # to cast each column costs a millisecond a batch
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
