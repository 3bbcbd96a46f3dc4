"""Merges files of a table into one sorted run of files of a bounded size, with flat memory.

A merge is one commit that removes files and adds others (``replacing.py``), while other processes commit or merge.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from cc_pipeline.duck import connect
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake, TableSpec, lake_fault
from cc_pipeline.lake.layout import (
    MAX_SMALL_FILES,
    StoredFile,
    clustered_by,
    find_due_merges,
    group_disjoint_files,
    list_stored_files,
)
from cc_pipeline.lake.replacing import (
    BATCH_ROWS,
    build_row_groups,
    get_file_schema,
    open_fixed_version,
    replace_files,
    write_files,
)
from cc_pipeline.lake.streaming import stream_files, stream_small_files

#: What DuckDB may hold in memory while it sorts; it puts more into a folder.
_MEMORY: Final = "400MB"
#: Bytes of rows up to which they are sorted without it.
_SORTED_IN_MEMORY: Final = 32 << 20
#: Bytes of a file from which its rows may take more than that, however few they are.
_MAY_BE_LARGE: Final = 1 << 20
#: The position of a row among all that are merged, so that rows of a slice keep their order.
_POSITION: Final = "_place"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of merging: crawls with more than ``max_small_files`` small files are merged, at most ``max_bytes`` in
    one go, and no merge begins after ``until`` (``time.monotonic()``)."""

    max_small_files: int = field(default_factory=lambda: MAX_SMALL_FILES)
    max_bytes: int | None = None
    until: float = math.inf


def is_due(lake: Lake, table: str, bounds: Bounds) -> bool:
    """Whether :func:`compact_due` would merge anything; reads the log alone, no files.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    return bool(find_due_merges(lake.pin(table).stored_files(), bounds.max_small_files, bounds.max_bytes))


def compact_due(lake: Lake, table: str, scratch: Path, bounds: Bounds) -> int:
    """Merges the files that are due by ``layout.find_due_merges``, within ``bounds``. Returns how many files were
    replaced.

    Other processes may read, commit and merge meanwhile; files that one of them replaced are left to the next time.
    Raises ``EnvironmentFault`` when the lake cannot be read or written.
    """
    spec = lake.specs[table]
    replaced, files_before = 0, math.inf
    while time.monotonic() < bounds.until:
        handle = open_fixed_version(lake, table)
        files = [] if handle is None else list_stored_files(spec, handle)
        steps = find_due_merges(files, bounds.max_small_files, bounds.max_bytes)
        # a merge that left as many files as there were would be due for ever
        if (
            handle is None
            or not steps
            or len(files) >= files_before
            or not compact_files(lake, table, handle, steps[0], scratch)
        ):
            break
        replaced, files_before = replaced + len(steps[0]), len(files)
    return replaced


def compact_files(lake: Lake, table: str, handle: DeltaTable, files: Sequence[StoredFile], scratch: Path) -> bool:
    """Replaces ``files``, which lie in one partition, by sorted ones with the same rows. Returns whether it did.

    ``handle`` is one of :func:`open_fixed_version`, at the version that the files were read from. ``scratch`` is a
    folder for rows that do not fit into memory. ``False``, and nothing changed, if another process replaced some of the
    files meanwhile. Old files stay until they are vacuumed, as do files of a killed merge. Raises ``EnvironmentFault``
    when the lake cannot be read or written."""
    spec = lake.specs[table]
    schema = get_file_schema(spec, handle, files[0].partition)
    try:
        added = _write_run(lake, spec, schema, files, scratch)
        if sum(action.rows for action in added) != sum(file.rows for file in files):
            raise EnvironmentFault(
                f"merging files of {lake.address(table)} would change the number of rows",
                "Nothing was changed. The files differ from the table's log: check if another program wrote there.",
            )
        replace_files(lake, spec, handle, files, added)
    except CommitFailedError:
        return False  # some of the files were replaced meanwhile; the next time merges the rest
    except (OSError, DeltaError, duckdb.Error, pa.ArrowException) as error:
        raise lake_fault(f"could not merge files of {lake.address(table)}", error) from error
    return True


def _write_run(
    lake: Lake, spec: TableSpec, schema: pa.Schema, files: Sequence[StoredFile], scratch: Path
) -> list[StoredFile]:
    """Writes the new files and returns them in their order. The log does not name them yet."""
    clustered = clustered_by(spec)
    order = [name for name in dict.fromkeys([clustered or "", *spec.sort_by]) if name in schema.names]
    runs = groupby(
        group_disjoint_files(files),
        # one file of few rows, as a commit of a slice leaves it
        key=lambda group: len(group) == 1 and group[0].rows < BATCH_ROWS and group[0].size < _MAY_BE_LARGE,
    )
    rows = chain.from_iterable(
        _read_rows(lake, spec, schema, [*run], order, scratch, small=small) for small, run in runs
    )
    return list(write_files(lake, spec, schema, files[0], build_row_groups(rows, schema, spec.row_group_rows)))


def _read_rows(
    lake: Lake,
    spec: TableSpec,
    schema: pa.Schema,
    groups: Sequence[Sequence[StoredFile]],
    order: Sequence[str],
    scratch: Path,
    *,
    small: bool,
) -> Iterator[pa.RecordBatch]:
    addresses = [f"{lake.address(spec.name)}/{file.path}" for group in groups for file in group]
    if small:
        for table in stream_small_files(lake, addresses, schema):
            yield from _sort_rows(iter(table.to_batches()), schema, order, scratch)
        return
    batches_by_file = stream_files(lake, addresses, schema)
    for group in groups:
        group_batches = chain.from_iterable(islice(batches_by_file, len(group)))
        yield from (
            group_batches
            if _is_run(lake, spec, schema, group, order)
            else _sort_rows(group_batches, schema, order, scratch)
        )


def _is_run(lake: Lake, spec: TableSpec, schema: pa.Schema, group: Sequence[StoredFile], order: Sequence[str]) -> bool:
    """Whether a group is one file of many rows that is sorted, as merges leave them."""
    if len(group) > 1 or not order:
        return False
    keys = pa.schema([schema.field(name) for name in order])
    last: list[pa.RecordBatch] = []
    for batch in chain.from_iterable(stream_files(lake, [f"{lake.address(spec.name)}/{group[0].path}"], keys)):
        if not _are_sorted(_sort_positions(pa.Table.from_batches([*last, batch]), order)):
            return False
        last = [batch.slice(batch.num_rows - 1)]
    return True


def _sort_positions(rows: pa.Table, order: Sequence[str]) -> pa.Array:
    """The row numbers in sorted order; rows with equal keys keep their order."""
    return pc.sort_indices(rows, [(name, "ascending") for name in order])


def _are_sorted(positions: pa.Array) -> bool:
    # to make an array of a range, or numpy's of an array, imports pandas: 50 MB
    return positions.to_pylist() == [*range(len(positions))]


def _sort_rows(
    rows: Iterator[pa.RecordBatch], schema: pa.Schema, order: Sequence[str], scratch: Path
) -> Iterator[pa.RecordBatch]:
    """``rows`` sorted; rows with equal keys keep their order."""
    waiting: deque[pa.RecordBatch] = deque()
    size = 0
    for batch in rows:
        waiting.append(batch)
        size += batch.nbytes
        if size > _SORTED_IN_MEMORY:
            yield from _sort_on_disk(
                chain((waiting.popleft() for _ in range(len(waiting))), rows), schema, order, scratch
            )
            return
    table = pa.Table.from_batches(waiting, schema)
    positions = _sort_positions(table, order) if order else None
    if positions is None or _are_sorted(positions):
        yield from waiting  # most files are of one slice, which is sorted when it is committed
    else:
        yield from table.take(positions).to_batches()


def _sort_on_disk(
    rows: Iterator[pa.RecordBatch], schema: pa.Schema, order: Sequence[str], scratch: Path
) -> Iterator[pa.RecordBatch]:
    """The same with bounded memory."""
    scratch.mkdir(parents=True, exist_ok=True)
    with connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"SET temp_directory = '{str(scratch).replace(chr(39), chr(39) * 2)}'")
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        numbered_schema = pa.schema([*schema, pa.field(_POSITION, pa.int64())])
        connection.register("_rows", pa.RecordBatchReader.from_batches(numbered_schema, _number_rows(rows, schema)))
        column_list = ", ".join(f'"{name}"' for name in schema.names)
        order_list = ", ".join(f'"{name}"' for name in [*order, _POSITION])
        sorted_rows = connection.sql(f"SELECT {column_list} FROM _rows ORDER BY {order_list}")
        yield from sorted_rows.to_arrow_reader(BATCH_ROWS)


def _number_rows(rows: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows_before = 0
    for batch in rows:
        positions = pa.array(range(rows_before, rows_before + batch.num_rows), pa.int64())
        rows_before += batch.num_rows
        yield pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in schema.names), positions], names=[*schema.names, _POSITION]
        )
