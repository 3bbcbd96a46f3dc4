"""A host that refuses costs time, and not the run: all processes wait, and now and then one request asks whether it is
over.

Common Crawl's front answers 403 as a passing throttle, for seconds or minutes, as well as for good. So nothing is
counted but time: the first refusal stops all that waits to be sent; who waits is let through alone when a probe is due,
and its good answer lets all others go on.

Belongs here: when a probe is due, and how long somebody waits. Not here: waiting (``gate.py``), and the rate
(``rates.py``).
"""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.transport.faults import LONGEST_WAIT
from cc_pipeline.transport.outage import Closed

#: Seconds from a refusal to each probe; after the last, as long again each time.
PROBES: Final = (5.0, 15.0, 60.0)
#: Seconds that a request waits for a host that refuses, unless somebody says otherwise: the probe at two minutes is
#: among them.
WAIT: Final = 130.0
#: The same for what schedules start, which come back by themselves.
WAIT_UNATTENDED: Final = 30.0
#: The same for a command at a terminal: until the person stops it. No run takes longer than these seconds.
WAIT_ATTENDED: Final = 7 * 86_400.0
#: Seconds of a ``Retry-After`` that are waited out unless somebody waits for ever.
LONGEST_PAUSE: Final = 300.0
#: Seconds of a pause that are not worth telling.
SHORT_PAUSE: Final = 2.0
#: Seconds. A stored time that lies this much further ahead than it can was written before the clock was set back.
CLOCK_JUMP: Final = 60.0

REFUSALS_TABLE: Final = """
create table if not exists refusals (
  host text primary key, since real not null, until real not null, probes integer not null, ended real not null,
  why text not null
) without rowid;
create table if not exists samples (
  host text primary key, key text not null, at real not null
) without rowid;
"""


@dataclass(frozen=True, slots=True)
class RefusalPolicy:
    """``probes`` are seconds from a refusal to each request that finds out whether it is over; after the last one they
    come as far apart as it was from the refusal. Without any, a refusal is a matter of the object alone. ``wait`` is
    how many seconds a request waits (0: not at all; ``math.inf``: for ever, and for any ``Retry-After``)."""

    probes: tuple[float, ...] = field(default_factory=lambda: PROBES)
    wait: float = field(default_factory=lambda: WAIT)

    @property
    def soon(self) -> float:
        """Seconds until the first probe, at most the usual ones."""
        return min(self.probes[0], 5.0) if self.probes else 0.0

    def gap(self, probes: int) -> float:
        """Seconds from a probe (or the refusal) to the next, when ``probes`` were sent. Below zero: at once."""
        if probes < 0:
            return 0.0
        if probes >= len(self.probes):
            return self.probes[-1]
        return self.probes[probes] - (self.probes[probes - 1] if probes else 0.0)

    def gives_up(self, waited: float, left: float) -> bool:
        """Whether somebody who ``waited`` does not wait for what is ``left``, in seconds."""
        return self.wait < math.inf and (left > LONGEST_PAUSE or waited + left > self.wait)

    def waits_for_probes(self, waited: float, left: float) -> bool:
        """Whether somebody who would give up waits for the probe that is under way: the next comes when ``left`` is
        over."""
        return self.wait > 0 and 0 < waited <= self.wait + self.soon and left <= self.probes[-1]


class Refusals:
    """One host's refusals in a budget's file. Used inside the budget's transactions."""

    def __init__(self, db: sqlite3.Connection, host: str, policy: RefusalPolicy) -> None:
        self.policy = policy
        self._db = db
        self._host = host

    def admits(self, now: float) -> Closed | bool:
        """``True`` where the host does not refuse. Where it does, ``False`` for the one whose request finds out whether
        that is over, and ``Closed`` for all others meanwhile."""
        since, until, probes, ended, why = self._row()
        if since <= ended:
            return True
        if now + CLOCK_JUMP < since:
            # the clock was set back: a probe is due, and answers count from now on
            self._db.execute(
                "update refusals set since = ?, ended = min(ended, ?) where host = ?", (now, now - 1e-6, self._host)
            )
        elif now < until <= now + LONGEST_WAIT + CLOCK_JUMP:
            return Closed(until, why, never=not self.sample())
        again = now + self.policy.gap(probes + 1)
        self._db.execute("update refusals set probes = ?, until = ? where host = ?", (probes + 1, again, self._host))
        return False

    def begin(self, now: float, why: str, retry_after: float | None, sent: float, *, at_once: bool) -> bool:
        """A request sent at ``sent`` was refused; whether all are to be slower for it. Those that were under way at the
        first refusal, or before the last good answer, are no news. ``at_once``: the first probe need not wait, and only
        when it is refused too all are to be slower."""
        since, until, probes, ended, _ = self._row()
        if sent <= ended <= now:
            return False
        later = now + (retry_after or 0.0)
        if since > ended:
            self._db.execute(
                "update refusals set until = ?, why = ? where host = ?", (max(until, later), why[:300], self._host)
            )
            return probes == 0 and sent > since
        probes = -1 if at_once else 0
        self._db.execute(
            "insert or replace into refusals values (?, ?, ?, ?, ?, ?)",
            (self._host, now, max(now + self.policy.gap(probes), later), probes, min(ended, now - 1e-6), why[:300]),
        )
        return not at_once

    def end(self, sent: float) -> None:
        """The host gave a good answer to a request sent at ``sent``, after the refusal."""
        self._db.execute("update refusals set ended = max(?, since) where host = ?", (sent, self._host))

    def sample(self, since: float = 0.0) -> str:
        """The key of an object that came from the host, and was noted after ``since``; empty where none did."""
        found = self._db.execute("select key from samples where host = ? and at >= ?", (self._host, since)).fetchone()
        return "" if found is None else str(found[0])

    def came(self, key: str, now: float) -> None:
        """An object came."""
        self._db.execute("insert or replace into samples values (?, ?, ?)", (self._host, key, now))

    def _row(self) -> tuple[float, float, int, float, str]:
        row: tuple[float, float, int, float, str] | None = self._db.execute(
            "select since, until, probes, ended, why from refusals where host = ?", (self._host,)
        ).fetchone()
        return row or (0.0, 0.0, 0, 0.0, "")
