"""Keeps Dagster's SQLite files open between two statements of a process.

Dagster opens a file for each statement. When the last connection of a file is closed, SQLite ends its write-ahead log
with a flush of the disk, which happens three times per event. A read-only connection of our own keeps the log.

The files are in WAL mode, in which ``synchronous=NORMAL`` keeps them intact through a power cut. The last events may be
lost then, but none when a process is killed.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, event

#: The most files that are kept open: a command has two of its own and one for each run.
_MAX_FILES: Final = 16
_folders: Final[set[Path]] = set()
_connections: Final[dict[str, sqlite3.Connection]] = {}
_lock: Final = threading.Lock()


def keep_open(folder: Path) -> None:
    """Keeps the SQLite files below ``folder`` open that SQLAlchemy opens from now on. For processes that execute runs:
    those of a UI live for days, and are left to Dagster."""
    if not _folders:
        event.listen(Engine, "connect", _on_connect)
    _folders.add(folder.resolve())


def _on_connect(connection: object, _: object) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    file = connection.execute("PRAGMA database_list").fetchone()[2]
    if not file or _folders.isdisjoint(Path(file).parents):
        return
    connection.execute("PRAGMA synchronous=NORMAL")
    with _lock:
        # Dagster sets the mode of a new file after its first connection
        if file in _connections or connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            return
        if len(_connections) >= _MAX_FILES:
            _connections.pop(next(iter(_connections))).close()
        keeper = sqlite3.connect(file, check_same_thread=False)
        # the first query opens the log
        keeper.execute("SELECT count(*) FROM sqlite_master").fetchone()
        _connections[file] = keeper
