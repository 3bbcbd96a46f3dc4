"""Finds the row groups of a target in the Parquet files of the catalog, without the network if they are on this
machine. A crawl's index has hundreds of files, and a target is in a few row groups of them.

A crawl's rows are read once and pruned in memory. Users' queries on all crawls are DuckDB's over their files.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

from cc_pipeline.commoncrawl.key_ranges import KeyRange, range_set
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.catalog.rows import VIEW_SCHEMAS, read_view, table_query
from cc_pipeline.index.catalog.schemas import ANSWER_SCHEMA, CATALOG_SCHEMA, KEY_COLUMN

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Memory of queries; a user's own query spills to disk beyond it.
_MEMORY: Final = "1GB"
#: Crawls whose rows stay in memory: some 5 MB each.
_MAX_CACHED_CRAWLS: Final = 4
#: Up to so many ranges, each is compared with all rows; with more, each row is compared with the ranges.
_FEW_RANGES: Final = 40
_LOW, _HIGH = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"
#: The columns that each table is made of.
_COLUMNS: Final = {
    "index_files": ("subset", "path", "part", "file"),
    "coverage": ("subset", "coverage", "file", "row_group", "rows", _LOW, _HIGH),
}


@dataclass(frozen=True)
class _Crawl:
    """The rows of one crawl in its files, which are never overwritten. Columns are read when needed."""

    name: str
    files: tuple[str, ...]
    system: FileSystem
    tables: dict[str, pa.Table] = field(default_factory=dict)

    @cached_property
    def answers(self) -> pa.Table:
        """All row groups (``ANSWER_SCHEMA``)."""
        rows = self.read(ANSWER_SCHEMA.names)
        return (
            rows.filter(pc.is_valid(rows["row_group"])).select(ANSWER_SCHEMA.names).cast(ANSWER_SCHEMA).combine_chunks()
        )

    def read(self, columns: Iterable[str]) -> pa.Table:
        """Reads columns of all stored rows. Raises ``EnvironmentFault``."""
        names = [name for name in columns if name != "crawl"]
        schema = pa.schema([CATALOG_SCHEMA.field(name) for name in names])
        tables = [schema.empty_table()]
        for address in self.files:
            try:
                with self.system.open_input_file(address) as source:
                    tables.append(pq.ParquetFile(source).read(names).select(names).cast(schema))
            except (OSError, pa.ArrowException) as error:
                raise EnvironmentFault(
                    f"could not read the catalog of {self.name} at {address}: {error}",
                    "Check the lake: cc-pipeline doctor",
                ) from error
        rows = pa.concat_tables(tables)
        return rows.append_column(CATALOG_SCHEMA.field("crawl"), pa.repeat(pa.scalar(self.name), rows.num_rows))


_crawl_cache: OrderedDict[tuple[str, ...], _Crawl] = OrderedDict()
_cache_lock = threading.Lock()


def _cached_crawl(name: str, files: tuple[str, ...], system: FileSystem) -> _Crawl:
    """Returns a crawl, from the cache if it was used recently."""
    with _cache_lock:
        cached_crawl = _crawl_cache.pop((name, *files), None) or _Crawl(name, files, system)
        _crawl_cache[name, *files] = cached_crawl
        while len(_crawl_cache) > _MAX_CACHED_CRAWLS:
            _crawl_cache.popitem(last=False)
        return cached_crawl


class Catalog:
    """The catalog at one moment: ``files`` of each crawl, in folders ``crawl=…``. A context manager, safe to use from
    threads but for its connection. Later commits do not change it."""

    def __init__(self, files: Mapping[str, Sequence[str]], system: FileSystem | None = None) -> None:
        self._files = {crawl: tuple(crawl_files) for crawl, crawl_files in sorted(files.items())}
        self._system = system or LocalFileSystem()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if "connection" in self.__dict__:
            self.connection.close()

    def crawls(self) -> tuple[str, ...]:
        """Returns the crawls that were harvested, in order of their names."""
        return tuple(self._files)

    def row_groups_for(self, crawl: str, subsets: Sequence[str] | None, ranges: Sequence[KeyRange]) -> pa.Table:
        """Returns every row group that may hold a key of ``ranges`` (``ANSWER_SCHEMA``), each once, in any order.

        ``None`` for ``subsets`` means all of them.
        """
        row_groups = self._crawl(crawl).answers
        if subsets is not None:
            row_groups = row_groups.filter(pc.is_in(row_groups["subset"], pa.array(subsets, pa.string())))
        return row_groups.filter(_may_hold(row_groups, ranges))

    def unbounded(self, crawl: str, subsets: Sequence[str], ranges: Sequence[KeyRange]) -> int:
        """Returns the number of row groups that may hold a key of ``ranges`` only because their bounds are unknown."""
        return int(self.row_groups_for(crawl, subsets, ranges)[f"{KEY_COLUMN}_source"].null_count)

    def coverage(self, crawl: str) -> pa.Table:
        """Returns the files expected, harvested and failed of each subset (``COVERAGE_SCHEMA``)."""
        return self._read_table("coverage", crawl)

    def index_files(self, crawl: str) -> pa.Table:
        """Returns the index files of a crawl (``INDEX_FILES_SCHEMA``)."""
        return self._read_table("index_files", crawl)

    @cached_property
    def connection(self) -> DuckDBPyConnection:
        """A connection with all rows as the views ``row_groups``, ``index_files`` and ``coverage``
        in the schema ``catalog``. It is for one thread, and ends with the catalog."""
        from cc_pipeline.duck import connect  # noqa: PLC0415  # only queries load it

        connection = connect(memory_limit=_MEMORY)
        connection.execute("SET parquet_metadata_cache = true")
        connection.execute("CREATE SCHEMA catalog")
        stored = self._stored_rows(connection)
        for table in VIEW_SCHEMAS:
            connection.execute(f"CREATE VIEW catalog.{table} AS {table_query(table, stored)}")
        connection.execute("USE memory.catalog")
        return connection

    def _crawl(self, crawl: str) -> _Crawl:
        return _cached_crawl(crawl, self._files.get(crawl, ()), self._system)

    def _read_table(self, table: str, crawl: str) -> pa.Table:
        stored = self._crawl(crawl)
        if table not in stored.tables:
            stored.tables[table] = read_view(table, stored.read(_COLUMNS[table]))
        return stored.tables[table]

    def _stored_rows(self, connection: DuckDBPyConnection) -> str:
        """Returns the SQL name or function that reads the files of all crawls."""
        files = [file for crawl_files in self._files.values() for file in crawl_files]
        if files and isinstance(self._system, LocalFileSystem):
            quoted_files = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
            return f"read_parquet([{quoted_files}], hive_partitioning = true, hive_types = {{'crawl': VARCHAR}})"
        import pyarrow.dataset as ds  # noqa: PLC0415  # loads pandas, which only queries need

        by_crawl = ds.partitioning(pa.schema([("crawl", pa.string())]), flavor="hive")
        nothing = CATALOG_SCHEMA.empty_table()
        rows = ds.dataset(files, CATALOG_SCHEMA, "parquet", self._system, by_crawl) if files else nothing
        connection.register("stored", rows)
        return "stored"


def _may_hold(rows: pa.Table, ranges: Sequence[KeyRange]) -> pa.Array | pa.ChunkedArray:
    """Returns a mask of the rows that may have a key of ``ranges``. Rows with unknown bounds may have any."""
    low, high = rows[_LOW], rows[_HIGH]
    is_unbounded = pc.or_(pc.is_null(low), pc.is_null(high))
    if len(ranges) > _FEW_RANGES:
        requested_ranges = range_set(ranges)
        bounds = zip(low.to_pylist(), high.to_pylist(), strict=True)
        return pa.array(
            [None in bound_pair or requested_ranges.meets(*bound_pair) for bound_pair in bounds], pa.bool_()
        )
    may_match = is_unbounded
    for keys in ranges:
        inside = pc.greater_equal(high, pa.scalar(keys.start, pa.binary()))
        if keys.end is not None:
            inside = pc.and_(inside, pc.less(low, pa.scalar(keys.end, pa.binary())))
        may_match = pc.or_(may_match, pc.fill_null(inside, False))
    return may_match
