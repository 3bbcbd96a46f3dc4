"""Texts and names as SQL writes them, for DuckDB and for the engine of the Delta library."""

from __future__ import annotations

from collections.abc import Iterable


def quote_literal(value: str) -> str:
    """``value`` as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def is_one_of(column: str, values: Iterable[str]) -> str:
    """The condition of SQL that ``column`` has one of ``values``."""
    return f"{column} IN ({', '.join(map(quote_literal, values))})"


def quote_name(name: str) -> str:
    """``name`` of a table or a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'
