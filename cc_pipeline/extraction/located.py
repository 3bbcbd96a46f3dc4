"""What the look-ups of one pass found, by slice and place: on disk where it is much, and given slice by slice, so that
a target may have any number of captures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import CAPTURE_ORDER, PLACE
from cc_pipeline.commoncrawl.matching import MemberIndex
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.blocked import NOTHING_BLOCKED, Blocked
from cc_pipeline.index.locator import KINDS
from cc_pipeline.index.lookup import of_segments
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import Slice
from cc_pipeline.records.places import PLACE_NAME
from cc_pipeline.records.range_plan import FetchPrice, price_of_all
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA

#: Rows whose URLs are Python's own texts at a time.
_AS_TEXTS: Final = 8_192
#: Bytes of rows in their order that are kept in memory: more of them are as soon read again.
_IN_MEMORY: Final = 8 << 20
#: Which of two rows of a place tells more: the less, the more. Odd numbers are rows that were there before.
_RANK: Final = pa.field("rank", pa.int8(), nullable=False)
#: Whether a row names no file, and no offset: in ``captures`` such rows are the last.
_LACKING: Final = {name: pa.field(f"no {name}", pa.int8(), nullable=False) for name in PLACE_NAME}
_SCHEMA: Final = pa.schema([*CAPTURES_SCHEMA, *_LACKING.values(), _RANK])
_ORDER: Final = (
    *CAPTURE_ORDER[:1],
    *(column for name in PLACE_NAME for column in (_LACKING[name].name, name)),
    _RANK.name,
)
_Batches: TypeAlias = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Answer:
    """What there is to know of the rows of a slice: whether two indexes may have named the same (``united``), and of
    which ``segments`` those are that count."""

    united: bool = False
    segments: frozenset[str] | None = None


@dataclass(slots=True)
class Summed:
    """The captures of a slice: how many, those of each member of a set (``None``: it is none), and the price of their
    fetch. ``stayed`` were there before and are not in the answer, ``outside`` were left out."""

    rows: int = 0
    members: Mapping[str, int] | None = None
    price: FetchPrice = field(default_factory=lambda: FetchPrice(0, 0, 0, 0, 0))
    stayed: int = 0
    outside: int = 0


class Located:
    """Takes captures of slices of one crawl (:meth:`add`), and gives them slice by slice, in the order of
    ``captures`` (:meth:`of`). Raises ``EnvironmentFault`` where files in ``folder`` cannot be written or read."""

    def __init__(self, folder: Path, block: Blocked = NOTHING_BLOCKED) -> None:
        self._folder = folder
        self._block = block
        #: Captures of blocked sites that were not taken.
        self.blocked = 0
        self._rows = OrderedRows(_SCHEMA, _ORDER, folder)
        self._read: Iterator[tuple[str, pa.RecordBatch]] | None = None
        self._ahead: tuple[str, pa.RecordBatch] | None = None
        #: Slices with rows that were there before and are not of an answer.
        self.before: set[Slice] = set()

    def add(self, slice_: Slice, rows: pa.Table, *, before: bool = False) -> None:
        """Takes more captures of a slice (``CAPTURE_SCHEMA``); ``before``: not of its answer, but there already. Of
        those and the answer's each place is there once then: as the one has it that tells more."""
        count = rows.num_rows
        rows = self._block.left(rows)
        self.blocked += count - rows.num_rows
        if not rows.num_rows:
            return
        if before:
            self.before.add(slice_)
        kinds = pc.index_in(rows["located_by"], pa.array(KINDS, pa.string()))
        rank = pc.add(pc.multiply(pc.fill_null(kinds, len(KINDS)), 2), int(before)).cast(pa.int8())
        columns = {"target": pa.repeat(slice_.target, rows.num_rows), _RANK.name: rank}
        columns |= {field.name: pc.is_null(rows[name]).cast(pa.int8()) for name, field in _LACKING.items()}
        arrays = [columns[name] if name in columns else rows[name] for name in _SCHEMA.names]
        self._rows.add(pa.table(arrays, names=_SCHEMA.names).cast(_SCHEMA))

    def of(
        self, slices: Mapping[Slice, Answer], targets: Mapping[Slice, Target]
    ) -> tuple[OrderedRows, dict[Slice, Summed]]:
        """The rows of ``slices``, in their table's order, and what they sum up to. Call it for all slices, those with
        lesser targets first, and after all rows were added."""
        found = OrderedRows(CAPTURES_SCHEMA, (), self._folder, _IN_MEMORY)
        summed = {}
        for slice_ in sorted(slices):
            own = Summed()
            rows = self._of_slice(slice_, slices[slice_], own)
            members = _Members(targets[slice_]) if targets[slice_].kind == "set" else None
            own.price = price_of_all(_passing(rows, found, members))
            own.members = members.counts() if members is not None else None
            summed[slice_] = own
        # Arrow keeps what it freed for rows to come, and writing them needs memory of other kinds
        pa.default_memory_pool().release_unused()
        return found, summed

    def _of_slice(self, slice_: Slice, answer: Answer, own: Summed) -> _Batches:
        """Rows of a slice that count, with their ranks."""
        in_answer, at_all, answered_places = _Once(), _Once(), _Once()
        answered = 0
        for batch in self._next(slice_.target):
            is_before = np.asarray(batch.column(_RANK.name)) % 2 == 1
            counts = np.ones(batch.num_rows, bool)
            if answer.united:
                counts = is_before | in_answer.firsts(batch, ~is_before)
            if answer.segments is not None:
                inside = is_before | np.asarray(of_segments(batch, answer.segments))
                own.outside += int(np.count_nonzero(counts & ~inside))
                counts &= inside
            if slice_ in self.before:
                # an answer may repeat a place
                answered += int(np.count_nonzero(answered_places.firsts(batch, counts & ~is_before)))
                counts &= at_all.firsts(batch, counts)
            own.rows += int(np.count_nonzero(counts))
            yield batch.filter(pa.array(counts))
        own.stayed = own.rows - answered if slice_ in self.before else 0

    def _next(self, target: str) -> _Batches:
        """The rows of a target, all of those with lesser ones having been given."""
        if self._read is None:
            self._read = self._pieces()
            self._ahead = next(self._read, None)
        while self._ahead is not None and self._ahead[0] == target:
            batch = self._ahead[1]
            self._ahead = next(self._read, None)
            yield batch

    def _pieces(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in self._rows.drained():
            start = 0
            runs = pc.run_end_encode(batch.column("target"))
            for target, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
                yield target, batch.slice(start, end - start)
                start = end


def _passing(rows: _Batches, found: OrderedRows, members: _Members | None) -> _Batches:
    """Puts rows where they are ``found``, and gives their places."""
    for batch in rows:
        found.add(batch.select(CAPTURES_SCHEMA.names))
        if members is not None:
            members.add(batch)
        yield batch.select(PLACE)


class _Once:
    """Says of rows in the order of their places which is the first of its place."""

    def __init__(self) -> None:
        self._last: tuple[str | None, int | None] | None = None

    def firsts(self, rows: pa.RecordBatch, among: np.ndarray) -> np.ndarray:
        """Which of those ``among`` the rows are the first of their place among them."""
        found = np.zeros(rows.num_rows, bool)
        places = zip(*(rows.column(name).to_pylist() for name in PLACE_NAME), strict=True)
        for row, place in enumerate(places):
            if among[row]:
                found[row] = place != self._last
                self._last = place
        return found


class _Members:
    """Counts the captures of each member of a set."""

    def __init__(self, target: Target) -> None:
        self._names = [member.written for member in target.members]
        self._index = MemberIndex(target.members)
        self._counts = [0] * len(self._names)

    def add(self, captures: pa.RecordBatch) -> None:
        """Counts more captures."""
        for url, host in urls(captures):
            for number in self._index.of(url or "", host):
                self._counts[number] += 1

    def counts(self) -> dict[str, int]:
        """How many captures each member has."""
        return dict(zip(self._names, self._counts, strict=True))


def urls(captures: pa.Table | pa.RecordBatch) -> Iterator[tuple[str | None, str | None]]:
    """URL and host of each of ``captures``."""
    rows = captures if isinstance(captures, pa.Table) else pa.Table.from_batches([captures])
    for batch in rows.select(["url", "url_host_name"]).to_batches(max_chunksize=_AS_TEXTS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
