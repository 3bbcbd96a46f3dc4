"""The request budget all processes of a machine share: limits by host, leases, breaker."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from cc_pipeline.addresses import host_of, scheme_of
from cc_pipeline.stores.opening import is_loopback
from cc_pipeline.transport.faults import LONGEST_WAIT
from cc_pipeline.transport.outage import TABLE as _OUTAGES
from cc_pipeline.transport.outage import Closed, OutagePolicy, Outages


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """Per host and machine: ``rate`` in requests per second (``None``: as fast as it goes), ``concurrency`` in
    requests under way. ``shared`` says whether other processes of this machine count too."""

    rate: float | None
    concurrency: int
    shared: bool = True


#: The public mirror. Common Crawl asks all users together to stay at a few thousand requests a second.
_PUBLIC = SourceLimits(rate=10.0, concurrency=8)
#: The index server answers about 100,000 look-ups an hour for everybody together.
_INDEX_SERVER = SourceLimits(rate=1.0, concurrency=2)
#: S3 itself takes some 5,500 reads a second and prefix.
_BUCKET = SourceLimits(rate=1_000.0, concurrency=128)
_OWN_MACHINE = SourceLimits(rate=None, concurrency=128, shared=False)

_BY_HOST = {"data.commoncrawl.org": _PUBLIC, "index.commoncrawl.org": _INDEX_SERVER}


def default_limits(source: str, s3_endpoint: str | None = None) -> SourceLimits:
    """The limits of a source as ``open_store`` takes it."""
    scheme = scheme_of(source)
    if scheme in ("", "file"):
        return _OWN_MACHINE
    if scheme == "s3":
        if s3_endpoint is None or not is_loopback(host_of(s3_endpoint)):
            return _BUCKET
        return _OWN_MACHINE
    host = host_of(source)
    return _OWN_MACHINE if is_loopback(host) else _BY_HOST.get(host, _PUBLIC)


def chosen_limits(defaults: SourceLimits, rate: float | None, concurrency: int | None) -> SourceLimits:
    """The defaults with what a person set; a rate set on purpose is shared by the machine's processes."""
    limits = defaults
    if rate is not None:
        limits = replace(limits, rate=rate, shared=True)
    if concurrency is not None:
        limits = replace(limits, concurrency=concurrency)
    return limits


def shared_among(limits: SourceLimits, hosts: int) -> SourceLimits:
    """The even share of one of ``hosts`` (at least 1) that ask the same source, each with a budget file of its own.

    Rates of all shares add up to ``limits``. So do requests at the same time, unless there are more hosts than those:
    each may send one. Hosts know nothing of each other, so shares below one request a second may meet in one second.
    """
    rate = None if limits.rate is None else limits.rate / hosts
    return replace(limits, rate=rate, concurrency=max(1, limits.concurrency // hosts))


#: Seconds by which a request may reach the place later than its slot. Slots are spaced so that even then no
#: window of one second sees more than 1.05 times the rate.
JITTER = 0.1
#: A slot is void when this many seconds have passed.
SLOT_LIFE = 0.025
#: A lease reaches at most this many seconds ahead.
_LEASE_SECONDS = 0.05
#: Seconds to wait for other processes that have locked the file.
_PATIENCE = 30.0
#: Seconds after which a process that did not renew its share counts as gone.
_HOLDER_LIFE = 10.0
#: Seconds in which a slowed-down rate comes back in full.
RECOVERY = 120.0
#: The smallest share of its full rate that a host is slowed down to.
_SLOWEST_FACTOR = 1 / 64
#: Seconds. A stored time that lies this much further ahead than it can was written before the clock was set back.
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
create table if not exists lent (
  host text primary key, shares integer not null, until real not null
) without rowid;
"""
#: In the place of a host in ``lent``: all of them.
EVERY_HOST = "*"
#: Seconds from now until which shares are lent at most (``sharing.py``); a later time was written before the clock was
#: set back.
LENT_LIFE = 240.0


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """``threshold`` refusals without a success open the breaker for ``first`` seconds, then twice as long each
    time it opens again, at most ``longest``."""

    threshold: int = 5
    first: float = 300.0
    longest: float = 7200.0


@dataclass(frozen=True, slots=True)
class Lease:
    """``count`` slots from ``start`` (seconds since the epoch), ``spacing`` seconds apart.

    ``asks``: the host was out, and this one request finds out whether it is back."""

    start: float
    spacing: float
    count: int
    asks: bool = False


def slot_spacing(rate: float) -> float:
    """Seconds between slots such that no second sees more than 1.05 times ``rate``, jitter included."""
    most = max(1, int(rate * 1.05))
    # the millionth is for what floating point loses where a slot is late by exactly the jitter
    return max(1 / rate, (1 + JITTER + 1e-6) / most)


def recovered(factor: float, seconds: float) -> float:
    """The factor of the rate, ``age`` seconds after it was ``factor``. A negative ``age`` (clock set back) changes
    nothing."""
    return min(1.0, factor + max(0.0, seconds) / RECOVERY)


def _write_ahead(db: sqlite3.Connection) -> None:
    """Sets the journal mode; SQLite does not wait for others here, whatever the connection's timeout is."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            db.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            # the low byte is the kind of error, the rest says more about it
            locked = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not locked or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def open_file(path: Path | None) -> sqlite3.Connection:
    """The file of a budget (``None``: one of this process), with all its tables. Raises ``OSError`` and
    ``sqlite3.Error``."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(
        path if path is not None else ":memory:", timeout=_PATIENCE, isolation_level=None, check_same_thread=False
    )
    # the file says what may be sent in the next moments; losing it in a power cut loses nothing
    _write_ahead(db)
    db.execute("pragma synchronous = off")
    with Exclusive(db):
        for statement in (_TABLES + _OUTAGES).split(";"):
            db.execute(statement)
    return db


class Budget:
    """The budget of one host as this process sees it. Used by one thread at a time."""

    def __init__(
        self,
        path: Path | None,
        host: str,
        limits: SourceLimits,
        breaker: BreakerPolicy | None = None,
        outage: OutagePolicy | None = None,
    ) -> None:
        """``outage`` is for a host beside which others can be asked: it is left alone while it gives nothing."""
        self.host = host
        self.limits = limits
        self._breaker = breaker or BreakerPolicy()
        self._holder = uuid.uuid4().hex
        self._db = open_file(path)
        with self._exclusive():
            self._db.execute(
                "insert into hosts (host, rate, concurrency) values (?, ?, ?) on conflict (host) do update "
                "set rate = excluded.rate, concurrency = excluded.concurrency",
                (host, limits.rate, limits.concurrency),
            )
        self._outages = None if outage is None else Outages(self._db, host, outage)

    def close(self) -> None:
        """Gives back what this process holds."""
        self._db.execute("delete from holders where holder = ?", (self._holder,))
        self._db.close()

    def lease(self, wanted: int) -> Lease | Closed:
        """Slots for up to ``wanted`` requests, at least one. ``Closed``: the breaker is open, or the host is out."""
        now = time.time()
        with self._exclusive():
            row = self._row("next_slot, pause_until, factor, factor_at, forbidden, open_until, last_refusal")
            next_slot, pause_until, factor, factor_at, forbidden, open_until, refusal = row
            if now < open_until <= now + max(self._breaker.longest, LONGEST_WAIT) + _CLOCK_JUMP:
                return Closed(open_until, refusal or "refused")
            if pause_until > now + LONGEST_WAIT + _CLOCK_JUMP:
                pause_until = now
            asks = False
            if self._outages is not None:
                if pause_until > now + self._outages.policy.pause:
                    return Closed(pause_until, refusal or "refused")
                admitted = self._outages.admits(now)
                if isinstance(admitted, Closed):
                    return admitted
                asks = not admitted
                wanted = 1 if asks else wanted
            if self.limits.rate is None:
                return Lease(max(now, pause_until), 0.0, wanted, asks)
            if next_slot > max(now, pause_until) + _CLOCK_JUMP:
                next_slot = now
            # those elsewhere have as much each as is left here
            rate = self.limits.rate / (1 + self._lent(now)) * recovered(factor, now - factor_at)
            spacing = slot_spacing(rate)
            # after a refusal, one request at a time finds out whether it is over
            count = 1 if forbidden else max(1, min(wanted, int(rate * _LEASE_SECONDS)))
            start = max(now, next_slot, pause_until)
            self._db.execute(
                "update hosts set next_slot = ?, factor_at = min(factor_at, ?) where host = ?",
                (start + count * spacing, now, self.host),
            )
        return Lease(start, spacing, count, asks)

    def renew(self, in_flight: int) -> int:
        """How many requests this process may send at the same time: an even share of the machine's limit.

        The call renews the claim to that share.
        The sum of all processes' shares never exceeds the limit. A share shrinks as soon as its process learns of
        another process, and grows only by what others have given back. When there are more processes than the limit
        allows requests, some wait until another one is done.
        """
        now = time.time()
        with self._exclusive():
            self._db.execute("delete from holders where expires < ? or expires > ?", (now, now + _CLOCK_JUMP))
            count, granted = self._db.execute(
                "select count(*), coalesce(sum(granted), 0) from holders where host = ? and holder <> ?",
                (self.host, self._holder),
            ).fetchone()
            limit, lent = self.limits.concurrency, self._lent(now)
            limit = max(1, limit - lent * shared_among(self.limits, lent + 1).concurrency)
            share = max(0, min(max(1, limit // (int(count) + 1)), limit - int(granted)))
            self._db.execute(
                "insert into holders values (?, ?, ?, ?, ?) on conflict (host, holder) do update "
                "set granted = excluded.granted, expires = excluded.expires",
                (self.host, self._holder, os.getpid(), max(share, in_flight), now + _HOLDER_LIFE),
            )
        return share

    def slow_down(self, refusal: str, retry_after: float | None) -> None:
        """The source asked for less: all processes wait, then go on at half the rate (halved once a second)."""
        with self._exclusive():
            self._slow_down(time.time(), refusal, retry_after)

    def _slow_down(self, now: float, refusal: str, retry_after: float | None) -> None:
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

    def forbidden(
        self, refusals: int, refusal: str, retry_after: float | None, sent: float | None = None
    ) -> Closed | None:
        """Counts refusals without a success between them; says so when that opened the breaker.

        ``sent`` is when the last of the refused requests was sent (seconds since the epoch). Requests that were under
        way together are one refusal: none of them could know of another, so those sent before the last slow-down add
        nothing to a count that has begun.
        """
        now = time.time()
        with self._exclusive():
            count, opens, open_until, slowed_at = self._row("forbidden, opens, open_until, slowed_at")
            self._slow_down(now, refusal, retry_after)
            if sent is not None and count and sent <= slowed_at <= now:
                return Closed(open_until, refusal) if now < open_until else None
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

    def out(self, why: str, wait: float | None) -> Closed | None:
        """The host gives nothing: all processes that can ask others leave it alone."""
        if self._outages is None:
            return None
        with self._exclusive():
            return self._outages.begin(time.time(), why, wait)

    def answers(self) -> None:
        """The host is not out, or no longer."""
        if self._outages is not None:
            self._outages.end()

    def trouble(self) -> tuple[float, float, str | None, int]:
        """(paused until, breaker open until, last refusal, refusals counted), as all processes left it."""
        pause, opened, refusal, count = self._row("pause_until, open_until, last_refusal, forbidden")
        return pause, opened, refusal, count

    def _lent(self, now: float) -> int:
        """Even shares that others have whom this file does not count."""
        row = self._db.execute(
            "select coalesce(max(shares), 0) from lent where host in (?, ?) and until > ? and until < ?",
            (self.host, EVERY_HOST, now, now + LENT_LIFE + _CLOCK_JUMP),
        ).fetchone()
        return int(row[0])

    def _row(self, columns: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._db.execute(f"select {columns} from hosts where host = ?", (self.host,)).fetchone()
        return row

    def _exclusive(self) -> Exclusive:
        return Exclusive(self._db)


class Exclusive:
    """A transaction that takes the file's write lock at once, so that reading and writing are one step."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("begin immediate")

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        self._db.execute("rollback" if kind else "commit")
