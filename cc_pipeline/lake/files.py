"""Writes the files of tables: rows of a crawl or of a table with keys, in row groups of bounded size.

A writer needs the place of the lake and no log, so any number of workers write at the same time. Files count for the
log once a commit names them, and their rows once a row of ``slices`` names their generations. Maintenance deletes files
that no commit named a week after they were written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.atomic import make_durable_folder, sync_files
from cc_pipeline.errors import PlaceFault
from cc_pipeline.lake.columns import with_columns
from cc_pipeline.lake.content_digests import combine_digests, compute_content_digests
from cc_pipeline.lake.lake import GENERATION, Lake, TableSpec, lake_fault
from cc_pipeline.lake.layout import FILE_BYTES, ROW_GROUP_ROWS, StoredFile, clustered_by

#: Bytes of rows, not packed, in a row group at most: a row may be a whole page.
_ROW_GROUP_BYTES: Final = 8 << 20
#: Rows that are put into a row group at a time.
BATCH_ROWS: Final = 1_024
#: Batches that become one, and their bytes.
_JOINED_BATCHES: Final = 32
_JOINED_BYTES: Final = 1 << 20
#: Bytes of rows, uncompressed, that are sorted together: a file or two. Bounds the memory of a worker.
_SORT_BYTES: Final = 64 << 20
#: How the files of tables are packed.
_COMPRESSION: Final = {"compression": "ZSTD", "compression_level": 3}
#: The same for a few rows, until they are merged: the cost is then that of each column, to write and to read. Without a
#: dictionary it is half of that, and unpacking needs no state in advance; files are smaller.
_QUICK_COMPRESSION: Final = {"compression": "SNAPPY", "use_dictionary": False}
#: Bytes of rows up to which they are few.
_FEW_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows of one crawl that were written to ``files`` for a table. ``rows`` has their number by slice, and
    ``contents`` the digest of their content; a slice that is the whole crawl is an empty text. All values are plain:
    the object can be pickled."""

    files: tuple[StoredFile, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    contents: Mapping[str, str] = field(default_factory=dict)


def join_rows(parts: Iterable[WrittenRows]) -> WrittenRows:
    """The rows that several writers wrote for the same slices."""
    files: list[StoredFile] = []
    rows: Counter[str] = Counter()
    contents: dict[str, list[str]] = {}
    for part in parts:
        files += part.files
        rows.update(part.rows)
        for target, content in part.contents.items():
            contents.setdefault(target, []).append(content)
    return WrittenRows(tuple(files), dict(rows), {target: combine_digests(sums) for target, sums in contents.items()})


def write_rows(
    lake: Lake,
    table: str,
    crawl: str,
    batches: Iterable[pa.RecordBatch],
    generations: Mapping[str, int],
    *,
    name: str = "",
    is_sorted: bool = True,
) -> WrittenRows:
    """Writes rows of ``crawl``, in the table's schema, with the generation of each slice (``generations``, by target;
    by an empty text where a slice is the crawl). Reads no log. Memory is bounded, as long as single batches are small.

    Rows follow each other by target; unless ``is_sorted`` they are sorted as the spec says, some 64 MB at a time.
    ``name`` goes into the files' names. Raises ``KeyError`` for rows of other slices, ``EnvironmentFault`` when the
    place cannot be written, and any error of ``batches``.
    """
    spec = lake.specs[table]
    by_target = "target" in spec.slice_columns
    rows: Counter[str] = Counter()
    contents = _ContentSums(spec)

    def add_generations(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not by_target:
            rows[""] += batch.num_rows
            numbers = pa.repeat(pa.scalar(generations[""], pa.int64()), batch.num_rows)
        else:
            targets = batch.column("target").dictionary_encode()
            slugs = targets.dictionary.to_pylist()
            for row in pc.value_counts(batch.column("target")).to_pylist():
                rows[row["values"]] += row["counts"]
            numbers = pa.array([generations[target] for target in slugs], pa.int64()).take(targets.indices)
            contents.add(batch)
        return batch.append_column(GENERATION, numbers)

    numbered = map(add_generations, batches)
    sources = (numbered,) if is_sorted else (table.to_batches() for table in _sort(spec, numbered))
    files = tuple(file for source in sources for file in write_files(lake, spec, {"crawl": crawl}, source, name=name))
    return WrittenRows(files, dict(rows), contents.digests())


class _ContentSums:
    """The content digests of targets, whose rows come batch by batch."""

    def __init__(self, spec: TableSpec) -> None:
        self._excluded = (*spec.provenance_columns, "crawl")
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._sums: dict[str, list[str]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > _JOINED_BYTES:
            self._flush()

    def _flush(self) -> None:
        for target, digest in compute_content_digests(self._waiting, "target", self._excluded).items():
            self._sums.setdefault(target, []).append(digest)
        self._waiting, self._bytes = [], 0

    def digests(self) -> dict[str, str]:
        self._flush()
        return {target: combine_digests(parts) for target, parts in self._sums.items()}


def _sort(spec: TableSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows in sorted runs; rows with equal keys keep their order."""
    sort_keys = [(name, "ascending") for name in dict.fromkeys([clustered_by(spec), *spec.sort_by]) if name is not None]
    waiting: list[pa.Table] = []
    size = 0
    for rows in build_row_groups(batches, spec.stored_schema):
        if waiting and size + rows.nbytes > _SORT_BYTES:
            yield pa.concat_tables(waiting).sort_by(sort_keys)
            waiting, size = [], 0
        waiting.append(rows)
        size += rows.nbytes
    if waiting:
        yield pa.concat_tables(waiting).sort_by(sort_keys)


def write_files(
    lake: Lake,
    spec: TableSpec,
    partition: Mapping[str, str | None],
    batches: Iterable[pa.RecordBatch],
    *,
    name: str = "",
    is_quick: bool = True,
) -> Iterator[StoredFile]:
    """Writes rows in the stored schema of a table, in their order, and yields each file once it is complete and on
    disk. The log does not name them yet. ``is_quick``: a few rows are packed quickly, until they are merged. Raises
    ``EnvironmentFault`` when the place cannot be written."""
    folder = "".join(f"{column}={quote(partition[column] or '', safe='')}/" for column in spec.partition_columns)
    schema = pa.schema([column for column in spec.stored_schema if column.name not in spec.partition_columns])
    own_partition = {column: partition[column] for column in spec.partition_columns}
    run = f"{name}-{uuid4()}" if name else str(uuid4())
    groups = build_row_groups(batches, schema, spec.row_group_rows)
    table, next_table = next(groups, None), next(groups, None)
    is_small = is_quick and table is not None and next_table is None and table.nbytes <= _FEW_BYTES
    address, system = lake.address(spec.name).removeprefix("s3://"), lake.file_system()
    for number in count():
        if table is None:
            return
        path = f"{folder}part-{number:05}-{run}-c000.zstd.parquet"
        bounds: dict[str, tuple[Any, Any]] = {}
        rows = 0
        try:
            if "://" not in lake.root:
                make_durable_folder(Path(address) / folder)
            with (
                system.open_output_stream(f"{address}/{path}") as sink,
                pq.ParquetWriter(
                    sink,
                    schema,
                    **(_QUICK_COMPRESSION if is_small else _COMPRESSION),
                    # as the format of the tables has times; a stored Arrow schema would say milliseconds to others
                    coerce_timestamps="us",
                    store_schema=False,
                ) as writer,
            ):
                while table is not None and sink.tell() < FILE_BYTES:
                    bounds = _widen(bounds, table, spec.bounded_columns)
                    writer.write_table(table, row_group_size=table.num_rows)
                    rows += table.num_rows
                    table, next_table = next_table, next(groups, None)
            size = system.get_file_info(f"{address}/{path}").size
            if "://" not in lake.root:
                # the log's writer may be another machine, whose own sync would not reach what is in memory here
                sync_files([Path(address) / path])
        except OSError as error:
            raise lake_fault(f"could not write {lake.address(spec.name)}", error, PlaceFault) from error
        first, last = bounds.get(clustered_by(spec) or "", (None, None))
        yield StoredFile(path, own_partition, size, rows, int(time.time() * 1_000), bounds, first, last)


def _widen(
    bounds: Mapping[str, tuple[Any, Any]], table: pa.Table, columns: Iterable[str]
) -> dict[str, tuple[Any, Any]]:
    widened = {}
    for name in columns:
        extremes = pc.min_max(table.column(name)).as_py()
        lower, greatest = bounds.get(name, (extremes["min"], extremes["max"]))
        widened[name] = min(lower, extremes["min"]), max(greatest, extremes["max"])
    return widened


def build_row_groups(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, max_rows: int = ROW_GROUP_ROWS
) -> Iterator[pa.Table]:
    """Rows in their order, in ``schema``, joined to tables of the size of a row group."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for joined in _join_batches(batches, schema):
        # a row may be a page of a megabyte
        length = max(1, min(BATCH_ROWS, _ROW_GROUP_BYTES * joined.num_rows // max(joined.nbytes, 1)))
        for start in range(0, joined.num_rows, length):
            table = joined.slice(start, length)
            waiting.append(table)
            rows, size = rows + table.num_rows, size + table.nbytes
            if rows >= max_rows or size >= _ROW_GROUP_BYTES:
                yield pa.concat_tables(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _join_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """``batches`` in ``schema``. Small ones are copied into one, since each column of each costs as much as some
    hundred rows."""
    waiting: list[pa.Table] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(with_columns(pa.Table.from_batches([batch]), schema))
        size += batch.nbytes
        if len(waiting) == _JOINED_BATCHES or size > _JOINED_BYTES:
            yield pa.concat_tables(waiting).combine_chunks() if len(waiting) > 1 else waiting[0]
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()
