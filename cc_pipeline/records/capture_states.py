"""The states of the captures of one fetch, as one machine: from the answers so far it decides what is requested next,
and it gives each capture exactly one outcome. It does no I/O.

    planned ─► requested ─► verified ─► fetched
       │         │ fault        │ bad bytes
       │         ▼              ▼
       │       unread ──► requested alone ──► quarantined (bad bytes) or missing (none)
       ▼
    deferred: its file, or the source, seems to fail; requested later, or missing
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import UNRELIABLE_DIGEST_CRAWLS
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.outcomes import Outcomes, columns_of_url, is_settled, outcome_of
from cc_pipeline.records.range_plan import SHORT_RANGE, PlannedRange, plan_ranges, split_range, usable
from cc_pipeline.records.retry_policy import BY_RECORD, MAX_TRIES, FetchRetryPolicy
from cc_pipeline.records.segments import Row
from cc_pipeline.records.verification import (
    ExpectedRecord,
    VerificationResult,
    expected_record,
)
from cc_pipeline.transport.faults import FaultKind, RangeFault, handling_of, range_fault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: Bytes of bad records that are stored until it is known whether their file has a good record.
_KEPT_BYTES = 32 << 20

#: Files of a kind that are requested once before the source, and not some of its files, counts as failing.
_SAMPLE_FILES: Final = 3

#: Stores a record: its kind, its bytes, the inflated bytes (of a good one), and its outcome, which gets the location.
Store = Callable[[str, bytes, bytes, Row], None]
#: Gets whether the source refuses here; returns whether to stop sending requests.
Halt = Callable[[bool], bool]


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A range to request, ``granted_tries`` times at most. ``is_single_record``: a single record that was bad or not
    seen before."""

    planned: PlannedRange
    granted_tries: int
    is_single_record: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """Bytes of one capture, to be verified against ``expected``. ``request`` is the number of the request that brought
    them."""

    row: int
    data: bytes
    expected: ExpectedRecord
    attempts: int
    request: int


@dataclass(slots=True)
class BadRecord:
    """A record that differs from the expected one: the verdict, and its bytes while there is room. ``mark`` is a digest
    of them, ``requests`` are the numbers of the requests."""

    mark: bytes
    requests: frozenset[int]
    outcome: Row
    data: bytes | None


class CaptureStates:
    """The states of a group of captures. ``outcomes`` has the outcomes so far; rows are numbers in the table of
    captures.

    Use it in this order: :meth:`reuse`; for each pass of :meth:`passes` the requests, whose answers go to
    :meth:`add_answer`, and the verdicts on what they bring to :meth:`add_verdict`; :meth:`finish`. ``fetched`` counts
    the good records. ``gave``: the source gave something final. ``has_requests``: there was a request.

    ``policy`` has the states of the files and of the source, which outlast the group. ``store`` stores a record.
    ``halt``, which is called before each request, says whether to stop.
    """

    def __init__(
        self,
        captures: pa.Table,
        crawl: str,
        options: RecordOptions,
        policy: FetchRetryPolicy,
        store: Store,
        halt: Halt | None = None,
    ) -> None:
        self.outcomes = Outcomes(captures)
        self.fetched = 0
        self.gave = self.has_requests = False
        self._captures, self._crawl, self._options = captures, crawl, options
        self._policy, self._store, self._halt = policy, store, halt
        self._columns, self._name = self.outcomes.columns, self.outcomes.name
        #: Ranges that were not requested, and those that failed.
        self._deferred: list[PlannedRange] = []
        self._unread: list[tuple[PlannedRange, RangeFault]] = []
        #: Single records to request, the bad ones among them, and those that the source placed once after the end of
        #: their file.
        self._retry_rows: list[int] = []
        self._bad: dict[int, BadRecord] = {}
        self._past_the_end: set[int] = set()
        #: Records of unknown length of which more is to be read.
        self._growing: list[int] = []
        self._kept_bytes = self._answer_count = 0
        self._is_last_try = False

    def reuse(self, stored_rows: Iterable[Row], journaled_rows: Iterable[Row]) -> tuple[int, int]:
        """Uses what is stored: rows of the records table, then rows that a killed run left. Returns how many each
        settles. Captures that cannot be requested are missing."""

        def is_mismatched(row: Row) -> bool:
            # a good record is requested once more if its payload digest differs from the index
            is_good = row["outcome"] == "fetched" and row["digest_check"] == "mismatch"
            return self._options.retry_mismatched and is_good

        def is_usable(row: Row) -> bool:
            return row["reason"] != "bad_plan" and not is_mismatched(row) and self._is_usable(row)

        def stays(row: Row) -> bool:
            return is_mismatched(row) or (is_settled(row) and not self._options.forget_settled)

        reused = self.outcomes.take(stored_rows, is_usable, stays)
        adopted = self.outcomes.take(journaled_rows, self._is_usable, is_settled)
        for row in self.outcomes.rows_to_fetch():
            key, offset = self._name(row)
            length = self._columns["warc_record_length"][row]
            if not usable(key, offset, length):
                self.outcomes.lose(row, "bad_plan", f"offset {offset}, length {length} of {key!r}", 0, settled=True)
        return reused, adopted

    def _is_usable(self, row: Row) -> bool:
        """Whether the options of this run allow a stored outcome, and treat a digest mismatch as the row did."""
        if row["outcome"] != "fetched" and (self._options.retry_settled or row.get("is_final") is False):
            return False
        if self._options.fail_on_digest and self._crawl not in UNRELIABLE_DIGEST_CRAWLS:
            return bool(row["outcome"] != "fetched" or row["digest_check"] != "mismatch")
        return bool(row["reason"] != "digest_mismatch")

    def passes(self) -> Iterator[Iterator[ByteRange]]:
        """Yields the requests, pass by pass: first each range in the order of the plan, then those that failed, in an
        order that learns most from each request. Answers to one pass are added before the next is taken, and answers
        to its first requests while its last ones are taken.

        A file that seems to be missing or damaged waits until all others were requested. Then one request decides
        whether its remaining ranges are requested too.
        """
        for requests in self._plan_passes():
            yield map(self._build_byte_range, requests)
            while self._growing:
                ranges, self._growing = [self._single_record_range(row) for row in self._growing], []
                yield map(self._build_byte_range, self._request_in_order(ranges))

    def _plan_passes(self) -> Iterator[Iterator[RangeRequest]]:
        ranges = plan_ranges(self._captures, self._options.coalescing, self.outcomes.rows_to_fetch())
        if not ranges:
            return
        self.has_requests = True
        self._policy.add_ranges(ranges)
        yield self._request_in_order(ranges)
        if not self.outcomes.rows_to_fetch():
            return
        yield self._request_samples()
        yield self._request_suspect_files()
        yield self._request_samples()
        yield self._request_remainder()
        yield self._request_parts()
        for attempt in range(2, self._options.tries + 1):
            self._is_last_try = attempt == self._options.tries
            yield self._request_single_records()

    def _build_byte_range(self, request: RangeRequest) -> ByteRange:
        planned = request.planned
        is_open_ended = self._is_open_ended(planned)
        return ByteRange(
            planned.key,
            planned.offset,
            planned.length,
            tag=request,
            tries=request.granted_tries,
            may_be_short=is_open_ended,
        )

    def _is_open_ended(self, planned: PlannedRange) -> bool:
        """Whether the length of a record in the range is not known before it is read."""
        lengths = self._columns["warc_record_length"]
        return any(lengths[row] is None for row in planned.rows)

    def _is_finished(self) -> bool:
        """Whether no more requests are sent. It is called before each request, since answers arrive meanwhile."""
        policy = self._policy
        if self._halt is not None and self._halt(policy.is_refused):
            policy.report_refusal()
        return policy.should_stop

    def _single_record_range(self, row: int) -> PlannedRange:
        return PlannedRange(*self._name(row), self.outcomes.length(row), (row,))

    def _request_record(self, row: int) -> RangeRequest:
        return RangeRequest(self._single_record_range(row), 1, is_single_record=True)

    def _request_in_order(self, ranges: Sequence[PlannedRange]) -> Iterator[RangeRequest]:
        """Requests every range once, except those of suspect files, which wait."""
        for planned in ranges:
            if self._is_finished() or self._policy.files[planned.key].is_suspect:
                self._deferred.append(planned)
            else:
                yield RangeRequest(planned, self._policy.tries(planned.key))

    def _request_samples(self) -> Iterator[RangeRequest]:
        """If the source seems to fail, requests one range each of a few files that gave good records, and of a few that
        were not requested. Perhaps only the files that failed one after the other fail."""
        if not self._is_finished() or self._policy.is_refused_now:
            return
        files = self._policy.files
        good = [planned.key for planned, fault in self._unread if handling_of(fault.kind).retry_now]
        good = [key for key in (*good, *(planned.key for planned in self._deferred)) if files[key].good]
        new = [planned.key for planned in self._deferred if files[planned.key].is_unrequested]
        sampled_files = {*_spread(good), *_spread(new)}
        waiting, self._deferred = self._deferred, []
        for planned in waiting:
            if planned.key in sampled_files:
                sampled_files.remove(planned.key)
                yield RangeRequest(planned, 1)
            else:
                self._deferred.append(planned)
        unread, self._unread = self._unread, []
        for planned, fault in unread:
            if planned.key in sampled_files and handling_of(fault.kind).retry_now:
                sampled_files.remove(planned.key)
                yield RangeRequest(planned, 1)
            else:
                self._unread.append((planned, fault))

    def _request_suspect_files(self) -> Iterator[RangeRequest]:
        """Requests one range of each file without a good record, and as many of its bad records as the policy
        allows."""
        files = self._policy.files
        requested_files: set[str] = set()
        # ranges that were not requested yet come first: failing ones could make the source look as if it failed
        waiting, self._deferred = sorted(self._deferred, key=lambda planned: files[planned.key].is_suspect), []
        for planned in waiting:
            if files[planned.key].good or planned.key in requested_files or self._is_finished():
                self._deferred.append(planned)
            else:
                requested_files.add(planned.key)
                yield RangeRequest(planned, 1)
        unread, self._unread = self._unread, []
        for planned, fault in unread:
            state = files[planned.key]
            is_settled_file = state.good or state.is_missing or planned.key in requested_files
            if is_settled_file or self._is_finished() or not self._policy.spend(planned.key):
                self._unread.append((planned, fault))
                continue
            requested_files.add(planned.key)
            if fault.kind in BY_RECORD and len(planned.rows) > 1:
                self._unread.append((planned, fault))
                yield self._request_record(planned.rows[0])
            else:
                yield RangeRequest(planned, 1)
        retry_rows, self._retry_rows = self._retry_rows, []
        for row in retry_rows:
            key = self._name(row)[0]
            if not files[key].good and not self._is_finished() and self._policy.spend(key):
                yield self._request_record(row)
            else:
                self._retry_rows.append(row)

    def _request_remainder(self) -> Iterator[RangeRequest]:
        """Requests the deferred and failed ranges of files that have given a good record by now, with the tries that
        remain."""
        files = self._policy.files
        waiting, self._deferred = self._deferred, []
        for planned in waiting:
            state = files[planned.key]
            if (state.good or state.damaged) and not self._is_finished():
                yield RangeRequest(planned, MAX_TRIES if state.good else 1)
            else:
                self._deferred.append(planned)
        unread, self._unread = self._unread, []
        for planned, fault in unread:
            remaining_tries = MAX_TRIES - fault.attempts
            if not files[planned.key].good or self._is_finished():
                self._unread.append((planned, fault))
            elif handling_of(fault.kind).retry_now and remaining_tries > 0:
                yield RangeRequest(planned, remaining_tries)
            elif fault.kind is FaultKind.NOT_FOUND:
                yield RangeRequest(planned, 1)
            else:
                self._unread.append((planned, fault))

    def _request_parts(self) -> Iterator[RangeRequest]:
        """Requests long ranges in parts if one of their records may have made them fail."""
        columns = self._columns
        unread, self._unread = self._unread, []
        for planned, fault in unread:
            parts = [planned]
            is_by_record = fault.kind in BY_RECORD and self._policy.files[planned.key].good
            if is_by_record and not self._is_open_ended(planned):
                parts = split_range(planned, columns["warc_record_offset"], columns["warc_record_length"], SHORT_RANGE)
            for part in parts:
                if len(parts) > 1 and not self._is_finished():
                    yield RangeRequest(part, 1)
                else:
                    self._unread.append((part, fault))

    def _request_single_records(self) -> Iterator[RangeRequest]:
        """Requests records that failed in a shared range alone, so that good neighbours do not fail with them."""
        unread, self._unread = self._unread, []
        for planned, fault in unread:
            if fault.kind in BY_RECORD and self._policy.files[planned.key].good:
                # one of them may have been fetched alone, to find out whether the file answers
                self._retry_rows.extend(row for row in planned.rows if not self.outcomes.is_good(row))
            else:
                self._unread.append((planned, fault))
        rows, self._retry_rows = sorted(self._retry_rows, key=self._name), []
        for row in rows:
            if self._policy.files[self._name(row)[0]].good and not self._is_finished():
                yield self._request_record(row)
            else:
                self._retry_rows.append(row)

    def add_answer(self, answer: RangeBytes | RangeFault) -> Iterator[Arrival]:
        """Adds the answer to a request. Yields the bytes of captures to be verified."""
        request = answer.tag
        assert isinstance(request, RangeRequest)
        planned = request.planned
        self._answer_count += 1
        self._policy.give_back(planned.key, request.granted_tries, answer.attempts)
        if isinstance(answer, RangeFault):
            self._add_fault(answer, planned, request.is_single_record)
        elif self._policy.is_same_object(answer.key, answer.etag):
            for row in planned.rows:
                if not self.outcomes.is_good(row):
                    yield self._build_arrival(row, answer)
        else:
            detail = f"ETag {answer.etag} is new"
            fault = range_fault(
                FaultKind.CHANGED_OBJECT, planned.key, planned.offset, planned.length, detail, answer.attempts
            )
            self._add_fault(fault, planned, request.is_single_record)

    def _add_fault(self, fault: RangeFault, planned: PlannedRange, is_single_record: bool) -> None:
        self._policy.failed(fault)
        if not is_single_record:
            self._unread.append((planned, fault))
            return
        [row] = planned.rows
        past_the_end = fault.kind is FaultKind.RANGE_NOT_SATISFIABLE
        if past_the_end and row in self._past_the_end:
            self.outcomes.lose(row, fault.kind.value, fault.detail, fault.attempts + 1, settled=True)
        elif self._is_last_try or not self._policy.files[fault.key].good:
            self.outcomes.lose(row, fault.kind.value, fault.detail, fault.attempts, settled=False)
        else:
            self._retry_rows.append(row)
        if past_the_end:
            self._past_the_end.add(row)

    def _build_arrival(self, row: int, answer: RangeBytes) -> Arrival:
        start, length = self._columns["warc_record_offset"][row] - answer.offset, self.outcomes.length(row)
        return Arrival(
            row,
            answer.data if len(answer.data) == length else answer.data[start : start + length],
            expected_record({name: values[row] for name, values in self._columns.items()}),
            answer.attempts + (row in self._bad),
            self._answer_count,
        )

    def add_verdict(self, arrival: Arrival, verdict: VerificationResult) -> None:
        """Adds the verdict on bytes of a capture, and stores a good record."""
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
            self._add_bad_bytes(arrival, verdict)

    def _build_outcome(self, row: int, verdict: VerificationResult, attempts: int) -> Row:
        key, offset = self._name(row)
        return outcome_of(verdict, attempts) | {"warc_filename": key, "warc_record_offset": offset}

    def _keep(self, row: int, verdict: VerificationResult, attempts: int) -> None:
        """Stores a good record."""
        outcome = self._build_outcome(row, verdict, attempts)
        self._policy.good(self._name(row)[0])
        self.fetched += 1
        self.gave = True
        self._forget_bad(row)
        if verdict.record is not None and (self._columns["url"][row] is None or not self._columns["url_surtkey"][row]):
            outcome |= columns_of_url(verdict.record.url)
        outcome["warc_record_length"] = len(verdict.member)
        self._store(self._columns["archive_format"][row] or "warc", verdict.member, verdict.content, outcome)
        self.outcomes.by_name[self._name(row)] = outcome

    def _add_bad_bytes(self, arrival: Arrival, verdict: VerificationResult) -> None:
        """Notes bad bytes. The same ones in two requests are the source's; different ones were damaged on the way."""
        row, data = arrival.row, arrival.data
        key = self._name(row)[0]
        state = self._policy.files[key]
        previous = self._bad.get(row)
        if previous is not None and arrival.request in previous.requests:
            return  # the same answer seen twice is no second evidence
        mark = hashlib.blake2b(data, digest_size=16).digest()
        is_identical = previous is not None and previous.mark == mark
        if previous is None:
            self._policy.bad(key)
        elif is_identical:
            state.identical_rereads += 1
        else:
            state.changed_rereads += 1
        self._forget_bad(row)
        requests = frozenset({arrival.request}) | (frozenset() if previous is None else previous.requests)
        outcome = self._build_outcome(row, verdict, arrival.attempts)
        bad = self._bad[row] = BadRecord(mark, requests, outcome, data)
        has_room = self._kept_bytes + len(data) <= _KEPT_BYTES
        self._kept_bytes += len(data)
        # in a file that is known to be damaged, each record is read only once
        if is_identical or self._is_last_try or state.damaged:
            self._quarantine(row, settled=is_identical or state.damaged)
            self._drop_bytes(bad)
            return
        if not has_room or state.good:
            self._drop_bytes(bad)
        self._retry_rows.append(row)

    def _forget_bad(self, row: int) -> None:
        if (bad := self._bad.pop(row, None)) is not None:
            self._drop_bytes(bad)

    def _drop_bytes(self, bad: BadRecord) -> None:
        if bad.data is not None:
            self._kept_bytes -= len(bad.data)
            bad.data = None

    def _quarantine(self, row: int, *, settled: bool) -> None:
        """Quarantines the bytes that were read of a record; without bytes the record is missing."""
        bad = self._bad.get(row)
        if self.outcomes.has_new_bytes(row):
            return
        if bad is None:
            self.outcomes.lose(row, *self._policy.skip_reason(), 0, settled=False)
        elif bad.data is None:
            self.outcomes.lose(row, bad.outcome["reason"], bad.outcome["detail"], 1, settled=False)
        elif self.outcomes.set_aside(row, bad.outcome, settled=settled):
            # if this run is killed, the adopting run does not know whether the source gave a good record
            stored = bad.outcome | {"is_final": False}
            self._store("raw", bad.data, b"", stored)
            unsuccessful_runs = 1 if settled else None
            final = {"is_final": settled, "unsuccessful_runs": unsuccessful_runs}
            self.outcomes.by_name[self._name(row)] = stored | final

    def finish(self) -> None:
        """Gives an outcome to every capture that has none. New losses are final if the source has given a good record;
        else they are pending."""
        missing_files = {key for key, state in self._policy.files.items() if state.is_missing}
        settled = missing_files if self._policy.any_good else set()
        for planned, fault in self._unread:
            for row in planned.rows:
                self.outcomes.lose(row, fault.kind.value, fault.detail, fault.attempts, settled=planned.key in settled)
        reason, detail = self._policy.skip_reason()
        not_found_detail = "the source does not have the file, so its other records were not requested"
        for planned in self._deferred:
            for row in planned.rows:
                if planned.key in missing_files:
                    is_final = planned.key in settled
                    self.outcomes.lose(row, FaultKind.NOT_FOUND.value, not_found_detail, 0, settled=is_final)
                else:
                    self.outcomes.lose(row, reason, detail, 0, settled=False)
        for row in self._retry_rows:
            self._quarantine(row, settled=self._policy.files[self._name(row)[0]].damaged)
        if self.outcomes.lost_now:
            if self._policy.any_good:
                self.gave = True
            else:
                self.outcomes.reopen()


def _spread(keys: Sequence[str]) -> list[str]:
    """Returns a few of ``keys`` at even distances, including the last one: neighbours often fail together."""
    distinct = list(dict.fromkeys(keys))
    numbers = range(1, _SAMPLE_FILES + 1) if distinct else ()
    return [distinct[len(distinct) * number // _SAMPLE_FILES - 1] for number in numbers]
