"""The captures that the lookups of one pass found, by slice and location. Many captures are kept on disk and read
slice by slice, so a target may have any number of them. A slice has each location once, whatever the index lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import CAPTURE_ORDER, PLACE
from cc_pipeline.commoncrawl.matching import MemberIndex
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.blocklist import NOTHING_BLOCKED, Blocklist
from cc_pipeline.index.locators import KINDS
from cc_pipeline.index.lookup import counts_for_segments
from cc_pipeline.lake.ordered import OrderedRows, complete_groups, find_group_starts
from cc_pipeline.lake.slice import Slice
from cc_pipeline.records.locations import PLACE_NAME
from cc_pipeline.records.range_plan import FetchEstimate, price_of_all
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA

#: Rows whose URLs are converted to Python texts at a time.
_TEXT_ROWS: Final = 8_192
#: Bytes of sorted rows of each commit that are kept in memory, because they are soon read again.
_MEMORY_BYTES: Final = 1 << 20
#: Which of two rows of a location is more detailed: the lower, the more. Odd numbers are stored rows.
_RANK: Final = pa.field("rank", pa.int8(), nullable=False)
#: Whether a row has no file, and no offset: in ``captures`` such rows are the last.
_MISSING_FLAGS: Final = {name: pa.field(f"no {name}", pa.int8(), nullable=False) for name in PLACE_NAME}
#: Identifies rows without a location: time and URL of the capture. Empty for rows with one.
_SUBSTITUTE: Final = pa.field("instead of a place", pa.string(), nullable=False)
_SCHEMA: Final = pa.schema([*CAPTURES_SCHEMA, *_MISSING_FLAGS.values(), _SUBSTITUTE, _RANK])
_LOCATION_COLUMNS: Final = (
    *(column for name in PLACE_NAME for column in (_MISSING_FLAGS[name].name, name)),
    _SUBSTITUTE.name,
)
_ORDER: Final = (*CAPTURE_ORDER[:1], *_LOCATION_COLUMNS, _RANK.name)
_Batches: TypeAlias = Iterator[pa.RecordBatch]
_Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SliceLookup:
    """The scope of a slice's answer: only rows of ``segments`` count (``None``: all rows). ``complete_kinds`` are the
    kinds of index that were asked and complete: they may remove captures that they named before."""

    segments: frozenset[str] | None = None
    complete_kinds: tuple[str, ...] = ()


@dataclass(slots=True)
class CaptureTotals:
    """The totals of a slice's captures: how many, those of each member of a set (``None``: it is no set), and the cost
    of their fetch. ``retained`` were there before and are not in the answer; ``outside`` were left out.

    ``unlisted_captures`` are no longer in the index that named them, ``removed`` ones of these were removed."""

    rows: int = 0
    members: Mapping[str, int] | None = None
    price: FetchEstimate = field(default_factory=lambda: FetchEstimate(0, 0, 0, 0, 0))
    retained: int = 0
    outside: int = 0
    unlisted_captures: int = 0
    removed: int = 0


class CaptureBuffer:
    """Collects captures of slices of one crawl (:meth:`add`), and gives them slice by slice in the order of
    ``captures`` (:meth:`of`). Raises ``EnvironmentFault`` if files in ``folder`` cannot be written or read."""

    def __init__(self, folder: Path, blocklist: Blocklist = NOTHING_BLOCKED) -> None:
        self._folder = folder
        self._blocklist = blocklist
        #: Captures of blocked sites that were not taken.
        self.blocked_captures = 0
        self._rows = OrderedRows(_SCHEMA, _ORDER, folder)
        self._reader: _TargetReader | None = None
        self._kinds = pa.array(KINDS, pa.string())

    def add(self, slice_: Slice, rows: pa.Table, *, was_stored: bool = False) -> None:
        """Adds captures of a slice (``CAPTURE_SCHEMA``); ``was_stored``: they are not in the answer. If two
        rows have one location, the more detailed row is kept."""
        count = rows.num_rows
        rows = self._blocklist.exclude_blocked(rows)
        self.blocked_captures += count - rows.num_rows
        if not rows.num_rows:
            return
        kinds = pc.index_in(rows["located_by"], self._kinds)
        rank = pc.add(pc.multiply(pc.fill_null(kinds, len(self._kinds)), 2), int(was_stored)).cast(pa.int8())
        columns = {"target": pa.repeat(slice_.target, rows.num_rows), _RANK.name: rank}
        columns |= {field.name: pc.is_null(rows[name]).cast(pa.int8()) for name, field in _MISSING_FLAGS.items()}
        time_and_url = [pc.coalesce(rows[name].cast(pa.string()), "") for name in ("fetch_time", "url")]
        has_no_location = pc.or_(*(pc.is_null(rows[name]) for name in PLACE_NAME))
        columns[_SUBSTITUTE.name] = pc.if_else(has_no_location, pc.binary_join_element_wise(*time_and_url, " "), "")
        arrays = [columns[name] if name in columns else rows[name] for name in _SCHEMA.names]
        self._rows.add(pa.table(arrays, names=_SCHEMA.names).cast(_SCHEMA))

    def read_slices(
        self, slices: Mapping[Slice, SliceLookup], targets: Mapping[Slice, Target], *, removes_unlisted: bool
    ) -> tuple[OrderedRows, dict[Slice, CaptureTotals]]:
        """The rows of ``slices`` in the order of their table, and the totals of each slice. Unlisted captures are among
        them, unless they are removed (``removes_unlisted``). Call it after all rows were added, for all slices, in the
        order of their targets."""
        if self._reader is None:
            self._reader = _TargetReader(self._rows.drain())
        totals_by_slice = {slice_: CaptureTotals() for slice_ in sorted(slices)}
        # rows are on disk if they are many
        stored_rows = OrderedRows(CAPTURES_SCHEMA, (), self._folder, _MEMORY_BYTES)
        for slice_, totals in totals_by_slice.items():
            rows = _select_rows(self._reader.read(slice_.target), slices[slice_], totals, removes_unlisted)
            members = _Members(targets[slice_]) if targets[slice_].kind == "set" else None
            totals.price = price_of_all(_pass_through(rows, stored_rows, members))
            totals.members = members.counts() if members is not None else None
        # Arrow keeps freed memory for new rows, and writing them needs memory of other kinds
        pa.default_memory_pool().release_unused()
        return stored_rows, totals_by_slice


class _TargetReader:
    """Reads rows that are ordered by target, one target at a time."""

    def __init__(self, rows: _Batches) -> None:
        self._pieces = _split_by_target(rows)
        self._next_piece = next(self._pieces, None)

    def read(self, target: str) -> _Batches:
        """The rows of a target. Rows of lesser targets must have been read."""
        while self._next_piece is not None and self._next_piece[0] == target:
            batch = self._next_piece[1]
            self._next_piece = next(self._pieces, None)
            yield batch


def _split_by_target(rows: _Batches) -> Iterator[tuple[str, pa.RecordBatch]]:
    for batch in rows:
        start = 0
        runs = pc.run_end_encode(batch.column("target"))
        for target, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield target, batch.slice(start, end - start)
            start = end


def _select_rows(
    rows_of_slice: _Batches, slice_lookup: SliceLookup, totals: CaptureTotals, removes_unlisted: bool
) -> _Batches:
    """One row of each location of a slice."""
    # a missing file or offset is compared by a column of its own
    for batch in complete_groups(rows_of_slice, _LOCATION_COLUMNS):
        rank = np.asarray(batch.column(_RANK.name))
        is_stored = rank % 2 == 1
        in_segments: _Mask = np.ones(batch.num_rows, bool)
        if slice_lookup.segments is not None:
            in_segments = is_stored | np.asarray(counts_for_segments(batch, slice_lookup.segments))
        starts = find_group_starts(batch, _LOCATION_COLUMNS)
        location = np.repeat(np.arange(len(starts)), np.diff(starts, append=batch.num_rows))
        is_answered = _any_per_location(location, in_segments & ~is_stored)
        totals.outside += int(np.count_nonzero(_any_per_location(location, ~in_segments) & ~is_answered))
        # only the index that named a capture can remove it, if it was asked again and is complete
        from_complete_index = pc.is_in(
            batch.column("located_by"), value_set=pa.array(slice_lookup.complete_kinds, pa.string())
        )
        unlisted_mask = is_stored & ~is_answered[location] & np.asarray(from_complete_index)
        # of two stored rows the one stays that nothing removes
        in_segments &= ~(unlisted_mask & _any_per_location(location, is_stored & ~unlisted_mask)[location])
        is_first = np.zeros(batch.num_rows, bool)
        counted_rows = np.flatnonzero(in_segments)
        is_first[counted_rows[np.unique(location[counted_rows], return_index=True)[1]]] = True
        is_unlisted_capture = is_first & unlisted_mask
        totals.retained += int(np.count_nonzero(is_first & is_stored & ~is_answered[location] & ~unlisted_mask))
        if removes_unlisted:
            is_first &= ~unlisted_mask
            totals.removed += int(np.count_nonzero(is_unlisted_capture))
        else:
            totals.unlisted_captures += int(np.count_nonzero(is_unlisted_capture))
        totals.rows += int(np.count_nonzero(is_first))
        yield batch.filter(pa.array(is_first)).select(CAPTURES_SCHEMA.names)


def _any_per_location(location: npt.NDArray[np.int64], condition: _Mask) -> _Mask:
    """For each location, whether any of its rows is true in ``condition``."""
    matches: _Mask = np.zeros(int(location[-1]) + 1 if len(location) else 0, bool)
    matches[location[condition]] = True
    return matches


def _pass_through(rows: _Batches, stored_rows: OrderedRows, members: _Members | None) -> _Batches:
    """Adds rows to ``stored_rows`` and yields their locations."""
    for batch in rows:
        stored_rows.add(batch)
        if members is not None:
            members.add(batch)
        yield batch.select(PLACE)


class _Members:
    """Counts the captures of each member of a set."""

    def __init__(self, target: Target) -> None:
        self._names = [member.written for member in target.members]
        self._index = MemberIndex(target.members)
        self._counts = [0] * len(self._names)

    def add(self, captures: pa.RecordBatch) -> None:
        """Counts more captures."""
        for url, host in read_urls(captures):
            for number in self._index.find_members(url or "", host):
                self._counts[number] += 1

    def counts(self) -> dict[str, int]:
        """The number of captures of each member."""
        return dict(zip(self._names, self._counts, strict=True))


def read_urls(captures: pa.Table | pa.RecordBatch) -> Iterator[tuple[str | None, str | None]]:
    """URL and host of each of ``captures``."""
    rows = captures if isinstance(captures, pa.Table) else pa.Table.from_batches([captures])
    for batch in rows.select(["url", "url_host_name"]).to_batches(max_chunksize=_TEXT_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
