"""Tables with one row for each key: rows are appended with a number (``seq``), and the newest row of a key counts.

``targets``, ``source_files`` and ``crawls`` are such tables, and ``slices``. Every commit is compared with the version
that it was made from. Merges drop rows that were superseded a week ago (``compaction.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.files import write_files
from cc_pipeline.lake.lake import COMMIT_ADVICE, REMOVED, SEQ, Lake, TableSpec, lake_fault
from cc_pipeline.lake.layout import StoredFile
from cc_pipeline.lake.ordered import find_group_starts
from cc_pipeline.lake.predicates import Where, scan

#: How often a commit is tried while other processes commit to the same table first.
TRIES: Final = 50

#: Answers that are kept in memory, the bytes of one of them, and the characters of its condition.
_MAX_KEPT_ANSWERS: Final = 64
_MAX_ANSWER_BYTES: Final = 256 << 10
_MAX_CONDITION: Final = 1_000

Row = dict[str, Any]


def read_newest(lake: Lake, table: str, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """The newest row of each key of ``table`` whose columns equal ``where`` (a value, or any of a sequence). Raises
    ``EnvironmentFault`` if the table cannot be read."""
    spec = lake.specs[table]
    names = list(columns) if columns is not None else spec.schema.names
    handle = lake.handle(spec)
    if handle is None or any(not isinstance(value, str) and not len(value) for value in (where or {}).values()):
        return pa.schema([spec.stored_schema.field(name) for name in names]).empty_table()
    rows = newest_rows(lake, spec, handle, where or {}, names)
    return rows.filter(pc.invert(rows[REMOVED.name])).select(names)


def newest_rows(
    lake: Lake, spec: TableSpec, handle: DeltaTable, where: Where, columns: Sequence[str] | None = None
) -> pa.Table:
    """The same at the version of ``handle``, with the columns of the key, ``seq`` and ``is_removed``: removed rows
    too."""
    names = list(dict.fromkeys([*spec.key, SEQ.name, REMOVED.name, *(columns or spec.stored_schema.names), *where]))
    schema = pa.schema([spec.stored_schema.field(name) for name in names])
    # the rows of a version never change, and a command asks for the same ones many times
    question = (spec.name, handle.version(), tuple(names), repr(sorted(where.items())))
    if (answer := lake.newest_rows.get(question)) is not None:
        return answer
    # another column may have had another value in a row that was superseded
    of_key = {name: value for name, value in where.items() if name in spec.key}
    try:
        rows = pa.Table.from_batches(scan(handle, schema, of_key), schema)
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise lake_fault(f"could not read {lake.address(spec.name)}", error) from error
    rows = select_newest(rows, spec.key)
    for name, value in where.items():
        if name not in of_key:
            rows = rows.filter(pc.is_in(rows[name], pa.array([value] if isinstance(value, str) else list(value))))
    if rows.get_total_buffer_size() <= _MAX_ANSWER_BYTES and len(question[3]) <= _MAX_CONDITION:
        if len(lake.newest_rows) >= _MAX_KEPT_ANSWERS:
            lake.newest_rows.clear()
        lake.newest_rows[question] = rows
    return rows


def select_newest(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The row with the greatest ``seq`` of each key."""
    if rows.num_rows < 2:
        return rows
    order = pc.sort_indices(rows.select([*key, SEQ.name]), [(name, "ascending") for name in (*key, SEQ.name)])
    sorted_keys = rows.select(list(key)).take(order).combine_chunks().to_batches()[0]
    starts = find_group_starts(sorted_keys, key)
    last = np.append(starts[1:], rows.num_rows) - 1
    return rows.take(order.take(pa.array(last)))


def update_rows(lake: Lake, table: str, where: Where, build: Callable[[list[Row]], Sequence[Row]]) -> None:
    """Replaces rows of a table with a key in one commit. ``build`` gets the newest rows that equal
    ``where``, and gives the rows to be written: a row with ``is_removed`` takes its key away. It is called again if
    another process committed meanwhile. Raises ``EnvironmentFault``, and any error of ``build``."""
    spec = lake.specs[table]
    for _ in range(TRIES):
        with lake.fixed(table) as handle:
            stored = newest_rows(lake, spec, handle, where).to_pylist()
            numbers = {_key_of(spec, row): row[SEQ.name] for row in stored}
            rows = build([row for row in stored if not row[REMOVED.name]])
            if not rows:
                return
            numbered = [row | {SEQ.name: numbers.get(_key_of(spec, row), 0) + 1} for row in rows]
            if lake.swap(table, handle, write_keyed(lake, spec, numbered)):
                return
    raise commit_fault(table)


def write_keyed(lake: Lake, spec: TableSpec, rows: Iterable[Row]) -> list[StoredFile]:
    """Writes rows of a table with a key to files, one for each partition. Raises ``EnvironmentFault``."""
    partitions: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: _key_of(spec, row)):
        complete = {name: row.get(name) for name in spec.stored_schema.names} | {
            REMOVED.name: row.get(REMOVED.name, False)
        }
        partitions.setdefault(tuple(row[name] for name in spec.partition_columns), []).append(complete)
    return [
        file
        for values, partition_rows in partitions.items()
        for file in write_files(
            lake,
            spec,
            dict(zip(spec.partition_columns, values, strict=True)),
            [pa.RecordBatch.from_pylist(partition_rows, spec.stored_schema)],
        )
    ]


def commit_fault(table: str) -> EnvironmentFault:
    """The fault for a commit that always met those of other processes."""
    return EnvironmentFault(f"could not commit to {table}: other processes always committed first", COMMIT_ADVICE)


def _key_of(spec: TableSpec, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in spec.key)
