"""How the hosts stand that requests were sent to, as a person is told: rate, refusals, outages."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cc_pipeline.transport.budget import open_file


@dataclass(frozen=True, slots=True)
class Out:
    """A host that gives nothing: since when, until when nobody asks it, and why."""

    since: datetime
    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class HostState:
    """One host's budget. ``rate`` (requests per second, ``None``: unlimited) is what is allowed now, ``full_rate``
    what can be earned. ``breaker_open_until``: it refuses, and is asked again then. Times are ``None`` when they are
    over. ``out``: the host gives nothing, and others are asked in its place."""

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
            "select hosts.host, rate, concurrency, coalesce(pace, rate), pause_until, refused.until, last_refusal, "
            "last_refusal_at, (select count(*) from holders where holders.host = hosts.host and expires > ?1) "
            "from hosts "
            # of several limits those that were set last
            "left join (select host, most, pace, max(at) from rates group by host, most) as learnt "
            "on learnt.host = hosts.host and most = rate "
            "left join (select host, until from refusals where since > ended and until > ?1) as refused "
            "on refused.host = hosts.host "
            # one that refused elsewhere has no limits here before a request is sent to it
            "where concurrency is not null or refused.until is not null order by hosts.host",
            (now,),
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
            rate=None if rate is None else min(rate, pace),
            concurrency=concurrency,
            processes=processes,
            paused_until=_later(pause_until, now),
            breaker_open_until=_later(until or 0.0, now),
            last_refusal=refusal,
            last_refusal_at=datetime.fromtimestamp(refused_at, UTC) if refused_at else None,
            out=out.get(host),
        )
        for host, rate, concurrency, pace, pause_until, until, refusal, refused_at, processes in rows
    )


def reset_breaker(path: Path, host: str) -> bool:
    """Has a host asked at once, whatever it refused, asked for or did not give, at a person's wish. Whether the budget
    knows the host."""
    if not path.exists():
        return False
    with closing(open_file(path)) as db:
        changed = db.execute("update hosts set pause_until = 0 where host = ?", (host,)).rowcount
        # what is told of it again is known, and over
        db.execute("update refusals set ended = max(?, since) where host = ?", (time.time(), host))
        db.execute("delete from outages where host = ?", (host,))
    return changed > 0


def _later(seconds: float, now: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds > now else None


def _outages(db: sqlite3.Connection) -> Mapping[str, Out]:
    rows = db.execute("select host, since, until, why from outages")
    return {
        host: Out(datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC), why)
        for host, since, until, why in rows
    }
