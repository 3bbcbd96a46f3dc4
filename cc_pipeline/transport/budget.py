"""The request budget, a file that all processes of a home share: slots by host, pauses, refusals, and the shares of
workers on other machines. Common Crawl blocks machines and not processes: homes on one machine with the same source
each have their own file, and share its rate only by ``CC_PIPELINE_RATE_SHARES``."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.circuit_breaker import (
    CLOCK_JUMP,
    SAMPLE_KEPT,
    Blocked,
    BreakerOpen,
    Cause,
    Event,
    Gave,
    HostRules,
    RefusalPolicy,
    Sent,
    Serving,
    State,
    as_text,
    blocked_elsewhere,
    from_text,
    remembered,
)
from cc_pipeline.transport.rates import SourceLimits, shared_among, slot_spacing

#: A slot expires after this many seconds.
SLOT_LIFE = 0.025
#: A reservation covers at most this many seconds.
_LEASE_SECONDS = 0.05
#: Seconds to wait for other processes that have locked the file.
_LOCK_TIMEOUT = 30.0
#: Seconds after which a process that did not renew its share counts as ended.
_HOLDER_LIFE = 10.0
#: Seconds between two checks for a free share, for a process that has none.
FULL_HOUSE = 0.2
_TABLES = """
create table if not exists hosts (
  host text primary key, rate real, concurrency integer, next_slot real not null default 0
) without rowid;
create table if not exists states (host text primary key, state text not null) without rowid;
create table if not exists samples (host text primary key, key text not null, at real not null) without rowid;
create table if not exists holders (
  host text, holder text, pid integer, granted integer, expires real, primary key (host, holder)
) without rowid;
create table if not exists lent (
  host text, shares integer not null, until real not null, lender text, primary key (host, lender)
) without rowid;
create table if not exists no_suffixes (host text primary key, until real not null) without rowid;
"""
#: Stands for all hosts in the table ``share_budget``.
EVERY_HOST = "*"
#: The maximum seconds for which shares are lent (``share_budget``); a later time was written before the clock was set
#: back.
REMOTE_SHARE_LIFE = 240.0

#: Seconds between two renewals of lent shares: several may fail before the shares expire.
_RENEWAL: Final = 30.0


@dataclass(frozen=True, slots=True)
class SlotReservation:
    """``count`` slots from ``start`` (seconds since the epoch), ``spacing`` seconds apart.

    ``is_probe``: the host is blocked, and this request is the probe. ``is_calm``: a good answer would not change the
    host's state. ``sample`` is the key of an object that the host gave within a week. A slot expires ``SLOT_LIFE``
    seconds after it was due."""

    start: float
    spacing: float
    count: int
    is_probe: bool = False
    is_calm: bool = False
    sample: str = ""


def _write_ahead(db: sqlite3.Connection) -> None:
    """Sets the journal mode; for that SQLite does not wait for other processes, whatever the connection's timeout."""
    until = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            db.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            # the low byte is the kind of error, the other bytes its details
            locked = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not locked or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def open_file(path: Path | None) -> sqlite3.Connection:
    """Opens the file of a budget (``None``: one in memory), with all its tables. Raises ``OSError`` and
    ``sqlite3.Error``."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(
        path if path is not None else ":memory:", timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    # the file is about the next moments only: a power cut may lose it
    _write_ahead(db)
    db.execute("pragma synchronous = off")
    with Exclusive(db):
        for statement in (_TABLES).split(";"):
            db.execute(statement)
    return db


class Budget:
    """The budget of one host as this process sees it. Used by one thread at a time."""

    def __init__(
        self,
        path: Path | None,
        host: str,
        limits: SourceLimits,
        refusals: RefusalPolicy | None = None,
    ) -> None:
        self.host = host
        self.limits = limits
        self._holder = uuid.uuid4().hex
        self._db = open_file(path)
        self._rules = HostRules(limits.rate, refusals or RefusalPolicy(), limits.cautious)
        with Exclusive(self._db):
            self._db.execute(
                "insert into hosts (host, rate, concurrency) values (?, ?, ?) on conflict (host) do update "
                "set rate = excluded.rate, concurrency = excluded.concurrency",
                (host, limits.rate, limits.concurrency),
            )

    def close(self) -> None:
        """Releases this process's share."""
        self._db.execute("delete from holders where holder = ?", (self._holder,))
        self._db.close()

    def reserve_slots(
        self, max_slots: int, successes: int = 0, last_sent: float = 0.0
    ) -> SlotReservation | BreakerOpen:
        """Reserves slots for up to ``max_slots`` requests, at least one. ``successes`` requests succeeded since the
        last reservation, the last of them sent at ``last_sent``. Returns ``BreakerOpen`` if the host is blocked, or
        asked for a pause that is worth a message."""
        rules = self._rules
        with Exclusive(self._db):
            now = time.time()
            state = self._state(now)
            if successes:
                state = state.next(Gave(now, successes, last_sent), rules)
                self._keep(state)
            admitted = state.admits(now)
            if isinstance(admitted, BreakerOpen):
                is_refused = isinstance(state, Blocked) and state.cause == Cause.ADDRESS
                # Common Crawl's front takes no credentials
                takes_credentials = rules.cautious is None
                return replace(admitted, never_answered=is_refused and takes_credentials and not self._sample())
            is_probe = not admitted
            calm = isinstance(state, Serving) and not state.tally.row
            sample = self._sample(now - SAMPLE_KEPT) if is_probe else ""
            pace = state.rate_at(rules, now)
            pause_until = max(now, state.memory.pause_until)
            if pace is None:
                count = 1 if is_probe else max_slots
                if is_probe:
                    self._keep(state.next(Sent(now, count), rules))
                return SlotReservation(pause_until, 0.0, count, is_probe, calm and pause_until <= now, sample)
            # each remote worker has the same share as all processes here together
            rate = pace / (1 + self._remote_shares(now))
            spacing = slot_spacing(rate)
            count = 1 if is_probe else max(1, min(max_slots, int(rate * _LEASE_SECONDS)))
            self._keep(state.next(Sent(now, count), rules))
            (next_slot,) = self._db.execute("select next_slot from hosts where host = ?", (self.host,)).fetchone()
            start = max(now if next_slot > pause_until + CLOCK_JUMP else next_slot, pause_until)
            self._db.execute("update hosts set next_slot = ? where host = ?", (start + count * spacing, self.host))
        return SlotReservation(start, spacing, count, is_probe, calm, sample)

    def renew(self, in_flight: int) -> int:
        """Renews this process's share and returns it: the number of requests that it may send at the same time.

        Shares are even, and their sum never exceeds the limit. A share shrinks as soon as its process learns of another
        process, and grows only when others release theirs. If there are more processes than the limit allows requests,
        some wait until another one ends.
        """
        now = time.time()
        with Exclusive(self._db):
            self._db.execute("delete from holders where expires < ? or expires > ?", (now, now + CLOCK_JUMP))
            count, granted_elsewhere = self._db.execute(
                "select count(*), coalesce(sum(granted), 0) from holders where host = ? and holder <> ?",
                (self.host, self._holder),
            ).fetchone()
            limit, remote_shares = self.limits.concurrency, self._remote_shares(now)
            limit = max(1, limit - remote_shares * shared_among(self.limits, remote_shares + 1).concurrency)
            share = max(0, min(max(1, limit // (int(count) + 1)), limit - int(granted_elsewhere)))
            self._db.execute(
                "insert into holders values (?, ?, ?, ?, ?) on conflict (host, holder) do update "
                "set granted = excluded.granted, expires = excluded.expires",
                (self.host, self._holder, os.getpid(), max(share, in_flight), now + _HOLDER_LIFE),
            )
        return share

    def apply_event(self, event: Event) -> State:
        """Notes the result of a request for all processes; returns the state that follows."""
        with Exclusive(self._db):
            state = self._state(event.now).next(event, self._rules)
            self._keep(state)
        return state

    def note_sample(self, key: str) -> None:
        """Notes an object that the host gave: a probe can request it."""
        self._db.execute("insert or replace into samples values (?, ?, ?)", (self.host, key, time.time()))

    def _sample(self, since: float = 0.0) -> str:
        """Returns the key of an object that the host gave after ``since``; empty if there is none."""
        row = self._db.execute("select key from samples where host = ? and at >= ?", (self.host, since)).fetchone()
        return "" if row is None else str(row[0])

    def _state(self, now: float) -> State:
        return state_in(self._db, self.host, now)

    def _keep(self, state: State) -> None:
        keep_state(self._db, self.host, state)

    def _remote_shares(self, now: float) -> int:
        """Returns the number of even shares that workers outside this file have."""
        row = self._db.execute(
            "select coalesce(sum(most), 0) from (select max(shares) as most from lent "
            "where host in (?, ?) and until > ? and until < ? group by lender)",
            (self.host, EVERY_HOST, now, now + REMOTE_SHARE_LIFE + CLOCK_JUMP),
        ).fetchone()
        return int(row[0])


def state_in(db: sqlite3.Connection, host: str, now: float) -> State:
    """Returns the state of a host in a budget's file."""
    row = db.execute("select state from states where host = ?", (host,)).fetchone()
    return Serving() if row is None else remembered(read_state(host, row[0]), now)


def read_state(host: str, text: str) -> State:
    """Parses a host's state from a budget's file. Raises ``sqlite3.DatabaseError`` for a damaged one: without its state
    a host that refuses would get requests at full rate."""
    try:
        return from_text(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise sqlite3.DatabaseError(f"the state of {host} cannot be read ({error})") from error


def keep_state(db: sqlite3.Connection, host: str, state: State) -> None:
    """Stores the state of a host."""
    db.execute("insert or replace into states values (?, ?)", (host, as_text(state)))


class Exclusive:
    """A transaction that takes the file's write lock at once, so that reading and writing are one step."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("begin immediate")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("rollback" if kind else "commit")


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """An open circuit breaker: its host refuses ``since`` (seconds since the epoch), got ``probes`` probes, and gets
    the next one at ``until``. ``cause`` is one of ``refusals.Cause``."""

    host: str
    since: float
    until: float
    probes: int
    reason: str
    cause: str = Cause.ADDRESS


def openings(path: Path) -> tuple[OpenBreaker, ...]:
    """Returns the hosts of a budget file that refuse, by name, also those whose next probe is due; none without a file.
    Raises ``EnvironmentFault``."""
    if not path.exists():
        return ()
    with naming(path), closing(open_file(path)) as db:
        rows = db.execute("select host, state from states order by host").fetchall()
        states = [(host, read_state(host, text)) for host, text in rows]
    return tuple(
        OpenBreaker(host, state.since, state.until, state.probes, state.why, state.cause)
        for host, state in states
        if isinstance(state, Blocked)
    )


def take_over(path: Path, open_breakers: Collection[OpenBreaker]) -> None:
    """Adds hosts that refused elsewhere to a budget file, unless it has the same or a later refusal: a host that gave
    something meanwhile, or that the user reset, stays open. Raises ``EnvironmentFault``."""
    if not open_breakers:
        return
    with naming(path), closing(open_file(path)) as db, Exclusive(db):
        for breaker in open_breakers:
            db.execute("insert or ignore into hosts (host) values (?)", (breaker.host,))
            # the refusal keeps its own time, whatever this machine's clock says
            known_state = state_in(db, breaker.host, time.time())
            state = blocked_elsewhere(
                known_state, breaker.since, breaker.until, breaker.probes, breaker.reason, Cause(breaker.cause)
            )
            keep_state(db, breaker.host, state)


@contextmanager
def share_budget(path: Path, hosts: Collection[str], shares: int) -> Iterator[None]:
    """Lends shares while the block runs: each of ``shares`` remote workers has as much of the budget of ``hosts`` as
    all processes here together. Shares of several blocks add up. Those of a killed process expire after
    ``REMOTE_SHARE_LIFE`` seconds. Raises ``EnvironmentFault`` if the budget file cannot be written."""
    lender = uuid.uuid4().hex
    _write_remote_shares(path, hosts, shares, lender)
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(_RENEWAL):
            with suppress(EnvironmentFault):
                _write_remote_shares(path, hosts, shares, lender)

    keeper = threading.Thread(target=keep, name="cc-pipeline-lent", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()
        with suppress(EnvironmentFault):
            _write_remote_shares(path, hosts, 0, lender)


def _write_remote_shares(path: Path, hosts: Collection[str], shares: int, lender: str = "") -> None:
    with naming(path), closing(open_file(path)) as db, Exclusive(db):
        for host in hosts:
            if shares:
                until = time.time() + REMOTE_SHARE_LIFE
                db.execute("insert or replace into lent values (?, ?, ?, ?)", (host, shares, until, lender))
            else:
                db.execute("delete from lent where host = ? and lender = ?", (host, lender))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns errors of a budget file in the block into an ``EnvironmentFault`` that names the file."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise EnvironmentFault(
            f"the request budget {path}, which all processes share, cannot be used: {error}",
            "Check that the home can be written to. If the file is damaged, delete it: it is created again",
        ) from error
