"""Reads the rows of some keys from the shards of a dataset: estimates the cost, reads the pages that may have the keys,
and merges the rows of each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.key_ranges import KeyRange, RangeSet
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.extensions.host_facts.shards import Bounds, Gap, Shard, cast_values
from cc_pipeline.grouping import group_within
from cc_pipeline.index.parquet.chunk_locations import ColumnLocation, RowGroupLocation
from cc_pipeline.index.parquet.cost_estimate import likely_bytes, max_requests
from cc_pipeline.index.parquet.decoding import decode_pages
from cc_pipeline.index.parquet.fetch import Cost, ManyReader, PageIndexes, Piece, fetch_pieces
from cc_pipeline.index.parquet.locator import as_text
from cc_pipeline.index.parquet.read import RowGroupQuery, RowGroupRows, read_rows

#: A type for any integer, and for sums of many.
_WIDE_DECIMAL = pa.decimal128(38, 0)
#: Arrow's names of the merge functions of datasets.
_AGGREGATES = {"first": "first", "min": "min", "max": "max", "sum": "sum", "any": "max"}

#: Maximum bytes of column chunks in memory in one round.
_ROUND_BYTES = 192 << 20
#: Maximum rows of an answer, and their maximum bytes. A join has them in memory twice.
MAX_RESULT_ROWS = 4_000_000
MAX_RESULT_BYTES = 1500 << 20
#: Expected number of row groups of an unsorted dataset with requested rows.
_LIKELY_GROUPS = 4
#: Endings are read if they are at least this many times smaller than the keys of the row group.
_MIN_ENDING_RATIO = 8
T = TypeVar("T")
Keep = Callable[[pa.Array], npt.NDArray[np.bool_]]
#: The column of an answer that has the key as the dataset writes it.
KEY_TEXT = "_key"


def fold_rows(table: pa.Table, keys: int, www: pa.Array | None, fold: Mapping[str, str]) -> pa.Table:
    """Merges the rows of ``table`` with equal values in its first ``keys`` columns, sorted by these. Other columns are
    merged by ``fold``, by default by ``first``.

    ``first`` is the first non-null value, in the order of the rows, with rows of hosts without ``www`` before others.
    Raises ``UserInputError`` for values that cannot be merged as ``fold`` says.
    """
    schema = table.schema
    # Column names of other people's files may be anything, so columns are numbered here.
    names = [str(place) for place in range(len(schema))]
    table = table.rename_columns(names)
    order = [(key, "ascending") for key in names[:keys]]
    if table.group_by(names[:keys]).aggregate([]).num_rows == table.num_rows:
        return table.sort_by(order).rename_columns(schema.names)
    has_www = pa.array([False] * table.num_rows) if www is None else www.fill_null(False)
    sortable = table.append_column("later", has_www.cast(pa.int8()))
    sortable = sortable.append_column("place", pa.array(range(table.num_rows), pa.int64()))
    ordered = sortable.sort_by([*order, ("later", "ascending"), ("place", "ascending")])
    aggregates = {name: _AGGREGATES[fold.get(schema.names[int(name)], "first")] for name in names[keys:]}
    for name, aggregate in aggregates.items():
        if aggregate == "sum" and pa.types.is_integer(ordered[name].type):
            # A sum of integers could overflow.
            ordered = ordered.set_column(int(name), name, ordered[name].cast(_WIDE_DECIMAL))
    try:
        grouped = ordered.group_by(names[:keys], use_threads=False).aggregate(list(aggregates.items()))
        columns = [grouped[name if name not in aggregates else f"{name}_{aggregates[name]}"] for name in names]
        return (
            pa.table(columns, names=names)
            .cast(_rename_fields(names, schema))
            .sort_by(order)
            .rename_columns(schema.names)
        )
    except pa.ArrowException as error:
        fold_text = ", ".join(f"{name}: {aggregate}" for name, aggregate in fold.items())
        raise UserInputError(
            f"rows with the same key cannot be merged by the field fold ({fold_text}): {error}"
        ) from error


def _rename_fields(names: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """``schema`` with other names."""
    return pa.schema([field.with_name(name) for name, field in zip(names, schema, strict=True)])


@dataclass(frozen=True, slots=True)
class LookupEstimate:
    """The maximum cost of a lookup (``bytes``, ``requests``), and its likely bytes.

    ``pruned`` of ``row_groups`` row groups are skipped by the statistics of their keys. ``without_bounds`` of the
    others have no statistics, and ``searched`` are in unsorted files, so that all their keys are read. ``files`` have
    row groups to read."""

    files: int
    row_groups: int
    pruned: int
    without_bounds: int
    searched: int
    requests: int
    bytes: int
    likely_bytes: int

    @property
    def to_read(self) -> int:
        """The number of row groups to read."""
        return self.row_groups - self.pruned


@dataclass(slots=True)
class KeyedRows:
    """Rows in the order of shards and row groups: the key as text, and the requested columns."""

    table: pa.Table
    gaps: list[Gap] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True)
class _Candidate:
    shard: Shard
    place: RowGroupLocation
    bounds: Bounds
    in_order: bool
    ending: ColumnLocation | None = None

    @property
    def path(self) -> str:
        return self.shard.file.path

    @property
    def size(self) -> int:
        return sum(column.size for column in self.place.columns.values())

    def lies_in(self, ranges: Sequence[KeyRange]) -> bool:
        """Whether all keys of the row group are requested, by the bounds in the footer."""
        low, high = self.bounds
        return any(
            low is not None and high is not None and low in key_range and high in key_range for key_range in ranges
        )


@dataclass(frozen=True, slots=True)
class Endings:
    """A small ``column`` with the last label of each host. Row groups of unsorted files are skipped if the column has
    none of ``values`` and no null.
    """

    column: str
    values: frozenset[str]


class KeyedLookup:
    """One lookup in the shards of a dataset: the rows with keys in ``ranges``, with the columns of ``schema``.

    ``keep`` filters the keys within the ranges, ``endings`` skips row groups. Shards with invalid footers become
    ``gaps``.
    """

    def __init__(
        self,
        shards: Iterator[Shard] | Sequence[Shard],
        ranges: Sequence[KeyRange],
        schema: pa.Schema,
        keep: Keep | None,
        endings: Endings | None = None,
    ) -> None:
        self.schema = schema
        self.gaps: list[Gap] = []
        self._ranges = RangeSet(ranges)
        self._keep = keep
        self._endings = endings
        self._groups = self._without_bounds = 0
        self._candidates: list[_Candidate] = []
        for shard in shards:
            bounds = shard.bounds()
            self._groups += len(bounds)
            numbers = shard.matching_row_groups(self._ranges)
            if not numbers:
                continue
            try:
                names = schema.names if endings is None else [*schema.names, endings.column]
                places = shard.row_groups(numbers, names)
            except DataFault as fault:
                self.gaps.append(_gap(fault))
                continue
            in_order = shard.is_sorted()
            self._candidates += [
                _Candidate(
                    shard, place, bounds[place.number], in_order, None if in_order else self._ending(shard, place)
                )
                for place in places
            ]
            self._without_bounds += sum(bounds[number] == (None, None) for number in numbers)

    def estimate(self) -> LookupEstimate:
        """The estimated cost. Nothing is read."""
        likely = max_bytes = requests = 0
        searched: list[int] = []
        # If sorted files have these hosts, unsorted files have few of their rows.
        has_sorted_files = any(candidate.in_order for candidate in self._candidates)
        for candidate in self._candidates:
            key = candidate.place.columns[candidate.shard.key]
            columns = list(candidate.place.columns.values())
            max_bytes += candidate.size
            requests += max_requests(candidate.place, columns)
            near_ranges = self._ranges.near(*candidate.bounds)
            other_bytes = likely_bytes(candidate.place, [column for column in columns if column is not key])
            if candidate.lies_in(near_ranges):
                likely += candidate.size
            elif candidate.in_order:
                likely += min(candidate.size, len(near_ranges) * likely_bytes(candidate.place, columns))
            elif candidate.ending is not None and has_sorted_files:
                likely += candidate.ending.size
                searched.append(key.size + other_bytes)
            else:
                # All keys are read, and other columns only of the few row groups that have a host.
                likely += key.size
                searched.append(other_bytes)
        likely += sum(sorted(searched)[-_LIKELY_GROUPS:])
        files = len({candidate.path for candidate in self._candidates})
        read = len(self._candidates)
        return LookupEstimate(
            files,
            self._groups,
            self._groups - read,
            self._without_bounds,
            len(searched),
            requests,
            max_bytes,
            min(likely, max_bytes),
        )

    def read(self, reader: ManyReader, indexes: PageIndexes, max_bytes: int | None = None) -> KeyedRows:
        """Reads the rows. A shard that cannot be read, or that contradicts its footer, becomes a gap and loses all its
        rows.

        Raises ``EnvironmentFault`` if the source fails, ``UserInputError`` for more than ``max_bytes`` bytes to read,
        ``MAX_RESULT_ROWS`` rows or ``MAX_RESULT_BYTES`` bytes of rows.
        """
        cost, tables_by_path, rows, size = Cost(), list[tuple[str, pa.Table]](), 0, 0
        gaps = {gap.path: gap for gap in self.gaps}

        def check(more_rows: int = 0, more_bytes: int = 0) -> None:
            _check_limits(cost.bytes, max_bytes, rows + more_rows, size + more_bytes)

        def rows_of(sound_candidates: Sequence[_Candidate]) -> list[tuple[str, pa.Table]]:
            answers = list(
                read_rows(
                    reader, [self._row_group_query(candidate) for candidate in sound_candidates], indexes, cost, check
                )
            )
            return [
                (candidate.path, self._table(candidate, answer))
                for candidate, answer in zip(sound_candidates, answers, strict=True)
            ]

        def filter_by_ending(sound_candidates: Sequence[_Candidate]) -> list[_Candidate]:
            return self._filter_by_ending(reader, sound_candidates, cost)

        candidates: list[_Candidate] = []
        for round_candidates in _rounds(
            self._candidates, lambda candidate: 0 if candidate.ending is None else candidate.ending.size
        ):
            candidates += _apply_to_sound(round_candidates, gaps, filter_by_ending)
            check()
        for round_candidates in _rounds(candidates, lambda candidate: candidate.size):
            tables = _apply_to_sound(round_candidates, gaps, rows_of)
            rows += sum(table.num_rows for _, table in tables)
            size += sum(table.nbytes for _, table in tables)
            tables_by_path += tables
            check()
        sound_tables = [table for path, table in tables_by_path if path not in gaps]
        rows = pa.concat_tables([self._result().empty_table(), *sound_tables]).combine_chunks()
        return KeyedRows(rows, list(gaps.values()), cost)

    def _ending(self, shard: Shard, place: RowGroupLocation) -> ColumnLocation | None:
        """The column of endings, if reading it is worthwhile."""
        column = None if self._endings is None else place.columns.get(self._endings.column)
        if column is None or column.layout.physical != "BYTE_ARRAY":
            return None
        return column if column.size * _MIN_ENDING_RATIO <= place.columns[shard.key].size else None

    def _filter_by_ending(self, reader: ManyReader, candidates: Sequence[_Candidate], cost: Cost) -> list[_Candidate]:
        """The ``candidates`` that are sorted, or have a requested ending."""
        pieces = [
            None if candidate.ending is None else Piece(candidate.path, candidate.ending.offset, candidate.ending.size)
            for candidate in candidates
        ]
        etags = {candidate.path: candidate.shard.file.etag for candidate in candidates}
        sizes = {candidate.path: candidate.shard.file.size for candidate in candidates}
        data_by_piece = fetch_pieces(reader, [piece for piece in pieces if piece is not None], etags, cost, sizes)
        matching = []
        for candidate, piece in zip(candidates, pieces, strict=True):
            if piece is None or candidate.ending is None or self._endings is None:
                matching.append(candidate)
                continue
            pages = [(piece.offset, data_by_piece[piece])]
            values = decode_pages(candidate.ending.layout, pages, candidate.place.rows, source=candidate.path)
            endings = pa.array([value.encode() for value in sorted(self._endings.values)], pa.binary())
            if values.null_count or pc.any(pc.is_in(values, value_set=endings)).as_py():
                matching.append(candidate)
        return matching

    def _row_group_query(self, candidate: _Candidate) -> RowGroupQuery:
        names = tuple(name for name in self.schema.names if name in candidate.place.columns)
        return RowGroupQuery(candidate.place, self._ranges, names, candidate.shard.key, self._keep, candidate.bounds)

    def _table(self, candidate: _Candidate, group_rows: RowGroupRows) -> pa.Table:
        file, key = candidate.shard.file, candidate.shard.key
        arrays = [as_text(group_rows.columns[key])]
        for column in self.schema:
            values = group_rows.columns.get(column.name)
            if values is None:
                arrays.append(pa.nulls(len(group_rows.rows), column.type))
            else:
                arrays.append(cast_values(values, file, column.name, column.type))
        return pa.Table.from_arrays(arrays, schema=self._result())

    def _result(self) -> pa.Schema:
        return pa.schema([pa.field(KEY_TEXT, pa.string()), *self.schema])


def _rounds(candidates: Sequence[_Candidate], size: Callable[[_Candidate], int]) -> Iterator[list[_Candidate]]:
    """Groups ``candidates`` into rounds within the memory limit; a larger candidate has a round of its own."""
    return group_within(candidates, (_ROUND_BYTES,), lambda candidate: (size(candidate),))


def _apply_to_sound(
    candidates: Sequence[_Candidate], gaps: dict[str, Gap], function: Callable[[Sequence[_Candidate]], list[T]]
) -> list[T]:
    """Applies ``function`` to the candidates whose files have no gap. A file that it finds faulty becomes a gap."""
    while True:
        sound_candidates = [candidate for candidate in candidates if candidate.path not in gaps]
        if not sound_candidates:
            return []
        try:
            return function(sound_candidates)
        except DataFault as fault:
            if fault.source not in {candidate.path for candidate in sound_candidates}:
                raise
            gaps[fault.source] = _gap(fault)


def _gap(fault: DataFault) -> Gap:
    return Gap(fault.source, f"{fault.kind.value}: {fault.reason}", fault.offset, fault.kind)


def _check_limits(read: int, max_bytes: int | None, rows: int, held_bytes: int) -> None:
    if max_bytes is not None and read > max_bytes:
        raise UserInputError(
            f"the lookup read {read:,} bytes, more than the {max_bytes:,} allowed. To allow more, set "
            "CC_PIPELINE_MAX_BYTES, or name a narrower target"
        )
    if rows > MAX_RESULT_ROWS:
        raise UserInputError(f"the target has more than {MAX_RESULT_ROWS:,} rows; name a narrower one")
    if held_bytes > MAX_RESULT_BYTES:
        raise UserInputError(
            f"the facts of the target take more than {MAX_RESULT_BYTES:,} bytes in memory; name a narrower target, or "
            "fewer columns in the dataset's file"
        )
