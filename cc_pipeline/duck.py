"""Connections of DuckDB, of which none fetches an extension by itself or draws on standard output."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb

#: What files that leave this program are stored as: the oldest version that holds what is in them. DuckDB 2.0 by
#: itself writes what none before it opens.
STORED_AS: Final = "v1.0.0"
#: Which DuckDB reads them. 1.0 opens them too, but finds no end in a list column that has no element, and cannot
#: compare structs in ``arg_max``.
READ_BY: Final = "DuckDB 1.1 and later read this file; macros of an attached file answer after USE."


def connect(path: Path | None = None, *, read_only: bool = False, **limits: str) -> duckdb.DuckDBPyConnection:
    """A connection to the file at ``path``, or to a database in memory; ``limits`` are settings of DuckDB that it
    begins with, as ``memory_limit``. Raises ``duckdb.Error``."""
    # as a statement: two connections of a process to one file need the same configuration
    found = duckdb.connect(":memory:" if path is None else str(path), read_only=read_only, config={**limits})
    found.execute("SET autoinstall_known_extensions = false")
    # DuckDB 2.0 draws one on standard output, also where that is a file or a pipe with rows
    found.execute("SET enable_progress_bar = false")
    return found


def connect_newest(path: Path) -> duckdb.DuckDBPyConnection:
    """A connection that reads the file which has the name ``path`` now. Raises ``duckdb.Error``.

    DuckDB gives a process that has a file open the same one for the same name, also after another took its place.
    """
    found = connect()
    try:
        quoted_path = str(path).replace("'", "''")
        found.execute(f"ATTACH '{quoted_path}' AS newest (READ_ONLY)")
        found.execute("USE newest")
    except duckdb.Error:
        found.close()
        raise
    return found
