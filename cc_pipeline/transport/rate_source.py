"""A rate source: it gives slots for requests of several machines, instead of one machine's budget (``budget.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cc_pipeline.transport.rates import SourceLimits


class RateSourceDown(Exception):
    """A rate source does not answer. The message says why."""


class RateSource(Protocol):
    """The slots of one process at one host, shared with all processes, also of other machines, that use the same
    source. Used by one thread at a time.

    ``slots`` and ``renew`` raise ``RateSourceDown`` while the rate source does not answer: nothing is sent meanwhile.
    They raise other errors if it cannot be used. ``name`` is its name in messages. ``life`` is the number of seconds
    after which the last slots expire. ``retry_seconds`` is the number of seconds between two tries while it does not
    answer, and between two checks for a free share.
    """

    @property
    def name(self) -> str: ...

    @property
    def life(self) -> float: ...

    @property
    def retry_seconds(self) -> float: ...

    def slots(self, max_slots: int, rate: float, wait: float, lateness: float = 0.0) -> tuple[float, float, int]:
        """Reserves up to ``max_slots`` slots at ``rate`` requests per second, the first ``wait`` seconds from now or
        later. Returns the seconds until the first slot, the seconds between slots, and their number. ``lateness`` is
        the number of seconds by which this process missed, or nearly missed, slots of the previous reservation."""

    def renew(self, in_flight: int) -> int:
        """Returns the number of requests that this process may have in flight; it has ``in_flight`` now."""

    def close(self) -> None:
        """Releases this process's share."""


#: Opens the rate source of a host with limits that all its users share.
RateSourceOpener = Callable[[str, SourceLimits], RateSource]
