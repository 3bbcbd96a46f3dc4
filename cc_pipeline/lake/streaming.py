"""The rows that count of a slice, a crawl or a whole table, in small batches, whatever the size of the table's files.

The generations that count are read first, then the table is pinned: rows that a commit adds meanwhile are left out.
pyarrow's datasets decode a row group whole, and a row group may be all the pages of a slice; a Parquet file read
batch by batch decodes page by page.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from cc_pipeline.capture_columns import SLICE
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.columns import with_columns
from cc_pipeline.lake.damaged_files import DAMAGE_ADVICE
from cc_pipeline.lake.keyed import read_newest, select_newest
from cc_pipeline.lake.lake import GENERATION, REMOVED, Lake, lake_fault
from cc_pipeline.lake.layout import StoredFile
from cc_pipeline.lake.predicates import Where, scan
from cc_pipeline.lake.slices import current_generations

if TYPE_CHECKING:
    from cc_pipeline.lake.live_rows import LiveTable

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
#: Files up to this size are read in one go; most files of a lake of many slices are small.
_SMALL_FILE = 8 << 20
#: Files that are opened ahead; as many small ones are in memory.
_PARALLEL_READS = 8


def read_rows(lake: Lake, table: str, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows that count whose columns equal ``where`` (a value, or any of a sequence), in the table's own schema.
    Raises ``EnvironmentFault`` when the lake cannot be read."""
    spec = lake.specs[table]
    if spec.key:
        return read_newest(lake, table, where, columns)
    schema = spec.schema if columns is None else pa.schema([spec.schema.field(name) for name in columns])
    return pa.Table.from_batches(stream_rows(lake, table, where or {}, columns), schema)


def stream_rows(
    lake: Lake,
    table: str,
    where: Where,
    columns: Sequence[str] | None = None,
    generations: Collection[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The same of a table with slices, batch by batch, in no order; for columns of numbers and names. ``generations``
    are those to be read, where the caller knows the state of the slices.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    spec = lake.specs[table]
    names = list(spec.schema.names if columns is None else columns)
    if any(not isinstance(value, str) and not len(value) for value in where.values()):
        return
    if generations is not None:
        numbers = pa.array([*generations], pa.int64())
    else:
        numbers = current_generations(lake, table, {name: where[name] for name in SLICE if name in where})
    handle = lake.handle(spec) if len(numbers) else None
    if handle is None:
        return
    schema = pa.schema([spec.stored_schema.field(name) for name in [*names, GENERATION.name]])
    with _translate_scan_errors(lake, table):
        for batch in scan(handle, schema, where):
            rows = batch.filter(pc.is_in(batch.column(GENERATION.name), value_set=numbers))
            if rows.num_rows:
                yield rows.select(names)


def count_stored_rows(lake: Lake, table: str, where: Where) -> Counter[tuple[str, str, int]]:
    """The number of rows of each crawl, target and generation of a table with slices, whether they count or not. Raises
    as :func:`stream_rows` does."""
    counts: Counter[tuple[str, str, int]] = Counter()
    spec = lake.specs[table]
    names = [*SLICE, GENERATION.name]
    schema = pa.schema([spec.stored_schema.field(name) for name in names])
    with _translate_scan_errors(lake, table):
        handle = lake.handle(spec)
        for batch in () if handle is None else scan(handle, schema, where):
            groups = pa.Table.from_batches([batch]).group_by(names).aggregate([([], "count_all")])
            counts.update({tuple(row[name] for name in names): row["count_all"] for row in groups.to_pylist()})
    return counts


@contextmanager
def _translate_scan_errors(lake: Lake, table: str) -> Iterator[None]:
    try:
        yield
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise lake_fault(f"could not read {lake.address(table)}", error) from error


def count_rows(
    lake: Lake, table: str, where: Where, columns: Sequence[str] = ("crawl", "target")
) -> Counter[tuple[str, ...]]:
    """The number of rows with each combination of values of ``columns``. Raises as :func:`stream_rows` does."""
    counts: Counter[tuple[str, ...]] = Counter()
    for batch in stream_rows(lake, table, where, columns):
        groups = pa.Table.from_batches([batch]).group_by(list(columns)).aggregate([([], "count_all")])
        for row in groups.to_pylist():
            counts[tuple(row[name] for name in columns)] += row["count_all"]
    return counts


def stream_slices(
    lake: Lake,
    table: str,
    crawl: str,
    targets: Collection[str],
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """``columns`` of the rows that count of ``targets`` in ``crawl``, in no order; a row may hold a whole page.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    sorted_targets = sorted(targets)
    numbers = current_generations(lake, table, {"crawl": crawl, "target": sorted_targets})
    if not len(numbers):
        return
    schema = pa.schema([lake.specs[table].stored_schema.field(name) for name in [*columns, GENERATION.name]])
    for file in lake.pin(table).stored_files([crawl]):
        if (
            file.first is None
            or file.last is None
            or (file.first <= sorted_targets[-1] and sorted_targets[0] <= file.last)
        ):
            for batch in _read_file(lake, table, file, schema, _BATCH_ROWS, (sorted_targets[0], sorted_targets[-1])):
                rows = batch.filter(pc.is_in(batch.column(GENERATION.name), value_set=numbers))
                if rows.num_rows:
                    yield rows.select(list(columns))


def stream_crawl(
    lake: Lake, table: str, crawl: str, columns: Sequence[str], *, excluded: Collection[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """``columns`` of all rows of ``crawl`` that count, in no order; or of all rows without those of the generations
    ``excluded``, whether they count or not. Choose narrow columns: batches have many rows.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    numbers = (
        current_generations(lake, table, {"crawl": crawl}) if excluded is None else pa.array([*excluded], pa.int64())
    )
    schema = pa.schema([lake.specs[table].stored_schema.field(name) for name in [*columns, GENERATION.name]])
    for file in lake.pin(table).stored_files([crawl]):
        for batch in _read_file(lake, table, file, schema, _NARROW_ROWS):
            is_selected = pc.is_in(batch.column(GENERATION.name), value_set=numbers)
            rows = batch.filter(is_selected if excluded is None else pc.invert(is_selected))
            if rows.num_rows:
                yield rows.select(list(columns))


def count_generations(lake: Lake, table: str, file: StoredFile) -> Counter[int]:
    """The number of rows of each generation in a file of a table with slices. Raises ``EnvironmentFault``."""
    lowest, greatest = file.bounds.get(GENERATION.name, (None, None))
    if lowest is not None and lowest == greatest:
        return Counter({lowest: file.rows})
    counts: Counter[int] = Counter()
    schema = pa.schema([GENERATION])
    for batch in _read_file(lake, table, file, schema, _NARROW_ROWS):
        for pair in pc.value_counts(batch.column(0)).to_pylist():
            counts[pair["values"]] += pair["counts"]
    return counts


def stream_live_rows(lake: Lake, table: LiveTable) -> pa.RecordBatchReader:
    """The rows that count of a pinned table, in the schema of its spec, in no order.

    It reads through the lake's file system, so that a lake on S3 needs no extension of DuckDB. The reader raises
    ``EnvironmentFault`` when the lake cannot be read.
    """
    spec = table.pinned.spec

    def batches() -> Iterator[pa.RecordBatch]:
        if spec.key:
            stored = chain.from_iterable(stream_files(lake, table.complete, spec.stored_schema))
            newest = select_newest(pa.Table.from_batches(stored, spec.stored_schema), spec.key)
            yield from newest.filter(pc.invert(newest[REMOVED.name])).select(spec.schema.names).to_batches()
            return
        yield from chain.from_iterable(stream_files(lake, table.complete, spec.schema))
        for batch in chain.from_iterable(stream_files(lake, table.mixed, spec.stored_schema)):
            is_live = pc.is_in(batch.column(GENERATION.name), value_set=table.generations)
            yield batch.filter(is_live).select(spec.schema.names)

    return pa.RecordBatchReader.from_batches(spec.schema, batches())


def stream_files(lake: Lake, addresses: Iterable[str], schema: pa.Schema) -> Iterator[Iterator[pa.RecordBatch]]:
    """For each of a table's files, in their order, its rows in ``schema`` (with ``crawl`` or without), batch by batch.
    The rows of a file have to be read before the next file's. The iterators raise ``EnvironmentFault`` when the lake
    cannot be read."""
    for address, future in _open_ahead(lake, addresses):
        yield _read_rows(address, future, schema)


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
    stored_columns = set(reader.schema_arrow.names)  # made again at each access
    names = [name for name in schema.names if name in stored_columns]
    for batch in reader.iter_batches(rows, columns=names, use_threads=False):
        yield from with_columns(_add_crawl(pa.Table.from_batches([batch]), crawl, schema), schema).to_batches()


def _sum_unpacked_bytes(stored: pq.FileMetaData) -> int:
    return sum(stored.row_group(number).total_byte_size for number in range(stored.num_row_groups))


def _crawl_of(address: str) -> str | None:
    folder = address.rpartition("/")[0].rpartition("/")[2]
    return unquote(folder.removeprefix("crawl=")) if folder.startswith("crawl=") else None


def _read_file(
    lake: Lake, table: str, file: StoredFile, schema: pa.Schema, batch_rows: int, targets: tuple[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in ``schema``, or of its row groups that may have any of ``targets`` (the first and last)."""
    address = f"{lake.address(table)}/{file.path}"
    with (
        _translate_read_errors(address),
        lake.file_system().open_input_file(address.removeprefix("s3://")) as source,
    ):
        reader = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER)
        position = reader.schema_arrow.get_field_index("target")
        groups = [
            number
            for number in range(reader.num_row_groups)
            if targets is None or _may_contain(reader.metadata.row_group(number).column(position), *targets)
        ]
        names = [name for name in schema.names if name not in file.partition]
        for batch in reader.iter_batches(batch_rows, groups, names, use_threads=False):
            yield from with_columns(_add_crawl(pa.Table.from_batches([batch]), file.crawl, schema), schema).to_batches()


def _add_crawl(rows: pa.Table, crawl: str | None, schema: pa.Schema) -> pa.Table:
    """``rows`` with the column that is in the folder's name alone, if ``schema`` has it."""
    if crawl is None or "crawl" not in schema.names or "crawl" in rows.schema.names:
        return rows
    return rows.append_column("crawl", pa.repeat(pa.scalar(crawl, pa.string()), rows.num_rows))


def _may_contain(column: pq.ColumnChunkMetaData, first: str, last: str) -> bool:
    statistics = column.statistics
    if column.path_in_schema != "target" or statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= last and first <= statistics.max)
