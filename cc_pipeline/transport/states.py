"""How the hosts stand that requests were sent to, as a person is told: rate, breaker, outages."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cc_pipeline.transport.budget import recovered


@dataclass(frozen=True, slots=True)
class Out:
    """A host that gives nothing: since when, until when nobody asks it, and why."""

    since: datetime
    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class HostState:
    """One host's budget. ``rate`` (requests per second, ``None``: unlimited) is what is allowed now, ``full_rate``
    what is allowed when nothing is wrong. Times are ``None`` when they are over. ``out``: the host gives nothing, and
    others are asked in its place."""

    host: str
    full_rate: float | None
    rate: float | None
    concurrency: int
    processes: int
    paused_until: datetime | None
    breaker_open_until: datetime | None
    last_refusal: str | None
    last_refusal_at: datetime | None
    out: Out | None = None

    @property
    def breaker_open(self) -> bool:
        """Whether nothing is sent to this host for now."""
        return self.breaker_open_until is not None


def budget_state(path: Path) -> tuple[HostState, ...]:
    """The state of every host that requests were sent to, by name; empty without a budget file. Never blocks a run."""
    if not path.exists():
        return ()
    now = time.time()
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
    try:
        rows = db.execute(
            "select host, rate, concurrency, factor, factor_at, pause_until, open_until, last_refusal, last_refusal_at,"
            " (select count(*) from holders where holders.host = hosts.host and expires > ?) from hosts "
            # one whose breaker opened elsewhere has no limits here before a request is sent to it
            "where concurrency is not null or open_until > ? order by host",
            (now, now),
        ).fetchall()
        out = _outages(db)
    except sqlite3.OperationalError:
        return ()  # the file is being made
    finally:
        db.close()
    return tuple(
        HostState(
            host=host,
            full_rate=rate,
            rate=None if rate is None else rate * recovered(factor, now - factor_at),
            concurrency=concurrency,
            processes=processes,
            paused_until=_later(pause_until, now),
            breaker_open_until=_later(open_until, now),
            last_refusal=refusal,
            last_refusal_at=datetime.fromtimestamp(refused_at, UTC) if refused_at else None,
            out=out.get(host),
        )
        for host, rate, concurrency, factor, factor_at, pause_until, open_until, refusal, refused_at, processes in rows
    )


def paused_for(path: Path, host: str) -> float:
    """Seconds for which nothing is sent to ``host`` because it asked for a pause; 0 for none."""
    until = [state.paused_until for state in budget_state(path) if state.host == host and state.paused_until]
    return max(((moment - datetime.now(UTC)).total_seconds() for moment in until), default=0.0)


def reset_breaker(path: Path, host: str) -> bool:
    """Closes a host's breaker, ends its pause and outage, at a person's wish. Whether the budget knows the host."""
    if not path.exists():
        return False
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        changed = db.execute(
            "update hosts set forbidden = 0, opens = 0, open_until = 0, pause_until = 0 where host = ?", (host,)
        ).rowcount
        if _has_outages(db):
            db.execute("delete from outages where host = ?", (host,))
    finally:
        db.close()
    return changed > 0


def _later(seconds: float, now: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds > now else None


def _outages(db: sqlite3.Connection) -> Mapping[str, Out]:
    if not _has_outages(db):
        return {}
    rows = db.execute("select host, since, until, why from outages")
    return {
        host: Out(datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC), why)
        for host, since, until, why in rows
    }


def _has_outages(db: sqlite3.Connection) -> bool:
    """Whether the file is of a version that knows them."""
    return bool(db.execute("select 1 from sqlite_master where name = 'outages'").fetchall())
