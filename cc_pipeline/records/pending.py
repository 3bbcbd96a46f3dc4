"""What did not come is asked for again, in an order that learns most from each request: captures of a run without an
outcome, and whose turn it is."""

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

#: Bytes of bad records that are kept until it is known whether their file has anything good.
_KEPT_BYTES = 32 << 20

#: Files of a kind that are asked for once before it is believed that the source fails, and not some of its files.
_WITNESSES: Final = 3


@dataclass(frozen=True, slots=True)
class Ask:
    """A range to request, ``granted`` times at most. ``alone``: it is one record that was seen bad or not at all."""

    planned: PlannedRange
    granted: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """Bytes of one capture, and the verdict on them when it is there.

    ``source`` is the place that gave them; ``unknown``: a place that would have been asked before gave no answer.
    ``request`` is the number of the request that they came of."""

    row: int
    data: bytes
    attempts: int
    verdict: Future[Examined]
    source: str
    unknown: bool
    request: int


@dataclass(slots=True)
class Bad:
    """What was read of a record that is not as promised: the verdict, and the bytes while there is room.

    ``marks`` are digests of what each place gave, in ``requests`` with these numbers. A ``usable`` record is good but
    for its payload's digest, and is taken when no other place has a better one.
    """

    marks: Mapping[str, bytes]
    requests: frozenset[int]
    outcome: Row
    data: bytes | None
    usable: bool = False


def compared(previous: Bad | None, arrival: Arrival, mark: bytes, places: int) -> tuple[dict[str, bytes], bool, bool]:
    """The marks with that of what arrived, whether the bytes are the same wherever they can be had, and whether one
    place gave different ones.

    The same bytes twice from one place mean that it has them so: it is asked twice only after all others were. Where
    one of these gave no answer, nobody knows yet. The same from every one of several places says so at once.
    """
    marks = {} if previous is None else dict(previous.marks)
    last = marks.get(arrival.source)
    marks[arrival.source] = mark
    if last is not None:
        return marks, last == mark and not arrival.unknown, last != mark
    return marks, len(marks) == places > 1 and len(set(marks.values())) == 1, False


@dataclass(slots=True)
class Pending:
    """Rows are numbers in the table of captures at hand. ``deferred`` ranges were not asked for, ``unread`` ones
    failed, ``again`` are single records to ask for, ``bad`` is what is known of some of them. ``past_the_end`` are
    those that the source said once to lie behind their file's end."""

    deferred: list[PlannedRange] = field(default_factory=list)
    unread: list[tuple[PlannedRange, RangeFault]] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    bad: dict[int, Bad] = field(default_factory=dict)
    past_the_end: set[int] = field(default_factory=set)
    _kept: int = 0

    def doubt(self, row: int, bad: Bad, *, keep: bool) -> None:
        """Has a bad record asked for again; ``keep`` its bytes, while there is room."""
        keeps = keep and bad.data is not None and self.has_room(len(bad.data))
        if keeps:
            self._kept += len(bad.data or b"")
        else:
            bad.data = None
        self.bad[row] = bad
        self.again.append(row)

    def goes_on(self, planned: PlannedRange) -> bool:
        """Joins ``planned`` to the unread range that it goes on, if there is one: they were one answer."""
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
        """Whether so many more bytes of bad records can be kept."""
        return self._kept + size <= _KEPT_BYTES

    def forget(self, row: int) -> None:
        """Lets go what is known of a bad record."""
        bad = self.bad.pop(row, None)
        if bad is not None and bad.data is not None:
            self._kept -= len(bad.data)

    def renumbered(self, number: Mapping[int, int]) -> Pending:
        """The same where rows have other numbers; none but those in ``number`` are pending."""

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
    """Each method takes out of ``pending`` what it asks for, and puts back what has to wait for another part.

    ``is_over`` says whether nothing more is asked of the source; it is looked at before each request, as answers come
    meanwhile.
    """

    patience: Patience
    pending: Pending
    outcomes: Outcomes
    is_over: Callable[[], bool]

    def alone(self, row: int) -> PlannedRange:
        """The range of one record."""
        return PlannedRange(*self.name(row), self.outcomes.length(row), (row,))

    def name(self, row: int) -> tuple[str, int]:
        """File and offset of a record."""
        return self.outcomes.name(row)

    def in_order(self, ranges: Sequence[PlannedRange]) -> Iterator[Ask]:
        """Every range once, but for those of files in doubt; these wait."""
        for planned in ranges:
            if self.is_over() or self.patience.files[planned.key].doubtful:
                self.pending.deferred.append(planned)
            else:
                yield Ask(planned, self.patience.tries(planned.key))

    def before_giving_up(self) -> Iterator[Ask]:
        """Where the source seems to fail: one range each of a few files that gave something good, and of a few that
        were not asked. Those that failed one after the other may be all that does."""
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
        """One range of each file that gave nothing good; and of its bad records, as many as may be read again."""
        files = self.patience.files
        requested_files: set[str] = set()
        # those that were not asked yet come before those that failed, which may have the source look as if it failed
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
        """A bad record of each file that gave nothing good, as long as places differ in what they have of it."""
        requested_files: set[str] = set()
        bad = self.pending.bad
        # one that several places were asked for tells soonest
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
        """What waited, of files that gave something good by now; what failed of them, as often as is left."""
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
        """Long ranges that one of their records may have failed are requested in parts, not record by record."""
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
        """Records that failed in a shared range are requested alone, so that good neighbours do not fail with them."""
        unread, self.pending.unread = self.pending.unread, []
        for planned, fault in unread:
            if fault.kind in BY_RECORD and self.patience.files[planned.key].good:
                # one of them may have come alone, to find out whether the file answers
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
    """A few of ``keys``, the last one among them: neighbours often share their fate."""
    distinct = list(dict.fromkeys(keys))
    return [distinct[len(distinct) * number // _WITNESSES - 1] for number in range(1, _WITNESSES + 1)] if keys else []
