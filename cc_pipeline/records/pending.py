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
    """Bytes of one capture, and the verdict on them when it is there."""

    row: int
    data: bytes
    attempts: int
    verdict: Future[Examined]


@dataclass(slots=True)
class Bad:
    """What was read of a record that is not as promised: its digest, the verdict, and the bytes while there is room."""

    mark: bytes
    outcome: Row
    data: bytes | None


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
        keeps = keep and bad.data is not None and self._kept + len(bad.data) <= _KEPT_BYTES
        if keeps:
            self._kept += len(bad.data or b"")
        else:
            bad.data = None
        self.bad[row] = bad
        self.again.append(row)

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
