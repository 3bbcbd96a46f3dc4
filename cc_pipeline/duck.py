"""Opens DuckDB connections that never install extensions and never draw progress bars."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import duckdb

#: Storage version of files for others: the oldest one that supports their content. By default, DuckDB 2.0 writes files
#: that older versions cannot open.
STORED_AS: Final = "v1.0.0"
#: DuckDB versions that read these files. 1.0 opens them too, but hangs on a list column without elements, and cannot
#: compare structs in ``arg_max``.
READ_BY: Final = "DuckDB 1.1 and later read this file; macros of an attached file answer after USE."


def connect(path: Path | None = None, *, read_only: bool = False, **limits: str) -> duckdb.DuckDBPyConnection:
    """Opens the file at ``path``, or a database in memory. ``limits`` are initial settings of DuckDB, such as
    ``memory_limit``. Raises ``duckdb.Error``."""
    # set by a statement: all connections of a process to one file need the same configuration
    connection = duckdb.connect(":memory:" if path is None else str(path), read_only=read_only, config={**limits})
    connection.execute("SET autoinstall_known_extensions = false")
    # DuckDB 2.0 draws it on standard output, even if that is a file or a pipe with rows
    # a notebook's kernel without ipywidgets can draw none, and refuses the setting
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    return connection


def connect_newest(path: Path) -> duckdb.DuckDBPyConnection:
    """Opens the file that is at ``path`` now, read-only. Raises ``duckdb.Error``.

    If a process has a file open, DuckDB returns the same file for its path, even after another file replaced it.
    """
    connection = connect()
    try:
        quoted_path = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{quoted_path}' AS newest (READ_ONLY)")
        connection.execute("USE newest")
        # as for a file that is opened itself; for a database in memory it would be in the current folder
        connection.execute(f"SET temp_directory = '{quoted_path}.tmp'")
    except duckdb.Error:
        connection.close()
        raise
    return connection
