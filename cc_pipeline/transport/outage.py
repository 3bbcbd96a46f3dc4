"""Outages of hosts that have mirrors: all processes pass the host over, and probe it now and then with one request.

This is for a source with several places only. With a single place, the caller decides how long to retry
(``records/retry_policy.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cc_pipeline.transport.faults import FaultKind

#: Kinds that are about one object: a host that answers so is up.
ANSWERS: Final = frozenset({FaultKind.NOT_FOUND, FaultKind.RANGE_NOT_SATISFIABLE, FaultKind.CHANGED_OBJECT})
#: Kinds of a host that refuses (handled in ``circuit_breaker.py``).
_REFUSALS: Final = frozenset({FaultKind.FORBIDDEN, FaultKind.BREAKER_OPEN})
#: Kinds that mean an outage if they come one after the other.
TROUBLE: Final = frozenset(FaultKind) - ANSWERS - _REFUSALS


@dataclass(frozen=True, slots=True)
class BreakerOpen:
    """The circuit breaker is open: nothing is sent before ``until`` (seconds since the epoch). ``never_answered``: the
    host has never given anything, and it may require credentials."""

    until: float
    reason: str
    never_answered: bool = False


@dataclass(frozen=True, slots=True)
class OutagePolicy:
    """The policy for outages. A host counts as down after ``threshold`` failures without an answer between them, of at
    least so many ``objects`` (or if it is unreachable). It is passed over for ``first`` seconds, then one request
    probes it. After each failed probe the time doubles, to at most ``longest``."""

    threshold: int = 5
    objects: int = 3
    first: float = 15.0
    longest: float = 600.0

    def is_out(self, failures: int, objects: int, last: FaultKind) -> bool:
        """Whether a host is down after so many failures in a row, of so many objects: one file that always fails is no
        reason to pass over all others."""
        has_enough_objects = last is FaultKind.UNREACHABLE or objects >= min(self.objects, self.threshold)
        return failures >= self.threshold and has_enough_objects

    def stay(self, times: int) -> float:
        """Returns the seconds for which a host is passed over the ``times``-th time (from 1) in a row."""
        return float(min(self.longest, self.first * 2 ** min(times - 1, 30)))
