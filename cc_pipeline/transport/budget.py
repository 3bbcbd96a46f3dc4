"""One request budget per machine: a small SQLite file from which every process leases its next requests.

A lease is a run of evenly spaced moments ("slots"), each good for one request at its moment and void when missed,
so that no delay of a process can make up for lost time with a burst. Places asking for less (429, 503) slow down
everybody; refusals (403) without a success between them open a circuit breaker, also for everybody.
"""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cc_pipeline.transport.faults import LONGEST_WAIT
from cc_pipeline.transport.limits import SourceLimits

#: Seconds by which a request may reach the place later than its slot. Slots are spaced so that even then no
#: window of one second sees more than 1.05 times the rate.
JITTER = 0.1
#: A slot is void when this many seconds have passed.
SLOT_LIFE = 0.025
#: A lease reaches at most this many seconds ahead.
_LEASE_SECONDS = 0.05
#: Seconds to wait for other processes that have the file.
_PATIENCE = 30.0
#: Seconds after which a holder that says nothing is gone.
_HOLDER_LIFE = 10.0
#: Seconds in which a slowed-down rate comes back in full.
RECOVERY = 120.0
_SLOWEST_FACTOR = 1 / 64
#: A moment further ahead than there is a reason for, by this much, was written by a clock set back since.
_CLOCK_JUMP = 60.0

_TABLES = """
create table if not exists hosts (
  host text primary key, rate real, concurrency integer,
  next_slot real not null default 0, pause_until real not null default 0,
  factor real not null default 1, factor_at real not null default 0,
  forbidden integer not null default 0, opens integer not null default 0,
  opened_at real not null default 0, open_until real not null default 0,
  slowed_at real not null default 0, last_refusal text, last_refusal_at real not null default 0
) without rowid;
create table if not exists holders (
  host text, holder text, pid integer, granted integer, expires real, primary key (host, holder)
) without rowid;
"""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """``threshold`` refusals without a success open the breaker for ``first`` seconds, then twice as long each
    time it opens again, at most ``longest``."""

    threshold: int = 5
    first: float = 300.0
    longest: float = 7200.0


@dataclass(frozen=True, slots=True)
class Lease:
    """``count`` slots from ``start`` (seconds since the epoch), ``spacing`` seconds apart."""

    start: float
    spacing: float
    count: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The breaker is open until ``until`` (seconds since the epoch)."""

    until: float
    why: str


def slot_spacing(rate: float) -> float:
    """Seconds between slots such that no second sees more than 1.05 times ``rate``, jitter included."""
    most = max(1, int(rate * 1.05))
    # the millionth is for what floating point loses where a slot is late by exactly the jitter
    return max(1 / rate, (1 + JITTER + 1e-6) / most)


def recovered(factor: float, seconds: float) -> float:
    """What a slowed-down ``factor`` of the rate has become; a clock set back since leaves it as it was."""
    return min(1.0, factor + max(0.0, seconds) / RECOVERY)


def _write_ahead(db: sqlite3.Connection) -> None:
    """Sets the journal mode; SQLite does not wait for others here, whatever the connection's timeout is."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            db.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


class Budget:
    """The budget of one host as this process sees it. Used by one thread at a time."""

    def __init__(
        self, path: Path | None, host: str, limits: SourceLimits, breaker: BreakerPolicy | None = None
    ) -> None:
        self.host = host
        self.limits = limits
        self._breaker = breaker or BreakerPolicy()
        self._holder = uuid.uuid4().hex
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(
            path if path is not None else ":memory:", timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        # the file says what may be sent in the next moments; losing it in a power cut loses nothing
        _write_ahead(self._db)
        self._db.execute("pragma synchronous = off")
        with self._exclusive():
            for statement in _TABLES.split(";"):
                self._db.execute(statement)
            self._db.execute(
                "insert into hosts (host, rate, concurrency) values (?, ?, ?) on conflict (host) do update "
                "set rate = excluded.rate, concurrency = excluded.concurrency",
                (host, limits.rate, limits.concurrency),
            )

    def close(self) -> None:
        """Gives back what this process holds."""
        self._db.execute("delete from holders where holder = ?", (self._holder,))
        self._db.close()

    def lease(self, wanted: int) -> Lease | Closed:
        """Slots for up to ``wanted`` requests, at least one; ``Closed`` while the breaker is open."""
        now = time.time()
        with self._exclusive():
            row = self._row("next_slot, pause_until, factor, factor_at, forbidden, open_until, last_refusal")
            next_slot, pause_until, factor, factor_at, forbidden, open_until, refusal = row
            if now < open_until <= now + max(self._breaker.longest, LONGEST_WAIT) + _CLOCK_JUMP:
                return Closed(open_until, refusal or "refused")
            if pause_until > now + LONGEST_WAIT + _CLOCK_JUMP:
                pause_until = now
            if self.limits.rate is None:
                return Lease(max(now, pause_until), 0.0, wanted)
            if next_slot > max(now, pause_until) + _CLOCK_JUMP:
                next_slot = now
            rate = self.limits.rate * recovered(factor, now - factor_at)
            spacing = slot_spacing(rate)
            # after a refusal, one request at a time finds out whether it is over
            count = 1 if forbidden else max(1, min(wanted, int(rate * _LEASE_SECONDS)))
            start = max(now, next_slot, pause_until)
            self._db.execute(
                "update hosts set next_slot = ?, factor_at = min(factor_at, ?) where host = ?",
                (start + count * spacing, now, self.host),
            )
        return Lease(start, spacing, count)

    def renew(self, in_flight: int) -> int:
        """How many requests this process may have under way: an even share of the machine's; keeps its claim alive.

        The sum of all processes' grants never exceeds the limit: a share shrinks as soon as its holder hears of
        another process, and grows only by what others have given back. Of more processes than the limit allows
        requests, some wait until another one is done.
        """
        now = time.time()
        with self._exclusive():
            self._db.execute("delete from holders where expires < ? or expires > ?", (now, now + _CLOCK_JUMP))
            count, granted = self._db.execute(
                "select count(*), coalesce(sum(granted), 0) from holders where host = ? and holder <> ?",
                (self.host, self._holder),
            ).fetchone()
            limit = self.limits.concurrency
            share = max(0, min(max(1, limit // (int(count) + 1)), limit - int(granted)))
            self._db.execute(
                "insert into holders values (?, ?, ?, ?, ?) on conflict (host, holder) do update "
                "set granted = excluded.granted, expires = excluded.expires",
                (self.host, self._holder, os.getpid(), max(share, in_flight), now + _HOLDER_LIFE),
            )
        return share

    def slow_down(self, refusal: str, retry_after: float | None) -> None:
        """The place asked for less: everybody waits, then goes on at half the rate (halved once a second)."""
        now = time.time()
        with self._exclusive():
            factor, factor_at, slowed_at, pause_until = self._row("factor, factor_at, slowed_at, pause_until")
            current = recovered(factor, now - factor_at)
            if not 0 <= now - slowed_at <= 1:
                current = max(_SLOWEST_FACTOR, current / 2)
                slowed_at = now
            if pause_until > now + LONGEST_WAIT + _CLOCK_JUMP:
                pause_until = now
            pause = max(pause_until, now + (1.0 if retry_after is None else retry_after))
            self._db.execute(
                "update hosts set factor = ?, factor_at = ?, slowed_at = ?, pause_until = ?, last_refusal = ?, "
                "last_refusal_at = ? where host = ?",
                (current, now, slowed_at, pause, refusal, now, self.host),
            )

    def forbidden(self, refusals: int, refusal: str, retry_after: float | None) -> Closed | None:
        """Counts refusals without a success between them; says so when that opened the breaker."""
        self.slow_down(refusal, retry_after)
        now = time.time()
        with self._exclusive():
            count, opens, open_until = self._row("forbidden, opens, open_until")
            count += refusals
            if count < self._breaker.threshold:
                self._db.execute("update hosts set forbidden = ? where host = ?", (count, self.host))
                return None
            if not now < open_until <= now + max(self._breaker.longest, LONGEST_WAIT) + _CLOCK_JUMP:
                opens += 1
                stay = min(self._breaker.longest, self._breaker.first * 2 ** (opens - 1))
                open_until = now + max(stay, retry_after or 0.0)
                self._db.execute(
                    "update hosts set opens = ?, opened_at = ?, open_until = ? where host = ?",
                    (opens, now, open_until, self.host),
                )
            # one more refusal after the reopening opens it again
            self._db.execute("update hosts set forbidden = ? where host = ?", (self._breaker.threshold - 1, self.host))
        return Closed(open_until, refusal)

    def succeeded(self) -> None:
        """A success after refusals: the count starts anew."""
        self._db.execute("update hosts set forbidden = 0, opens = 0 where host = ?", (self.host,))

    def trouble(self) -> tuple[float, float, str | None, int]:
        """(paused until, breaker open until, last refusal, refusals counted), as all processes left it."""
        pause, opened, refusal, count = self._row("pause_until, open_until, last_refusal, forbidden")
        return pause, opened, refusal, count

    def _row(self, columns: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._db.execute(f"select {columns} from hosts where host = ?", (self.host,)).fetchone()
        return row

    def _exclusive(self) -> _Exclusive:
        return _Exclusive(self._db)


class _Exclusive:
    """A transaction that takes the file's write lock at once, so that reading and writing are one step."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("begin immediate")

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        self._db.execute("rollback" if kind else "commit")
