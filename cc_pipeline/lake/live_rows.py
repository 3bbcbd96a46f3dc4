"""Which rows of pinned tables count: for publications, checks and ``doctor``.

Files never change, so the generations of a file are counted once and kept in the home's cache. The rows of a slice are
compared with the number that its row of ``slices`` has: a slice with other rows counts as not made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.atomic import written_whole
from cc_pipeline.lake.damaged_files import find_damaged_paths
from cc_pipeline.lake.keyed import read_newest
from cc_pipeline.lake.lake import Lake, PinnedTable
from cc_pipeline.lake.slice import Slice
from cc_pipeline.lake.slices import SLICES, has_current_epoch
from cc_pipeline.lake.streaming import count_generations

_COUNTS: Final = pa.schema([("file", pa.string()), ("generation", pa.int64()), ("rows", pa.int64())])


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A pinned table and what counts in it: all rows of the files ``whole``, and the rows of ``generations`` in the
    files ``mixed``. ``rows`` is their number."""

    pinned: PinnedTable
    whole: tuple[str, ...]
    mixed: tuple[str, ...] = ()
    generations: pa.Array = field(default_factory=lambda: pa.array([], pa.int64()))
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A slice with other rows than were committed: the ``stage`` to be made again, the table, and both numbers."""

    slice_: Slice
    stage: str
    table: str
    committed: int
    stored: int

    def __str__(self) -> str:
        name = " ".join(filter(None, (self.slice_.crawl, self.slice_.target)))
        return f"{self.table} of {name} has {self.stored:,} rows, and was committed with {self.committed:,}"


@dataclass(frozen=True, slots=True)
class LiveRows:
    """The rows that count of some tables, by name; the slices that are left out since they are ``incomplete``; and the
    files that are missing or cut, as paths below the folder of their table."""

    tables: Mapping[str, LiveTable]
    incomplete: Sequence[Incomplete] = ()
    damaged: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def left_out(self) -> set[Slice]:
        """The slices that are left out of all tables."""
        return {one.slice_ for one in self.incomplete}


@dataclass(frozen=True, slots=True)
class States:
    """What the newest rows of ``slices`` say: ``tables`` has a row for each slice, stage and table that was made, with
    the generation and the number of rows; ``hidden`` are slices with their epoch whose rows do not count, since their
    target was purged; ``rows`` is how many rows of ``slices`` count."""

    tables: pa.Table
    hidden: frozenset[tuple[str, str, int]] = frozenset()
    rows: int = 0


def find_live_rows(lake: Lake, pinned: Iterable[PinnedTable], cache: Path | None = None) -> LiveRows:
    """The rows that count of pinned tables with slices; rows that are committed meanwhile are left out.

    ``cache`` is a folder for the counts of files. Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    return judge_rows(lake, read_states(lake).tables, pinned, cache)


def read_states(lake: Lake, where: Mapping[str, str | Sequence[str]] | None = None) -> States:
    """The states of all slices, or of those ``where`` names. Read them before the tables are pinned."""
    newest = read_newest(lake, SLICES.name, where, ["crawl", "target", "stage", "epoch", "tables"]).combine_chunks()
    counts = has_current_epoch(lake, newest)
    hidden = newest.filter(pc.invert(counts)).group_by(["crawl", "target", "epoch"]).aggregate([])
    keys = zip(*(hidden[name].to_pylist() for name in ("crawl", "target", "epoch")), strict=True)
    rows = newest.filter(counts).combine_chunks()
    return States(_unfold_tables(rows), frozenset(keys), rows.num_rows)


def _unfold_tables(rows: pa.Table) -> pa.Table:
    """A row for each table that a row of ``slices`` names."""
    names = ("crawl", "target", "stage", "epoch")
    if not rows.num_rows:
        columns = [rows.schema.field(name) for name in names]
        added = [("table", pa.string()), ("generation", pa.int64()), ("rows", pa.int64())]
        return pa.schema([*columns, *(pa.field(*one) for one in added)]).empty_table()
    maps = rows["tables"].chunk(0)
    parents = pa.array(np.repeat(np.arange(rows.num_rows), np.diff(maps.offsets.to_numpy())))
    first, last = maps.offsets[0].as_py(), maps.offsets[len(maps.offsets) - 1].as_py()
    values = maps.items.slice(first, last - first)
    columns = {name: rows[name].take(parents) for name in names} | {"table": maps.keys.slice(first, last - first)}
    return pa.table(columns | {name: pc.struct_field(values, name) for name in ("generation", "rows")})


def judge_rows(lake: Lake, states: pa.Table, pinned: Iterable[PinnedTable], cache: Path | None = None) -> LiveRows:
    """As :func:`find_live_rows`, with the ``states`` of the slices."""
    tables = [table for table in pinned if table.spec.has_slices]
    damaged = {table.spec.name: find_damaged_paths(lake, table) for table in tables}
    counts = {table.spec.name: _count(lake, table, damaged[table.spec.name], cache) for table in tables}
    incomplete = [one for table in tables for one in _find_incomplete(states, table.spec.name, counts[table.spec.name])]
    left_out = pa.array(sorted({f"{one.slice_.crawl} {one.slice_.target}" for one in incomplete}), pa.string())
    keys = pc.binary_join_element_wise(states["crawl"], states["target"], " ")
    kept = states.filter(pc.invert(pc.is_in(keys, value_set=left_out))) if len(left_out) else states
    live = {table.spec.name: _build_table(lake, table, kept, counts[table.spec.name]) for table in tables}
    return LiveRows(live, incomplete, {name: paths for name, paths in damaged.items() if paths})


def _select(states: pa.Table, table: str) -> pa.Table:
    return states.filter(pc.equal(states["table"], table))


def _find_incomplete(states: pa.Table, table: str, counts: pa.Table) -> list[Incomplete]:
    committed = _select(states, table)
    stored = counts.group_by("generation").aggregate([("rows", "sum")])
    positions = pc.index_in(committed["generation"], value_set=stored["generation"].combine_chunks())
    found = pc.fill_null(stored["rows_sum"].combine_chunks().take(positions.combine_chunks()), 0)
    wrong = committed.append_column("stored", found).filter(pc.not_equal(committed["rows"], found))
    return [
        Incomplete(Slice(row["crawl"], row["target"]), row["stage"], table, row["rows"], row["stored"])
        for row in wrong.to_pylist()
    ]


def _build_table(lake: Lake, pinned: PinnedTable, states: pa.Table, counts: pa.Table) -> LiveTable:
    table = pinned.spec.name
    own = _select(states, table)
    generations = own["generation"].combine_chunks()
    is_live = pc.is_in(counts["generation"], value_set=generations)
    by_file = (
        counts.append_column("is_live", is_live).group_by("file").aggregate([("is_live", "all"), ("is_live", "any")])
    )
    files = dict(
        zip(
            by_file["file"].to_pylist(),
            zip(by_file["is_live_all"].to_pylist(), by_file["is_live_any"].to_pylist(), strict=True),
            strict=True,
        )
    )
    whole = sorted(path for path, (all_live, _) in files.items() if all_live)
    mixed = sorted(path for path, (all_live, any_live) in files.items() if any_live and not all_live)
    in_mixed = counts.filter(pc.and_(is_live, pc.is_in(counts["file"], value_set=pa.array(mixed, pa.string()))))
    address = lake.address(table)
    return LiveTable(
        pinned,
        tuple(f"{address}/{path}" for path in whole),
        tuple(f"{address}/{path}" for path in mixed),
        pc.unique(in_mixed["generation"]),
        pc.sum(own["rows"]).as_py() or 0,
    )


def _count(lake: Lake, pinned: PinnedTable, damaged: Collection[str], cache: Path | None) -> pa.Table:
    """The rows of each generation in each file. Damaged files have none."""
    path = None if cache is None else cache / f"{pinned.spec.name}.parquet"
    known = _COUNTS.empty_table()
    if path is not None:
        with suppress(OSError, pa.ArrowException):
            known = pq.read_table(path).cast(_COUNTS)
    skipped = set(damaged)
    files = {file.path: file for file in pinned.stored_files() if file.path not in skipped}
    known = known.filter(pc.is_in(known["file"], value_set=pa.array([*files], pa.string())))
    counted = {*pc.unique(known["file"]).to_pylist()}
    rows = [
        {"file": name, "generation": generation, "rows": count}
        for name, file in files.items()
        if name not in counted
        for generation, count in count_generations(lake, pinned.spec.name, file).items()
    ]
    counts = pa.concat_tables([known, pa.Table.from_pylist(rows, _COUNTS)])
    if path is not None and rows:
        # without it, the next publication counts again
        with suppress(OSError), written_whole(path) as part:
            pq.write_table(counts, part)
    return counts
