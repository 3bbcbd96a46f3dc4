"""Captures of a run without an outcome, and the scheduler that requests them again, in an order that learns most from
each request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

from cc_pipeline.records.check import Examined
from cc_pipeline.records.outcomes import Outcomes
from cc_pipeline.records.patience import BY_RECORD, MOST_TRIES, Patience
from cc_pipeline.records.range_plan import SHORT_RANGE, PlannedRange, in_parts
from cc_pipeline.records.segments import Row
from cc_pipeline.transport.faults import PERMANENT_KINDS, FaultKind, RangeFault

#: Bytes of bad records that are stored until it is known whether their file has a good record.
_KEPT_BYTES = 32 << 20

#: Files of a kind that are requested once before the source, and not some of its files, counts as failing.
_WITNESSES: Final = 3


@dataclass(frozen=True, slots=True)
class Ask:
    """A range to request, ``granted`` times at most. ``alone``: a single record that was bad or not seen before."""

    planned: PlannedRange
    granted: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """Bytes of one capture, and the verdict on them once it is known.

    ``source`` is the place that gave them. ``unknown``: a preferred place gave no answer. ``request`` is the number of
    the request that brought them."""

    row: int
    data: bytes
    attempts: int
    verdict: Future[Examined]
    source: str
    unknown: bool
    request: int


@dataclass(slots=True)
class Bad:
    """A record that differs from the expected one: the verdict, and its bytes while there is room.

    ``marks`` are digests of the bytes from each place, ``requests`` the numbers of the requests. A ``usable`` record is
    good except for its payload digest, and is stored if no other place has a better one.
    """

    marks: Mapping[str, bytes]
    requests: frozenset[int]
    outcome: Row
    data: bytes | None
    usable: bool = False


def compared(previous: Bad | None, arrival: Arrival, mark: bytes, places: int) -> tuple[dict[str, bytes], bool, bool]:
    """Adds the mark of the arrived bytes. Returns all marks, whether the bytes are the same wherever they are, and
    whether one place gave different ones.

    The same bytes twice from one place are the place's own: it is asked twice only after all others. If one of these
    gave no answer, it is not known yet. The same bytes from each of several places prove it at once.
    """
    marks = {} if previous is None else dict(previous.marks)
    last = marks.get(arrival.source)
    marks[arrival.source] = mark
    if last is not None:
        return marks, last == mark and not arrival.unknown, last != mark
    return marks, len(marks) == places > 1 and len(set(marks.values())) == 1, False


@dataclass(slots=True)
class Pending:
    """The captures without an outcome; rows are numbers in the current table of captures. ``deferred`` ranges were not
    requested, ``unread`` ones failed, ``again`` are single records to request, ``bad`` are the bad ones among them.
    ``past_the_end`` are records that the source placed once after the end of their file."""

    deferred: list[PlannedRange] = field(default_factory=list)
    unread: list[tuple[PlannedRange, RangeFault]] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    bad: dict[int, Bad] = field(default_factory=dict)
    past_the_end: set[int] = field(default_factory=set)
    _kept: int = 0

    def doubt(self, row: int, bad: Bad, *, keep: bool) -> None:
        """Schedules a bad record for another request; ``keep`` stores its bytes while there is room."""
        keeps = keep and bad.data is not None and self.has_room(len(bad.data))
        if keeps:
            self._kept += len(bad.data or b"")
        else:
            bad.data = None
        self.bad[row] = bad
        self.again.append(row)

    def goes_on(self, planned: PlannedRange) -> bool:
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
        return self._kept + size <= _KEPT_BYTES

    def forget(self, row: int) -> None:
        """Drops a bad record and its bytes."""
        bad = self.bad.pop(row, None)
        if bad is not None and bad.data is not None:
            self._kept -= len(bad.data)

    def renumbered(self, number: Mapping[int, int]) -> Pending:
        """Returns the same captures with new row numbers: ``number`` maps the old ones of all pending rows."""

        def moved(planned: PlannedRange) -> PlannedRange:
            return replace(planned, rows=tuple(number[row] for row in planned.rows))

        return Pending(
            [moved(planned) for planned in self.deferred],
            [(moved(planned), fault) for planned, fault in self.unread],
            [number[row] for row in self.again],
            {number[row]: bad for row, bad in self.bad.items() if row in number},
            {number[row] for row in self.past_the_end if row in number},
            self._kept,
        )


@dataclass(frozen=True, slots=True)
class Turns:
    """Schedules requests. Each method takes the ranges it requests out of ``pending``, and puts back those that have to
    wait for another method.

    ``is_over`` says whether to stop sending requests. It is called before each request, since answers arrive meanwhile.
    """

    patience: Patience
    pending: Pending
    outcomes: Outcomes
    is_over: Callable[[], bool]

    def alone(self, row: int) -> PlannedRange:
        """Returns the range of one record."""
        return PlannedRange(*self.name(row), self.outcomes.length(row), (row,))

    def name(self, row: int) -> tuple[str, int]:
        """Returns file and offset of a record."""
        return self.outcomes.name(row)

    def in_order(self, ranges: Sequence[PlannedRange]) -> Iterator[Ask]:
        """Requests every range once, except those of suspect files, which wait."""
        for planned in ranges:
            if self.is_over() or self.patience.files[planned.key].doubtful:
                self.pending.deferred.append(planned)
            else:
                yield Ask(planned, self.patience.tries(planned.key))

    def before_giving_up(self) -> Iterator[Ask]:
        """If the source seems to fail, requests one range each of a few files that gave good records, and of a few that
        were not requested. Perhaps only the files that failed one after the other fail."""
        if not self.is_over() or self.patience.is_refused_now:
            return
        files = self.patience.files
        good = [planned.key for planned, fault in self.pending.unread if fault.kind not in PERMANENT_KINDS]
        good = [key for key in (*good, *(planned.key for planned in self.pending.deferred)) if files[key].good]
        new = [planned.key for planned in self.pending.deferred if files[planned.key].unasked]
        sampled_files = {*_spread(good), *_spread(new)}
        waiting, self.pending.deferred = self.pending.deferred, []
        for planned in waiting:
            if planned.key in sampled_files:
                sampled_files.remove(planned.key)
                yield Ask(planned, 1)
            else:
                self.pending.deferred.append(planned)
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            if planned.key in sampled_files and fault.kind not in PERMANENT_KINDS:
                sampled_files.remove(planned.key)
                yield Ask(planned, 1)
            else:
                self.pending.unread.append((planned, fault))

    def doubts(self) -> Iterator[Ask]:
        """Requests one range of each file without a good record, and as many of its bad records as the policy
        allows."""
        files = self.patience.files
        requested_files: set[str] = set()
        # ranges that were not requested yet come first: failing ones could make the source look as if it failed
        waiting = sorted(self.pending.deferred, key=lambda planned: files[planned.key].doubtful)
        self.pending.deferred = []
        for planned in waiting:
            if files[planned.key].good or planned.key in requested_files or self.is_over():
                self.pending.deferred.append(planned)
            else:
                requested_files.add(planned.key)
                yield Ask(planned, 1)
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            state = files[planned.key]
            is_requestable = (
                not state.good and not state.gone and planned.key not in requested_files and not self.is_over()
            )
            if not is_requestable or not self.patience.spend(planned.key):
                self.pending.unread.append((planned, fault))
                continue
            requested_files.add(planned.key)
            if fault.kind in BY_RECORD and len(planned.rows) > 1:
                self.pending.unread.append((planned, fault))
                yield Ask(self.alone(planned.rows[0]), 1, alone=True)
            else:
                yield Ask(planned, 1)
        retry_rows, self.pending.again = self.pending.again, []
        for row in retry_rows:
            key = self.name(row)[0]
            if not files[key].good and not self.is_over() and self.patience.spend(key):
                yield Ask(self.alone(row), 1, alone=True)
            else:
                self.pending.again.append(row)

    def elsewhere(self) -> Iterator[Ask]:
        """Requests a bad record of each file without a good one, as long as the places give different bytes."""
        requested_files: set[str] = set()
        bad = self.pending.bad
        # a record that was requested from several places decides soonest
        retry_rows = sorted(self.pending.again, key=lambda row: -len(bad[row].marks) if row in bad else 0)
        self.pending.again = []
        for row in retry_rows:
            key = self.name(row)[0]
            state = self.patience.files[key]
            if state.good or state.damaged or key in requested_files or row not in bad or self.is_over():
                self.pending.again.append(row)
            else:
                requested_files.add(key)
                yield Ask(self.alone(row), 1, alone=True)

    def the_rest(self) -> Iterator[Ask]:
        """Requests the deferred and failed ranges of files that have given a good record by now, with the tries that
        remain."""
        policy = self.patience
        waiting, self.pending.deferred = self.pending.deferred, []
        for planned in waiting:
            state = policy.files[planned.key]
            if (state.good or state.damaged or state.usable) and not self.is_over():
                yield Ask(planned, MOST_TRIES if state.good else 1)
            else:
                self.pending.deferred.append(planned)
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            remaining_tries = MOST_TRIES - fault.attempts
            if not policy.files[planned.key].good or self.is_over():
                self.pending.unread.append((planned, fault))
            elif fault.kind not in PERMANENT_KINDS and remaining_tries > 0:
                yield Ask(planned, remaining_tries)
            elif fault.kind is FaultKind.NOT_FOUND:
                yield Ask(planned, 1)
            else:
                self.pending.unread.append((planned, fault))

    def in_parts(self) -> Iterator[Ask]:
        """Requests long ranges in parts if one of their records may have made them fail."""
        columns = self.outcomes.columns
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            parts = [planned]
            are_lengths_known = all(columns["warc_record_length"][row] is not None for row in planned.rows)
            if are_lengths_known and fault.kind in BY_RECORD and self.patience.files[planned.key].good:
                parts = in_parts(planned, columns["warc_record_offset"], columns["warc_record_length"], SHORT_RANGE)
            for part in parts:
                if len(parts) > 1 and not self.is_over():
                    yield Ask(part, 1)
                else:
                    self.pending.unread.append((part, fault))

    def one_by_one(self) -> Iterator[Ask]:
        """Requests records that failed in a shared range alone, so that good neighbours do not fail with them."""
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            if fault.kind in BY_RECORD and self.patience.files[planned.key].good:
                # one of them may have been fetched alone, to find out whether the file answers
                self.pending.again.extend(row for row in planned.rows if not self.outcomes.is_good(row))
            else:
                self.pending.unread.append((planned, fault))
        rows, self.pending.again = sorted(self.pending.again, key=self.name), []
        for row in rows:
            if self.patience.files[self.name(row)[0]].good and not self.is_over():
                yield Ask(self.alone(row), 1, alone=True)
            else:
                self.pending.again.append(row)


def _spread(keys: Sequence[str]) -> list[str]:
    """Returns a few of ``keys`` at even distances, including the last one: neighbours often fail together."""
    distinct = list(dict.fromkeys(keys))
    return [distinct[len(distinct) * number // _WITNESSES - 1] for number in range(1, _WITNESSES + 1)] if keys else []
