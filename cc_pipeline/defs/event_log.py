"""Dagster's event log in SQLite as commands open it: one engine a file, and each table looked up once.

Dagster makes an engine for each statement, and looks up the tables and columns of its files for each event. That is
more than half of the processor time of an event, and a partition has six. ``commands.yaml`` names this class
(``instance.py``). Like ``internals.py``, this file uses Dagster's private interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from sqlalchemy import Connection, Engine, QueuePool, create_engine

#: The most files of runs that are kept open beside the index: a command writes to one at a time.
_MAX_RUN_FILES: Final = 4


class CommandEventLog(SqliteEventLogStorage):
    """The event log of the instance of a command, which makes one run after the other."""

    def __init__(self, base_dir: str, inst_data: Any = None) -> None:
        self._engines: dict[str, Engine] = {}
        #: Tables, and columns of the table of assets, that were found: Dagster adds some and drops none.
        self._found_tables: set[str] = set()
        self._found_columns: set[str] = set()
        super().__init__(base_dir, inst_data)

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> CommandEventLog:
        """Returns the event log in the folder ``base_dir`` of the configuration."""
        return cls(inst_data=inst_data, **config_value)

    def run_connection(self, run_id: str | None = None) -> AbstractContextManager[Connection]:
        """Opens a transaction in the file of a run, or in that of events of no run."""
        return self._begin(run_id or RUNLESS_RUN_ID)

    def index_connection(self) -> AbstractContextManager[Connection]:
        """Opens a transaction in the file that all runs share."""
        return self._begin(INDEX_SHARD_NAME)

    @contextmanager
    def _begin(self, shard: str) -> Iterator[Connection]:
        if shard not in self._initialized_dbs:
            # a wiped file has another one in its place
            self._close(shard)
            # makes the file and its tables
            with self._connect(shard):
                pass
        # Dagster's methods hold this lock as long as a connection
        with self._db_lock, self._get_engine(shard).begin() as connection:
            yield connection

    def _get_engine(self, shard: str) -> Engine:
        if shard not in self._engines:
            runs = [name for name in self._engines if name != INDEX_SHARD_NAME]
            for name in runs[: max(0, len(runs) - _MAX_RUN_FILES + 1)]:
                self._close(name)
            options = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
            self._engines[shard] = create_engine(
                self.conn_string_for_shard(shard), poolclass=QueuePool, pool_size=1, connect_args=options
            )
        return self._engines[shard]

    def _close(self, shard: str) -> None:
        engine = self._engines.pop(shard, None)
        if engine is not None:
            engine.dispose()

    def has_table(self, table_name: str) -> bool:
        """Whether the index has a table."""
        if table_name not in self._found_tables and super().has_table(table_name):
            self._found_tables.add(table_name)
        return table_name in self._found_tables

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        if column_name not in self._found_columns and super()._has_asset_key_col_on_connection(conn, column_name):
            self._found_columns.add(column_name)
        return column_name in self._found_columns

    def dispose(self) -> None:
        """Closes the files."""
        super().dispose()
        for shard in [*self._engines]:
            self._close(shard)
