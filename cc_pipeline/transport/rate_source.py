"""Who says when the next request may go, where it is not the request budget of one machine (``budget.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cc_pipeline.transport.rates import SourceLimits


class RateSourceAway(Exception):
    """A rate source does not answer. The message says why."""


class RateSource(Protocol):
    """The turns of one process at one host, among all processes, also of other machines, that ask the same source.
    Used by one thread at a time.

    ``slots`` and ``renew`` raise ``RateSourceAway`` while it does not answer: nothing is sent meanwhile. They raise
    what says so where it cannot be used. ``name`` is what it is called in messages. ``life`` is the seconds after which
    the slots that were given last are void. ``look_again`` is the seconds between two looks whether there is room, of
    a process that has none, and between two tries while it does not answer.
    """

    @property
    def name(self) -> str: ...

    @property
    def life(self) -> float: ...

    @property
    def look_again(self) -> float: ...

    def slots(self, max_slots: int, rate: float, wait: float, lateness: float = 0.0) -> tuple[float, float, int]:
        """Reserves up to ``max_slots`` slots at ``rate`` requests per second, the first ``wait`` seconds from now or
        later. Returns the seconds until the first slot, the seconds between slots, and their number. ``lateness`` is
        the number of seconds by which this process missed, or nearly missed, slots of the previous reservation."""

    def renew(self, in_flight: int) -> int:
        """How many requests this process may have under way, of which ``in_flight`` are."""

    def close(self) -> None:
        """Gives back what this process has."""


#: Opens the rate source of a host with limits that all who use it share.
RateSourceOpener = Callable[[str, SourceLimits], RateSource]
