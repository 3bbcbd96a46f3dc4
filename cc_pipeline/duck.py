"""Connections of DuckDB, of which none fetches an extension by itself: what runs here is what was installed here."""

from __future__ import annotations

from pathlib import Path

import duckdb


def connect(path: Path | None = None, *, read_only: bool = False, **limits: str) -> duckdb.DuckDBPyConnection:
    """A connection to the file at ``path``, or to a database in memory; ``limits`` are settings of DuckDB that it
    begins with, as ``memory_limit``. Raises ``duckdb.Error``."""
    # as a statement: two connections of a process to one file need the same configuration
    found = duckdb.connect(":memory:" if path is None else str(path), read_only=read_only, config={**limits})
    found.execute("SET autoinstall_known_extensions = false")
    return found
