"""A column of a table, declared once: its name, its type, and what it holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """``note`` says in one line what it holds: a comment in ``cc.duckdb``, and a description in the UI."""

    name: str
    type: pa.DataType
    note: str
    nullable: bool = True


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """The columns as an Arrow schema, without notes: they are not written into the files of a table."""
    return pa.schema([pa.field(column.name, column.type, nullable=column.nullable) for column in columns])


def notes_of(columns: Iterable[Column]) -> dict[str, str]:
    """The note of each column, by its name."""
    return {column.name: column.note for column in columns}
