"""Captures of a run that have no outcome yet: under way, arrived, not read, read and bad, or not asked for."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from cc_pipeline.records.check import Examined
from cc_pipeline.records.plan import PlannedRange
from cc_pipeline.records.segments import Row
from cc_pipeline.transport.faults import RangeFault

#: Bytes of bad records that are kept until it is known whether their file has anything good.
_KEPT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Ask:
    """A range to request, ``granted`` times at most. ``alone``: it is one record that was seen bad or not at all."""

    planned: PlannedRange
    granted: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """Bytes of one capture, and the verdict on them when it is there.

    ``source`` is the place that gave them; ``unknown``: a place that would have been asked before gave no answer."""

    row: int
    data: bytes
    attempts: int
    verdict: Future[Examined]
    source: str
    unknown: bool


@dataclass(slots=True)
class Bad:
    """What was read of a record that is not as promised: the verdict, and the bytes while there is room.

    ``marks`` are digests of what each place gave. A ``usable`` record is good but for its payload's digest, and is
    taken when no other place has a better one.
    """

    marks: Mapping[str, bytes]
    outcome: Row
    data: bytes | None
    usable: bool = False


def compared(before: Bad | None, arrival: Arrival, mark: bytes, places: int) -> tuple[dict[str, bytes], bool, bool]:
    """The marks with that of what arrived, whether the bytes are the same wherever they can be had, and whether one
    place gave different ones.

    The same bytes twice from one place mean that it has them so: it is asked twice only after all others were. Where
    one of these gave no answer, nobody knows yet. The same from every one of several places says so at once.
    """
    marks = {} if before is None else dict(before.marks)
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
