"""Sorts rows of any number and width by some of their columns, with flat memory.

A lake gives rows in no order, and a stage wants the rows of a file together. A few rows stay in memory; more are sorted
in runs on disk, which are merged a piece of each at a time. Memory is bounded in bytes, never in rows: a row may be a
few numbers, or a page.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import disk_trouble

#: Bytes of rows that are kept, and sorted, in memory.
IN_MEMORY = 32 << 20
#: Rows of a batch that is given back, and bytes of one of several rows.
_BATCH_ROWS = 4_096
_BATCH_BYTES = 4 << 20
#: Runs merged at once, which is also how many files are open, and bytes of each that are in memory then at least.
_MAX_RUNS = 48
_PIECE = 1 << 20
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
#: A sort key: for each column of the order whether there is a value, and the value.
_SortKey = tuple[tuple[bool, Any], ...]


class OrderedRows:
    """Takes rows batch by batch (:meth:`add`), and gives all of them in the order of some columns, nulls first, as
    often as it is asked (:meth:`batches`).

    ``order`` may be empty: then rows come back as they were added. Rows with equal keys come in no order once there are
    many. ``folder`` exists and is deleted by the caller afterwards. Every method raises ``EnvironmentFault`` if files
    in it cannot be written or read.
    """

    def __init__(self, schema: pa.Schema, order: Sequence[str], folder: Path, in_memory: int | None = None) -> None:
        self.schema = schema
        self.rows = 0
        self._order = tuple(order)
        self._in_memory = IN_MEMORY if in_memory is None else in_memory
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._path = folder / f"rows-{uuid.uuid4().hex}.arrow"
        #: Sorted files, those with rows that were merged already behind the others.
        self._runs: list[Path] = []
        self._number = 0
        self._writer: pa.RecordBatchWriter | None = None
        self._is_ordered = not order

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds rows of the schema; not after rows were read."""
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            if not batch.num_rows:
                continue
            self.rows += batch.num_rows
            self._bytes += batch.nbytes
            self._waiting.append(batch)
            if self._bytes > self._in_memory:
                self._spill()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order, in batches of some thousand, or fewer where they are wide."""
        if self._writer is None and not self._runs:
            yield from _split_rows(self._sort_in_memory(), _BATCH_ROWS, _BATCH_BYTES)
            return
        if self._waiting:
            self._spill()
        with disk_trouble(self._path):
            if self._writer is not None:
                self._writer.close()
            elif not self._is_ordered:
                self._merge(self._reduce_runs(), self._path)
                self._is_ordered = True
            yield from spilled_batches(self._path)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """The same, for the only time: rows on disk are merged as they are read, and not written once more."""
        if not self._runs or self._is_ordered:
            yield from self.batches()
            return
        if self._waiting:
            self._spill()
        with disk_trouble(self._path):
            paths = self._reduce_runs()
            yield from self._merge_runs(paths)
            for path in paths:
                path.unlink()

    def _reduce_runs(self) -> list[Path]:
        """All runs, merged until they are few enough to be merged at once."""
        while len(self._runs) > _MAX_RUNS:
            count = min(_MAX_RUNS, len(self._runs) - _MAX_RUNS + 1)
            merged_path = self._new_path()
            self._merge(self._runs[:count], merged_path)
            # taken from the list once they are merged: a full disk loses no rows
            self._runs = [*self._runs[count:], merged_path]
        return self._runs

    def _spill(self) -> None:
        """Appends the rows in memory to the file of rows without an order, or writes them as a run."""
        with disk_trouble(self._path):
            if self._order:
                path = self._new_path()
                self._write(_split_rows(_sort_table(self._take_waiting(), self._order), _BATCH_ROWS, _PIECE), path)
                # listed once it is complete: a full disk leaves a damaged file
                self._runs.append(path)
            else:
                if self._writer is None:
                    self._writer = pa.ipc.new_stream(str(self._path), self.schema, options=_COMPRESSED)
                for batch in _split_rows(self._take_waiting(), _BATCH_ROWS, _BATCH_BYTES):
                    self._writer.write_batch(batch)

    def _take_waiting(self) -> pa.Table:
        table = pa.Table.from_batches(self._waiting, self.schema)
        self._waiting, self._bytes = [], 0
        return table

    def _new_path(self) -> Path:
        self._number += 1
        return self._path.with_name(f"{self._path.stem}-run-{self._number}.arrow")

    def _merge(self, paths: Sequence[Path], target_path: Path) -> None:
        self._write(self._merge_runs(paths), target_path)
        for path in paths:
            path.unlink()

    def _merge_runs(self, paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
        # the more rows are compared together, the less often each run is searched for their end
        max_bytes = self._in_memory // max(1, len(paths))
        return _merge_sorted([_Run(spilled_batches(path), self._order, max_bytes) for path in paths], self._order)

    def _write(self, batches: Iterable[pa.RecordBatch], path: Path) -> None:
        with pa.ipc.new_stream(str(path), self.schema, options=_COMPRESSED) as out:
            for batch in batches:
                out.write_batch(batch)

    def _sort_in_memory(self) -> pa.Table:
        table = pa.Table.from_batches(self._waiting, self.schema)
        if not self._is_ordered:
            table = _sort_table(table, self._order)
            self._waiting, self._is_ordered = table.to_batches(), True
        return table


@dataclass(slots=True)
class _Run:
    """A sorted file that is read in pieces of about ``max_bytes`` bytes: ``rows`` is the current piece, ``None`` at the
    end, and ``last`` the sort key of its last row."""

    pieces: Iterator[pa.RecordBatch]
    order: Sequence[str]
    max_bytes: int
    rows: pa.RecordBatch | None = None
    last: _SortKey = ()

    def advance(self) -> None:
        new_pieces: list[pa.RecordBatch] = []
        size = 0
        while (not new_pieces or size < self.max_bytes) and (piece := next(self.pieces, None)) is not None:
            new_pieces.append(piece)
            size += piece.nbytes
        self.rows = pa.concat_batches(new_pieces) if new_pieces else None
        if self.rows is not None:
            self.last = _read_sort_key(self.rows, self.order, self.rows.num_rows - 1)


def _merge_sorted(runs: Sequence[_Run], order: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Merges sorted runs, with a piece of each in memory."""
    for run in runs:
        run.advance()
    while open_runs := [run for run in runs if run.rows is not None]:
        # rows up to this key are all in memory
        bound = min(run.last for run in open_runs)
        row_slices: list[pa.RecordBatch] = []
        for run in open_runs:
            rows = run.rows
            assert rows is not None
            if run.last == bound:
                row_slices.append(rows)
                run.advance()
                continue
            if count := _count_until(rows, order, bound):
                row_slices.append(rows.slice(0, count))
                run.rows = rows.slice(count)
        merged = pa.Table.from_batches(row_slices)
        yield from _split_rows(merged if len(row_slices) == 1 else _sort_table(merged, order), _BATCH_ROWS, _PIECE)


def _count_until(rows: pa.RecordBatch, order: Sequence[str], bound: _SortKey) -> int:
    """The number of sorted rows that do not come after ``bound``."""
    first, end = 0, rows.num_rows
    for name, value in zip(order, bound, strict=True):
        # rows before the first come before ``bound``, and up to the end they are like it in the columns so far
        read_key = partial(_read_value, rows.column(name))
        if read_key(first) != value:
            first = bisect_left(range(end), value, first, key=read_key)
        if first < end and read_key(end - 1) != value:
            end = bisect_right(range(end), value, first, key=read_key)
        if first >= end:
            return first
    return end


def _read_sort_key(rows: pa.RecordBatch, order: Sequence[str], row: int) -> _SortKey:
    return tuple(_read_value(rows.column(name), row) for name in order)


def _read_value(column: pa.Array, row: int) -> tuple[bool, Any]:
    value = column[row].as_py()
    # nulls sort first, and are compared with nothing
    return (True, value) if value is not None else (False, 0)


def _split_rows(rows: pa.Table, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Rows in batches of at most so many rows and bytes; a batch of one row may have more bytes."""
    for batch in rows.to_batches(max_chunksize=max_rows):
        if batch.nbytes <= max_bytes or batch.num_rows == 1:
            yield batch
            continue
        # one wide row among narrow ones: only batches near it are small
        for half in (batch.slice(0, batch.num_rows // 2), batch.slice(batch.num_rows // 2)):
            yield from _split_rows(pa.Table.from_batches([half]), max_rows, max_bytes)


def spilled_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of an Arrow stream file, batch by batch: for a commit with flat memory."""
    # not mapped into memory: a process would seem to hold all that it has read
    with pa.OSFile(str(path)) as source:
        yield from pa.ipc.open_stream(source)


def complete_groups(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same sorted rows; rows that agree in ``columns`` are in one batch."""
    waiting: pa.RecordBatch | None = None
    for batch in batches:
        joined = batch if waiting is None else pa.concat_batches([waiting, batch])
        last = int(find_group_starts(joined, columns)[-1]) if joined.num_rows else 0
        if last:
            yield joined.slice(0, last)
        waiting = joined.slice(last)
    if waiting is not None and waiting.num_rows:
        yield waiting


def find_group_starts(rows: pa.RecordBatch, columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """The numbers of the rows that differ from the row before them in ``columns``; nulls differ from nothing."""
    is_start = np.zeros(rows.num_rows, bool)
    is_start[:1] = True
    for name in columns:
        column = rows.column(name)
        is_start[1:] |= np.asarray(pc.fill_null(pc.not_equal(column[1:], column[:-1]), False))
    return np.flatnonzero(is_start)


def _sort_table(table: pa.Table, order: Sequence[str]) -> pa.Table:
    if not table.num_rows:
        return table
    keys: dict[str, pa.ChunkedArray] = {}
    for name in order:
        column = table.column(name)
        if column.null_count:
            # older versions of Arrow sort nulls to one end whatever the column: whether there is a value is a key
            keys[f"is there:{name}"] = pc.is_valid(column)
        keys[f"value:{name}"] = column
    return table.take(pc.sort_indices(pa.table(keys), [(key, "ascending") for key in keys]))
