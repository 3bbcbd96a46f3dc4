"""Hosts that give nothing while others can: left alone by all processes, and asked now and then by one request.

This is for a source with several places only. With one place there is nobody else to ask, and how long it is worth
asking is decided by whoever asks (``records/patience.py``).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from cc_pipeline.transport.faults import FaultKind

#: Kinds that are about one object, or settle it: whoever says so is well.
ANSWERS: Final = frozenset({FaultKind.NOT_FOUND, FaultKind.RANGE_NOT_SATISFIABLE, FaultKind.CHANGED_OBJECT})
#: Kinds of a host that refuses, which is another matter (``refusals.py``).
_REFUSALS: Final = frozenset({FaultKind.FORBIDDEN, FaultKind.BREAKER_OPEN})
#: Kinds that say that a host is not well, when they come one after the other.
TROUBLE: Final = frozenset(FaultKind) - ANSWERS - _REFUSALS

OUTAGES_TABLE: Final = """
create table if not exists outages (
  host text primary key, since real not null, times integer not null, until real not null, why text not null
) without rowid;
"""


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing is sent until ``until`` (seconds since the epoch). ``never``: the host refuses, and nothing ever came
    from it."""

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
        enough = last is FaultKind.UNREACHABLE or objects >= min(self.objects, self.threshold)
        return failures >= self.threshold and enough

    def stay(self, times: int) -> float:
        """Seconds for which a host is left alone the ``times``-th time (from 1) in a row."""
        return float(min(self.longest, self.first * 2 ** min(times - 1, 30)))


class Outages:
    """One host's outages in a budget's file. Used inside the budget's transactions."""

    def __init__(self, db: sqlite3.Connection, host: str, policy: OutagePolicy) -> None:
        self.policy = policy
        self._db = db
        self._host = host

    def admits(self, now: float) -> Closed | bool:
        """``True`` where the host is not out. Where it is, ``False`` for the one whose request finds out whether it is
        back, and ``Closed`` for all others meanwhile."""
        row = self._db.execute("select times, until, why from outages where host = ?", (self._host,)).fetchone()
        if row is None:
            return True
        times, until, why = row
        # a time further ahead than it can be was written before the clock was set back
        if now < until <= now + self.policy.longest:
            return Closed(until, why)
        again = now + self.policy.stay(times + 1)
        self._db.execute("update outages set times = times + 1, until = ? where host = ?", (again, self._host))
        return False

    def begin(self, now: float, why: str, wait: float | None) -> Closed:
        """The host is out from now on, for ``wait`` seconds at least; one that was out before stays so."""
        self._db.execute(
            "insert into outages values (?, ?, 1, ?, ?) on conflict (host) do update set why = excluded.why",
            (self._host, now, now + max(self.policy.first, min(wait or 0.0, self.policy.longest)), why[:300]),
        )
        (until,) = self._db.execute("select until from outages where host = ?", (self._host,)).fetchone()
        return Closed(until, why)

    def end(self) -> None:
        """The host answers."""
        self._db.execute("delete from outages where host = ?", (self._host,))
