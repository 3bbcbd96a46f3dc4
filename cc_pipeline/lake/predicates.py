"""Conditions on slices, in the SQL of the Delta library's engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def matching(where: Mapping[str, str | Sequence[str]]) -> str | None:
    """Rows whose columns equal ``where`` (a value, or any of a sequence); ``None`` for all rows."""
    parts = [
        f"{name} = {_quoted(value)}" if isinstance(value, str) else f"{name} IN ({', '.join(map(_quoted, value))})"
        for name, value in where.items()
    ]
    return " AND ".join(parts) or None


def of_slices(columns: Sequence[str], slices: Sequence[Mapping[str, str]]) -> str | None:
    """Rows of ``slices``, each a value for every one of ``columns``; ``None`` for the whole table."""
    if not slices:
        return None
    if tuple(columns) == ("crawl", "target"):
        by_crawl: dict[str, list[str]] = {}
        for one in slices:
            by_crawl.setdefault(one["crawl"], []).append(one["target"])
        parts = [
            f"(crawl = {_quoted(crawl)} AND target IN ({', '.join(map(_quoted, targets))}))"
            for crawl, targets in by_crawl.items()
        ]
        return " OR ".join(parts)
    return " OR ".join("(" + " AND ".join(f"{k} = {_quoted(v)}" for k, v in one.items()) + ")" for one in slices)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
