"""Rows of some keys out of the shards of a dataset: its price before, and the pages that can hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.commoncrawl.key_ranges import RangeSet
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.index.keyed.columns import typed
from cc_pipeline.index.keyed.shards import Bounds, Gap, Shard
from cc_pipeline.index.parquet.fetch import Cost, ManyReader, PageIndexes
from cc_pipeline.index.parquet.locator import as_text
from cc_pipeline.index.parquet.places import RowGroupPlace
from cc_pipeline.index.parquet.pricing import likely_bytes, most_requests
from cc_pipeline.index.parquet.read import Found, Wanted, read_rows

#: Bytes of column chunks that one round may have to hold in memory.
_ROUND_BYTES = 192 << 20
#: Rows that an answer may have: each takes some 200 bytes, and a join holds them twice.
MOST_ROWS = 4_000_000
#: Row groups of an unsorted dataset that are expected to have rows of what is asked.
_LIKELY_GROUPS = 4

Keep = Callable[[pa.Array], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class KeyedPrice:
    """What a look-up reads at most (``bytes``, ``requests``), and what it likely does.

    ``pruned`` of ``row_groups`` row groups are passed over by the statistics of their keys; ``unknown`` of the others
    have none, and ``searched`` lie in files in no order, so that all their keys are read. ``files`` are those with row
    groups to read.
    """

    files: int
    row_groups: int
    pruned: int
    unknown: int
    searched: int
    requests: int
    bytes: int
    likely_bytes: int

    @property
    def to_read(self) -> int:
        """Row groups that are looked into."""
        return self.row_groups - self.pruned


@dataclass(slots=True)
class KeyedRows:
    """Rows in the order of shards and row groups: the key as text, and the columns asked for."""

    table: pa.Table
    gaps: list[Gap] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True)
class _Candidate:
    shard: Shard
    place: RowGroupPlace
    bounds: Bounds
    in_order: bool

    @property
    def size(self) -> int:
        return sum(column.size for column in self.place.columns.values())

    def lies_in(self, ranges: Sequence[KeyRange]) -> bool:
        """Whether every key is asked for, as far as the footer knows."""
        low, high = self.bounds
        return any(low is not None and high is not None and low in one and high in one for one in ranges)


class KeyedLookup:
    """One question to the shards of a dataset: the rows whose key lies in ``ranges``, with the columns of ``schema``.

    ``keep`` decides about keys within the ranges. Shards whose places cannot be are ``gaps``.
    """

    def __init__(
        self,
        shards: Iterator[Shard] | Sequence[Shard],
        ranges: Sequence[KeyRange],
        schema: pa.Schema,
        keep: Keep | None,
    ) -> None:
        self.schema = schema
        self.gaps: list[Gap] = []
        self._ranges = RangeSet(ranges)
        self._keep = keep
        self._groups = self._unknown = 0
        self._candidates: list[_Candidate] = []
        for shard in shards:
            bounds = shard.bounds()
            self._groups += len(bounds)
            numbers = shard.may_hold(self._ranges)
            if not numbers:
                continue
            try:
                places = shard.row_groups(numbers, schema.names)
            except DataFault as fault:
                self.gaps.append(_gap(fault))
                continue
            in_order = shard.in_order()
            self._candidates += [_Candidate(shard, place, bounds[place.number], in_order) for place in places]
            self._unknown += sum(bounds[number] == (None, None) for number in numbers)

    def price(self) -> KeyedPrice:
        """What it costs; nothing is read."""
        likely = most = requests = 0
        searched: list[int] = []
        for each in self._candidates:
            key = each.place.columns[each.shard.key]
            columns = list(each.place.columns.values())
            most += each.size
            requests += most_requests(each.place, columns)
            asked = self._ranges.near(*each.bounds)
            if each.lies_in(asked):
                likely += each.size
            elif each.in_order:
                likely += min(each.size, len(asked) * likely_bytes(each.place, columns))
            else:
                # all its keys are read, and the other columns of the few row groups that have a host
                likely += key.size
                searched.append(likely_bytes(each.place, [one for one in columns if one is not key]))
        likely += sum(sorted(searched)[-_LIKELY_GROUPS:])
        files = len({each.shard.file.path for each in self._candidates})
        read = len(self._candidates)
        return KeyedPrice(
            files, self._groups, self._groups - read, self._unknown, len(searched), requests, most, min(likely, most)
        )

    def read(self, reader: ManyReader, indexes: PageIndexes, most_bytes: int | None = None) -> KeyedRows:
        """The rows. A shard that cannot be read, or contradicts its footer, becomes a gap, with all its rows.

        Raises ``EnvironmentFault`` when the source fails, ``UserInputError`` for more than ``most_bytes`` bytes or
        ``MOST_ROWS`` rows.
        """
        cost, faulty, found = Cost(), dict.fromkeys([gap.path for gap in self.gaps]), list[tuple[str, pa.Table]]()
        gaps, rows = list(self.gaps), 0
        for batch in self._batches():
            left = [each for each in batch if each.shard.file.path not in faulty]
            while left:
                try:
                    answers = read_rows(reader, [self._wanted(each) for each in left], indexes, cost)
                    tables = [self._table(each, one) for each, one in zip(left, answers, strict=True)]
                    break
                except DataFault as fault:
                    path = fault.source
                    if path not in {each.shard.file.path for each in left}:
                        raise
                    faulty[path] = None
                    gaps.append(_gap(fault))
                    left = [each for each in left if each.shard.file.path != path]
            else:
                continue
            rows += sum(table.num_rows for table in tables)
            found += [(each.shard.file.path, table) for each, table in zip(left, tables, strict=True)]
            _check(cost.bytes, most_bytes, rows)
        whole = [table for path, table in found if path not in faulty]
        return KeyedRows(pa.concat_tables([self._empty(), *whole]).combine_chunks(), gaps, cost)

    def _wanted(self, each: _Candidate) -> Wanted:
        names = tuple(name for name in self.schema.names if name in each.place.columns)
        return Wanted(each.place, self._ranges, names, each.shard.key, self._keep, each.bounds)

    def _table(self, each: _Candidate, found: Found) -> pa.Table:
        file, key = each.shard.file, each.shard.key
        arrays = [as_text(found.columns[key])]
        for column in self.schema:
            values = found.columns.get(column.name)
            if values is None:
                arrays.append(pa.nulls(len(found.rows), column.type))
            else:
                arrays.append(typed(values, file, column.name, column.type))
        return pa.Table.from_arrays(arrays, schema=self._result())

    def _result(self) -> pa.Schema:
        return pa.schema([pa.field(KEY_TEXT, pa.string()), *self.schema])

    def _empty(self) -> pa.Table:
        return self._result().empty_table()

    def _batches(self) -> Iterator[list[_Candidate]]:
        batch: list[_Candidate] = []
        held = 0
        for each in self._candidates:
            if batch and held + each.size > _ROUND_BYTES:
                yield batch
                batch, held = [], 0
            batch.append(each)
            held += each.size
        if batch:
            yield batch


#: The column of an answer that has the key as the dataset writes it.
KEY_TEXT = "_key"


def _gap(fault: DataFault) -> Gap:
    return Gap(fault.source, f"{fault.kind.value}: {fault.reason}", fault.offset, fault.kind)


def _check(size: int, most: int | None, rows: int) -> None:
    if most is not None and size > most:
        raise UserInputError(
            f"the look-up read {size:,} bytes, more than the {most:,} allowed. To allow more, set "
            "CC_PIPELINE_MAX_BYTES, or name a narrower target"
        )
    if rows > MOST_ROWS:
        raise UserInputError(f"the target has more than {MOST_ROWS:,} rows; name a narrower one")
