"""The state of the hosts that got requests, for the user: rate and refusals."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cc_pipeline.transport.budget import Exclusive, keep_state, naming, open_file, state_in
from cc_pipeline.transport.circuit_breaker import (
    Blocked,
    HostRules,
    RefusalPolicy,
    reset_by_user,
)
from cc_pipeline.transport.rates import SourceLimits, default_limits


@dataclass(frozen=True, slots=True)
class HostState:
    """One host's budget. ``rate`` (requests per second, ``None``: unlimited) is the current one, ``full_rate`` the one
    without refusals. ``breaker_open_until`` is the time of the next probe. Times are ``None`` when they are over.
    The address was blocked last at ``blocked_at``, after ``requests_before`` requests in the five minutes before."""

    host: str
    full_rate: float | None
    rate: float | None
    concurrency: int
    processes: int
    paused_until: datetime | None
    breaker_open_until: datetime | None
    last_refusal: str | None
    last_refusal_at: datetime | None
    blocked_at: datetime | None = None
    requests_before: int = 0

    @property
    def breaker_open(self) -> bool:
        """Whether the circuit breaker is open, so that nothing is sent to this host."""
        return self.breaker_open_until is not None


def budget_state(path: Path) -> tuple[HostState, ...]:
    """Returns the state of every host that got requests, by name; empty without a budget file. Never blocks a run.

    Raises ``EnvironmentFault`` for a damaged file."""
    if not path.exists():
        return ()
    now = time.time()
    with naming(path):
        try:
            with closing(_open_read_only(path)) as db:
                rows = db.execute(
                    "select host, rate, concurrency, (select count(*) from holders "
                    "where holders.host = hosts.host and expires > ?1) from hosts order by host",
                    (now,),
                ).fetchall()
                hosts = [_host_state(db, now, *row) for row in rows]
        except sqlite3.OperationalError:
            return ()  # the file is being made
    # a host that refused elsewhere has no limits here before its first request
    return tuple(host for host in hosts if host.concurrency or host.breaker_open)


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)


def _host_state(
    db: sqlite3.Connection, now: float, host: str, full_rate: float | None, concurrency: int | None, processes: int
) -> HostState:
    state = state_in(db, host, now)
    memory = state.memory
    blocked_at, requests_before = memory.refused_at, memory.asked_before
    if isinstance(state, Blocked) and state.is_of_address:
        blocked_at, requests_before = state.since, state.asked
    cautious = default_limits(f"https://{host}").cautious
    return HostState(
        host=host,
        full_rate=full_rate,
        rate=state.rate_at(HostRules(full_rate, RefusalPolicy(), cautious=cautious), now),
        concurrency=concurrency or 0,
        processes=processes,
        paused_until=_future_time(memory.pause_until, now),
        breaker_open_until=_future_time(state.until, now) if isinstance(state, Blocked) else None,
        last_refusal=memory.last_refusal,
        last_refusal_at=datetime.fromtimestamp(memory.last_refusal_at, UTC) if memory.last_refusal_at else None,
        blocked_at=datetime.fromtimestamp(blocked_at, UTC) if blocked_at else None,
        requests_before=requests_before,
    )


def rate_in_force(path: Path, host: str, limits: SourceLimits) -> float | None:
    """Returns the current rate of a host with these limits, in requests a second: it is lower after refusals."""
    if limits.rate is None or not path.exists():
        return limits.rate
    now = time.time()
    try:
        with closing(_open_read_only(path)) as db:
            state = state_in(db, host, now)
    except sqlite3.Error:
        # the file is being made; a damaged one raises at the next request
        return limits.rate
    return state.rate_at(HostRules(limits.rate, RefusalPolicy(), cautious=limits.cautious), now)


def reset_breaker(path: Path, host: str) -> bool:
    """Resets a host's circuit breaker for the user. Returns whether the budget knows the host. Raises
    ``EnvironmentFault`` if the file cannot be written."""
    if not path.exists():
        return False
    with naming(path), closing(open_file(path)) as db, Exclusive(db):
        now = time.time()
        keep_state(db, host, reset_by_user(state_in(db, host, now), now))
        return bool(db.execute("select count(*) from hosts where host = ?", (host,)).fetchone()[0])


def _future_time(seconds: float, now: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds > now else None
