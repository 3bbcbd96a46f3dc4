"""Slices with other rows: in the files behind the lake's back, or committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import Slice, Stage
from cc_pipeline.lake.slices import commit_written, draw_generations, read_base, read_slice_rows


def without_the_first(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def lose_rows(lake: Lake, table: str, slice_: Slice) -> None:
    """Somebody takes all rows of a slice out of the files of a table."""
    where = " AND ".join(f"{name} = '{value}'" for name, value in slice_.where.items())
    assert DeltaTable(lake.address(table)).delete(where)["num_deleted_rows"]


def double_rows(lake: Lake, table: str, slice_: Slice) -> None:
    """Somebody adds the rows of a slice to a table once more."""
    stored = DeltaTable(lake.address(table))
    rows = pa.table(stored.to_pyarrow_dataset().to_table()).combine_chunks()
    for name, value in slice_.where.items():
        rows = rows.filter(pa.compute.equal(rows[name], value))
    assert rows.num_rows
    write_deltalake(stored, rows, mode="append")


def recommit(
    lake: Lake,
    stage: Stage,
    slice_: Slice,
    changes: Mapping[str, Callable[[pa.Table], pa.Table]],
    note: Mapping[str, object] | None = None,
) -> None:
    """Commits a slice again, as made from the same input, with changed rows of some tables; and with parts of another
    note."""
    row = read_slice_rows(lake, [slice_], [stage])[slice_, stage.label]
    base, generations = read_base(lake, stage, [slice_]), draw_generations([slice_])
    written = {}
    for table in stage.tables:
        rows = lake.read(table, slice_.where)
        batches = changes.get(table, lambda same: same)(rows).to_batches()
        written[table] = write_rows(
            lake, table, slice_.crawl, batches, {slice_.target: generations[slice_]}, is_sorted=False
        )
    notes = {slice_: {**row.note, **(note or {})}}
    commit_written(lake, stage, {slice_: row.input}, written, generations, base, notes=notes)
