"""Builds one file of the catalog from tables of row groups: under another name, then renamed over the old file.

A reader that has the old file open keeps reading all of it. A catalog has a file per crawl (``keep``); one file may
also hold many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import duckdb
import pyarrow as pa

from cc_pipeline.atomic import written_whole
from cc_pipeline.duck import connect
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.catalog.schemas import (
    COLUMN_CHUNKS_SCHEMA,
    COVERAGE_SCHEMA,
    INDEX_FILES_SCHEMA,
    KEY_COLUMN,
    ROW_GROUPS_SCHEMA,
)

if TYPE_CHECKING:
    import pyarrow.dataset as ds

#: Arrow data, or the paths of Parquet files (``crawl=...`` folders in them count as a column).
TableSource: TypeAlias = "pa.Table | pa.RecordBatchReader | ds.Dataset | Sequence[str | Path]"

#: Rows of the sorted table one entry of ``key_blocks`` speaks for.
BLOCK_ROWS: Final = 2048
#: DuckDB's own row groups: small ones let it skip most of the table for one domain.
_STORAGE_ROWS: Final = 8192
#: Raised when an older file would be read wrongly.
FORMAT: Final = 2
#: What DuckDB may take while it builds; beyond it sorting goes to the disk.
_MEMORY: Final = "64MB"
#: Each thread has buffers of its own.
_MOST_THREADS: Final = 2

_MANIFEST: Final = pa.schema([("crawl", pa.string()), ("subset", pa.string()), ("path", pa.string())])
_REASONS: Final = pa.schema([("crawl", pa.string()), ("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class CatalogReport:
    """What was built: rows of each table, bytes of the file, and rows whose key bounds are unknown."""

    path: Path
    rows: dict[str, int]
    unknown: int
    bytes: int


def build_catalog(
    path: Path,
    *,
    index_files: TableSource,
    row_groups: TableSource,
    column_chunks: TableSource,
    coverage: TableSource | None = None,
    manifest: TableSource | None = None,
    reasons: Mapping[str, str] | None = None,
    threads: int | None = None,
) -> CatalogReport:
    """Builds the catalog at ``path`` and gives what is in it; the old file stays until the new one is whole.

    The sources have the schemas of ``index/catalog/schemas.py``. Instead of ``coverage`` the path lists may be given as
    ``manifest`` (columns ``crawl``, ``subset``, ``path``), with ``reasons`` for crawls that have none. Raises
    ``EnvironmentFault`` when the disk does not take it.
    """
    with building(path, threads) as con:
        _load(con, "index_files", index_files, INDEX_FILES_SCHEMA, order="crawl, path")
        _load_row_groups(con, row_groups)
        _load(con, "column_chunks", column_chunks, COLUMN_CHUNKS_SCHEMA)
        if coverage is not None:
            _load(con, "coverage", coverage, COVERAGE_SCHEMA, order="crawl, subset")
        else:
            _count_coverage(con, manifest if manifest is not None else (), reasons or {})
        unknown = describe(con)
        counts = {name: _count(con, name) for name in ("index_files", "row_groups", "column_chunks", "coverage")}
    return CatalogReport(path, counts, unknown, path.stat().st_size)


@contextmanager
def building(path: Path, threads: int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that uses a new, empty file; when the block is through, that file is ``path``, whole.

    Memory is bounded, and what does not fit goes to a folder beside ``path``. Raises ``EnvironmentFault`` when the
    disk does not take it; the old file stays then.
    """
    try:
        with written_whole(path, durable=True) as beside, _target(beside, threads) as con:
            yield con
    except (duckdb.IOException, duckdb.OutOfMemoryException, OSError) as error:
        raise EnvironmentFault(
            f"the catalog could not be built at {path}: {error}", "Check the disk and the tables, then build it again."
        ) from error


@contextmanager
def _target(path: Path, threads: int | None) -> Iterator[duckdb.DuckDBPyConnection]:
    con = connect(memory_limit=_MEMORY)
    try:
        con.execute(f"SET threads = {int(threads or min(_MOST_THREADS, os.cpu_count() or 1))}")
        con.execute(f"SET temp_directory = '{quoted(path.parent / '.catalog-spill')}'")
        con.execute(f"ATTACH '{quoted(path)}' AS building (ROW_GROUP_SIZE {_STORAGE_ROWS})")
        con.execute("USE building")
        yield con
        con.execute("CHECKPOINT building")
        con.execute("USE memory")
        con.execute("DETACH building")
    finally:
        con.close()


def _load(
    con: duckdb.DuckDBPyConnection, table: str, source: TableSource, schema: pa.Schema, order: str | None = None
) -> None:
    con.execute("SET preserve_insertion_order = true")
    wanted = ", ".join(f'"{column}"' for column in schema.names)
    ordering = f" ORDER BY {order}" if order else ""
    con.execute(f"CREATE TABLE {table} AS SELECT {wanted} FROM {_scan(con, source, schema)}{ordering}")


def _load_row_groups(con: duckdb.DuckDBPyConnection, source: TableSource) -> None:
    """Known key bounds first and by lowest key, then the unknown ones by subset and crawl."""
    con.execute("SET preserve_insertion_order = true")
    unknown = f"({KEY_COLUMN}_min IS NULL OR {KEY_COLUMN}_max IS NULL)"
    con.execute(
        f"""CREATE TABLE row_groups AS SELECT * FROM {_scan(con, source, ROW_GROUPS_SCHEMA)}
        ORDER BY {unknown}, CASE WHEN {unknown} THEN NULL ELSE {KEY_COLUMN}_min END,
        CASE WHEN {unknown} THEN subset END, CASE WHEN {unknown} THEN crawl END"""
    )


def _count_coverage(con: duckdb.DuckDBPyConnection, manifest: TableSource, reasons: Mapping[str, str]) -> None:
    """Fills ``coverage`` from the files expected and what became of them."""
    con.register("no_index", pa.table({"crawl": list(reasons), "reason": list(reasons.values())}, schema=_REASONS))
    con.execute(
        f"""CREATE TABLE coverage AS
        WITH expected AS (
            SELECT crawl, subset, count(DISTINCT path)::BIGINT AS files
            FROM {_scan(con, manifest, _MANIFEST)} GROUP BY ALL),
        files AS (
            SELECT crawl, subset, count(*) FILTER (outcome = 'decoded') AS harvested,
                count(*) FILTER (outcome <> 'decoded') AS failed
            FROM index_files GROUP BY ALL),
        groups AS (
            SELECT crawl, subset, count(*) AS row_groups, sum(rows)::BIGINT AS rows,
                count(*) FILTER ({KEY_COLUMN}_min IS NULL OR {KEY_COLUMN}_max IS NULL) AS unknown
            FROM row_groups GROUP BY ALL)
        SELECT e.crawl, e.subset, e.files AS expected, coalesce(f.harvested, 0)::BIGINT AS harvested,
            coalesce(f.failed, 0)::BIGINT AS failed,
            greatest(0, e.files - coalesce(f.harvested + f.failed, 0))::BIGINT AS missing,
            coalesce(g.row_groups, 0)::BIGINT AS row_groups, coalesce(g.rows, 0)::BIGINT AS rows,
            coalesce(g.unknown, 0)::BIGINT AS without_statistics, NULL::VARCHAR AS reason
        FROM expected e LEFT JOIN files f USING (crawl, subset) LEFT JOIN groups g USING (crawl, subset)
        UNION ALL
        SELECT crawl, 'warc', 0, 0, 0, 0, 0, 0, 0, reason FROM no_index
        WHERE crawl NOT IN (SELECT crawl FROM expected)
        ORDER BY 1, 2"""
    )


def describe(con: duckdb.DuckDBPyConnection) -> int:
    """Adds what the reader needs to find its way, and gives the number of row groups of unknown bounds."""
    low, high = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"
    con.execute(
        f"""CREATE TABLE key_blocks AS
        SELECT (rowid // {BLOCK_ROWS})::BIGINT AS block, min({low}) AS lowest, max({high}) AS highest
        FROM row_groups WHERE {low} IS NOT NULL AND {high} IS NOT NULL GROUP BY 1 ORDER BY 1"""
    )
    unknown = _number(con, f"SELECT count(*) FROM row_groups WHERE {low} IS NULL OR {high} IS NULL")
    con.execute(
        """CREATE TABLE catalog_info AS SELECT ?::INTEGER AS format, ?::BIGINT AS block_rows,
        (SELECT count(*) FROM row_groups) - ?::BIGINT AS known_row_groups, now() AS built_at""",
        [FORMAT, BLOCK_ROWS, unknown],
    )
    return unknown


def _scan(con: duckdb.DuckDBPyConnection, source: TableSource, schema: pa.Schema) -> str:
    if isinstance(source, Sequence) and not source:
        source = schema.empty_table()
    if not isinstance(source, Sequence):
        con.register("incoming", source)
        return "incoming"
    files = ", ".join(f"'{quoted(file)}'" for file in source)
    return f"read_parquet([{files}], hive_partitioning = true, hive_types_autocast = false, union_by_name = true)"


def _count(con: duckdb.DuckDBPyConnection, table: str) -> int:
    return _number(con, f"SELECT count(*) FROM {table}")


def _number(con: duckdb.DuckDBPyConnection, query: str) -> int:
    row = con.execute(query).fetchone()
    return int(row[0]) if row else 0


def quoted(path: str | Path) -> str:
    """A path as it stands between quotes in SQL."""
    return str(path).replace("'", "''")
