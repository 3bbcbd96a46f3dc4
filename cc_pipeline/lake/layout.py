"""The layout of a table's files: how large they are, how many a crawl has, and which of them are due to be merged.

A commit adds files, so a table comes to have as many files as commits. Merged files are sorted by the column that makes
slices within a crawl and have a bounded size: a reader of one slice opens a few (docs/decisions/0007).

Due merges are read from the log alone.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

if TYPE_CHECKING:
    from cc_pipeline.lake.lake import TableSpec

#: Bytes at which a writer ends a file and begins the next.
FILE_BYTES: Final = 16 << 20
#: Rows of a row group, the least that a reader of one slice decodes.
ROW_GROUP_ROWS: Final = 16_384
#: Files below this size are merged when there are many.
SMALL_BYTES: Final = FILE_BYTES // 2
#: Small files of a crawl that a table may have.
MAX_SMALL_FILES: Final = 32
#: How many files of a crawl, other than small ones, may hold the same slice by their bounds.
MAX_OVERLAPPING_RUNS: Final = 8
#: Small files that are merged in one go: opening one takes milliseconds, and someone may wait for the end.
MAX_MERGED_FILES: Final = 1_000


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a table as the log has it: ``path`` below the table's folder, its partition, bytes and rows, when it
    was written (milliseconds since the epoch), and the least and the greatest value of some columns (``bounds``).
    ``first`` and ``last`` are those of the column by which it is sorted (``None``: not known)."""

    path: str
    partition: Mapping[str, str | None]
    size: int
    rows: int
    written_at: int = 0
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    first: str | None = None
    last: str | None = None

    @property
    def crawl(self) -> str:
        """The crawl of the file; empty for tables that are not divided by crawls."""
        return self.partition.get("crawl") or ""

    @property
    def statistics(self) -> str:
        """The statistics of the file for the log, as JSON."""
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: lower for name, (lower, _) in self.bounds.items()},
                "maxValues": {name: greatest for name, (_, greatest) in self.bounds.items()},
                "nullCount": dict.fromkeys(self.bounds, 0),
            }
        )


def clustered_by(spec: TableSpec) -> str | None:
    """The column by which the files of a table are sorted first; ``None`` if a slice is a whole crawl."""
    return next((name for name in (*spec.slice_columns, *spec.key) if name not in spec.partition_columns), None)


def read_actions(handle: DeltaTable) -> pa.Table:
    """The log's table of files, with one row for each."""
    # not pa.table, which imports pandas: 50 MB
    return pa.RecordBatchReader.from_stream(handle.get_add_actions(flatten=True)).read_all()


def list_stored_files(spec: TableSpec, handle: DeltaTable, crawls: Collection[str] | None = None) -> list[StoredFile]:
    """The files of a table at the version of ``handle``; only those of ``crawls`` if they are given."""
    return list_files(spec, read_actions(handle), crawls)


def list_files(spec: TableSpec, actions: pa.Table, crawls: Collection[str] | None = None) -> list[StoredFile]:
    """The same from the table of :func:`read_actions`."""
    if not actions.num_rows:
        return []
    clustered = clustered_by(spec)
    if crawls is not None and spec.partition_columns:
        crawl_array = pa.array(sorted(crawls), pa.string())
        actions = actions.filter(pc.is_in(actions.column("partition.crawl"), value_set=crawl_array))
    partitions = [name for name in actions.column_names if name.startswith("partition.")]
    bounded = [name for name in spec.bounded_columns if f"min.{name}" in actions.column_names]
    columns = ["path", "size_bytes", "num_records", "modification_time", *partitions]
    columns += [f"{bound}.{name}" for name in bounded for bound in ("min", "max")]
    files = []
    for row in actions.select(columns).to_pylist():
        bounds = {name: (row[f"min.{name}"], row[f"max.{name}"]) for name in bounded if row[f"min.{name}"] is not None}
        files.append(
            StoredFile(
                # the log escapes names on disk
                unquote(row["path"]),
                {name.removeprefix("partition."): row[name] for name in partitions},
                row["size_bytes"],
                row["num_records"] or 0,
                int(row["modification_time"]),
                bounds,
                *bounds.get(clustered or "", (None, None)),
            )
        )
    return files


def find_due_merges(
    files: Sequence[StoredFile], max_small_files: int = MAX_SMALL_FILES, max_bytes: int | None = None
) -> list[list[StoredFile]]:
    """The merges that are due, the smallest first. Each has the files of one sorted run, at most ``max_bytes`` of
    them.

    A crawl's small files are merged if it has more than ``max_small_files``. If more than ``MAX_OVERLAPPING_RUNS`` of
    its other files may hold the same slice, the smaller ones of those runs are merged, until the next is larger than
    all before it together: so the times that a row is merged grow with the logarithm of the crawl's size."""
    by_partition: dict[tuple[str | None, ...], list[StoredFile]] = {}
    for file in files:
        by_partition.setdefault(tuple(file.partition.values()), []).append(file)
    merges = []
    for partition_files in by_partition.values():
        small = [file for file in partition_files if file.size < SMALL_BYTES]
        if len(small) > max_small_files:
            merges.append(_select_smallest(small, max_bytes))
        merges.append(_select_smaller_runs([file for file in partition_files if file.size >= SMALL_BYTES], max_bytes))
    return sorted((merge for merge in merges if len(merge) > 1), key=_sum_bytes)


def split_into_runs(files: Sequence[StoredFile]) -> list[list[StoredFile]]:
    """``files`` in as few runs as can be, so that the files of a run do not overlap.

    Files of one and the same slice may be in one run too: each reader of it needs them all.
    """
    runs: list[list[StoredFile]] = []
    ends: list[tuple[str, int]] = []
    bounded_files = [
        (file.first, file.last, file) for file in files if file.first is not None and file.last is not None
    ]
    for first, last, file in sorted(bounded_files, key=lambda bounds: bounds[:2]):
        if ends and ends[0][0] <= first:
            number = heapq.heappop(ends)[1]
            runs[number].append(file)
        else:
            number = len(runs)
            runs.append([file])
        heapq.heappush(ends, (last, number))
    return runs + [[file] for file in files if file.first is None or file.last is None]


def _select_smallest(files: Sequence[StoredFile], max_bytes: int | None) -> list[StoredFile]:
    sorted_files = sorted(files, key=lambda stored_file: stored_file.size)
    sums = accumulate(file.size for file in sorted_files)
    small_files = [
        file for file, size in zip(sorted_files, sums, strict=True) if max_bytes is None or size <= max_bytes
    ]
    # neighbouring slices, so that the next merge does not overlap with this one
    return sorted(small_files, key=lambda stored_file: stored_file.first or "")[:MAX_MERGED_FILES]


def _select_smaller_runs(files: Sequence[StoredFile], max_bytes: int | None) -> list[StoredFile]:
    runs = sorted(split_into_runs(files), key=_sum_bytes)
    # merging this many leaves few enough
    min_runs = len(runs) - MAX_OVERLAPPING_RUNS + 1
    if min_runs < 2:
        return []
    merged_files: list[StoredFile] = []
    size = 0
    for number, run in enumerate(runs):
        run_bytes = _sum_bytes(run)
        if (number >= min_runs and run_bytes > size) or (max_bytes is not None and size + run_bytes > max_bytes):
            break
        merged_files += run
        size += run_bytes
    return merged_files


def _sum_bytes(files: Sequence[StoredFile]) -> int:
    return sum(file.size for file in files)
