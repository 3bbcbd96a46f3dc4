"""The rows of a slice, a crawl or a whole table in small batches, whatever the size of the table's files.

pyarrow's datasets decode a row group whole, and a row group may be all the pages of a slice; a Parquet file read
batch by batch decodes page by page.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, groupby, islice
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.columns import with_columns
from cc_pipeline.lake.incomplete_tables import DAMAGE_ADVICE
from cc_pipeline.lake.lake import Lake, PinnedTable, lake_fault
from cc_pipeline.lake.layout import list_stored_files
from cc_pipeline.lake.predicates import scan

#: Rows held at a time: a row may hold a whole page.
_BATCH_ROWS = 64
#: Bytes of a column chunk that are read at a time.
_BUFFER = 1 << 16
#: Rows held at a time where a row is a few numbers and names.
_NARROW_ROWS = 1 << 16
#: The same for whole tables, where a read may be a request.
_LARGE_BUFFER = 1 << 19
#: Bytes of a batch of a whole table, by the footer, which counts a repeated value once; and rows.
_BATCH_BYTES = 8 << 20
_MAX_BATCH_ROWS = 2_048
#: Bytes of small files that are joined: joined rows are copied once or twice.
_SMALL_BYTES = 2 << 20
#: Files up to this size are read in one go; most files of a lake of many slices are small.
_SMALL_FILE = 8 << 20
#: Files that are opened ahead; as many small ones are in memory.
_PARALLEL_READS = 8


def stream_rows(
    lake: Lake, table: str, where: Mapping[str, str | Sequence[str]], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The same rows as :meth:`Lake.read` gives, batch by batch, in no order; for columns of numbers and names.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    spec = lake.specs[table]
    schema = spec.schema if columns is None else pa.schema([spec.schema.field(name) for name in columns])
    handle = lake.handle(spec)
    if handle is None or any(not isinstance(value, str) and not len(value) for value in where.values()):
        return
    try:
        yield from scan(handle, schema, where)
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise lake_fault(f"could not read {lake.address(table)}", error) from error


def count_rows(
    lake: Lake, table: str, where: Mapping[str, str | Sequence[str]], columns: Sequence[str] = ("crawl", "target")
) -> Counter[tuple[str, ...]]:
    """The number of rows with each combination of values of ``columns``. Raises as :func:`stream_rows` does."""
    counts: Counter[tuple[str, ...]] = Counter()
    for batch in stream_rows(lake, table, where, columns):
        groups = pa.Table.from_batches([batch]).group_by(list(columns)).aggregate([([], "count_all")])
        for row in groups.to_pylist():
            counts[tuple(row[name] for name in columns)] += row["count_all"]
    return counts


def stream_slices(
    lake: Lake, table: str, crawl: str, targets: Collection[str], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """``columns`` of the rows of ``targets`` in ``crawl`` at the current version, in no order; a row may hold a whole
    page.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    schema = pa.schema([lake.specs[table].schema.field(name) for name in columns])
    files = lake.file_system()
    target_array = pa.array(sorted(targets), pa.string())
    for address in _find_files(lake, table, crawl, sorted(targets)) if targets else ():
        with _translate_read_errors(address), files.open_input_file(address.removeprefix("s3://")) as source:
            yield from _file_rows(source, target_array, schema)


def _find_files(lake: Lake, table: str, crawl: str, targets: Sequence[str]) -> list[str]:
    """The files of ``crawl`` that may hold any of ``targets`` (in order), by the log: no file is opened."""
    handle = lake.handle(lake.specs[table])
    if handle is None:
        return []
    return [
        f"{lake.address(table)}/{file.path}"
        for file in list_stored_files(lake.specs[table], handle)
        if file.partition.get("crawl") == crawl
        and (file.first is None or file.last is None or (file.first <= targets[-1] and targets[0] <= file.last))
    ]


def stream_crawl(lake: Lake, pinned: PinnedTable, crawl: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """``columns`` of all rows of ``crawl`` at a version, in no order. Choose narrow columns: batches have many rows.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    schema = pa.schema([pinned.spec.schema.field(name) for name in columns])
    files = lake.file_system()
    for address in list_crawl_files(pinned, crawl):
        with _translate_read_errors(address), files.open_input_file(address.removeprefix("s3://")) as source:
            reader = pq.ParquetFile(source, pre_buffer=False)
            for batch in reader.iter_batches(_NARROW_ROWS, columns=schema.names):
                yield from with_columns(pa.Table.from_batches([batch]), schema).to_batches()


def list_crawls(pinned: PinnedTable) -> list[str]:
    """The crawls of which a table partitioned by crawl has files; no file is read."""
    return sorted({crawl for crawl in map(_crawl_of, pinned.files) if crawl is not None})


def list_crawl_files(pinned: PinnedTable, crawl: str) -> tuple[str, ...]:
    """The files of one crawl at a version. Files never change, so the same ones hold the same rows."""
    return tuple(address for address in pinned.files if f"/crawl={crawl}/" in address)


def stream_table(lake: Lake, pinned: PinnedTable) -> pa.RecordBatchReader:
    """All rows of a pinned table in the schema of its spec, in no order.

    It reads through the lake's file system, so that a lake on S3 needs no extension of DuckDB. The reader raises
    ``EnvironmentFault`` when the lake cannot be read.
    """
    return pa.RecordBatchReader.from_batches(pinned.spec.schema, _table_rows(lake, pinned))


def _table_rows(lake: Lake, pinned: PinnedTable) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(stream_files(lake, pinned.files, pinned.spec.schema))


def stream_files(lake: Lake, addresses: Iterable[str], schema: pa.Schema) -> Iterator[Iterator[pa.RecordBatch]]:
    """For each of a table's files, in their order, its rows in ``schema`` (with ``crawl`` or without), batch by batch.
    The rows of a file have to be read before the next file's. The iterators raise ``EnvironmentFault`` when the lake
    cannot be read."""
    for address, future in _open_ahead(lake, addresses):
        yield _read_rows(address, future, schema)


def stream_small_files(lake: Lake, addresses: Iterable[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of small files of a table in their order, several files together, in ``schema``, which has no column
    from folders' names. Raises ``EnvironmentFault`` when the lake cannot be read.

    With few rows, the cost is that of each column of each file, so work is done for many files together.
    """
    waiting: list[pa.Table] = []
    size = 0
    for address, future in _open_ahead(lake, addresses):
        with _translate_read_errors(address), future.result() as source:
            # the layer below ParquetFile, which would name each column of each file: a twelfth of an maintenance
            reader = pq.ParquetReader()
            reader.open(source, use_memory_map=False)
            waiting.append(reader.read_all(use_threads=False))
            size += _sum_unpacked_bytes(reader.metadata)
        if size > _SMALL_BYTES:
            yield _join_tables(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield _join_tables(waiting, schema)


def _join_tables(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    tables_by_schema = (pa.concat_tables(group) for _, group in groupby(tables, key=lambda table: table.schema))
    return pa.concat_tables(with_columns(table, schema) for table in tables_by_schema).combine_chunks()


def _open_ahead(lake: Lake, addresses: Iterable[str]) -> Iterator[tuple[str, Future[pa.NativeFile]]]:
    files = lake.file_system()

    def open_file(address: str) -> pa.NativeFile:
        source = files.open_input_file(address.removeprefix("s3://"))
        if source.size() > _SMALL_FILE:
            return source
        with source:
            return pa.BufferReader(source.read_buffer())

    waiting = iter(addresses)
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        pending_reads = deque(
            (address, pool.submit(open_file, address)) for address in islice(waiting, _PARALLEL_READS)
        )
        while pending_reads:
            yield pending_reads.popleft()
            pending_reads.extend((address, pool.submit(open_file, address)) for address in islice(waiting, 1))


@contextmanager
def _translate_read_errors(address: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise EnvironmentFault(
            f"could not read {address}: {error}",
            f"{DAMAGE_ADVICE} If it finds none, check the lake's disk or bucket and permissions, then run it again.",
        ) from error


def _read_rows(address: str, future: Future[pa.NativeFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _translate_read_errors(address), future.result() as source:
        yield from _read_complete_file(source, _crawl_of(address), schema)


def _read_complete_file(source: pa.NativeFile, crawl: str | None, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reader = pq.ParquetFile(source, pre_buffer=False, buffer_size=_LARGE_BUFFER)
    rows = max(
        _BATCH_ROWS,
        min(_MAX_BATCH_ROWS, _BATCH_BYTES * reader.metadata.num_rows // max(_sum_unpacked_bytes(reader.metadata), 1)),
    )
    for batch in reader.iter_batches(rows, columns=schema.names, use_threads=False):
        table = pa.Table.from_batches([batch])
        if crawl is not None and "crawl" in schema.names:
            # the column that a table is partitioned by is in the folder's name alone
            table = table.append_column("crawl", pa.repeat(pa.scalar(crawl, pa.string()), batch.num_rows))
        yield from with_columns(table, schema).to_batches()


def _sum_unpacked_bytes(stored: pq.FileMetaData) -> int:
    return sum(stored.row_group(number).total_byte_size for number in range(stored.num_row_groups))


def _crawl_of(address: str) -> str | None:
    folder = address.rpartition("/")[0].rpartition("/")[2]
    return unquote(folder.removeprefix("crawl=")) if folder.startswith("crawl=") else None


def _file_rows(source: pa.NativeFile, targets: pa.Array, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reader = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER)
    position = reader.schema_arrow.get_field_index("target")
    groups = [
        number
        for number in range(reader.num_row_groups)
        if _may_contain(reader.metadata.row_group(number).column(position), targets[0].as_py(), targets[-1].as_py())
    ]
    for batch in reader.iter_batches(_BATCH_ROWS, groups, ["target", *schema.names], use_threads=False):
        matching = batch.filter(pc.is_in(batch.column("target"), value_set=targets))
        if matching.num_rows:
            yield from with_columns(pa.Table.from_batches([matching]), schema).to_batches()


def _may_contain(column: pq.ColumnChunkMetaData, first: str, last: str) -> bool:
    statistics = column.statistics
    if column.path_in_schema != "target" or statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= last and first <= statistics.max)
