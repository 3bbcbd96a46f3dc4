"""Plans ranges from captures, estimates their cost, and refuses fetches over the cost limit. A request costs as much as
half a MiB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.advice import option
from cc_pipeline.capture_columns import PLACE
from cc_pipeline.errors import UserInputError

#: Maximum compressed bytes of a record. Common Crawl's stay below 10 MiB; a larger length field is an error.
MAX_RECORD_BYTES = 128 << 20
#: Bytes that are read if the length of a record is not known: nine records in ten are no longer.
FIRST_READ = 64 << 10
#: Bytes of a range with records of unknown length.
_OPEN_ENDED_SPAN = 2 << 20
#: The factor by which the next read grows if a record is longer.
_GROWS = 8
#: A file: its name, or its number.
_File = TypeVar("_File", str, int)
#: Captures whose cost is estimated at a time, in whole files if they fit.
_PRICED = 1 << 17


@dataclass(frozen=True, slots=True)
class Coalescing:
    """Records of one file are requested together if at most ``gap`` unneeded bytes lie between them and the whole range
    stays within ``span`` bytes (a single record may be larger).

    At the rate of a polite client, a request costs as much time as 1.25 MB at 100 Mbit/s. A broken range is requested
    anew, so it is short. If the length of a record is unknown, the range is shorter.
    """

    gap: int = 512 << 10
    span: int = 16 << 20

    def joins(self, size: int, gap: int, is_open_ended: bool) -> bool:
        """Whether a record that begins ``gap`` bytes behind a range, and makes it ``size`` bytes, is asked for with it;
        ``is_open_ended``: nobody says how long it, or a record of the range, is."""
        return gap <= self.gap and size <= (min(self.span, _OPEN_ENDED_SPAN) if is_open_ended else self.span)


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A range of one file, and the rows of the captures table (any order, repeats of a capture too) that lie in it."""

    key: str
    offset: int
    length: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FetchEstimate:
    """The estimated cost of a fetch. ``record_bytes`` are those of the planned records, ``bytes`` all that are read."""

    captures: int
    files: int
    requests: int
    bytes: int
    record_bytes: int

    def __add__(self, addend: FetchEstimate) -> FetchEstimate:
        return FetchEstimate(
            self.captures + addend.captures,
            self.files + addend.files,
            self.requests + addend.requests,
            self.bytes + addend.bytes,
            self.record_bytes + addend.record_bytes,
        )


def plan_ranges(
    captures: pa.Table, coalescing: Coalescing | None = None, rows: Iterable[int] | None = None
) -> list[PlannedRange]:
    """Returns the ranges that cover the captures (columns of ``CAPTURE_SCHEMA``), sorted by file and offset.

    ``rows`` restricts the plan to these row numbers. Rows without a usable file, offset or length (see ``usable``) are
    left out. Of a record of unknown length the first bytes are read.
    """
    bounds = coalescing or Coalescing()
    keys = captures.column("warc_filename").to_pylist()
    offsets = captures.column("warc_record_offset").to_pylist()
    lengths = captures.column("warc_record_length").to_pylist()
    row_numbers = range(captures.num_rows) if rows is None else rows
    places = sorted(
        (keys[row], offsets[row], lengths[row] or FIRST_READ, lengths[row] is None, row)
        for row in row_numbers
        if usable(keys[row], offsets[row], lengths[row])
    )
    return [
        PlannedRange(key, start, stop - start, tuple(members))
        for key, start, stop, members in _join_places(places, bounds)
    ]


def _join_places(
    places: Iterable[tuple[_File, int, int, bool, int]], bounds: Coalescing
) -> Iterator[tuple[_File, int, int, list[int]]]:
    """Joins places in their order (file, offset, length, whether that is unknown, row) to ranges (file, start, end,
    rows)."""
    file: _File | None = None
    start = stop = 0
    has_open_ended = False
    members: list[int] = []
    for next_file, offset, length, is_open_ended, row in places:
        end = offset + length
        # records overlap only in an index with wrong offsets: even then a range must not grow without bound
        joins = next_file == file and (
            end <= stop or bounds.joins(end - start, offset - stop, is_open_ended or has_open_ended)
        )
        if not joins:
            if file is not None:
                yield file, start, stop, members
            file, start, stop, has_open_ended, members = next_file, offset, offset, False, []
        members.append(row)
        has_open_ended = has_open_ended or is_open_ended
        stop = max(stop, end)
    if file is not None:
        yield file, start, stop, members


def group_by_file(captures: Iterable[pa.RecordBatch], max_captures: int) -> Iterator[pa.Table]:
    """Groups ``captures``, which come in the order of file and offset, into whole files of ``max_captures`` together.

    A file with more captures is cut between two offsets. Rows of one place stay together.
    """
    waiting: pa.Table | None = None
    for batch in captures:
        batch_table = pa.Table.from_batches([batch])
        waiting = batch_table if waiting is None else pa.concat_tables([waiting, batch_table])
        while waiting.num_rows > max_captures:
            end = _end_of_group(waiting, max_captures)
            if end is None:
                break
            yield waiting.slice(0, end)
            waiting = waiting.slice(end)
    if waiting is not None and waiting.num_rows:
        yield waiting


def _end_of_group(captures: pa.Table, max_captures: int) -> int | None:
    """Returns the row at which the first group ends, ``None`` if it is not known yet."""
    file_ends, place_ends = (_changes(captures.select(names)) for names in (PLACE[:1], PLACE[:2]))
    for ends in (file_ends, place_ends):
        fitting = ends[ends <= max_captures]
        if len(fitting):
            return int(fitting[-1])
    return int(place_ends[0]) if len(place_ends) else None


def _changes(rows: pa.Table) -> Any:
    """Returns the numbers of the rows that differ from the row before."""
    changed = np.zeros(max(0, rows.num_rows - 1), bool)
    for column in rows.columns:
        values = column.combine_chunks()
        encoded = pc.fill_null(pc.dictionary_encode(values).indices, -1)
        numbers = encoded.to_numpy()
        changed |= numbers[1:] != numbers[:-1]
    return np.flatnonzero(changed) + 1


def usable(key: str | None, offset: int | None, length: int | None) -> bool:
    """Whether a row names bytes that can be requested: a key below the source and a possible range. ``length`` is
    ``None`` if it is not known."""
    if not key or key.startswith("/") or "\0" in key or ".." in key.split("/"):
        return False
    return offset is not None and offset >= 0 and (length is None or 0 < length <= MAX_RECORD_BYTES)


def longer(length: int) -> int:
    """Returns the bytes to read of a record that is longer than ``length``."""
    return min(length * _GROWS, MAX_RECORD_BYTES)


def price_of_all(captures: Iterable[pa.RecordBatch]) -> FetchEstimate:
    """Estimates the cost of any number of captures, which come in the order of file and offset."""
    return sum(map(price_of, group_by_file(captures, _PRICED)), FetchEstimate(0, 0, 0, 0, 0))


def price_of(captures: pa.Table, coalescing: Coalescing | None = None) -> FetchEstimate:
    """Estimates the cost of fetching every one of ``captures``, also those whose records are stored already.

    The result is the cost of ``plan_ranges``, from columns: a slice may have a million captures. Captures that several
    rows name are counted once.
    """
    files, offsets, lengths, are_open_ended = _places(captures)
    columns = (column.tolist() for column in (files, offsets, lengths, are_open_ended))
    places = zip(*columns, range(len(files)), strict=True)
    sizes = [stop - start for _, start, stop, _ in _join_places(places, coalescing or Coalescing())]
    is_distinct = np.ones(len(files), bool)
    is_distinct[1:] = (files[1:] != files[:-1]) | (offsets[1:] != offsets[:-1])
    return FetchEstimate(
        captures=int(is_distinct.sum()),
        files=len(np.unique(files)),
        requests=len(sizes),
        bytes=sum(sizes),
        record_bytes=int(lengths[is_distinct].sum()),
    )


def _places(captures: pa.Table) -> tuple[Any, Any, Any, Any]:
    """Returns file numbers, offsets and lengths (int64 arrays) of usable rows, in the order of a plan, and whether the
    length is unknown."""
    keys = captures.column("warc_filename").combine_chunks()
    if not pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_encode()
    offsets = captures.column("warc_record_offset").fill_null(-1).to_numpy()
    length_column = captures.column("warc_record_length")
    are_open_ended, lengths = length_column.is_null().to_numpy(), length_column.fill_null(FIRST_READ).to_numpy()
    names = keys.dictionary.to_pylist()
    # a key is checked once, not once for each of its captures
    sound = np.array([*(usable(name, 0, 1) for name in names), False])
    files = keys.indices.fill_null(len(names)).to_numpy().astype(np.int64)
    is_valid = sound[files] & (offsets >= 0) & (lengths > 0) & (lengths <= MAX_RECORD_BYTES)
    places = files[is_valid], offsets[is_valid], lengths[is_valid], are_open_ended[is_valid]
    order = np.lexsort(places[::-1])
    files, offsets, lengths, are_open_ended = (column[order] for column in places)
    return files, offsets, lengths, are_open_ended


def check_budget(
    price: FetchEstimate,
    *,
    max_bytes: int | None,
    max_requests: int | None,
    subject: str,
    rate: float | None,
) -> None:
    """Raises ``UserInputError`` with the estimate if it is over the cost limit (``None``: no limit).

    ``rate`` is the number of requests per second, for the hours that the fetch would take (``None``: no limit).
    """
    exceeded = [
        (name, unit, size, limit)
        for name, unit, size, limit in (
            ("MAX_BYTES", "bytes", price.bytes, max_bytes),
            ("MAX_REQUESTS", "requests", price.requests, max_requests),
        )
        if limit is not None and size > limit
    ]
    if not exceeded:
        return
    hours = "" if rate is None else f", {price.requests / rate / 3600:,.1f} hours at {rate:g} requests/s"
    limits = " and ".join(f"{limit:,} {unit}" for _, unit, _, limit in exceeded)
    settings = " ".join(f"CC_PIPELINE_{name}={size}" for name, _, size, _ in exceeded)
    raise UserInputError(
        f"{subject} would read {price.bytes:,} bytes in {price.requests:,} requests ({price.captures:,} "
        f"captures{hours}), "
        f"more than the {limits} allowed. Located captures are kept. To allow it, set {settings}, or confirm it "
        f"with {option(yes=True)}"
    )
