"""Texts and names as SQL writes them, for DuckDB and for the engine of the Delta library."""

from __future__ import annotations


def quote_literal(value: str) -> str:
    """``value`` as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """``name`` of a table or a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'
