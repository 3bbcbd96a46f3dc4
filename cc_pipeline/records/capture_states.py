"""Captures of a run without an outcome, and the scheduler that requests them again, in an order that learns most from
each request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

from cc_pipeline.records.outcomes import Outcomes
from cc_pipeline.records.range_plan import SHORT_RANGE, PlannedRange, split_range
from cc_pipeline.records.retry_policy import BY_RECORD, MAX_TRIES, FetchRetryPolicy
from cc_pipeline.records.segments import Row
from cc_pipeline.records.verification import VerificationResult
from cc_pipeline.transport.faults import PERMANENT_KINDS, FaultKind, RangeFault

#: Bytes of bad records that are stored until it is known whether their file has a good record.
_KEPT_BYTES = 32 << 20

#: Files of a kind that are requested once before the source, and not some of its files, counts as failing.
_SAMPLE_FILES: Final = 3


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A range to request, ``granted_tries`` times at most. ``is_single_record``: a single record that was bad or not
    seen before."""

    planned: PlannedRange
    granted_tries: int
    is_single_record: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """Bytes of one capture, and the verdict on them once it is known.

    ``source`` is the place that gave them. ``is_inconclusive``: a preferred place gave no answer. ``request`` is the
    number of the request that brought them."""

    row: int
    data: bytes
    attempts: int
    verdict: Future[VerificationResult]
    source: str
    is_inconclusive: bool
    request: int


@dataclass(slots=True)
class BadRecord:
    """A record that differs from the expected one: the verdict, and its bytes while there is room.

    ``marks`` are digests of the bytes from each place, ``requests`` the numbers of the requests. A ``usable`` record is
    good except for its payload digest, and is stored if no other place has a better one.
    """

    marks: Mapping[str, bytes]
    requests: frozenset[int]
    outcome: Row
    data: bytes | None
    usable: bool = False


def compare_marks(
    previous: BadRecord | None, arrival: Arrival, mark: bytes, places: int
) -> tuple[dict[str, bytes], bool, bool]:
    """Adds the mark of the arrived bytes. Returns all marks, whether the bytes are the same wherever they are, and
    whether one place gave different ones.

    The same bytes twice from one place are the place's own: it is asked twice only after all others. If one of these
    gave no answer, it is not known yet. The same bytes from each of several places prove it at once.
    """
    marks = {} if previous is None else dict(previous.marks)
    last = marks.get(arrival.source)
    marks[arrival.source] = mark
    if last is not None:
        return marks, last == mark and not arrival.is_inconclusive, last != mark
    return marks, len(marks) == places > 1 and len(set(marks.values())) == 1, False


@dataclass(slots=True)
class Pending:
    """The captures without an outcome; rows are numbers in the table of captures. ``deferred`` ranges were not
    requested, ``unread`` ones failed, ``retry_rows`` are single records to request, ``bad`` are the bad ones among
    them. ``past_the_end`` are records that the source placed once after the end of their file."""

    deferred: list[PlannedRange] = field(default_factory=list)
    unread: list[tuple[PlannedRange, RangeFault]] = field(default_factory=list)
    retry_rows: list[int] = field(default_factory=list)
    bad: dict[int, BadRecord] = field(default_factory=dict)
    past_the_end: set[int] = field(default_factory=set)
    _stored_bytes: int = 0

    def add_bad_record(self, row: int, bad: BadRecord, *, keep: bool) -> None:
        """Schedules a bad record for another request; ``keep`` stores its bytes while there is room."""
        keeps = keep and bad.data is not None and self.has_room(len(bad.data))
        if keeps:
            self._stored_bytes += len(bad.data or b"")
        else:
            bad.data = None
        self.bad[row] = bad
        self.retry_rows.append(row)

    def extend_unread(self, planned: PlannedRange) -> bool:
        """Joins ``planned`` to the unread range that ends where it starts: they were one answer. Returns whether there
        is one."""
        for number, (unread_range, fault) in enumerate(self.unread):
            if unread_range.key == planned.key and unread_range.offset + unread_range.length == planned.offset:
                joined_length = unread_range.length + planned.length
                self.unread[number] = (
                    replace(unread_range, length=joined_length, rows=unread_range.rows + planned.rows),
                    fault,
                )
                return True
        return False

    def has_room(self, size: int) -> bool:
        """Whether so many more bytes of bad records can be stored."""
        return self._stored_bytes + size <= _KEPT_BYTES

    def forget(self, row: int) -> None:
        """Drops a bad record and its bytes."""
        bad = self.bad.pop(row, None)
        if bad is not None and bad.data is not None:
            self._stored_bytes -= len(bad.data)


@dataclass(frozen=True, slots=True)
class RetryScheduler:
    """Schedules requests. Each method takes the ranges it requests out of ``pending``, and puts back those that have to
    wait for another method.

    ``is_finished`` says whether to stop sending requests. It is called before each request, since answers arrive
    meanwhile."""

    retry_policy: FetchRetryPolicy
    pending: Pending
    outcomes: Outcomes
    is_finished: Callable[[], bool]

    def single_record_range(self, row: int) -> PlannedRange:
        """Returns the range of one record."""
        return PlannedRange(*self.name(row), self.outcomes.length(row), (row,))

    def name(self, row: int) -> tuple[str, int]:
        """Returns file and offset of a record."""
        return self.outcomes.name(row)

    def request_in_order(self, ranges: Sequence[PlannedRange]) -> Iterator[RangeRequest]:
        """Requests every range once, except those of suspect files, which wait."""
        for planned in ranges:
            if self.is_finished() or self.retry_policy.files[planned.key].is_suspect:
                self.pending.deferred.append(planned)
            else:
                yield RangeRequest(planned, self.retry_policy.tries(planned.key))

    def request_samples(self) -> Iterator[RangeRequest]:
        """If the source seems to fail, requests one range each of a few files that gave good records, and of a few that
        were not requested. Perhaps only the files that failed one after the other fail."""
        if not self.is_finished() or self.retry_policy.is_refused_now:
            return
        files = self.retry_policy.files
        good = [planned.key for planned, fault in self.pending.unread if fault.kind not in PERMANENT_KINDS]
        good = [key for key in (*good, *(planned.key for planned in self.pending.deferred)) if files[key].good]
        new = [planned.key for planned in self.pending.deferred if files[planned.key].is_unrequested]
        sampled_files = {*_spread(good), *_spread(new)}
        waiting, self.pending.deferred = self.pending.deferred, []
        for planned in waiting:
            if planned.key in sampled_files:
                sampled_files.remove(planned.key)
                yield RangeRequest(planned, 1)
            else:
                self.pending.deferred.append(planned)
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            if planned.key in sampled_files and fault.kind not in PERMANENT_KINDS:
                sampled_files.remove(planned.key)
                yield RangeRequest(planned, 1)
            else:
                self.pending.unread.append((planned, fault))

    def request_suspect_files(self) -> Iterator[RangeRequest]:
        """Requests one range of each file without a good record, and as many of its bad records as the policy
        allows."""
        files = self.retry_policy.files
        requested_files: set[str] = set()
        # ranges that were not requested yet come first: failing ones could make the source look as if it failed
        waiting = sorted(self.pending.deferred, key=lambda planned: files[planned.key].is_suspect)
        self.pending.deferred = []
        for planned in waiting:
            if files[planned.key].good or planned.key in requested_files or self.is_finished():
                self.pending.deferred.append(planned)
            else:
                requested_files.add(planned.key)
                yield RangeRequest(planned, 1)
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            state = files[planned.key]
            is_requestable = (
                not state.good
                and not state.is_missing
                and planned.key not in requested_files
                and not self.is_finished()
            )
            if not is_requestable or not self.retry_policy.spend(planned.key):
                self.pending.unread.append((planned, fault))
                continue
            requested_files.add(planned.key)
            if fault.kind in BY_RECORD and len(planned.rows) > 1:
                self.pending.unread.append((planned, fault))
                yield RangeRequest(self.single_record_range(planned.rows[0]), 1, is_single_record=True)
            else:
                yield RangeRequest(planned, 1)
        retry_rows, self.pending.retry_rows = self.pending.retry_rows, []
        for row in retry_rows:
            key = self.name(row)[0]
            if not files[key].good and not self.is_finished() and self.retry_policy.spend(key):
                yield RangeRequest(self.single_record_range(row), 1, is_single_record=True)
            else:
                self.pending.retry_rows.append(row)

    def request_other_mirrors(self) -> Iterator[RangeRequest]:
        """Requests a bad record of each file without a good one, as long as the places give different bytes."""
        requested_files: set[str] = set()
        bad = self.pending.bad
        # a record that was requested from several places decides soonest
        retry_rows = sorted(self.pending.retry_rows, key=lambda row: -len(bad[row].marks) if row in bad else 0)
        self.pending.retry_rows = []
        for row in retry_rows:
            key = self.name(row)[0]
            state = self.retry_policy.files[key]
            if state.good or state.damaged or key in requested_files or row not in bad or self.is_finished():
                self.pending.retry_rows.append(row)
            else:
                requested_files.add(key)
                yield RangeRequest(self.single_record_range(row), 1, is_single_record=True)

    def request_remainder(self) -> Iterator[RangeRequest]:
        """Requests the deferred and failed ranges of files that have given a good record by now, with the tries that
        remain."""
        policy = self.retry_policy
        waiting, self.pending.deferred = self.pending.deferred, []
        for planned in waiting:
            state = policy.files[planned.key]
            if (state.good or state.damaged or state.usable) and not self.is_finished():
                yield RangeRequest(planned, MAX_TRIES if state.good else 1)
            else:
                self.pending.deferred.append(planned)
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            remaining_tries = MAX_TRIES - fault.attempts
            if not policy.files[planned.key].good or self.is_finished():
                self.pending.unread.append((planned, fault))
            elif fault.kind not in PERMANENT_KINDS and remaining_tries > 0:
                yield RangeRequest(planned, remaining_tries)
            elif fault.kind is FaultKind.NOT_FOUND:
                yield RangeRequest(planned, 1)
            else:
                self.pending.unread.append((planned, fault))

    def request_parts(self) -> Iterator[RangeRequest]:
        """Requests long ranges in parts if one of their records may have made them fail."""
        columns = self.outcomes.columns
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            parts = [planned]
            are_lengths_known = all(columns["warc_record_length"][row] is not None for row in planned.rows)
            if are_lengths_known and fault.kind in BY_RECORD and self.retry_policy.files[planned.key].good:
                parts = split_range(planned, columns["warc_record_offset"], columns["warc_record_length"], SHORT_RANGE)
            for part in parts:
                if len(parts) > 1 and not self.is_finished():
                    yield RangeRequest(part, 1)
                else:
                    self.pending.unread.append((part, fault))

    def request_single_records(self) -> Iterator[RangeRequest]:
        """Requests records that failed in a shared range alone, so that good neighbours do not fail with them."""
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            if fault.kind in BY_RECORD and self.retry_policy.files[planned.key].good:
                # one of them may have been fetched alone, to find out whether the file answers
                self.pending.retry_rows.extend(row for row in planned.rows if not self.outcomes.is_good(row))
            else:
                self.pending.unread.append((planned, fault))
        rows, self.pending.retry_rows = sorted(self.pending.retry_rows, key=self.name), []
        for row in rows:
            if self.retry_policy.files[self.name(row)[0]].good and not self.is_finished():
                yield RangeRequest(self.single_record_range(row), 1, is_single_record=True)
            else:
                self.pending.retry_rows.append(row)


def _spread(keys: Sequence[str]) -> list[str]:
    """Returns a few of ``keys`` at even distances, including the last one: neighbours often fail together."""
    distinct = list(dict.fromkeys(keys))
    return (
        [distinct[len(distinct) * number // _SAMPLE_FILES - 1] for number in range(1, _SAMPLE_FILES + 1)]
        if keys
        else []
    )
