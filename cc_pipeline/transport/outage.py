"""Hosts that give nothing while others can: left alone by all processes, and asked now and then by one request.

This is for a source with several places only. With one place there is nobody else to ask, and how long it is worth
asking is decided by whoever asks (``records/patience.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cc_pipeline.transport.faults import FaultKind

#: Kinds that are about one object, or settle it: whoever says so is well.
ANSWERS: Final = frozenset({FaultKind.NOT_FOUND, FaultKind.RANGE_NOT_SATISFIABLE, FaultKind.CHANGED_OBJECT})
#: Kinds of a host that refuses, which is another matter (``refusals.py``).
_REFUSALS: Final = frozenset({FaultKind.FORBIDDEN, FaultKind.BREAKER_OPEN})
#: Kinds that say that a host is not well, when they come one after the other.
TROUBLE: Final = frozenset(FaultKind) - ANSWERS - _REFUSALS


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing is sent until ``until`` (seconds since the epoch). ``never``: the host refuses, nothing ever
    came from it, and it may want credentials."""

    until: float
    why: str
    never: bool = False


@dataclass(frozen=True, slots=True)
class OutagePolicy:
    """``threshold`` failures without an answer between them, of at least so many ``objects`` (or none that can be
    connected to), and a host is out: for ``first`` seconds, then one request asks whether it is back; if not, for twice
    as long, at most ``longest``."""

    threshold: int = 5
    objects: int = 3
    first: float = 15.0
    longest: float = 600.0

    def is_out(self, failures: int, objects: int, last: FaultKind) -> bool:
        """Whether so many failures in a row, of so many objects, say that a host is out: one file that always fails is
        no reason to leave alone all others."""
        has_enough_objects = last is FaultKind.UNREACHABLE or objects >= min(self.objects, self.threshold)
        return failures >= self.threshold and has_enough_objects

    def stay(self, times: int) -> float:
        """Seconds for which a host is left alone the ``times``-th time (from 1) in a row."""
        return float(min(self.longest, self.first * 2 ** min(times - 1, 30)))
