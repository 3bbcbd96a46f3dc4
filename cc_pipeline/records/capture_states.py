"""The states of the captures of one fetch, as one machine: from the answers so far it decides what is requested next,
and it gives each capture exactly one outcome. It does no I/O.

    planned ──► requested ──► verified ──► fetched
       │            │ fault      │ bad bytes
       │            ▼            ▼
       │          requested alone, once ──► pending
       ▼
    not requested: its file is gone, or the source gives nothing ──► pending
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

import pyarrow as pa

from cc_pipeline.records.ask_counts import BAD_PLAN
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.outcomes import Outcomes, columns_of_url, columns_of_verdict
from cc_pipeline.records.range_plan import PlannedRange, plan_ranges, usable
from cc_pipeline.records.segments import Row
from cc_pipeline.records.source_state import SourceState
from cc_pipeline.records.verification import ExpectedRecord, VerificationResult, build_expected
from cc_pipeline.transport.faults import FaultKind, RangeFault, handling_of
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: Files of which one record is requested as a proof that the source works.
_PROOF_FILES: Final = 3

#: Stores a record: its kind, its bytes, the inflated bytes (of a good one), and its outcome, which gets the location.
Store = Callable[[str, bytes, bytes, Row], None]
#: Gets whether the source refused a request here; returns whether to stop sending requests.
Halt = Callable[[bool], bool]


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A requested range. ``is_single``: a single record that failed before."""

    planned: PlannedRange
    is_single: bool


@dataclass(frozen=True, slots=True)
class Arrival:
    """Bytes of one capture, to be verified against ``expected``."""

    row: int
    data: bytes
    expected: ExpectedRecord
    attempts: int
    is_single: bool


class CaptureStates:
    """The states of a group of captures. ``outcomes`` has the outcomes so far; rows are numbers in the table of
    captures.

    Use it in this order: :meth:`reuse`; for each pass of :meth:`passes` the requests, whose answers go to
    :meth:`add_answer`, and the verdicts on what they bring to :meth:`add_verdict`; :meth:`finish`. ``fetched`` counts
    the good records.

    ``source`` has the states of the source and of its files, which outlast the group. ``store`` stores a record.
    ``halt``, which is called before each request, says whether to stop.
    """

    def __init__(
        self,
        captures: pa.Table,
        crawl: str,
        options: RecordOptions,
        ask_time: datetime,
        source: SourceState,
        store: Store,
        halt: Halt | None = None,
    ) -> None:
        self.outcomes = Outcomes(captures, ask_time)
        self.fetched = 0
        self._captures, self._crawl, self._options = captures, crawl, options
        self._source, self._store, self._halt = source, store, halt
        self._columns, self._name = self.outcomes.columns, self.outcomes.name
        #: Records to request alone.
        self._retry_rows: set[int] = set()
        #: Records of unknown length of which more is to be read.
        self._growing: list[int] = []
        #: A stored record of each file.
        self._proof_rows: dict[str, int] = {}

    def reuse(self, stored_rows: Iterable[Row], journaled_rows: Iterable[Row]) -> tuple[int, int]:
        """Uses what is stored: rows of the records table, then rows that a killed run left. Returns how many captures
        each settles. Captures that cannot be requested are lost."""
        reused = self.outcomes.take(stored_rows, self._is_usable)
        fetched_rows = (row for row in journaled_rows if row["outcome"] == "fetched")
        adopted = self.outcomes.take(fetched_rows, self._is_usable)
        self._proof_rows = {name[0]: self.outcomes.first_rows[name] for name in self.outcomes.by_name}
        if not self._options.retry_lost:
            reused += self.outcomes.keep_lost()
        for row in self.outcomes.rows_to_fetch():
            key, offset = self._name(row)
            length = self._columns["warc_record_length"][row]
            if not usable(key, offset, length):
                self.outcomes.lose(row, BAD_PLAN, f"offset {offset}, length {length} of {key!r}")
        return reused, adopted

    def _is_usable(self, row: Row) -> bool:
        """Whether a stored row says the same as this run would: the index may have another location now."""
        return row["reason"] != BAD_PLAN

    def passes(self) -> Iterator[Iterator[ByteRange]]:
        """Yields the requests, pass by pass: first each range in the order of the plan, then each record that failed,
        alone. Captures that failed in earlier runs come last, so that they keep none of the others away. Answers to one
        pass are added before the next is taken, and answers to its first requests while its last ones are taken.
        """
        rows = self.outcomes.rows_to_fetch()
        failed_rows = [row for row in rows if self.outcomes.was_requested(row)]
        new_rows = sorted({*rows} - {*failed_rows})
        plans = [
            plan_ranges(self._captures, self._options.coalescing, rows) for rows in (new_rows, failed_rows) if rows
        ]
        self._source.add_files(planned.key for plan in plans for planned in plan)
        for plan in plans:
            yield from self._read_to_ends(self._request(plan))
        failed = sorted((row for row in self._retry_rows if not self.outcomes.is_good(row)), key=self._name)
        yield from self._read_to_ends(self._request(map(self._range_of, failed), is_single=True))

    def _read_to_ends(self, requests: Iterator[ByteRange]) -> Iterator[Iterator[ByteRange]]:
        """Yields a pass, then more of its records of unknown length until they end."""
        yield requests
        while self._growing:
            ranges, self._growing = [self._range_of(row) for row in self._growing], []
            yield self._request(ranges)

    def _range_of(self, row: int) -> PlannedRange:
        key, offset = self._name(row)
        return PlannedRange(key, offset, self.outcomes.length(row), (row,))

    def _request(self, ranges: Iterable[PlannedRange], *, is_single: bool = False) -> Iterator[ByteRange]:
        """Requests ``ranges``, without those of files that gave nothing, until the source ends the fetch."""
        is_abandoned = self._source.is_file_abandoned if is_single else self._source.is_file_missing
        lengths = self._columns["warc_record_length"]
        for planned in ranges:
            if self._has_ended():
                return
            if not is_abandoned(planned.key):
                yield ByteRange(
                    planned.key,
                    planned.offset,
                    planned.length,
                    tag=RangeRequest(planned, is_single),
                    may_be_short=any(lengths[row] is None for row in planned.rows),
                )

    def _has_ended(self) -> bool:
        """Whether no more requests are sent. It is called before each request, since answers arrive meanwhile."""
        if self._halt is not None and self._halt(self._source.is_refused):
            self._source.is_refused = True
        return self._source.has_ended

    def add_answer(self, answer: RangeBytes | RangeFault) -> Iterator[Arrival]:
        """Adds the answer to a request. Yields the bytes of captures to be verified."""
        request = answer.tag
        assert isinstance(request, RangeRequest)
        if isinstance(answer, RangeFault):
            self._add_fault(answer, request)
            return
        for row in request.planned.rows:
            if not self.outcomes.is_good(row):
                start, length = self._columns["warc_record_offset"][row] - answer.offset, self.outcomes.length(row)
                data = answer.data if len(answer.data) == length else answer.data[start : start + length]
                expected = build_expected(self._crawl, self._columns, row)
                yield Arrival(row, data, expected, answer.attempts, request.is_single)

    def _add_fault(self, fault: RangeFault, request: RangeRequest) -> None:
        rows, handling = request.planned.rows, handling_of(fault.kind)
        self._source.note_fault(fault)
        if request.is_single and fault.kind is not FaultKind.NOT_FOUND:
            self._source.note_failure(fault.key)
        if handling.pauses_host:
            return
        # of a range that goes beyond the end of its object, some records may lie before it
        is_fault_of_each_row = len(rows) == 1 or fault.kind is not FaultKind.RANGE_NOT_SATISFIABLE
        for row in rows:
            self.outcomes.fail(row, fault.kind.value, fault.detail, fault.attempts, counts=is_fault_of_each_row)
        if not request.is_single and (len(rows) > 1 or handling.retry_now):
            self._retry_rows.update(rows)

    def add_verdict(self, arrival: Arrival, verdict: VerificationResult) -> None:
        """Adds the verdict on bytes of a capture, and stores them."""
        row = arrival.row
        if self.outcomes.is_good(row):
            return  # two requests brought it at the same time, and it is stored already
        # more of a record has to be read if its length is not known, and the file does not end with it
        is_whole_read = len(arrival.data) == self.outcomes.length(row)
        if verdict.is_cut_off and is_whole_read and self.outcomes.grows(row):
            self._growing.append(row)
        elif verdict.reason is None:
            self._keep(row, verdict, arrival.attempts)
        else:
            self._add_bad_bytes(arrival, verdict.reason, verdict.detail)

    def _keep(self, row: int, verdict: VerificationResult, attempts: int) -> None:
        """Stores a good record."""
        key, offset = self._name(row)
        self._source.note_good_record(key)
        self.fetched += 1
        outcome = columns_of_verdict(verdict, attempts) | {"warc_filename": key, "warc_record_offset": offset}
        if verdict.record is not None and (self._columns["url"][row] is None or not self._columns["url_surtkey"][row]):
            outcome |= columns_of_url(verdict.record.url)
        self._store(self._columns["archive_format"][row] or "warc", verdict.member, verdict.content, outcome)
        self.outcomes.by_name[key, offset] = outcome

    def _add_bad_bytes(self, arrival: Arrival, reason: str, detail: str | None) -> None:
        """Stores bytes that are not the record. They may have been damaged on the way, so it is requested once more."""
        row = arrival.row
        if arrival.is_single:
            self._source.note_failure(self._name(row)[0])
        else:
            self._retry_rows.add(row)
        outcome = self.outcomes.fail(row, reason, detail, arrival.attempts, counts=True)
        if outcome is not None:
            self._store("raw", arrival.data, b"", outcome)

    def finish(self) -> None:
        """Gives an outcome to every capture that was not requested."""
        for row in self.outcomes.rows_to_fetch():
            if self._source.is_file_missing(self._name(row)[0]):
                detail = "the source does not have the file, so its other records were not requested"
                self.outcomes.fail(row, FaultKind.NOT_FOUND.value, detail, 0, counts=True)
            else:
                self.outcomes.skip(row, *self._source.skip_reason())

    def proof_ranges(self) -> Iterator[ByteRange]:
        """Requests records that the source gave before, one each of a few files, if asks depend on whether it still
        gives them. The tag is the record to expect."""
        if self._source.gave_good_record or self._source.has_ended or not self.outcomes.has_countable_failures:
            return
        for row in islice(self._proof_rows.values(), _PROOF_FILES):
            expected = build_expected(self._crawl, self._columns, row)
            length = expected.length or self.outcomes.by_name[self._name(row)]["warc_record_length"]
            yield ByteRange(expected.key, expected.offset, length, tag=expected)
