"""Conditions on slices, in the SQL of the Delta library's engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

#: Values in a list up to which the engine compares each with a file's bounds.
_LIST_USED: Final = 20


def matching(where: Mapping[str, str | Sequence[str]]) -> str | None:
    """Rows whose columns equal ``where`` (a value, or any of a sequence); ``None`` for all rows."""
    return " AND ".join(_equal(name, value) for name, value in where.items()) or None


def of_slices(columns: Sequence[str], slices: Sequence[Mapping[str, str]]) -> str | None:
    """Rows of ``slices``, each a value for every one of ``columns``; ``None`` for the whole table."""
    if not slices:
        return None
    if tuple(columns) == ("crawl", "target"):
        by_crawl: dict[str, list[str]] = {}
        for one in slices:
            by_crawl.setdefault(one["crawl"], []).append(one["target"])
        parts = [f"(crawl = {_quoted(crawl)} AND {_equal('target', targets)})" for crawl, targets in by_crawl.items()]
        return " OR ".join(parts)
    if len(columns) == 1:
        return _equal(columns[0], [one[columns[0]] for one in slices])
    return " OR ".join("(" + " AND ".join(f"{k} = {_quoted(v)}" for k, v in one.items()) + ")" for one in slices)


def _equal(name: str, value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        return f"{name} = {_quoted(value)}"
    among = f"{name} IN ({', '.join(map(_quoted, value))})"
    if len(value) <= _LIST_USED:
        return among
    # the engine leaves files out by bounds, not by a long list; the parts of a set lie side by side
    return f"({name} >= {_quoted(min(value))} AND {name} <= {_quoted(max(value))} AND {among})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
