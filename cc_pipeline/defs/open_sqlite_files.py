"""Keeps Dagster's SQLite files open between two statements of a process, and its compiled statements.

Dagster opens a file for each statement. When the last connection of a file is closed, SQLite ends its write-ahead log
with a flush of the disk, which happens three times per event. A read-only connection of our own keeps the log.

Dagster also makes an engine for each statement, so SQLAlchemy would compile each statement again: a third of the
processor time of an event.

The files are in WAL mode, in which ``synchronous=NORMAL`` keeps them intact through a power cut. The last events may be
lost then, but none when a process is killed.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Engine, event

#: The most files that are kept open: a command has two of its own and one for each run.
_MAX_FILES: Final = 16
#: The most compiled statements that are kept, as in an engine of SQLAlchemy.
_MAX_STATEMENTS: Final = 500


class _CompiledStatements(dict[Any, Any]):
    """The compiled statements of all kept files, for the option ``compiled_cache`` of SQLAlchemy. Its keys begin with
    the dialect of an engine, which is left out: SQLite compiles the same for each engine."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_without_dialect(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        if len(self) >= _MAX_STATEMENTS:
            self.clear()
        super().__setitem__(_without_dialect(key), compiled)


def _without_dialect(key: Any) -> Any:
    return key[1:] if isinstance(key, tuple) and isinstance(key[0], Dialect) else key


_folders: Final[set[Path]] = set()
_connections: Final[dict[str, sqlite3.Connection]] = {}
_statements: Final = _CompiledStatements()
_lock: Final = threading.Lock()


def keep_open(folder: Path) -> None:
    """Keeps the SQLite files below ``folder`` open that SQLAlchemy opens from now on. For processes that execute runs:
    those of a UI live for days, and are left to Dagster."""
    if not _folders:
        event.listen(Engine, "connect", _on_connect)
        event.listen(Engine, "engine_connect", _on_engine_connect)
    # SQLite names a file without symbolic links, Dagster as the folder was given
    _folders.update({folder.resolve(), folder.absolute()})


def _is_kept(file: str | None) -> bool:
    return bool(file) and not _folders.isdisjoint(Path(file or "").parents)


def _on_engine_connect(connection: Connection) -> None:
    if connection.dialect.name == "sqlite" and _is_kept(connection.engine.url.database):
        connection.execution_options(compiled_cache=_statements)


def _on_connect(connection: object, _: object) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    file = connection.execute("PRAGMA database_list").fetchone()[2]
    if not _is_kept(file):
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
