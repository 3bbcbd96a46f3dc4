"""Rows of any number in an order of their columns, with flat memory.

A lake gives rows in no order, and a stage wants those of a file together. Few rows stay in memory; more go to an Arrow
file, which DuckDB sorts within a bound, spilling what does not fit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import EnvironmentFault, disk_trouble

#: Bytes of rows that are kept, and sorted, in memory.
IN_MEMORY = 64 << 20
#: What DuckDB may use for sorting more than that.
_SORTING = "256MB"
#: Rows of a batch that is given back.
_BATCH_ROWS = 4_096
#: By what a column is sorted, one after the other.
_KEYS = {"is there": pc.is_valid, "value": lambda column: column}
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class OrderedRows:
    """Takes rows batch by batch (:meth:`add`), and gives all of them in the order of some columns, nulls first, as
    often as it is asked (:meth:`batches`).

    ``order`` may be empty: then rows come back as they were added. Rows that are alike in all of ``order`` come in no
    order once there are many. ``folder`` is there and is deleted by the caller afterwards. Every method raises
    ``EnvironmentFault`` where files in it cannot be written or read.
    """

    def __init__(self, schema: pa.Schema, order: Sequence[str], folder: Path, in_memory: int | None = None) -> None:
        self.schema = schema
        self.rows = 0
        self._order = tuple(order)
        self._in_memory = IN_MEMORY if in_memory is None else in_memory
        self._kept: list[pa.RecordBatch] = []
        self._bytes = 0
        self._path = folder / f"rows-{uuid.uuid4().hex}.arrow"
        self._writer: pa.RecordBatchWriter | None = None
        self._is_ordered = not order

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Takes more rows, in the schema; not after they were asked for."""
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            self.rows += batch.num_rows
            self._bytes += batch.nbytes
            self._kept.append(batch)
        if self._bytes > self._in_memory:
            self._put_aside()

    def _put_aside(self) -> None:
        with disk_trouble(self._path):
            if self._writer is None:
                self._writer = pa.ipc.new_stream(str(self._path), self.schema, options=_COMPRESSED)
            for batch in self._kept:
                self._writer.write_batch(batch)
        self._kept, self._bytes = [], 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order."""
        if self._writer is None:
            yield from self._sorted_in_memory().to_batches(max_chunksize=_BATCH_ROWS)
            return
        if self._kept:
            self._put_aside()
        with disk_trouble(self._path):
            self._writer.close()
            if not self._is_ordered:
                self._sort()
            # not mapped into memory: a process would seem to hold all that it has read
            with pa.OSFile(str(self._path)) as source:
                yield from pa.ipc.open_stream(source)

    def _sorted_in_memory(self) -> pa.Table:
        table = pa.Table.from_batches(self._kept, self.schema)
        if not self._is_ordered:
            table = _sorted(table, self._order)
            self._kept, self._is_ordered = table.to_batches(), True
        return table

    def _sort(self) -> None:
        """Replaces the file by one that is in order."""
        to = self._path.with_name(f"ordered-{self._path.name}")
        with pa.ipc.new_stream(str(to), self.schema, options=_COMPRESSED) as out:
            for batch in _sorted_by_duckdb(self._path, self.schema, self._order):
                out.write_batch(batch)
        to.replace(self._path)
        self._is_ordered = True


def _sorted(table: pa.Table, order: Sequence[str]) -> pa.Table:
    if not table.num_rows:
        return table
    # older versions of Arrow sort nulls to one end whatever the column: whether there is a value is a key of its own
    keys = {f"{kind}:{name}": of(table.column(name)) for name in order for kind, of in _KEYS.items()}
    return table.take(pc.sort_indices(pa.table(keys), [(key, "ascending") for key in keys]))


def _sorted_by_duckdb(path: Path, schema: pa.Schema, order: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import duckdb  # noqa: PLC0415  # most runs never sort so much

    keys = ", ".join(f'"{name}" ASC NULLS FIRST' for name in order)
    config: dict[str, Any] = {
        "memory_limit": _SORTING,
        "threads": 2,
        "temp_directory": str(path.parent / f"sorting-{path.stem}"),
    }
    try:
        with duckdb.connect(config=config) as connection, pa.OSFile(str(path)) as source:
            connection.register("unordered", pa.ipc.open_stream(source))
            found = connection.sql(f"SELECT * FROM unordered ORDER BY {keys}")
            for batch in found.to_arrow_reader(_BATCH_ROWS):
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
    except duckdb.Error as error:
        raise EnvironmentFault(
            f"rows in {path.parent} could not be sorted: {error}", "Check the disk's free space, then run it again."
        ) from error
