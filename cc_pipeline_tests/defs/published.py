"""Reading what a run published, for comparison."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb

#: Published tables whose rows must not depend on how often or how interrupted a job ran, with columns that may.
TABLES: dict[str, tuple[str, ...]] = {
    "crawls": (),
    "index_files": ("harvested_at",),
    "row_groups": (),
    "captures": (),
    "capture_targets": (),
    "records": ("stored_file", "stored_offset", "fetched_at"),
    "ledger": ("fetched_at",),
    "page_metadata": (),
    "page_text": (),
    "page_links": (),
    "feed_items": (),
}


def published_rows(home: Path) -> dict[str, Counter[str]]:
    """Every row of every published table as text, without columns that say when or where."""
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return {table: _rows(connection, table, left_out) for table, left_out in TABLES.items()}


def query(home: Path, sql: str) -> list[tuple[Any, ...]]:
    """The answer of ``cc.duckdb``."""
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def _rows(connection: duckdb.DuckDBPyConnection, table: str, left_out: tuple[str, ...]) -> Counter[str]:
    exclude = f" EXCLUDE ({', '.join(left_out)})" if left_out else ""
    return Counter(str(row) for row in connection.execute(f"SELECT *{exclude} FROM {table}").fetchall())
