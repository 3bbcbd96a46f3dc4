"""One run over the captures of a crawl: what is known so far about each of them."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor

import pyarrow as pa

from cc_pipeline.keys import RECORD_KEY_NAMES
from cc_pipeline.records.check import KNOWN_BAD_DIGESTS, Promise, examine
from cc_pipeline.records.examining import examining
from cc_pipeline.records.options import RecordOptions
from cc_pipeline.records.outcomes import Outcomes, outcome_of
from cc_pipeline.records.patience import BY_RECORD, MOST_TRIES, Patience
from cc_pipeline.records.pending import Arrival, Ask, Bad, Pending
from cc_pipeline.records.plan import PlannedRange, plan_ranges, usable
from cc_pipeline.records.segments import Row, SegmentWriter
from cc_pipeline.records.wrap import wrap_member
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import PERMANENT_KINDS, FaultKind, RangeFault, range_fault
from cc_pipeline.transport.named import NamedPlaces
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: ``(captures done, captures in all, bytes read)``.
Progress = Callable[[int, int, int], None]
#: Given whether the source's circuit breaker opened here; says whether nothing more is to be asked of the source.
Halt = Callable[[bool], bool]


class FetchRun:
    """Gives every distinct (file, offset) among captures one outcome, group by group.

    ``begin`` turns to a group, ``fetch`` asks for it once. What did not come is carried on and asked for again at the
    end, by ``finish``, so that a file that fails keeps none from being asked for. ``outcomes`` has what is known of the
    group and of what was carried. ``fetched`` counts the good ones that were read so far.

    Fetching happens in the transport's thread, storing in the caller's, and where there are cores for it,
    inflating and digests in a few threads here (both give up the interpreter's lock).
    """

    def __init__(
        self,
        transport: Transport | NamedPlaces,
        crawl: str,
        options: RecordOptions,
        progress: Progress | None,
        wanted: int,
        files: int,
        halt: Halt | None = None,
    ) -> None:
        """``wanted`` distinct captures are to come, of so many ``files`` (0: they are seen in the first group).
        ``halt`` is asked before each range is."""
        self.options = options
        self.fetched = 0
        self.patience = Patience((), options.give_up_after, files)
        self._transport = transport
        self._crawl = crawl
        self._progress = progress
        self._halt = halt
        self._wanted = wanted
        self._done = 0
        self._bytes = 0
        self.asked = self._gave = False
        self._has_a_witness: bool | None = None
        self._pending = Pending()
        self._last_try = False
        self._captures: pa.Table = pa.table({name: [] for name in RECORD_KEY_NAMES})
        self.outcomes = Outcomes(self._captures)

    @property
    def answered(self) -> bool:
        """Whether the source gave anything that settles a capture, or was not asked."""
        return self._gave or not self.asked

    @property
    def carried(self) -> int:
        """Captures that have no outcome yet."""
        return len(self.outcomes.wanted) - len(self.outcomes.of)

    def begin(self, captures: pa.Table) -> None:
        """Turns to ``captures`` (none of which was there before); what has no outcome yet is carried on."""
        self._done += len(self.outcomes.of)
        rows = self.outcomes.rows_without()
        self._pending = self._pending.renumbered({row: place for place, row in enumerate(rows)})
        if rows:
            captures = pa.concat_tables([self._captures.take(pa.array(rows)), captures])
        self.outcomes, self._captures = self.outcomes.carried_on(captures), captures
        self._columns, self._name = self.outcomes.columns, self.outcomes.name

    def take(self, held: Iterable[Row], left: Iterable[Row]) -> tuple[int, int]:
        """Uses what is stored: rows of the records table, then rows that a killed run left. How many each settles."""
        reused = self.outcomes.take(held, self._usable)
        return reused, self.outcomes.take(left, self._usable_left)

    def _usable(self, row: Row) -> bool:
        """Whether a held record need not be asked for again: not on request, nor because nothing settles its fate."""
        return row["reason"] != "bad_plan" and self._usable_left(row)

    def _usable_left(self, row: Row) -> bool:
        """The same for a row of a run that was killed, which knew nothing of what this one was asked for."""
        asked = row["outcome"] != "fetched" and (self.options.retry_settled or row.get("settled") is False)
        return not asked and self._judged_as_now(row)

    def _judged_as_now(self, row: Row) -> bool:
        """Whether a digest that does not match was treated as ``fail_on_digest`` says now."""
        if self.options.fail_on_digest and self._crawl not in KNOWN_BAD_DIGESTS:
            return bool(row["outcome"] != "fetched" or row["digest_check"] != "mismatch")
        return bool(row["reason"] != "digest_mismatch")

    def fetch(self, writer: SegmentWriter) -> None:
        """Reads and stores the captures that are still wanted, but for those carried on. Raises ``EnvironmentFault``
        when the disk fails.

        Ranges are asked for in the order of the plan. A file that seems to be gone or damaged waits until all others
        were asked for; then one question decides whether its rest is asked for too (see ``patience``).
        """
        for row in self.outcomes.still_wanted():
            key, offset = self._name(row)
            length = self._columns["warc_record_length"][row]
            if not usable(key, offset, length):
                detail = f"offset {offset}, length {length} of {key!r}"
                self.outcomes.lose(row, "bad_plan", detail, 0, settled=True)
        ranges = plan_ranges(self._captures, self.options.coalescing, self.outcomes.still_wanted())
        if ranges:
            self.asked = True
            self.patience.go_on(ranges)
            with examining(self.options.examiners) as (pool, ahead):
                self._pass(self._in_order(ranges), writer, pool, ahead)

    def finish(self, writer: SegmentWriter) -> None:
        """Asks again for what did not come, and gives an outcome to everything that has none. Raises as ``fetch``."""
        if not self.carried:
            return
        with examining(self.options.examiners) as (pool, ahead):
            self._pass(self._doubts(), writer, pool, ahead)
            self._pass(self._the_rest(), writer, pool, ahead)
            for attempt in range(2, self.options.tries + 1):
                self._last_try = attempt == self.options.tries
                self._pass(self._one_by_one(), writer, pool, ahead)
        self._give_up(writer)
        self._pending, self._last_try = Pending(), False

    def _in_order(self, ranges: Sequence[PlannedRange]) -> Iterator[Ask]:
        """Every range once, but for those of files in doubt; these wait."""
        for planned in ranges:
            if self._is_over() or self.patience.files[planned.key].doubtful:
                self._pending.deferred.append(planned)
            else:
                yield Ask(planned, self.patience.tries(planned.key))

    def _doubts(self) -> Iterator[Ask]:
        """One range of each file that gave nothing good; and of its bad records, as many as may be read again."""
        files = self.patience.files
        asked: set[str] = set()
        waiting, self._pending.deferred = self._pending.deferred, []
        for planned in waiting:
            if files[planned.key].good or planned.key in asked or self._is_over():
                self._pending.deferred.append(planned)
            else:
                asked.add(planned.key)
                yield Ask(planned, 1)
        unread, self._pending.unread = self._pending.unread, []
        for planned, fault in unread:
            state = files[planned.key]
            asks = not state.good and not state.gone and planned.key not in asked and not self._is_over()
            if not asks or not self.patience.spend(planned.key):
                self._pending.unread.append((planned, fault))
                continue
            asked.add(planned.key)
            if fault.kind in BY_RECORD and len(planned.rows) > 1:
                self._pending.unread.append((planned, fault))
                yield Ask(self._alone(planned.rows[0]), 1, alone=True)
            else:
                yield Ask(planned, 1)
        again, self._pending.again = self._pending.again, []
        for row in again:
            key = self._name(row)[0]
            if not files[key].good and not self._is_over() and self.patience.spend(key):
                yield Ask(self._alone(row), 1, alone=True)
            else:
                self._pending.again.append(row)

    def _the_rest(self) -> Iterator[Ask]:
        """What waited, of files that gave something good by now; what failed of them, as often as is left."""
        patience = self.patience
        waiting, self._pending.deferred = self._pending.deferred, []
        for planned in waiting:
            state = patience.files[planned.key]
            if (state.good or state.damaged) and not self._is_over():
                yield Ask(planned, MOST_TRIES if state.good else 1)
            else:
                self._pending.deferred.append(planned)
        unread, self._pending.unread = self._pending.unread, []
        for planned, fault in unread:
            left = MOST_TRIES - fault.attempts
            if not patience.files[planned.key].good or self._is_over():
                self._pending.unread.append((planned, fault))
            elif fault.kind not in PERMANENT_KINDS and left > 0:
                yield Ask(planned, left)
            elif fault.kind is FaultKind.NOT_FOUND:
                yield Ask(planned, 1)
            else:
                self._pending.unread.append((planned, fault))

    def _one_by_one(self) -> Iterator[Ask]:
        """Records that failed in a shared range are requested alone, so that good neighbours do not fail with them."""
        unread, self._pending.unread = self._pending.unread, []
        for planned, fault in unread:
            if fault.kind in BY_RECORD and self.patience.files[planned.key].good:
                # one of them may have come alone, to find out whether the file answers
                self._pending.again.extend(row for row in planned.rows if not self.outcomes.is_good(row))
            else:
                self._pending.unread.append((planned, fault))
        rows, self._pending.again = sorted(self._pending.again, key=self._name), []
        for row in rows:
            if self.patience.files[self._name(row)[0]].good and not self._is_over():
                yield Ask(self._alone(row), 1, alone=True)
            else:
                self._pending.again.append(row)

    def _give_up(self, writer: SegmentWriter) -> None:
        """Gives an outcome to everything that has none."""
        gone = {key for key, state in self.patience.files.items() if state.gone}
        settled = gone if gone and self._source_answers() else set()
        self._gave = self._gave or bool(settled)
        for planned, fault in self._pending.unread:
            for row in planned.rows:
                self.outcomes.lose(row, fault.kind.value, fault.detail, fault.attempts, settled=planned.key in settled)
        reason, detail = self.patience.why_not_asked()
        for planned in self._pending.deferred:
            for row in planned.rows:
                if planned.key in gone:
                    told = "the file is not there: nothing else of it was asked for"
                    self.outcomes.lose(row, FaultKind.NOT_FOUND.value, told, 0, settled=planned.key in settled)
                else:
                    self.outcomes.lose(row, reason, detail, 0, settled=False)
        for row in self._pending.again:
            self._set_aside(row, writer, settled=self.patience.files[self._name(row)[0]].damaged)

    def _alone(self, row: int) -> PlannedRange:
        return PlannedRange(*self._name(row), self._columns["warc_record_length"][row], (row,))

    def _is_over(self) -> bool:
        """Whether nothing more is asked of the source in this run."""
        patience = self.patience
        if self._halt is not None and self._halt(patience.is_refused):
            patience.refused_elsewhere()
        if not patience.at_its_end:
            return False
        # a source that has other things, and says of file after file that it is not there, is believed
        if patience.only_says_no and self._source_answers():
            patience.any_good = True
        return patience.at_its_end

    def _source_answers(self) -> bool:
        """Whether the source has anything: a file of this plan, or a key that is there for certain (asked for once)."""
        if not self.patience.any_good and self._has_a_witness is None:
            try:
                self._has_a_witness = any(self._transport.exists(key) for key in self.options.witnesses)
            except RangeFault:
                self._has_a_witness = False
        return self.patience.any_good or bool(self._has_a_witness)

    def _pass(self, asks: Iterator[Ask], writer: SegmentWriter, pool: Executor, ahead: int) -> None:
        arrivals: deque[Arrival] = deque()
        requests = (
            ByteRange(ask.planned.key, ask.planned.offset, ask.planned.length, None, ask, ask.granted) for ask in asks
        )
        for outcome in self._transport.read_many(requests):
            ask = outcome.tag
            assert isinstance(ask, Ask)
            self.patience.used(ask.planned.key, ask.granted, outcome.attempts)
            if isinstance(outcome, RangeFault):
                self._failed(outcome, ask)
            elif self._is_same_object(outcome, ask):
                for row in ask.planned.rows:
                    if self.outcomes.is_good(row):
                        continue
                    arrivals.append(self._examine(row, outcome, ask.planned, pool))
                    if len(arrivals) >= ahead:
                        self._conclude(arrivals.popleft(), writer)
            while arrivals and arrivals[0].verdict.done():
                self._conclude(arrivals.popleft(), writer)
            self._told()
        while arrivals:
            self._conclude(arrivals.popleft(), writer)
        self._told()

    def _told(self) -> None:
        if self._progress is not None:
            self._progress(self._done + len(self.outcomes.of), self._wanted, self._bytes)

    def _failed(self, fault: RangeFault, ask: Ask) -> None:
        self.patience.failed(fault)
        if not ask.alone:
            self._pending.unread.append((ask.planned, fault))
            return
        [row] = ask.planned.rows
        past_the_end = fault.kind is FaultKind.RANGE_NOT_SATISFIABLE
        if past_the_end and row in self._pending.past_the_end:
            self.outcomes.lose(row, fault.kind.value, fault.detail, fault.attempts + 1, settled=True)
        elif self._last_try or not self.patience.files[fault.key].good:
            self.outcomes.lose(row, fault.kind.value, fault.detail, fault.attempts, settled=False)
        else:
            self._pending.again.append(row)
        if past_the_end:
            self._pending.past_the_end.add(row)

    def _is_same_object(self, got: RangeBytes, ask: Ask) -> bool:
        """Whether this is the object that was asked before. If not, its rows wait for another try."""
        self._bytes += len(got.data)
        if self.patience.is_same_object(got.key, got.etag):
            return True
        place, told = ask.planned, f"ETag {got.etag} is new"
        self._failed(
            range_fault(FaultKind.CHANGED_OBJECT, place.key, place.offset, place.length, told, got.attempts), ask
        )
        return False

    def _examine(self, row: int, got: RangeBytes, planned: PlannedRange, pool: Executor) -> Arrival:
        columns = self._columns
        start = columns["warc_record_offset"][row] - planned.offset
        length = columns["warc_record_length"][row]
        data = got.data if len(got.data) == length else got.data[start : start + length]
        promise = Promise(
            crawl=self._crawl,
            archive_format=columns["archive_format"][row],
            key=columns["warc_filename"][row],
            offset=columns["warc_record_offset"][row],
            length=length,
            url=columns["url"][row],
            surtkey=columns["url_surtkey"][row],
            digest=columns["content_digest"][row],
        )
        verdict = pool.submit(examine, data, promise, fail_on_digest=self.options.fail_on_digest)
        return Arrival(row, data, got.attempts + (row in self._pending.bad), verdict)

    def _conclude(self, arrival: Arrival, writer: SegmentWriter) -> None:
        row, data, verdict = arrival.row, arrival.data, arrival.verdict.result()
        key, offset = self._name(row)
        outcome = outcome_of(verdict, arrival.attempts) | {"warc_filename": key, "warc_record_offset": offset}
        if verdict.reason is not None:
            self._doubt(row, data, outcome, writer)
            return
        self.patience.good(key)
        self.fetched += 1
        self._gave = True
        self._pending.forget(row)
        if self._columns["archive_format"][row] == "arc":
            writer.add("arc", verdict.member, outcome)
        else:
            source = self._transport.store.url(key)
            writer.add("warc", wrap_member(verdict.member, verdict.content, source, offset), outcome)
        self.outcomes.of[key, offset] = outcome

    def _doubt(self, row: int, data: bytes, outcome: Row, writer: SegmentWriter) -> None:
        """The same bad bytes twice mean that the source has them; different ones were damaged on the way."""
        key = self._name(row)[0]
        state = self.patience.files[key]
        mark = hashlib.blake2b(data, digest_size=16).digest()
        before = self._pending.bad.get(row)
        if before is None:
            self.patience.bad(key)
        elif before.mark == mark:
            state.same_again += 1
        else:
            state.other_again += 1
        same = before is not None and before.mark == mark
        self._pending.forget(row)
        # what a file full of damage has need not be read twice, once that was shown for some of it
        if same or self._last_try or state.damaged:
            self._pending.bad[row] = Bad(mark, outcome, data)
            self._set_aside(row, writer, settled=same or state.damaged)
            return
        self._pending.doubt(row, Bad(mark, outcome, data), keep=not state.good)

    def _set_aside(self, row: int, writer: SegmentWriter, *, settled: bool) -> None:
        """Puts the bytes that were read of a record into quarantine; without them it is missing."""
        bad = self._pending.bad.get(row)
        if bad is None:
            self.outcomes.lose(row, *self.patience.why_not_asked(), 0, settled=False)
            return
        if bad.data is None:
            self.outcomes.lose(row, bad.outcome["reason"], bad.outcome["detail"], 1, settled=False)
            return
        bad.outcome["settled"] = settled
        self._gave = self._gave or settled
        if not settled and self.outcomes.stays_settled(row):
            return
        writer.add("raw", bad.data, bad.outcome)
        self.outcomes.of[self._name(row)] = bad.outcome
