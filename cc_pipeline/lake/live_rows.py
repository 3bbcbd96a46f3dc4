"""Which rows of pinned tables count: for publications, checks and ``doctor``.

Files never change, so the generations of a file are counted once and kept in the home's cache. The rows of a slice are
compared with the number that its row of ``slices`` has: a slice with other rows counts as not made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.atomic import written_whole
from cc_pipeline.grouping import group_within
from cc_pipeline.lake.damaged_files import find_damaged_row_files
from cc_pipeline.lake.keyed import select_newest
from cc_pipeline.lake.lake import SEQ, Lake, PinnedTable
from cc_pipeline.lake.layout import StoredFile
from cc_pipeline.lake.predicates import Where
from cc_pipeline.lake.slice import Slice
from cc_pipeline.lake.slices import SLICES, current_rows, has_current_epoch
from cc_pipeline.lake.streaming import count_generations, stream_files

_COUNTS: Final = pa.schema(
    [("file", pa.dictionary(pa.int32(), pa.string())), ("generation", pa.int64()), ("rows", pa.int64())]
)
_Numbers: TypeAlias = npt.NDArray[np.int64]
#: Rows of ``slices`` that are looked at together.
_STATES_AT_ONCE: Final = 30_000


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A pinned table and what counts in it: all rows of the files ``complete``, and the rows of ``generations`` in the
    files ``mixed``. ``rows`` is their number."""

    pinned: PinnedTable
    complete: tuple[str, ...]
    mixed: tuple[str, ...] = ()
    generations: pa.Array = field(default_factory=lambda: pa.array([], pa.int64()))
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Miscount:
    """A slice with other rows than were committed: the ``stage`` to be made again, the table, and both numbers."""

    slice_: Slice
    stage: str
    table: str
    committed: int
    stored: int

    def __str__(self) -> str:
        name = " ".join(filter(None, (self.slice_.crawl, self.slice_.target)))
        return f"{self.table} of {name} has {self.stored:,} rows, and was committed with {self.committed:,}"


@dataclass(slots=True)
class LiveRows:
    """The rows that count of some tables, by name; and the slices that are left out because of ``miscounts``.

    ``hidden`` are slices with their epoch whose rows of ``slices`` do not count or are left out; ``states`` is the
    number of rows of ``slices`` that count."""

    tables: dict[str, LiveTable] = field(default_factory=dict)
    miscounts: list[Miscount] = field(default_factory=list)
    hidden: set[tuple[str, str, int]] = field(default_factory=set)
    states: int = 0


def read_states(lake: Lake, where: Where | None = None) -> pa.Table:
    """A row for each slice, stage and table that was made (of those ``where`` names): its generation and number of
    rows. Raises ``EnvironmentFault``."""
    return _unfold_tables(current_rows(lake, where, ["tables"]).combine_chunks())


def find_live_rows(
    lake: Lake, pinned: Sequence[PinnedTable], cache: Path | None = None, crawls: Collection[str] | None = None
) -> LiveRows:
    """The rows that count of ``pinned`` tables with slices, as ``slices`` says, which is one of them and was pinned
    first: rows that are committed meanwhile are left out. ``crawls`` are those to be looked at (default: all), some
    at a time, so memory is bounded.

    ``cache`` is a folder for the counts of files. Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    live = LiveRows()
    slices = next(table for table in pinned if table.spec.name == SLICES.name)
    targets: dict[str, dict[str, Any]] = {}
    tables = [_TableGenerations.count(lake, table, cache) for table in pinned if table.spec.has_slices]
    for group in _group_crawls(slices, crawls):
        newest = _read_newest(lake, slices, group)
        counts = pc.fill_null(has_current_epoch(lake, newest, targets), False)
        live.hidden.update(_list_keys(newest.filter(pc.invert(counts))))
        rows = newest.filter(counts).combine_chunks()
        live.states += rows.num_rows
        _judge(live, tables, _unfold_tables(rows))
    live.tables = {table.pinned.spec.name: table.build(lake) for table in tables}
    return live


def _read_newest(lake: Lake, slices: PinnedTable, crawls: Sequence[str]) -> pa.Table:
    names = (*SLICES.key, SEQ.name, "tables")
    schema = pa.schema([SLICES.stored_schema.field(name) for name in names])
    addresses = [f"{lake.address(SLICES.name)}/{file.path}" for file in slices.stored_files(crawls)]
    batches = chain.from_iterable(stream_files(lake, addresses, schema))
    return select_newest(pa.Table.from_batches(batches, schema), SLICES.key).combine_chunks()


def _group_crawls(slices: PinnedTable, crawls: Collection[str] | None) -> Iterator[list[str]]:
    """Crawls, as many at a time as have a bounded number of slices."""
    rows: Counter[str] = Counter()
    for file in slices.stored_files(crawls):
        rows[file.crawl] += file.rows
    return group_within(sorted(rows), (_STATES_AT_ONCE,), lambda crawl: (rows[crawl],))


def _list_keys(rows: pa.Table) -> Iterator[tuple[str, str, int]]:
    return zip(*(rows[name].to_pylist() for name in ("crawl", "target", "epoch")), strict=True)


def _unfold_tables(rows: pa.Table) -> pa.Table:
    """A row for each table that a row of ``slices`` names."""
    names = ("crawl", "target", "stage", "epoch")
    added = [("table", pa.string()), ("generation", pa.int64()), ("rows", pa.int64())]
    schema = pa.schema(
        [*(rows.schema.field(name) for name in names), *(pa.field(*name_and_type) for name_and_type in added)]
    )
    if not rows.num_rows:
        return schema.empty_table()
    maps = rows["tables"].chunk(0)
    parents = pa.array(np.repeat(np.arange(rows.num_rows), np.diff(maps.offsets.to_numpy())))
    first, last = maps.offsets[0].as_py(), maps.offsets[len(maps.offsets) - 1].as_py()
    values = maps.items.slice(first, last - first)
    numbers = [pc.struct_field(values, name) for name in ("generation", "rows")]
    keys = [rows[name].take(parents) for name in names]
    return pa.Table.from_arrays([*keys, maps.keys.slice(first, last - first), *numbers], schema=schema)


def _judge(live: LiveRows, tables: Sequence[_TableGenerations], states: pa.Table) -> None:
    """Compares the stored rows of some slices with their states, and notes which of them count."""
    miscounts = [miscount for table in tables for miscount in table.find_miscounts(states)]
    if miscounts:
        keys = {(miscount.slice_.crawl, miscount.slice_.target) for miscount in miscounts}
        pairs = zip(states["crawl"].to_pylist(), states["target"].to_pylist(), strict=True)
        is_left_out = pa.array([pair in keys for pair in pairs], pa.bool_())
        live.hidden.update(_list_keys(states.filter(is_left_out)))
        states = states.filter(pc.invert(is_left_out))
        live.miscounts += miscounts
    for table in tables:
        table.note_live(states)


@dataclass(slots=True)
class _TableGenerations:
    """A pinned table with the rows of each generation in its files: ``sums`` by ``generations``, which are in order.
    ``places`` has the position in these of each part of a file, and ``files`` its position in ``paths``. ``is_live``
    says which generations count, and ``rows`` how many rows they have."""

    pinned: PinnedTable
    paths: Sequence[str]
    files: _Numbers
    places: _Numbers
    generations: _Numbers
    sums: _Numbers
    is_live: npt.NDArray[np.bool_]
    rows: int = 0

    @classmethod
    def count(cls, lake: Lake, pinned: PinnedTable, cache: Path | None) -> _TableGenerations:
        # an object of a bucket is complete or missing
        damaged = [] if "://" in lake.root else find_damaged_row_files(lake, pinned)
        lost = {damaged_file.file.path for damaged_file in damaged if damaged_file.file is not None}
        stored = {file.path: file for file in pinned.stored_files() if file.path not in lost}
        counts = _count(lake, pinned.spec.name, stored, cache)
        encoded = counts["file"].combine_chunks()
        generations, places = np.unique(counts["generation"].to_numpy(), return_inverse=True)
        # the last one is of no generation
        sums = np.bincount(places, counts["rows"].to_numpy(), len(generations) + 1).astype(np.int64)
        is_live = np.zeros(len(sums), bool)
        paths = encoded.dictionary.to_pylist()
        return cls(pinned, paths, encoded.indices.to_numpy(), places, generations, sums, is_live)

    def _select(self, states: pa.Table) -> tuple[pa.Table, _Numbers]:
        """The states of this table, with the position of each one's generation; the last position for unknown ones."""
        table_states = states.filter(pc.equal(states["table"], self.pinned.spec.name))
        numbers = table_states["generation"].to_numpy()
        positions = np.searchsorted(self.generations, numbers)
        is_stored = np.append(self.generations, -1)[positions] == numbers
        return table_states, np.where(is_stored, positions, len(self.generations))

    def find_miscounts(self, states: pa.Table) -> list[Miscount]:
        """The slices whose stored rows are not as many as were committed."""
        table_states, positions = self._select(states)
        stored = self.sums[positions]
        wrong = np.flatnonzero(stored != table_states["rows"].to_numpy())
        return [
            Miscount(Slice(row["crawl"], row["target"]), row["stage"], row["table"], row["rows"], int(stored[place]))
            for place, row in zip(wrong.tolist(), table_states.take(wrong).to_pylist(), strict=True)
        ]

    def note_live(self, states: pa.Table) -> None:
        """Notes that the rows of ``states`` count."""
        table_states, positions = self._select(states)
        self.is_live[positions] = True
        self.rows += pc.sum(table_states["rows"]).as_py() or 0

    def build(self, lake: Lake) -> LiveTable:
        """What counts in the table: files with rows that all count, and files with some."""
        is_live = self.is_live[self.places]
        all_parts = np.bincount(self.files, minlength=len(self.paths))
        live_parts = np.bincount(self.files[is_live], minlength=len(self.paths))
        has_all_parts, has_some_parts = live_parts == all_parts, (live_parts > 0) & (live_parts < all_parts)
        address = lake.address(self.pinned.spec.name)
        live_files, mixed_files = (
            tuple(sorted(f"{address}/{self.paths[number]}" for number in np.flatnonzero(mask).tolist()))
            for mask in (has_all_parts, has_some_parts)
        )
        generations = self.generations[np.unique(self.places[is_live & has_some_parts[self.files]])]
        return LiveTable(self.pinned, live_files, mixed_files, pa.array(generations, pa.int64()), self.rows)


def _count(lake: Lake, table: str, files: Mapping[str, StoredFile], cache: Path | None) -> pa.Table:
    """The rows of each generation in each file."""
    path = None if cache is None else cache / f"{table}.parquet"
    cached_counts = _COUNTS.empty_table()
    if path is not None:
        with suppress(OSError, pa.ArrowException):
            cached_counts = pq.read_table(path, read_dictionary=["file"]).cast(_COUNTS)
    cached_counts = cached_counts.filter(
        pc.is_in(cached_counts["file"].cast(pa.string()), value_set=pa.array([*files], pa.string()))
    )
    # a filtered dictionary still has the files that are gone
    cached_counts = cached_counts.set_column(
        0, _COUNTS.field(0), cached_counts["file"].cast(pa.string()).dictionary_encode()
    )
    counted_files = {*pc.unique(cached_counts["file"].cast(pa.string())).to_pylist()}
    rows = [
        {"file": name, "generation": generation, "rows": count}
        for name, file in files.items()
        if name not in counted_files
        for generation, count in count_generations(lake, table, file).items()
    ]
    counts = (
        pa.concat_tables([cached_counts, pa.Table.from_pylist(rows, _COUNTS)]).unify_dictionaries().combine_chunks()
    )
    if path is not None and rows:
        # without it, the next publication counts again
        with suppress(OSError), written_whole(path) as part:
            pq.write_table(counts, part)
    return counts
