"""Prevents formulas in text for spreadsheets, which would run them: pages and URLs are untrusted."""

from __future__ import annotations

from typing import Final

#: Characters that begin a formula in a cell; the last two make the next line one.
_BEGINNINGS: Final = "=+-@\t\r\n"
_IN_SQL: Final = " || ".join(f"chr({ord(character)})" for character in _BEGINNINGS)
#: The sentence of a README about guarded texts.
GUARDED: Final = "text that begins with =, +, -, @, a tab or the end of a line has a ' before it (--guard-formulas)"


def harmless_in_sql(column: str) -> str:
    """Returns an expression of DuckDB for a column of texts, with an apostrophe before those that begin as formulas
    do."""
    text = f"CAST({column} AS VARCHAR)"
    return f"CASE WHEN contains({_IN_SQL}, nullif(left({text}, 1), '')) THEN '''' || {text} ELSE {text} END"
