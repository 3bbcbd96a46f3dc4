"""What the budget of this machine and those of workers elsewhere have to tell each other.

Each worker keeps to a budget file of its own. So its even share is lent by the file here for as long as it may ask, and
a refusal on one side is taken over by the other: whoever refuses one of us is asked by none.
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
    """A circuit breaker that is open: its host refuses ``since`` then (seconds since the epoch), is asked again by one
    request at ``until``, and was by ``probes`` before."""

    host: str
    since: float
    until: float
    probes: int
    why: str


def openings(path: Path) -> tuple[Opening, ...]:
    """The hosts of a budget file that refuse, by name, also those that may be asked again by now; none without a
    file. Raises ``EnvironmentFault``."""
    if not path.exists():
        return ()
    with _told(path), closing(open_file(path)) as db:
        rows = db.execute(
            "select host, since, until, probes, why from refusals where since > ended order by host"
        ).fetchall()
    return tuple(Opening(*row) for row in rows)


def take_over(path: Path, told: Collection[Opening]) -> None:
    """Has a budget file know of hosts that refused elsewhere, unless it knows of a later refusal, or of this one: a
    host that gave something meanwhile, or that a person wants to be asked, is asked. Raises ``EnvironmentFault``."""
    if not told:
        return
    with _told(path), closing(open_file(path)) as db, Exclusive(db):
        for one in told:
            db.execute("insert or ignore into hosts (host) values (?)", (one.host,))
            db.execute(
                "update hosts set last_refusal = ?1, last_refusal_at = ?2 where host = ?3 and last_refusal_at < ?2",
                (one.why, one.since, one.host),
            )
            db.execute(
                "insert into refusals (host, since, until, probes, ended, why) values (?, ?, ?, ?, 0, ?) "
                "on conflict (host) do update set since = excluded.since, until = max(until, excluded.until), "
                "probes = max(probes, excluded.probes), why = excluded.why "
                "where excluded.since > since and excluded.since > ended",
                (one.host, one.since, one.until, one.probes, one.why),
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
