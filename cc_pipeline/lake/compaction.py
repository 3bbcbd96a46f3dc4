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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.files import write_files
from cc_pipeline.lake.keyed import TRIES, update_rows
from cc_pipeline.lake.lake import GENERATION, SEQ, Lake, TableSpec
from cc_pipeline.lake.layout import MAX_SMALL_FILES, StoredFile, clustered_by, find_due_merges, list_stored_files
from cc_pipeline.lake.ordered import find_group_starts
from cc_pipeline.lake.slices import CONDEMNED, SLICES, Liveness, read_liveness
from cc_pipeline.lake.streaming import count_generations, stream_files

#: The share of a file's rows that are dead from which on it is rewritten.
_DEAD_SHARE: Final = 0.2
#: How long superseded rows of tables with a key stay, and how long a commit may take.
_RETENTION: Final = timedelta(days=7)
#: Rows of a table with a key that are looked at together.
_KEYED_ROWS: Final = 16_384
#: Condemned generations that are remembered in a crawl.
_MAX_CONDEMNED: Final = 100_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of merging: crawls with more than ``max_small_files`` small files are merged, at most ``max_bytes`` in
    one go, and no merge begins after ``until`` (``time.monotonic()``). ``drops_dead``: files with many rows that no
    longer count are rewritten too, for which the generations of all files are counted."""

    max_small_files: int = field(default_factory=lambda: MAX_SMALL_FILES)
    max_bytes: int | None = None
    until: float = math.inf
    drops_dead: bool = True


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
    replaced, tried = 0, set[frozenset[str]]()
    while time.monotonic() < bounds.until:
        step = _find_step(lake, spec, bounds)
        paths = frozenset(file.path for file in step.files) if step is not None else frozenset()
        # a merge that left as many files as there were would be due for ever
        if step is None or paths in tried or not _replace(lake, spec, step):
            break
        tried.add(paths)
        replaced += len(step.files)
    return replaced


@dataclass(frozen=True, slots=True)
class _Step:
    """Files of one partition that are merged, without rows of the generations ``dropped``. ``version`` is that of the
    table, and ``rows`` how many rows are left (``None``: not known)."""

    files: Sequence[StoredFile]
    dropped: pa.Array
    rows: int | None = None


def _find_step(lake: Lake, spec: TableSpec, bounds: Bounds) -> _Step | None:
    pinned = lake.pin(spec.name)
    by_crawl: dict[str, list[StoredFile]] = {}
    for file in pinned.stored_files():
        by_crawl.setdefault(file.crawl, []).append(file)
    for crawl, files in sorted(by_crawl.items()):
        merges = find_due_merges(files, bounds.max_small_files, bounds.max_bytes) if clustered_by(spec) else []
        if spec.key:
            step = _Step(merges[0], pa.array([], pa.int64())) if merges else _find_superseded(lake, spec, files, bounds)
        elif merges or bounds.drops_dead:
            step = _find_slice_step(lake, spec, crawl, files, merges, bounds)
        else:
            step = None
        if step is not None:
            return step
    return None


def _find_superseded(lake: Lake, spec: TableSpec, files: Sequence[StoredFile], bounds: Bounds) -> _Step | None:
    """All files of a partition of a table with a key, if many of their rows are superseded."""
    if not bounds.drops_dead or len(files) < 2:
        return None
    key = _own_key(spec)
    keys = pa.schema([spec.stored_schema.field(name) for name in (*key, SEQ.name)])
    tables = [
        pa.Table.from_batches(batches, keys) for batches in stream_files(lake, _addresses(lake, spec, files), keys)
    ]
    rows = pa.concat_tables(tables)
    distinct = rows.group_by(key).aggregate([]).num_rows
    return _Step(files, pa.array([], pa.int64())) if rows.num_rows - distinct > _DEAD_SHARE * rows.num_rows else None


def _find_slice_step(
    lake: Lake,
    spec: TableSpec,
    crawl: str,
    files: Sequence[StoredFile],
    merges: Sequence[Sequence[StoredFile]],
    bounds: Bounds,
) -> _Step | None:
    """The next files of a crawl to be merged: those with dead rows alone, those that are due, those with many dead."""
    looked_at = files if bounds.drops_dead else merges[0]
    counts = {file.path: count_generations(lake, spec.name, file) for file in looked_at}
    liveness = read_liveness(lake, spec.name, crawl)
    counts = _condemn_orphans(lake, spec, crawl, looked_at, counts, liveness)
    dropped = pa.array(sorted({*liveness.dead.to_pylist()}), pa.int64())
    droppable = {*dropped.to_pylist()} | counts.pop("", Counter()).keys()
    kept = {
        path: sum(n for number, n in of_file.items() if number not in droppable) for path, of_file in counts.items()
    }
    known = [file for file in looked_at if file.path in counts]
    candidates = [[file for file in known if not kept[file.path]]]
    candidates += [[file for file in merge if file.path in counts] for merge in merges]
    candidates += [
        [file] for file in known if kept[file.path] <= (1 - _DEAD_SHARE) * file.rows and kept[file.path] < file.rows
    ]
    for chosen in candidates:
        if len(chosen) > 1 or any(kept[file.path] < file.rows for file in chosen):
            return _Step(chosen, pa.array(sorted(droppable), pa.int64()), sum(kept[file.path] for file in chosen))
    return None


def _condemn_orphans(
    lake: Lake,
    spec: TableSpec,
    crawl: str,
    files: Sequence[StoredFile],
    counts: Mapping[str, Counter[int]],
    liveness: Liveness,
) -> dict[str, Counter[int]]:
    """``counts`` without files that may have rows of a run that is about to commit. Orphans in files of a week ago are
    condemned: they are under an empty path."""
    named = {*liveness.current.to_pylist(), *liveness.dead.to_pylist(), *liveness.recent.to_pylist()}
    limit = (datetime.now(UTC) - _RETENTION).timestamp() * 1_000
    result: dict[str, Counter[int]] = {}
    orphans: Counter[int] = Counter()
    for file in files:
        unnamed = {number: n for number, n in counts[file.path].items() if number not in named}
        if unnamed and file.written_at > limit:
            continue
        result[file.path] = counts[file.path]
        orphans.update(unnamed)
    if orphans:
        condemn(lake, crawl, orphans)
        result[""] = orphans
    return result


def condemn(lake: Lake, crawl: str, generations: Iterable[int]) -> None:
    """Makes commits of these generations fail from now on."""

    def build(stored: list[dict[str, object]]) -> list[dict[str, object]]:
        before = [int(n) for row in stored for n in json.loads(str(row["details"]))["generations"]]
        new = [n for n in dict.fromkeys(generations) if n not in set(before)]
        numbers = [*before, *new][-_MAX_CONDEMNED:]
        row = {"crawl": crawl, "target": "", "stage": CONDEMNED, "epoch": 0, "committed_at": datetime.now(UTC)}
        return [row | {"details": json.dumps({"generations": [str(n) for n in numbers]})}] if new else []

    update_rows(lake, SLICES.name, {"crawl": crawl, "target": "", "stage": CONDEMNED}, build)


def _replace(lake: Lake, spec: TableSpec, step: _Step) -> bool:
    """Writes the merged files and commits them. ``False`` if some of the files were replaced meanwhile."""
    removed = {file.path for file in step.files}
    added: list[StoredFile] = []
    if step.rows != 0:
        batches = _merge_keyed(lake, spec, step) if spec.key else _merge_slices(lake, spec, step)
        added = [*write_files(lake, spec, step.files[0].partition, batches, is_quick=False)]
    if step.rows is not None and sum(file.rows for file in added) != step.rows:
        raise EnvironmentFault(
            f"merging files of {lake.address(spec.name)} would change the number of rows",
            "Nothing was changed. The files differ from the table's log: check if another program wrote there.",
        )
    for _ in range(TRIES):
        with lake.fixed(spec.name) as handle:
            stored = {file.path for file in list_stored_files(spec, handle)}
            if added and added[0].path in stored:
                return True
            if not removed <= stored:
                return not (removed & stored) and not added
            if lake.swap(spec.name, handle, added, step.files, is_data=False):
                return True
    return False


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
    for batch in merge_files(lake, spec, step.files):
        is_next = not waiting or waiting[-1].column(clustered)[-1] != batch.column(clustered)[0]
        if is_next and sum(part.num_rows for part in waiting) > _KEYED_ROWS:
            yield _drop_superseded(spec, waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield _drop_superseded(spec, waiting)


def _drop_superseded(spec: TableSpec, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.Table.from_batches(batches)
    key = _own_key(spec)
    order = [(name, "ascending") for name in (*key, SEQ.name)]
    rows = rows.take(pc.sort_indices(rows.select([name for name, _ in order]), order)).combine_chunks().to_batches()[0]
    starts = find_group_starts(rows, key)
    is_kept = np.zeros(rows.num_rows, bool)
    is_kept[np.append(starts[1:] - 1, rows.num_rows - 1)] = True
    if "committed_at" in rows.schema.names:
        times = pa.concat_arrays([rows.column("committed_at"), pa.nulls(1, TIMESTAMP)])[1:]
        since = pa.scalar(datetime.now(UTC) - _RETENTION, TIMESTAMP)
        is_kept |= np.asarray(pc.fill_null(pc.greater(times, since), False))
    return rows.filter(pa.array(is_kept))


def _own_key(spec: TableSpec) -> list[str]:
    """The columns of the key that the files of a partition have."""
    return [name for name in spec.key if name not in spec.partition_columns]


def merge_files(lake: Lake, spec: TableSpec, files: Sequence[StoredFile]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted ``files`` of one partition in the order of the column that they are sorted by. A file is opened
    when its first row is due, and a few ahead, so memory is that of the files that overlap."""
    clustered = clustered_by(spec)
    schema = pa.schema([column for column in spec.stored_schema if column.name not in spec.partition_columns])
    ordered = sorted(files, key=lambda file: (file.first or "", file.path))
    opened = stream_files(lake, _addresses(lake, spec, ordered), schema)
    waiting = iter(ordered)
    next_file = next(waiting, None)
    heap: list[tuple[str, str, int, pa.RecordBatch, Iterator[tuple[str, pa.RecordBatch]]]] = []
    numbers = count()

    def push(path: str, runs: Iterator[tuple[str, pa.RecordBatch]]) -> None:
        if (run := next(runs, None)) is not None:
            heapq.heappush(heap, (run[0], path, next(numbers), run[1], runs))

    while heap or next_file is not None:
        while next_file is not None and (not heap or (next_file.first or "") <= heap[0][0]):
            push(
                next_file.path,
                _split_runs([*next(opened)] if next_file.rows < _KEYED_ROWS else next(opened), clustered),
            )
            next_file = next(waiting, None)
        if heap:
            _, path, _, batch, runs = heapq.heappop(heap)
            yield batch
            push(path, runs)


def _split_runs(batches: Iterable[pa.RecordBatch], column: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a file, cut where the value of a column changes."""
    for batch in batches:
        start = 0
        runs = pc.run_end_encode(batch.column(column))
        for value, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield value, batch.slice(start, end - start)
            start = end


def _addresses(lake: Lake, spec: TableSpec, files: Iterable[StoredFile]) -> list[str]:
    return [f"{lake.address(spec.name)}/{file.path}" for file in files]
