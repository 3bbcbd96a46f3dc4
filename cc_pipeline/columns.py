"""The declaration of a table's column: its name, type and description."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``note`` describes it in one line: a comment in ``cc.duckdb``, and a description in the UI."""

    name: str
    type: pa.DataType
    note: str
    nullable: bool = True


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """Returns the columns as an Arrow schema, without notes: these are not written into the files of a table."""
    return pa.schema([pa.field(column.name, column.type, nullable=column.nullable) for column in columns])


def notes_of(columns: Iterable[Column]) -> dict[str, str]:
    """Returns the notes of the columns, by name."""
    return {column.name: column.note for column in columns}
