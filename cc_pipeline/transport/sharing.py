"""What the budget of this machine and those of workers elsewhere have to tell each other.

Each worker keeps to a budget file of its own. So its even share is lent by the file here for as long as it may ask, and
a circuit breaker that opened on one side is taken over by the other: whoever refused one of us is asked by none.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.budget import LENT_LIFE, Exclusive, open_file

#: Seconds between two renewals of what is lent: several may fail before it counts as given back.
_RENEWAL: Final = 30.0


@dataclass(frozen=True, slots=True)
class Opening:
    """A circuit breaker that opened at ``opened_at`` until ``open_until`` (seconds since the epoch), for the
    ``opens``-th time in a row, and no request has succeeded since. One with ``forbidden`` refusals (in a row) more
    than it takes opens again at the next."""

    host: str
    opened_at: float
    open_until: float
    opens: int
    forbidden: int
    why: str


def openings(path: Path) -> tuple[Opening, ...]:
    """The breakers of a budget file that opened, by host, also those that may be tried again by now; none without a
    file. Raises ``EnvironmentFault``."""
    if not path.exists():
        return ()
    with _told(path), closing(open_file(path)) as db:
        rows = db.execute(
            "select host, opened_at, open_until, opens, forbidden, coalesce(last_refusal, '') from hosts "
            "where opens > 0 order by host"
        ).fetchall()
    return tuple(Opening(*row) for row in rows)


def take_over(path: Path, told: Collection[Opening]) -> None:
    """Opens the breakers of a budget file that opened elsewhere, unless it knows of a later opening, or of this one: a
    host that gave something meanwhile, or whose breaker a person closed, stays open to requests. Raises
    ``EnvironmentFault``."""
    if not told:
        return
    with _told(path), closing(open_file(path)) as db, Exclusive(db):
        for one in told:
            db.execute(
                "insert into hosts (host, opened_at, open_until, opens, forbidden, last_refusal, last_refusal_at) "
                "values (?, ?, ?, ?, ?, ?, ?) on conflict (host) do update set opened_at = excluded.opened_at, "
                "open_until = max(open_until, excluded.open_until), opens = max(opens, excluded.opens), "
                "forbidden = max(forbidden, excluded.forbidden), last_refusal = excluded.last_refusal, "
                "last_refusal_at = excluded.last_refusal_at where excluded.opened_at > opened_at",
                (one.host, one.opened_at, one.open_until, one.opens, one.forbidden, one.why, one.opened_at),
            )


@contextmanager
def lent(path: Path, hosts: Collection[str], shares: int) -> Iterator[None]:
    """While the block runs, ``shares`` workers elsewhere have as much each of the budget of ``hosts`` as is left to all
    processes here. What a killed process lent comes back after ``LENT_LIFE`` seconds. Raises ``EnvironmentFault`` where
    the budget file cannot be written."""
    _lend(path, hosts, shares)
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(_RENEWAL):
            with suppress(EnvironmentFault):
                _lend(path, hosts, shares)

    keeper = threading.Thread(target=keep, name="cc-pipeline-lent", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()
        with suppress(EnvironmentFault):
            _lend(path, hosts, 0)


def _lend(path: Path, hosts: Collection[str], shares: int) -> None:
    with _told(path), closing(open_file(path)) as db, Exclusive(db):
        for host in hosts:
            if shares:
                db.execute("insert or replace into lent values (?, ?, ?)", (host, shares, time.time() + LENT_LIFE))
            else:
                db.execute("delete from lent where host = ?", (host,))


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise EnvironmentFault(
            f"the request budget {path} cannot be used: {error}",
            "Check that the home can be written to. If the file is damaged, delete it",
        ) from error
