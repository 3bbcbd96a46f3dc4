"""One fetch run over the captures of a crawl: its requests, and the state of each capture. A source fails in many ways,
and each capture still gets exactly one outcome."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, ParamSpec, TypeVar

import pyarrow as pa

from cc_pipeline.capture_columns import RECORD_KEY_NAMES
from cc_pipeline.commoncrawl.crawls import UNRELIABLE_DIGEST_CRAWLS
from cc_pipeline.processes import usable_cores
from cc_pipeline.records.known_good import find
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.outcomes import Outcomes, columns_of_url, is_settled, outcome_of
from cc_pipeline.records.range_plan import SHORT_RANGE, PlannedRange, part_of, plan_ranges, split_range, usable
from cc_pipeline.records.retry_policy import FetchRetryPolicy
from cc_pipeline.records.retry_scheduler import Arrival, BadRecord, Pending, RangeRequest, RetryScheduler, compare_marks
from cc_pipeline.records.segments import Row, SegmentWriter
from cc_pipeline.records.verification import ExpectedRecord, VerificationResult, verify_record
from cc_pipeline.records.wrap import wrap_member
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault, range_fault
from cc_pipeline.transport.named_files import NamedPlaces
from cc_pipeline.transport.pieces import PIECE
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

P = ParamSpec("P")
T = TypeVar("T")

#: Records being verified at a time, per thread; bounds their memory.
_PENDING_PER_THREAD: Final = 4
#: More threads than this would be idle: fetching and storing are one thread each.
_MAX_THREADS: Final = 4

#: ``(captures done, captures in all, bytes read)``.
Progress = Callable[[int, int, int], None]
#: Gets whether the source's circuit breaker opened here; returns whether to stop sending requests.
Halt = Callable[[bool], bool]


class _InlineExecutor(Executor):
    """Runs the work at once in the caller's thread. With few cores, another thread costs more than it saves."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@contextmanager
def open_verifier_pool(threads: int | None) -> Iterator[tuple[Executor, int]]:
    """Opens an executor with ``threads`` threads, and gives the number of records that may wait in it.

    0 is the caller's own thread; ``None`` leaves one core for fetching and one for storing.
    """
    workers = max(0, min(_MAX_THREADS, usable_cores() - 2)) if threads is None else threads
    with (
        ThreadPoolExecutor(workers, thread_name_prefix="cc-pipeline-examine") if workers else _InlineExecutor() as pool
    ):
        yield pool, max(1, workers * _PENDING_PER_THREAD)


class FetchRun:
    """Gives every distinct (file, offset) among captures one outcome, group by group.

    ``begin`` starts a group, ``fetch`` requests it once. Captures that failed are carried on and requested again at the
    end, by ``finish``, so that a failing file does not delay the others. ``outcomes`` has the outcomes of the group and
    of carried captures. ``fetched`` counts the good records read so far. ``known_good_records`` has one known-good
    record of each place, whose digest does not contradict the index.

    Fetching runs in the transport's thread, storing in the caller's. If there are enough cores, a few threads inflate
    and compute digests (both release the interpreter's lock).
    """

    def __init__(
        self,
        transport: Transport | NamedPlaces,
        crawl: str,
        options: RecordOptions,
        progress: Progress | None,
        planned_count: int,
        files: int,
        halt: Halt | None = None,
    ) -> None:
        """``planned_count`` distinct captures are to come, of so many ``files`` (0: they are seen in the first group).
        ``halt`` is asked before each range is."""
        self.options = options
        self.fetched = 0
        self.retry_policy = FetchRetryPolicy((), options.give_up_after, files)
        self._transport = transport
        self._places = len(transport.sources)
        self._crawl = crawl
        self._progress = progress
        self._halt = halt
        self._planned_count = planned_count
        self._finished_count = 0
        self._bytes = 0
        self.has_asked_source = self._gave = False
        self._has_known_good: bool | None = True if options.has_known_good_record else None
        self.known_good_records: dict[str, ExpectedRecord] = {}
        self.unchanged = 0
        self._pending = Pending()
        self._last_try = False
        self._growing: list[int] = []
        self._captures: pa.Table = pa.table({name: [] for name in RECORD_KEY_NAMES})
        self.outcomes = Outcomes(self._captures)

    @property
    def answered(self) -> bool:
        """Whether the source gave anything final for a capture, or no request was sent."""
        return self._gave or not self.has_asked_source

    @property
    def carried(self) -> int:
        """Captures that have no outcome yet."""
        return len(self.outcomes.first_rows) - len(self.outcomes.by_name)

    def begin(self, captures: pa.Table) -> None:
        """Starts a group of ``captures``, all of them new; captures without an outcome are carried on."""
        self._finished_count += len(self.outcomes.by_name)
        self.unchanged += self.outcomes.unchanged
        rows = self.outcomes.rows_without()
        self._pending = self._pending.renumbered({row: place for place, row in enumerate(rows)})
        if rows:
            captures = pa.concat_tables([self._captures.take(pa.array(rows)), captures])
        self.outcomes, self._captures = self.outcomes.carried_on(captures), captures
        self._columns, self._name = self.outcomes.columns, self.outcomes.name

    def take(self, stored_rows: Iterable[Row], journaled_rows: Iterable[Row]) -> tuple[int, int]:
        """Uses what is stored: rows of the records table, then rows that a killed run left. How many each settles."""
        reused = self.outcomes.take(stored_rows, self._usable, self._stays)
        return reused, self.outcomes.take(journaled_rows, self._usable_left)

    def _usable(self, row: Row) -> bool:
        """Whether a stored row is reused: nobody requested it again, and its outcome is final."""
        return row["reason"] != "bad_plan" and not self._is_mismatched(row) and self._usable_left(row)

    def _stays(self, row: Row) -> bool:
        """Whether the stored row of a capture stays if nothing better comes."""
        return self._is_mismatched(row) or (is_settled(row) and not self.options.forget_settled)

    def _is_mismatched(self, row: Row) -> bool:
        """Whether a good record is requested once more because its payload digest differs from the index."""
        return self.options.retry_mismatched and row["outcome"] == "fetched" and row["digest_check"] == "mismatch"

    def _usable_left(self, row: Row) -> bool:
        """The same for a row of a killed run, whose options may have been others."""
        is_requested = row["outcome"] != "fetched" and (self.options.retry_settled or row.get("is_final") is False)
        return not is_requested and self._matches_digest_policy(row)

    def _matches_digest_policy(self, row: Row) -> bool:
        """Whether a digest mismatch of the row was treated as ``fail_on_digest`` says now."""
        if self.options.fail_on_digest and self._crawl not in UNRELIABLE_DIGEST_CRAWLS:
            return bool(row["outcome"] != "fetched" or row["digest_check"] != "mismatch")
        return bool(row["reason"] != "digest_mismatch")

    def fetch(self, writer: SegmentWriter) -> None:
        """Reads and stores the captures without an outcome, except carried ones. Raises ``EnvironmentFault`` if the
        disk fails.

        Ranges are requested in the order of the plan. A file that seems to be missing or damaged waits until all others
        were requested. Then one request decides whether its remaining ranges are requested too (see ``retry_policy``).
        """
        for row in self.outcomes.rows_to_fetch():
            key, offset = self._name(row)
            length = self._columns["warc_record_length"][row]
            if not usable(key, offset, length):
                detail = f"offset {offset}, length {length} of {key!r}"
                self.outcomes.lose(row, "bad_plan", detail, 0, settled=True)
        bounds = self.options.coalescing
        if self._places > 1:
            # one place gives a range in pieces; of several places, which one gives it is known only at its end
            bounds = replace(bounds, span=min(bounds.span, SHORT_RANGE))
        ranges = plan_ranges(self._captures, bounds, self.outcomes.rows_to_fetch())
        if ranges:
            self.has_asked_source = True
            self.retry_policy.add_ranges(ranges)
            with open_verifier_pool(self.options.examiners) as (pool, max_pending):
                self._pass(self._scheduler().request_in_order(ranges), writer, pool, max_pending)

    def finish(self, writer: SegmentWriter) -> None:
        """Requests failed captures again, and gives every capture an outcome. Raises as ``fetch``."""
        if not self.carried:
            return
        scheduler = self._scheduler()
        with open_verifier_pool(self.options.examiners) as (pool, max_pending):
            self._pass(scheduler.request_samples(), writer, pool, max_pending)
            self._pass(scheduler.request_suspect_files(), writer, pool, max_pending)
            for _ in range(self._places if self._places > 1 else 0):
                self._pass(scheduler.request_other_mirrors(), writer, pool, max_pending)
            self._pass(scheduler.request_samples(), writer, pool, max_pending)
            self._pass(scheduler.request_remainder(), writer, pool, max_pending)
            self._pass(scheduler.request_parts(), writer, pool, max_pending)
            # each of several places may have different bytes
            rounds = self.options.tries + self._places - 1
            for attempt in range(2, rounds + 1):
                self._last_try = attempt == rounds
                self._pass(scheduler.request_single_records(), writer, pool, max_pending)
        self._give_up(writer)
        self._pending, self._last_try = Pending(), False

    def _give_up(self, writer: SegmentWriter) -> None:
        """Gives an outcome to every capture that has none."""
        missing_files = {key for key, state in self.retry_policy.files.items() if state.is_missing}
        settled = missing_files if missing_files and self.has_known_good_record() else set()
        for planned, fault in self._pending.unread:
            for row in planned.rows:
                self.outcomes.lose(row, fault.kind.value, fault.detail, fault.attempts, settled=planned.key in settled)
        reason, detail = self.retry_policy.skip_reason()
        for planned in self._pending.deferred:
            for row in planned.rows:
                if planned.key in missing_files:
                    not_found_detail = "the source does not have the file, so its other records were not requested"
                    self.outcomes.lose(
                        row, FaultKind.NOT_FOUND.value, not_found_detail, 0, settled=planned.key in settled
                    )
                else:
                    self.outcomes.lose(row, reason, detail, 0, settled=False)
        for row in self._pending.retry_rows:
            self._set_aside(row, writer, settled=self.retry_policy.files[self._name(row)[0]].damaged)

    def _scheduler(self) -> RetryScheduler:
        return RetryScheduler(self.retry_policy, self._pending, self.outcomes, self._is_finished)

    def _is_finished(self) -> bool:
        """Whether this run sends no more requests."""
        policy = self.retry_policy
        if self._halt is not None and self._halt(policy.is_refused):
            policy.report_open_breaker()
        if not policy.should_stop:
            return False
        # a source with known-good records is believed if it says "not found" of file after file
        if policy.only_not_found and self.has_known_good_record():
            policy.any_good = True
        return policy.should_stop

    def has_known_good_record(self) -> bool:
        """Whether the source has given a good record in this run or within a day; else one is requested, once."""
        if not self.known_good_records and self._has_known_good is None:
            known_good = None
            if not self.retry_policy.is_refused_now:
                known_good = find(self._transport, self.options.search, [*self.retry_policy.files])
            if known_good is not None:
                self.known_good_records[known_good[0]] = known_good[1]
            self._has_known_good = known_good is not None
        return bool(self.known_good_records) or bool(self._has_known_good)

    def conclude(self) -> None:
        """Keeps new losses final if the source has given a known-good record; else makes them pending again."""
        if self.outcomes.lost_now:
            if self.has_known_good_record():
                self._gave = True
            else:
                self.outcomes.reopen()

    def _pass(
        self, range_requests: Iterator[RangeRequest], writer: SegmentWriter, pool: Executor, max_pending: int
    ) -> None:
        arrivals: deque[Arrival] = deque()
        for outcome in self._transport.read_many(map(self._request, range_requests)):
            range_request = outcome.tag
            assert isinstance(range_request, RangeRequest)
            offset, length = outcome.offset, outcome.length if isinstance(outcome, RangeFault) else len(outcome.data)
            assert offset is not None
            assert length is not None
            # an open-ended range may be longer than the object, and it comes in one piece
            is_open_ended = self._has_no_end(range_request.planned)
            if is_open_ended or offset + length == range_request.planned.offset + range_request.planned.length:
                self.retry_policy.give_back(range_request.planned.key, range_request.granted_tries, outcome.attempts)
            if not is_open_ended:
                range_request = replace(
                    range_request,
                    planned=part_of(range_request.planned, offset, length, self._columns["warc_record_offset"]),
                )
            if isinstance(outcome, RangeFault):
                self._failed(outcome, range_request)
            elif self._is_same_object(outcome, range_request):
                for row in range_request.planned.rows:
                    if self.outcomes.is_good(row):
                        continue
                    arrivals.append(self._examine(row, outcome, pool))
                    if len(arrivals) >= max_pending:
                        self._conclude(arrivals.popleft(), writer)
            while arrivals and arrivals[0].verdict.done():
                self._conclude(arrivals.popleft(), writer)
            self._report_progress()
        while arrivals:
            self._conclude(arrivals.popleft(), writer)
        self._report_progress()
        if self._growing:
            scheduler = self._scheduler()
            ranges, self._growing = [scheduler.single_record_range(row) for row in self._growing], []
            self._pass(scheduler.request_in_order(ranges), writer, pool, max_pending)

    def _request(self, range_request: RangeRequest) -> ByteRange:
        planned = range_request.planned
        avoid: frozenset[str] = frozenset()
        if self._places > 1:
            seen = (self._pending.bad[row].marks for row in planned.rows if row in self._pending.bad)
            avoid = frozenset(self.retry_policy.files[planned.key].bad_sources).union(*seen)
        is_open_ended = self._has_no_end(planned)
        ends = () if is_open_ended else self._ends(planned)
        return ByteRange(
            planned.key,
            planned.offset,
            planned.length,
            None,
            range_request,
            range_request.granted_tries,
            None,
            avoid,
            ends,
            is_open_ended,
        )

    def _has_no_end(self, planned: PlannedRange) -> bool:
        """Whether the length of a record in the range is not known before it is read."""
        lengths = self._columns["warc_record_length"]
        return any(lengths[row] is None for row in planned.rows)

    def _ends(self, planned: PlannedRange) -> tuple[int, ...]:
        """Returns the offsets at which a long range may be cut: after each record that does not overlap the next."""
        if planned.length <= PIECE or len(planned.rows) == 1:
            return ()
        columns = self._columns
        parts = split_range(planned, columns["warc_record_offset"], columns["warc_record_length"], 1)
        return tuple(part.offset + part.length for part in parts)

    def _report_progress(self) -> None:
        if self._progress is not None:
            self._progress(self._finished_count + len(self.outcomes.by_name), self._planned_count, self._bytes)

    def _failed(self, fault: RangeFault, range_request: RangeRequest) -> None:
        self.retry_policy.failed(fault)
        if not range_request.is_single_record:
            self._pending.unread.append((range_request.planned, fault))
            return
        [row] = range_request.planned.rows
        past_the_end = fault.kind is FaultKind.RANGE_NOT_SATISFIABLE
        bad = self._pending.bad.get(row)
        if bad is not None and bad.usable:
            self._pending.retry_rows.append(row)
        elif past_the_end and row in self._pending.past_the_end:
            self.outcomes.lose(row, fault.kind.value, fault.detail, fault.attempts + 1, settled=True)
        elif self._last_try or not self.retry_policy.files[fault.key].good:
            self.outcomes.lose(row, fault.kind.value, fault.detail, fault.attempts, settled=False)
        else:
            self._pending.retry_rows.append(row)
        if past_the_end:
            self._pending.past_the_end.add(row)

    def _is_same_object(self, answer: RangeBytes, range_request: RangeRequest) -> bool:
        """Whether the object is the one that was read before. If not, its rows wait for another try."""
        self._bytes += len(answer.data)
        if self.retry_policy.is_same_object(answer.key, answer.etag, answer.source, first=answer.first):
            return True
        place, detail = range_request.planned, f"ETag {answer.etag} is new"
        if answer.first or not self._pending.extend_unread(place):
            self._failed(
                range_fault(FaultKind.CHANGED_OBJECT, place.key, place.offset, place.length, detail, answer.attempts),
                range_request,
            )
        return False

    def _examine(self, row: int, answer: RangeBytes, pool: Executor) -> Arrival:
        columns = self._columns
        start = columns["warc_record_offset"][row] - answer.offset
        length = self.outcomes.length(row)
        data = answer.data if len(answer.data) == length else answer.data[start : start + length]
        expected = self._expected_record(row)
        # while other places may have the payload with the index's digest, a mismatch is a failure
        strict = self.options.fail_on_digest or (
            self._places > 1 and not self.retry_policy.files[answer.key].mirrors_agree
        )
        verdict = pool.submit(verify_record, data, expected, fail_on_digest=strict)
        attempts = answer.attempts + (row in self._pending.bad)
        return Arrival(row, data, attempts, verdict, answer.source, answer.is_inconclusive, answer.request)

    def _expected_record(self, row: int) -> ExpectedRecord:
        columns = self._columns
        return ExpectedRecord(
            crawl=self._crawl,
            archive_format=columns["archive_format"][row],
            key=columns["warc_filename"][row],
            offset=columns["warc_record_offset"][row],
            length=columns["warc_record_length"][row],
            url=columns["url"][row],
            surtkey=columns["url_surtkey"][row],
            digest=columns["content_digest"][row],
        )

    def _name_columns(self, row: int) -> Row:
        key, offset = self._name(row)
        return {"warc_filename": key, "warc_record_offset": offset}

    def _conclude(self, arrival: Arrival, writer: SegmentWriter) -> None:
        row, verdict = arrival.row, arrival.verdict.result()
        if self.outcomes.is_good(row):
            return  # two requests brought it at the same time, and it is stored already
        key = self._name(row)[0]
        outcome = outcome_of(verdict, arrival.attempts, arrival.source) | self._name_columns(row)
        if verdict.is_cut_off and self._should_extend(arrival):
            self._growing.append(row)
            return
        if verdict.reason is not None:
            usable = verdict.reason == "digest_mismatch" and not self.options.fail_on_digest
            self._handle_bad_bytes(arrival, outcome, writer, usable=usable)
            return
        bad = self._pending.bad.get(row)
        if bad is not None:
            self.retry_policy.files[key].bad_sources.update(bad.marks.keys() - {arrival.source})
        self._keep(row, verdict, outcome, arrival.source, writer)

    def _should_extend(self, arrival: Arrival) -> bool:
        """Whether more of a record has to be read: its length is not known, and the file does not end with it."""
        return len(arrival.data) == self.outcomes.length(arrival.row) and self.outcomes.grows(arrival.row)

    def _keep(self, row: int, verdict: VerificationResult, outcome: Row, source: str, writer: SegmentWriter) -> None:
        """Stores a good record."""
        key, offset = self._name(row)
        self.retry_policy.good(key)
        self.fetched += 1
        self._gave = True
        self._pending.forget(row)
        if verdict.record is not None and (self._columns["url"][row] is None or not self._columns["url_surtkey"][row]):
            outcome |= columns_of_url(verdict.record.url)
        outcome["warc_record_length"] = len(verdict.member)
        if source not in self.known_good_records and verdict.digest_check != "mismatch":
            self.known_good_records[source] = replace(self._expected_record(row), length=len(verdict.member))
        if self._columns["archive_format"][row] == "arc":
            writer.add("arc", verdict.member, outcome)
        else:
            address = self._transport.url(key, source)
            writer.add("warc", wrap_member(verdict.member, verdict.content, address, offset), outcome)
        self.outcomes.by_name[key, offset] = outcome

    def _handle_bad_bytes(self, arrival: Arrival, outcome: Row, writer: SegmentWriter, *, usable: bool) -> None:
        """Notes bad bytes. The same ones in two requests are the source's; different ones were damaged on the way."""
        row, data = arrival.row, arrival.data
        key = self._name(row)[0]
        state = self.retry_policy.files[key]
        previous = self._pending.bad.get(row)
        if previous is not None and arrival.request in previous.requests:
            return  # the same answer seen twice is no second evidence
        mark = hashlib.blake2b(data, digest_size=16).digest()
        marks, is_identical, changed = compare_marks(previous, arrival, mark, self._places)
        if previous is None:
            self.retry_policy.bad(key)
        state.usable = state.usable or usable
        state.identical_rereads += is_identical
        state.changed_rereads += changed
        state.mirrors_agree = state.mirrors_agree or (len(marks) > 1 and len(set(marks.values())) == 1)
        self._pending.forget(row)
        requests = {arrival.request} if previous is None else previous.requests | {arrival.request}
        bad = BadRecord(marks, frozenset(requests), outcome, data, usable)
        # in a file that is known to be damaged, each record is read only once
        if is_identical or self._last_try or state.damaged or (usable and not self._pending.has_room(len(data))):
            self._pending.bad[row] = bad
            self._set_aside(row, writer, settled=is_identical or state.damaged)
            return
        self._pending.add_bad_record(row, bad, keep=usable or not state.good)

    def _set_aside(self, row: int, writer: SegmentWriter, *, settled: bool) -> None:
        """Quarantines the bytes that were read of a record; without bytes the record is missing."""
        bad = self._pending.bad.get(row)
        if bad is None:
            self.outcomes.lose(row, *self.retry_policy.skip_reason(), 0, settled=False)
            return
        if bad.data is None:
            self.outcomes.lose(row, bad.outcome["reason"], bad.outcome["detail"], 1, settled=False)
            return
        if bad.usable:
            verdict = verify_record(bad.data, self._expected_record(row))
            place = bad.outcome["served_by"]
            outcome = outcome_of(verdict, bad.outcome["attempts"], place) | self._name_columns(row)
            self._keep(row, verdict, outcome, place, writer)
            return
        if self.outcomes.set_aside(row, bad.outcome, settled=settled):
            # if this run is killed, the adopting run does not know whether the source gave a known-good record
            stored = bad.outcome | {"is_final": False}
            writer.add("raw", bad.data, stored)
            self.outcomes.by_name[self._name(row)] = stored | {
                "is_final": settled,
                "unsuccessful_runs": 1 if settled else None,
            }
