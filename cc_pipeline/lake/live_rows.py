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
from typing import Any, Final

import numpy as np
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
#: Rows of ``slices`` that are looked at together.
_STATES_AT_ONCE: Final = 30_000


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


@dataclass(slots=True)
class LiveRows:
    """The rows that count of some tables, by name; and the slices that are left out since they are ``incomplete``.

    ``hidden`` are slices with their epoch whose rows of ``slices`` do not count or are left out; ``states`` is the
    number of rows of ``slices`` that count."""

    tables: dict[str, LiveTable] = field(default_factory=dict)
    incomplete: list[Incomplete] = field(default_factory=list)
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
    tables = [_Counted.of(lake, table, cache) for table in pinned if table.spec.has_slices]
    for group in _group_crawls([slices, *(table.pinned for table in tables)], crawls):
        newest = _read_newest(lake, slices, group)
        counts = pc.fill_null(has_current_epoch(lake, newest, targets), False)
        live.hidden.update(_list_keys(newest.filter(pc.invert(counts))))
        rows = newest.filter(counts).combine_chunks()
        live.states += rows.num_rows
        _judge(live, tables, group, _unfold_tables(rows))
    live.tables = {table.pinned.spec.name: table.build(lake) for table in tables}
    return live


def _read_newest(lake: Lake, slices: PinnedTable, crawls: Sequence[str]) -> pa.Table:
    names = (*SLICES.key, SEQ.name, "tables")
    schema = pa.schema([SLICES.stored_schema.field(name) for name in names])
    addresses = [f"{lake.address(SLICES.name)}/{file.path}" for file in slices.stored_files(crawls)]
    batches = chain.from_iterable(stream_files(lake, addresses, schema))
    return select_newest(pa.Table.from_batches(batches, schema), SLICES.key).combine_chunks()


def _group_crawls(pinned: Sequence[PinnedTable], crawls: Collection[str] | None) -> Iterator[list[str]]:
    """The crawls of some tables, as many at a time as have a bounded number of slices."""
    rows: Counter[str] = Counter()
    for table in pinned:
        for file in table.stored_files(crawls):
            rows[file.crawl] += file.rows if table.spec.key else 0
    return group_within(sorted(rows), (_STATES_AT_ONCE,), lambda crawl: (rows[crawl],))


def _list_keys(rows: pa.Table) -> Iterator[tuple[str, str, int]]:
    keys = rows.group_by(["crawl", "target", "epoch"]).aggregate([])
    return zip(*(keys[name].to_pylist() for name in ("crawl", "target", "epoch")), strict=True)


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


def _judge(live: LiveRows, tables: Sequence[_Counted], crawls: Sequence[str], states: pa.Table) -> None:
    """Compares the rows of some crawls with their states, and notes which files have rows that count."""
    counts = [table.counts_of(crawls) for table in tables]
    incomplete = [
        incomplete_slice
        for table, table_counts in zip(tables, counts, strict=True)
        for incomplete_slice in table.find_incomplete(states, table_counts)
    ]
    if incomplete:
        keys = pa.array(
            sorted(
                {f"{incomplete_slice.slice_.crawl} {incomplete_slice.slice_.target}" for incomplete_slice in incomplete}
            ),
            pa.string(),
        )
        is_left_out = pc.is_in(pc.binary_join_element_wise(states["crawl"], states["target"], " "), value_set=keys)
        live.hidden.update(_list_keys(states.filter(is_left_out)))
        states = states.filter(pc.invert(is_left_out))
        live.incomplete += incomplete
    for table, table_counts in zip(tables, counts, strict=True):
        table.sort_files(states, table_counts)


@dataclass(slots=True)
class _Counted:
    """A pinned table, with the number of rows of each generation in each of its files (``counts``), the crawl of each
    of these numbers, and what was found of the table so far."""

    pinned: PinnedTable
    counts: pa.Table
    crawls: pa.DictionaryArray
    whole: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    generations: list[pa.Array] = field(default_factory=list)
    rows: int = 0

    @classmethod
    def of(cls, lake: Lake, pinned: PinnedTable, cache: Path | None) -> _Counted:
        # an object of a bucket is complete or missing
        damaged = [] if "://" in lake.root else find_damaged_row_files(lake, pinned)
        lost = {damaged_file.file.path for damaged_file in damaged if damaged_file.file is not None}
        files = {file.path: file for file in pinned.stored_files() if file.path not in lost}
        counts = _count(lake, pinned.spec.name, files, cache)
        paths = counts["file"].combine_chunks()
        crawls = [files[path].crawl for path in paths.dictionary.to_pylist()]
        return cls(pinned, counts, pa.DictionaryArray.from_arrays(paths.indices, pa.array(crawls, pa.string())))

    def counts_of(self, crawls: Sequence[str]) -> pa.Table:
        """The numbers of the files of ``crawls``."""
        is_of_crawls = pc.is_in(self.crawls.dictionary, value_set=pa.array(crawls, pa.string()))
        return self.counts.filter(is_of_crawls.take(self.crawls.indices))

    def _select(self, states: pa.Table) -> pa.Table:
        return states.filter(pc.equal(states["table"], self.pinned.spec.name))

    def find_incomplete(self, states: pa.Table, counts: pa.Table) -> list[Incomplete]:
        """The slices whose stored rows (``counts``) are not as many as were committed."""
        committed = self._select(states)
        stored = counts.group_by("generation").aggregate([("rows", "sum")]).combine_chunks()
        positions = pc.index_in(committed["generation"], value_set=stored["generation"].combine_chunks())
        stored_rows = pc.fill_null(stored["rows_sum"].combine_chunks().take(positions.combine_chunks()), 0)
        wrong = committed.append_column("stored", stored_rows).filter(pc.not_equal(committed["rows"], stored_rows))
        return [
            Incomplete(Slice(row["crawl"], row["target"]), row["stage"], row["table"], row["rows"], row["stored"])
            for row in wrong.to_pylist()
        ]

    def sort_files(self, states: pa.Table, counts: pa.Table) -> None:
        """Notes which files have rows that count: all of their rows, or some."""
        table_states = self._select(states)
        is_live = pc.is_in(counts["generation"], value_set=table_states["generation"].combine_chunks())
        counts = counts.append_column("is_live", is_live)
        by_file = counts.group_by("file").aggregate([("is_live", "all"), ("is_live", "any")])
        mixed = by_file.filter(pc.and_not(by_file["is_live_any"], by_file["is_live_all"]))["file"].cast(pa.string())
        self.whole += by_file.filter(by_file["is_live_all"])["file"].cast(pa.string()).to_pylist()
        self.rows += pc.sum(table_states["rows"]).as_py() or 0
        if len(mixed):
            self.mixed += mixed.to_pylist()
            is_mixed = pc.is_in(counts["file"].cast(pa.string()), value_set=mixed.combine_chunks())
            self.generations.append(pc.unique(counts.filter(pc.and_(is_live, is_mixed))["generation"]))

    def build(self, lake: Lake) -> LiveTable:
        address = lake.address(self.pinned.spec.name)
        whole, mixed = (tuple(f"{address}/{path}" for path in sorted(paths)) for paths in (self.whole, self.mixed))
        generations = pa.concat_arrays([pa.array([], pa.int64()), *self.generations])
        return LiveTable(self.pinned, whole, mixed, generations, self.rows)


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
