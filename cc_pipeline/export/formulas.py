"""Text that a spreadsheet would take for a formula and run: pages and URLs are written by strangers."""

from __future__ import annotations

from typing import Final

#: Characters at the beginning of a cell that make a formula of it, the last two by what comes behind them.
_BEGINNINGS: Final = "=+-@\t\r\n"
_IN_SQL: Final = " || ".join(f"chr({ord(character)})" for character in _BEGINNINGS)
#: What a README says of rows whose texts are such.
GUARDED: Final = "text that begins with =, +, -, @, a tab or the end of a line has a ' before it (--guard-formulas)"


def harmless(text: str) -> str:
    """``text`` with an apostrophe before it where it begins as a formula does."""
    return f"'{text}" if text[:1] in _BEGINNINGS and text else text


def harmless_in_sql(column: str) -> str:
    """The same as an expression of DuckDB over a column of texts."""
    text = f"CAST({column} AS VARCHAR)"
    return f"CASE WHEN contains({_IN_SQL}, nullif(left({text}, 1), '')) THEN '''' || {text} ELSE {text} END"
