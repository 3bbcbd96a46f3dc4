"""Reads stored records in the order of their rows. Parsing reads millions of them, so neighbours in a stored file are
read in one request.

Members of one fetch lie next to each other, and rows are mostly read in that order. So a batch of rows (a window) is
planned like a fetch, and its ranges are read concurrently. If the lake is not a folder, the next window is read while
the caller works on the current one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from threading import Event, Thread
from typing import Any

import pyarrow as pa

from cc_pipeline.archive.writing import Address, delivered_member
from cc_pipeline.capture_columns import PLACE
from cc_pipeline.errors import DataFault
from cc_pipeline.grouping import group_within
from cc_pipeline.records.range_plan import Coalescing, PlannedRange, plan_ranges
from cc_pipeline.records.storage import STORED, RecordStorage
from cc_pipeline.records.wrap import unwrap_member
from cc_pipeline.transport.faults import FaultKind, RangeFault, range_fault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

Row = Mapping[str, Any]
#: The result for one row: bytes, the reason why there are none, or ``None`` if none were requested.
MemberResult = bytes | DataFault | None

#: Rows in their order, each with whether its bytes are read.
_Window = Sequence[tuple[Row, bool]]

#: Stored bytes of one window, and its rows; the first limit ends it (one record may be larger). Two windows are in
#: memory at a time, and at most twice a window's bytes are in flight.
WINDOW = 8 << 20
_WINDOW_ROWS = 1_024
#: Requests in flight at the same time.
_PARALLEL = 32
#: Unneeded bytes between two records that cost less than another request to the lake store.
_GAP = 128 << 10


def read_members(
    rows: Iterable[Row],
    storage: RecordStorage,
    should_read: Callable[[Row], bool] | None = None,
    *,
    window: int = WINDOW,
) -> Iterator[tuple[Row, MemberResult]]:
    """Yields each of ``rows`` (of ``records``), in their order, with its stored bytes: a gzip member of one record as
    the source had it, or the bytes in quarantine.

    Bytes that are missing, or that are no such member, come as a ``DataFault`` that is not raised. A row that
    ``should_read`` rejects (default: a row without a stored file) has ``None``. Rows are drawn in the caller's thread,
    at most two windows ahead. ``window`` (bytes) bounds memory at about four times itself. Raises
    ``EnvironmentFault`` if the place does not answer.
    """
    windows = _windows(rows, should_read or (lambda row: row["stored_file"] is not None), window)
    # in a folder, reading the bytes in between saves no request
    bounds = Coalescing(0 if storage.is_local else _GAP, window // 2)
    stopped = Event()
    if storage.is_local:
        for current_window in windows:
            yield from _pair_with_rows(current_window, _read(current_window, storage, bounds, stopped))
        return
    try:
        pending: tuple[_Window, Future[list[MemberResult]]] | None = None
        for next_window in chain(windows, (None,)):
            arrived = None if pending is None else (pending[0], pending[1].result())
            pending = (
                None
                if next_window is None
                else (next_window, _run_in_thread(partial(_read, next_window, storage, bounds, stopped)))
            )
            if arrived is not None:
                yield from _pair_with_rows(*arrived)
    finally:
        stopped.set()


def read_delivered_members(
    kind: str, rows: Iterable[Row], storage: RecordStorage, address: Address, *, window: int
) -> Iterator[tuple[Row, MemberResult]]:
    """Yields as :func:`read_members`, with members in the form of a file of ``kind`` (warc or arc). A member that has
    no such form comes as a ``DataFault``."""
    for row, member in read_members(rows, storage, window=window):
        try:
            yield row, delivered_member(kind, row, member, address) if isinstance(member, bytes) else member
        except DataFault as fault:
            yield row, fault


def _windows(rows: Iterable[Row], should_read: Callable[[Row], bool], max_bytes: int) -> Iterator[_Window]:
    rows_to_read = ((row, should_read(row)) for row in rows)
    return group_within(
        rows_to_read, (_WINDOW_ROWS, max_bytes), lambda pair: (1, pair[0]["stored_length"] if pair[1] else 0)
    )


def _run_in_thread(work: Callable[[], list[MemberResult]]) -> Future[list[MemberResult]]:
    """Runs ``work`` on a daemon thread, since the place may have stopped answering."""
    future: Future[list[MemberResult]] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="cc-pipeline-stored", daemon=True).start()
    return future


def _pair_with_rows(window: _Window, members: Sequence[MemberResult]) -> Iterator[tuple[Row, MemberResult]]:
    for (row, _), stored in zip(window, members, strict=True):
        yield row, _unwrap_if_warc(row, stored)


def _unwrap_if_warc(row: Row, stored: MemberResult) -> MemberResult:
    if not isinstance(stored, bytes) or row["outcome"] != "fetched" or row["archive_format"] != "warc":
        return stored
    try:
        return unwrap_member(stored)
    except DataFault as fault:
        return fault


def _read(window: _Window, storage: RecordStorage, bounds: Coalescing, stopped: Event) -> list[MemberResult]:
    """Returns the stored bytes of a window's rows, in their order."""
    members: list[MemberResult] = [None] * len(window)
    single_ranges: list[PlannedRange] = []
    for planned, answer in _request_ranges(_planned(window, bounds), storage, bounds, stopped):
        if isinstance(answer, RangeBytes):
            for number in planned.rows:
                members[number] = _cut(window[number][0], planned, answer.data)
        elif len(planned.rows) > 1 and _may_be_its_size(answer):
            single_ranges += (_place(window[number][0], number) for number in planned.rows)
        else:
            for number in planned.rows:
                members[number] = _fault(_place(window[number][0], number), answer)
    for planned, answer in _request_ranges(single_ranges, storage, bounds, stopped):
        [number] = planned.rows
        members[number] = answer.data if isinstance(answer, RangeBytes) else _fault(planned, answer)
    return members


def _may_be_its_size(fault: RangeFault) -> bool:
    """Whether single records may be readable although their range failed. If the place is down, or the file missing,
    each of them would fail too."""
    if isinstance(fault, DataFault):
        return fault.kind is not FaultKind.NOT_FOUND
    return fault.kind in (FaultKind.TIMEOUT, FaultKind.CONNECTION_RESET)


def _planned(window: _Window, bounds: Coalescing) -> list[PlannedRange]:
    row_numbers = [number for number, (_, reads) in enumerate(window) if reads]
    # a plan treats a stored file like one of the source
    columns = ([row[name] for row, _ in window] for name in STORED)
    ranges = plan_ranges(pa.table(dict(zip(PLACE, columns, strict=True))), bounds, row_numbers)
    # a location that no plan takes is requested as it is, and the storage reports the fault
    unplanned_rows = set(row_numbers).difference(*(planned.rows for planned in ranges))
    return ranges + [_place(window[number][0], number) for number in sorted(unplanned_rows)]


def _place(row: Row, number: int) -> PlannedRange:
    return PlannedRange(row["stored_file"], row["stored_offset"], row["stored_length"], (number,))


def _request_ranges(
    ranges: Sequence[PlannedRange], storage: RecordStorage, bounds: Coalescing, stopped: Event
) -> Iterator[tuple[PlannedRange, RangeBytes | RangeFault]]:
    if not ranges or stopped.is_set():
        return
    largest = max(planned.length for planned in ranges)
    parallel = max(1, min(_PARALLEL, 4 * bounds.span // max(1, largest)))
    requests = (ByteRange(planned.key, planned.offset, planned.length, tag=planned) for planned in ranges)
    for answer in storage.transport.read_many(requests, parallel):
        if stopped.is_set():
            return
        planned = answer.tag
        assert isinstance(planned, PlannedRange)
        yield planned, answer


def _cut(row: Row, planned: PlannedRange, data: bytes) -> bytes:
    start, length = row["stored_offset"] - planned.offset, row["stored_length"]
    return data if length == len(data) else data[start : start + length]


def _fault(place: PlannedRange, fault: RangeFault) -> DataFault:
    if not isinstance(fault, DataFault):
        raise fault
    located_fault = range_fault(fault.kind, place.key, place.offset, place.length, fault.detail, fault.attempts)
    assert isinstance(located_fault, DataFault)
    return located_fault
