"""The plan of a task, as an object in the lake: ``records/<crawl>/plans/<job>/<number>.arrow``.

A job costs its driver only some hundred bytes a task, however many captures there are: captures are written task by
task and read by the worker, also by that of a repeated task. The driver deletes the plans at the end of the job; a
sweep of the crawl deletes those of a killed driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import PLACE
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.records.fetch import MergeReader
from cc_pipeline.records.locations import PLACE_NAME
from cc_pipeline.records.range_plan import MAX_RECORD_BYTES, Coalescing
from cc_pipeline.records.schema import HELD_SCHEMA
from cc_pipeline.records.storage import PLANS, STORED, RecordStorage

#: Maximum bytes of ranges, and rows, of a task. Small pages would otherwise make tasks of very many rows.
MAX_BYTES: Final = 256 << 20
MAX_ROWS: Final = 20_000
#: Smaller tasks would cost more to start than to run.
MIN_BYTES: Final = 4 << 20
MIN_ROWS: Final = 500
#: Tasks per slot, if there is enough work. With several, the slowest task delays the end less.
_TASKS_PER_SLOT: Final = 4

#: Plans that are written in parallel.
_PARALLEL_WRITES: Final = 8
#: Maximum bytes of a plan.
_MAX_PLAN_BYTES: Final = 1 << 30
_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")


def task_sizes(size: int, rows: int, slots: int) -> tuple[int, int]:
    """Bytes and rows of a task, for ``size`` bytes and ``rows`` rows in total and ``slots`` parallel tasks."""
    return task_share(size, slots, MIN_BYTES, MAX_BYTES), task_share(rows, slots, MIN_ROWS, MAX_ROWS)


def task_share(total: int, slots: int, min_share: int, max_share: int) -> int:
    """Bytes, or rows, of a task for ``total`` of them and ``slots`` parallel tasks."""
    return max(min_share, min(max_share, -(-total // (_TASKS_PER_SLOT * max(1, slots)))))


def fetch_plans(
    captures: Iterable[pa.RecordBatch],
    held_batches: Iterable[pa.RecordBatch],
    leftover_batches: Iterable[pa.RecordBatch],
    max_bytes: int = MAX_BYTES,
    max_rows: int = MAX_ROWS,
) -> Iterator[tuple[pa.Table, pa.Table, pa.Table]]:
    """Yields the captures of each task, with the rows of ``held_batches`` and ``leftover_batches`` (``HELD_SCHEMA``)
    about them.

    All three are sorted by file and offset. Captures of one location are in one task, whichever target they belong to.
    A task has complete files if they fit. Bytes are those of the ranges to read, including gaps between records.
    """
    merge_readers = MergeReader(held_batches), MergeReader(leftover_batches)
    for table in cut_tables(captures, PLACE, max_bytes, max_rows, Coalescing().gap):
        file, offset = (table.column(name)[-1].as_py() for name in PLACE_NAME)
        known_rows = (pa.Table.from_batches(rows.upto(file, offset), HELD_SCHEMA) for rows in merge_readers)
        yield table, *known_rows


def parse_plans(
    records: Iterable[pa.RecordBatch], max_bytes: int = MAX_BYTES, max_rows: int = MAX_ROWS
) -> Iterator[tuple[pa.Table]]:
    """Yields the rows of each task. ``records`` are sorted by stored file and offset, with rows without bytes first."""
    for table in cut_tables(records, STORED, max_bytes, max_rows):
        yield (table,)


def cut_tables(
    rows: Iterable[pa.RecordBatch], place: tuple[str, ...], max_bytes: int, max_rows: int, gap: int = 0
) -> Iterator[pa.Table]:
    """Splits ``rows`` into tables with a maximum of bytes and rows, unless one location has more.

    ``place`` has the columns of file, offset and length; rows are sorted by the first two. A table ends at the end of a
    file, or between two locations of a file that is larger than a table. Gaps between records count up to ``gap``
    bytes.
    """
    pending: pa.Table | None = None
    size = count = 0  # of the pending rows
    ended_size = ended_count = 0  # of those of files that ended
    last_file: str | None = None
    last_offset: int | None = None
    end = 0
    for batch in rows:
        batch_table = pa.Table.from_batches([batch])
        pending = batch_table if pending is None else pa.concat_tables([pending, batch_table])
        for file, offset, length in zip(*(batch.column(name).to_pylist() for name in place), strict=True):
            same_file = file is not None and file == last_file
            cost = 0
            if not same_file or offset != last_offset:
                if not same_file:
                    ended_size, ended_count = size, count
                cost = min(max(length or 0, 0), MAX_RECORD_BYTES)
                gap_size = (offset or 0) - end if same_file else 0
                cost += gap_size if 0 < gap_size <= gap else 0
                while count and (size + cost > max_bytes or count >= max_rows):
                    slice_rows = ended_count or count
                    yield pending.slice(0, slice_rows)
                    pending = pending.slice(slice_rows)
                    size, count = (size - ended_size, count - ended_count) if ended_count else (0, 0)
                    ended_size = ended_count = 0
                end = (offset or 0) + (length or 0)
            size, count = size + cost, count + 1
            last_file, last_offset = file, offset
    if pending is not None and pending.num_rows:
        yield pending


class Plans:
    """The plans of one job of a crawl. ``count`` is the number of written plans, numbered from 0."""

    def __init__(self, storage: RecordStorage, crawl: str, job: str) -> None:
        self._storage = storage
        self._prefix = f"{storage.folder(crawl)}/{PLANS}/{job}/"
        self.count = 0

    def write(self, plans: Iterable[Sequence[pa.Table]]) -> None:
        """Writes plans, each of some tables, with few of them in memory at a time. Raises ``EnvironmentFault``."""
        numbered = enumerate(plans, self.count)
        with ThreadPoolExecutor(_PARALLEL_WRITES) as pool:
            while packed_plans := [
                (number, _pack_tables(tables)) for number, tables in islice(numbered, _PARALLEL_WRITES)
            ]:
                for _ in pool.map(
                    lambda numbered_plan: self._storage.transport.put(self._key(numbered_plan[0]), numbered_plan[1]),
                    packed_plans,
                ):
                    self.count += 1

    def read(self, number: int) -> list[pa.Table]:
        """The tables of one plan. Raises ``EnvironmentFault``."""
        return _unpack_tables(self._storage.transport.read_all(self._key(number), _MAX_PLAN_BYTES).data)

    def delete(self) -> None:
        """Deletes the written plans. Plans that cannot be deleted remain for a sweep."""
        with suppress(CcPipelineError), ThreadPoolExecutor(_PARALLEL_WRITES) as pool:
            list(pool.map(lambda number: self._storage.transport.delete(self._key(number)), range(self.count)))

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:06d}.arrow"


@contextmanager
def stored_plans(job_plans: Plans, plans: Iterable[Sequence[pa.Table]]) -> Iterator[Plans]:
    """Writes the plans of a job and deletes them at the end of the block."""
    try:
        job_plans.write(plans)
        yield job_plans
    finally:
        job_plans.delete()


def _pack_tables(tables: Sequence[pa.Table]) -> bytes:
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema, options=_IPC_OPTIONS) as writer:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _unpack_tables(data: bytes) -> list[pa.Table]:
    source = pa.BufferReader(data)
    tables = []
    while source.tell() < len(data):
        tables.append(pa.ipc.open_stream(source).read_all())
    return tables
