"""The layout of a table's files: how large they are, how many a crawl has, and which of them are due to be merged.

A commit writes new files and changes only files that hold the slices it replaces, so a table comes to have as many
files as commits. Merged files are sorted by the column that makes slices within a crawl and have a bounded size: a
reader of one slice opens a few, and a commit that replaces one rewrites a few megabytes (docs/decisions/0007).

Due merges are read from the log alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final
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
FEW_FILES: Final = 32
#: How many files of a crawl, other than small ones, may hold the same slice by their bounds.
FEW_DEEP: Final = 8
#: Small files that are merged in one go: opening one takes milliseconds, and someone may wait for the end.
AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a table as the log has it: ``path`` below the table's folder, its partition, bytes and rows, and the
    first and last slice that it may hold (``None``: not known)."""

    path: str
    partition: Mapping[str, str | None]
    size: int
    rows: int
    first: str | None = None
    last: str | None = None


def clustered_by(spec: TableSpec) -> str | None:
    """The column by which merged files of a table are sorted first; ``None`` if a slice is a whole crawl."""
    return next((name for name in reversed(spec.slice_columns) if name != "crawl"), None)


def actions_of(handle: DeltaTable) -> pa.Table:
    """The log's table of files, with one row for each."""
    # not pa.table, which imports pandas: 50 MB
    return pa.RecordBatchReader.from_stream(handle.get_add_actions(flatten=True)).read_all()


def stored_files(spec: TableSpec, handle: DeltaTable, crawls: Collection[str] | None = None) -> list[StoredFile]:
    """The files of a table at the version of ``handle``; only those of ``crawls`` if they are given."""
    return files_of(spec, actions_of(handle), crawls)


def files_of(spec: TableSpec, actions: pa.Table, crawls: Collection[str] | None = None) -> list[StoredFile]:
    """The same from the table of :func:`actions_of`."""
    clustered = clustered_by(spec)
    if crawls is not None:
        crawl_array = pa.array(sorted(crawls), pa.string())
        actions = actions.filter(pc.is_in(actions.column("partition.crawl"), value_set=crawl_array))
    partitions = [name for name in actions.column_names if name.startswith("partition.")]
    return [
        StoredFile(
            # the log escapes names on disk
            unquote(row["path"]),
            {name.removeprefix("partition."): row[name] for name in partitions},
            row["size_bytes"],
            row["num_records"] or 0,
            row.get(f"min.{clustered}"),
            row.get(f"max.{clustered}"),
        )
        for row in actions.to_pylist()
    ]


def due(
    files: Sequence[StoredFile], max_small_files: int = FEW_FILES, most_bytes: int | None = None
) -> list[list[StoredFile]]:
    """The merges that are due, the smallest first. Each has the files of one sorted run, at most ``most_bytes`` of
    them.

    A crawl's small files are merged if it has more than ``max_small_files``. If more than ``FEW_DEEP`` of its other
    files may hold the same slice, the smaller ones of those runs are merged, until the next is larger than all before
    it together: so the times that a row is merged grow with the logarithm of the crawl's size.
    """
    by_partition: dict[tuple[str | None, ...], list[StoredFile]] = {}
    for file in files:
        by_partition.setdefault(tuple(file.partition.values()), []).append(file)
    merges = []
    for partition_files in by_partition.values():
        small = [file for file in partition_files if file.size < SMALL_BYTES]
        if len(small) > max_small_files:
            merges.append(_smallest(small, most_bytes))
        merges.append(_smaller_runs([file for file in partition_files if file.size >= SMALL_BYTES], most_bytes))
    return sorted((merge for merge in merges if len(merge) > 1), key=_bytes)


def runs_of(files: Sequence[StoredFile]) -> list[list[StoredFile]]:
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


def apart(files: Sequence[StoredFile]) -> list[list[StoredFile]]:
    """``files`` in groups, in the order of their slices: no slice is in two groups. The files of a group are in the
    order of their paths."""
    groups: list[list[StoredFile]] = []
    end: str | None = None
    for file in sorted(files, key=lambda stored_file: (stored_file.first is not None, stored_file.first or "")):
        # a file that may hold any slice comes first, and then all are of its group
        if not groups or (end is not None and file.first is not None and end < file.first):
            groups.append([])
            end = file.last
        elif end is not None:
            end = None if file.last is None else max(end, file.last)
        groups[-1].append(file)
    return [sorted(group, key=lambda stored_file: stored_file.path) for group in groups]


def _smallest(files: Sequence[StoredFile], max_bytes: int | None) -> list[StoredFile]:
    sorted_files = sorted(files, key=lambda stored_file: stored_file.size)
    sums = accumulate(file.size for file in sorted_files)
    small_files = [
        file for file, size in zip(sorted_files, sums, strict=True) if max_bytes is None or size <= max_bytes
    ]
    # neighbouring slices, so that the next merge does not overlap with this one
    return sorted(small_files, key=lambda stored_file: stored_file.first or "")[:AT_ONCE]


def _smaller_runs(files: Sequence[StoredFile], max_bytes: int | None) -> list[StoredFile]:
    runs = sorted(runs_of(files), key=_bytes)
    # merging this many leaves few enough
    min_runs = len(runs) - FEW_DEEP + 1
    if min_runs < 2:
        return []
    merged_files: list[StoredFile] = []
    size = 0
    for number, run in enumerate(runs):
        run_bytes = _bytes(run)
        if (number >= min_runs and run_bytes > size) or (max_bytes is not None and size + run_bytes > max_bytes):
            break
        merged_files += run
        size += run_bytes
    return merged_files


def _bytes(files: Sequence[StoredFile]) -> int:
    return sum(file.size for file in files)
