"""Merges files of a table into one sorted run of files of a bounded size, without rows that no longer count.

A merge takes the rows of the files in the order of their targets: those of a slice lie side by side in each file, so
nothing is sorted. It is committed only on top of the version that it was made from, or where all its files are still in
the table: no row is lost, and none is there twice. It changes no answer.

Rows of a generation that no row of ``slices`` names may be of a run that is about to commit. Their files are left alone
for a week; then the generations are condemned, which every commit looks for, and dropped.
"""

from __future__ import annotations

import heapq
import json
import math
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.files import write_files
from cc_pipeline.lake.keyed import TRIES, update_rows
from cc_pipeline.lake.lake import GENERATION, REMOVED, SEQ, Lake, TableSpec
from cc_pipeline.lake.layout import MAX_SMALL_FILES, StoredFile, clustered_by, find_due_merges, list_stored_files
from cc_pipeline.lake.ordered import find_group_starts
from cc_pipeline.lake.slices import CONDEMNED, SLICES, read_liveness
from cc_pipeline.lake.streaming import count_generations, stream_files

#: The share of a file's rows that are dead from which on it is rewritten.
_DEAD_SHARE: Final = 0.2
#: How long superseded rows of tables with a key stay, and how long a commit may take.
_RETENTION: Final = timedelta(days=7)
#: Rows of a table with a key that are looked at together.
_KEYED_ROWS: Final = 16_384
#: Bytes of a file up to which its rows are read at once.
_SMALL_FILE: Final = 256 << 10
#: Condemned generations that are remembered in a crawl.
_MAX_CONDEMNED: Final = 100_000

#: Gives the rows of each generation in a file.
_CountRows: TypeAlias = Callable[[StoredFile], Counter[int]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of merging: crawls with more than ``max_small_files`` small files are merged, at most ``max_bytes`` in
    one go, and no merge begins after ``until`` (``time.monotonic()``). ``drops_dead``: files with many rows that no
    longer count are rewritten too, for which the generations of all files are counted. With ``purged``, generations of
    purged targets by crawl, only their rows are dropped, whatever else is due. Without, these rows stay: they say which
    stored records a purge has to delete."""

    max_small_files: int = field(default_factory=lambda: MAX_SMALL_FILES)
    max_bytes: int | None = None
    until: float = math.inf
    drops_dead: bool = True
    purged: Mapping[str, Collection[int]] | None = None


def is_due(lake: Lake, table: str, bounds: Bounds) -> bool:
    """Whether a merge is due by the number and size of files alone; reads the log, no files.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    spec = lake.specs[table]
    if clustered_by(spec) is None:
        return False
    return bool(find_due_merges(lake.pin(table).stored_files(), bounds.max_small_files, bounds.max_bytes))


def compact(lake: Lake, table: str, bounds: Bounds) -> int:
    """Merges the files of ``table`` that are due, within ``bounds``. Returns how many were replaced.

    Other processes may read, commit and merge meanwhile; files that one of them replaced are left to the next time.
    Raises ``EnvironmentFault`` when the lake cannot be read or written.
    """
    spec = lake.specs[table]
    replaced = 0
    for crawl in sorted({file.crawl for file in lake.pin(table).stored_files(bounds.purged)}):
        count_rows = _remember_counts(lake, table)
        while time.monotonic() < bounds.until:
            step = _find_step(lake, spec, crawl, bounds, count_rows)
            added = None if step is None else _replace(lake, spec, step)
            if step is None or added is None:
                break
            replaced += len(step.files)
            # a merge that changed nothing would be due for ever
            if len(added) >= len(step.files) and _sum_rows(added) == _sum_rows(step.files):
                break
    return replaced


def _remember_counts(lake: Lake, table: str) -> _CountRows:
    counts: dict[str, Counter[int]] = {}

    def count_rows(file: StoredFile) -> Counter[int]:
        # files never change
        if file.path not in counts:
            counts[file.path] = count_generations(lake, table, file)
        return counts[file.path]

    return count_rows


@dataclass(frozen=True, slots=True)
class _Step:
    """Files of one partition that are merged, without rows of the generations ``dropped``: ``rows`` are left (``None``:
    not known)."""

    files: Sequence[StoredFile]
    dropped: pa.Array
    rows: int | None = None


def _find_step(lake: Lake, spec: TableSpec, crawl: str, bounds: Bounds, count_rows: _CountRows) -> _Step | None:
    files = lake.pin(spec.name).stored_files([crawl])
    if bounds.purged is not None:
        purged = {*bounds.purged[crawl]}
        files = [file for file in files if not purged.isdisjoint(count_rows(file))]
        # some may count again, or were committed before they were condemned
        droppable = purged - read_liveness(lake, spec.name, crawl).alive if files else purged
        return _choose_step(files, [[file] for file in files], droppable, count_rows)
    merges = find_due_merges(files, bounds.max_small_files, bounds.max_bytes) if clustered_by(spec) else []
    if spec.key:
        if not merges and bounds.drops_dead and _has_many_superseded(lake, spec, files):
            merges = [files]
        return _Step(merges[0], pa.array([], pa.int64())) if merges else None
    if not merges and not bounds.drops_dead:
        return None
    countable, droppable = _find_droppable(lake, spec, crawl, files if bounds.drops_dead else merges[0], count_rows)
    return _choose_step(countable, merges, droppable, count_rows)


def _has_many_superseded(lake: Lake, spec: TableSpec, files: Sequence[StoredFile]) -> bool:
    """Whether many rows of a table with a key would be dropped."""
    names = {*spec.key, SEQ.name, REMOVED.name, "committed_at"}
    columns = pa.schema([column for column in spec.stored_schema if column.name in names])
    addresses = _addresses(lake, spec, files)
    rows = pa.Table.from_batches(chain.from_iterable(stream_files(lake, addresses, columns)), columns)
    return bool(np.count_nonzero(~_find_kept(spec, _sort_by_key(spec, rows))) > _DEAD_SHARE * rows.num_rows)


def _choose_step(
    files: Sequence[StoredFile],
    merges: Sequence[Sequence[StoredFile]],
    droppable: Collection[int],
    count_rows: _CountRows,
) -> _Step | None:
    """The next of ``files`` to be merged: those with droppable rows alone, those that are due, those with many."""
    live_rows = {
        file.path: sum(rows for number, rows in count_rows(file).items() if number not in droppable) for file in files
    }
    candidates = [[file for file in files if not live_rows[file.path]]]
    candidates += [[file for file in merge if file.path in live_rows] for merge in merges]
    candidates += [[file] for file in files if live_rows[file.path] <= (1 - _DEAD_SHARE) * file.rows]
    for step in candidates:
        if len(step) > 1 or any(live_rows[file.path] < file.rows for file in step):
            return _Step(step, pa.array(sorted(droppable), pa.int64()), sum(live_rows[file.path] for file in step))
    return None


def _find_droppable(
    lake: Lake, spec: TableSpec, crawl: str, files: Sequence[StoredFile], count_rows: _CountRows
) -> tuple[list[StoredFile], set[int]]:
    """``files`` without those that may have rows of a run that is about to commit; and the generations that are dead,
    or orphans in files of a week ago, which are condemned."""
    liveness = read_liveness(lake, spec.name, crawl)
    named_generations, limit = liveness.every, (datetime.now(UTC) - _RETENTION).timestamp() * 1_000
    unnamed_generations = {file.path: count_rows(file).keys() - named_generations for file in files}
    settled_files = [file for file in files if file.written_at <= limit or not unnamed_generations[file.path]]
    orphans = {number for file in settled_files for number in unnamed_generations[file.path]}
    if orphans:
        orphans = condemn(lake, crawl, orphans)
        # one of them may have been committed just before
        liveness = read_liveness(lake, spec.name, crawl)
    return settled_files, (orphans - liveness.every) | liveness.dead


def condemn(lake: Lake, crawl: str, generations: Iterable[int]) -> set[int]:
    """Makes commits of these generations fail from now on, and returns them: not all of very many."""
    condemned = dict.fromkeys(sorted(generations)[:_MAX_CONDEMNED])

    def build(stored: list[dict[str, object]]) -> list[dict[str, object]]:
        condemned_before = [int(n) for row in stored for n in json.loads(str(row["details"]))["generations"]]
        if condemned.keys() <= {*condemned_before}:
            return []
        numbers = [*(n for n in condemned_before if n not in condemned), *condemned][-_MAX_CONDEMNED:]
        row = {"crawl": crawl, "target": "", "stage": CONDEMNED, "epoch": 0, "committed_at": datetime.now(UTC)}
        return [row | {"details": json.dumps({"generations": [str(n) for n in numbers]})}]

    update_rows(lake, SLICES.name, {"crawl": crawl, "target": "", "stage": CONDEMNED}, build)
    return {*condemned}


def _sum_rows(files: Iterable[StoredFile]) -> int:
    return sum(file.rows for file in files)


def _replace(lake: Lake, spec: TableSpec, step: _Step) -> list[StoredFile] | None:
    """Writes the merged files, commits and returns them. ``None`` if some of the files were replaced meanwhile."""
    removed = {file.path for file in step.files}
    added: list[StoredFile] = []
    if step.rows != 0:
        batches = _merge_keyed(lake, spec, step) if spec.key else _merge_slices(lake, spec, step)
        added = [*write_files(lake, spec, step.files[0].partition, batches, is_quick=False)]
    if step.rows is not None and _sum_rows(added) != step.rows:
        raise EnvironmentFault(
            f"merging files of {lake.address(spec.name)} would change the number of rows",
            "Nothing was changed. The files differ from the table's log: check if another program wrote there.",
        )
    for _ in range(TRIES):
        with lake.fixed(spec.name) as handle:
            stored = {file.path for file in list_stored_files(spec, handle)}
            if {file.path for file in added} <= stored and not removed & stored:
                return added
            if not removed <= stored:
                return None
            if lake.swap(spec.name, handle, added, step.files, is_data=False):
                return added
    return None


def _merge_slices(lake: Lake, spec: TableSpec, step: _Step) -> Iterator[pa.RecordBatch]:
    for batch in merge_files(lake, spec, step.files):
        if not len(step.dropped):
            yield batch
            continue
        yield batch.filter(pc.invert(pc.is_in(batch.column(GENERATION.name), value_set=step.dropped)))


def _merge_keyed(lake: Lake, spec: TableSpec, step: _Step) -> Iterator[pa.RecordBatch]:
    """The rows of a table with a key, without those that were superseded a week ago."""
    clustered = clustered_by(spec)
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in merge_files(lake, spec, step.files):
        if rows > _KEYED_ROWS and waiting[-1].column(clustered)[-1] != batch.column(clustered)[0]:
            yield _drop_superseded(spec, waiting)
            waiting, rows = [], 0
        waiting.append(batch)
        rows += batch.num_rows
    if waiting:
        yield _drop_superseded(spec, waiting)


def _drop_superseded(spec: TableSpec, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    rows = _sort_by_key(spec, pa.Table.from_batches(batches))
    return rows.filter(pa.array(_find_kept(spec, rows)))


def _sort_by_key(spec: TableSpec, rows: pa.Table) -> pa.RecordBatch:
    names = [name for name in (*spec.key, SEQ.name) if name in rows.schema.names]
    order = pc.sort_indices(rows.select(names), [(name, "ascending") for name in names])
    return pa.concat_batches([pa.RecordBatch.from_pylist([], rows.schema), *rows.take(order).to_batches()])


def _find_kept(spec: TableSpec, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which of sorted rows are the newest of their key, or were superseded less than a week ago."""
    starts = find_group_starts(rows, [name for name in spec.key if name in rows.schema.names])
    is_retained = np.zeros(rows.num_rows, bool)
    is_retained[np.append(starts[1:], rows.num_rows)[: len(starts)] - 1] = True
    if "committed_at" in rows.schema.names:
        times = pa.concat_arrays([rows.column("committed_at"), pa.nulls(1, TIMESTAMP)])[1:]
        since = pa.scalar(datetime.now(UTC) - _RETENTION, TIMESTAMP)
        is_retained |= np.asarray(pc.fill_null(pc.greater(times, since), False))[: rows.num_rows]
        if REMOVED.name in rows.schema.names:
            # of purged targets: older rows of these keys count no more either
            is_old = pc.fill_null(pc.less(rows.column("committed_at"), since), False)
            is_retained &= ~np.asarray(pc.and_(rows.column(REMOVED.name), is_old))
    return is_retained


def merge_files(lake: Lake, spec: TableSpec, files: Sequence[StoredFile]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted ``files`` of one partition in the order of the column that they are sorted by. A file is
    opened when its first row is due, and a few ahead, so memory is that of the files that overlap."""
    schema = pa.schema([column for column in spec.stored_schema if column.name not in spec.partition_columns])
    ordered = sorted(files, key=lambda file: (file.first or "", file.path))
    opened = stream_files(lake, _addresses(lake, spec, ordered), schema)
    waiting = deque(ordered)
    heap: list[tuple[str, str, _SortedFile]] = []
    while heap or waiting:
        while waiting and (not heap or (waiting[0].first or "") <= heap[0][0]):
            file, batches = waiting.popleft(), next(opened)
            # many small files may overlap: their footers and packed rows would take more memory than their rows
            source = _SortedFile(iter([*batches]) if file.size <= _SMALL_FILE else batches, clustered_by(spec))
            if source.advance():
                heapq.heappush(heap, (source.first, file.path, source))
        if heap:
            _, path, source = heapq.heappop(heap)
            bounds = [value for value, *_ in heap[:1]] + [file.first or "" for file in [*waiting][:1]]
            yield source.take_until(min(bounds, default=None))
            if source.advance():
                heapq.heappush(heap, (source.first, path, source))


class _SortedFile:
    """The rows of a file, sorted by a column, of which a batch is in memory."""

    def __init__(self, batches: Iterator[pa.RecordBatch], column: str | None) -> None:
        self._batches, self._column = batches, column
        self._batch: pa.RecordBatch | None = None
        self._values: list[str] = []
        self._ends: list[int] = []
        self._run = 0

    @property
    def first(self) -> str:
        """The value of the next row."""
        return self._values[self._run]

    def advance(self) -> bool:
        """Reads the next batch if none of the current one is left. Returns whether there are rows."""
        while self._run == len(self._values):
            self._batch = next(self._batches, None)
            if self._batch is None:
                return False
            runs = pc.run_end_encode(self._batch.column(self._column))
            self._values, self._ends, self._run = runs.values.to_pylist(), runs.run_ends.to_pylist(), 0
        return True

    def take_until(self, bound: str | None) -> pa.RecordBatch:
        """The next rows of the batch, up to one with the value ``bound``; at least those with the same value."""
        assert self._batch is not None
        start = self._ends[self._run - 1] if self._run else 0
        end = len(self._values) if bound is None else bisect_left(self._values, bound, self._run)
        self._run = max(end, self._run + 1)
        return self._batch.slice(start, self._ends[self._run - 1] - start)


def _addresses(lake: Lake, spec: TableSpec, files: Iterable[StoredFile]) -> list[str]:
    return [f"{lake.address(spec.name)}/{file.path}" for file in files]
