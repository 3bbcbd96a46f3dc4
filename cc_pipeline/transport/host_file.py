"""The file of host states, which all processes of a home or a user share: SQLite, one row a host.

Belongs here: reading and writing a state in one step. Not here: what changes it (``host_state.py``).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.host_state import HostState
from cc_pipeline.transport.limits import SourceLimits, default_limits

T = TypeVar("T")

#: Seconds to wait for other processes that have locked the file.
_LOCK_TIMEOUT: Final = 30.0
_TABLE: Final = "create table if not exists hosts (host text primary key, rate real, concurrency integer, state text)"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns errors of the file in the block into an ``EnvironmentFault`` that names it."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise EnvironmentFault(
            f"the request budget {path}, which all processes share, cannot be used: {error}",
            "Check that the home can be written to. If the file is damaged, delete it: it is created again",
        ) from error


class HostFile:
    """The state of one host in a file. Used by one thread at a time. Every method raises ``EnvironmentFault``."""

    def __init__(self, path: Path, host: str, limits: SourceLimits) -> None:
        self._path, self._host = path, host
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
            # the file is about the next moments only: a power cut may lose it
            self._db.execute("pragma synchronous = off")
            with _exclusive(self._db):
                self._db.execute(_TABLE)
                self._db.execute(
                    "insert into hosts (host, rate, concurrency) values (?, ?, ?) on conflict (host) do update "
                    "set rate = excluded.rate, concurrency = excluded.concurrency",
                    (host, limits.rate, limits.concurrency),
                )

    def change(self, change: Callable[[HostState], tuple[HostState, T]]) -> tuple[HostState, T]:
        """Changes the state by ``change``, in one step for all processes. Returns the new state and what ``change``
        returned beside it."""
        with naming(self._path), _exclusive(self._db):
            query = "select state from hosts where host = ?"
            (text,) = self._db.execute(query, (self._host,)).fetchone() or (None,)
            state = _parse(self._host, text, time.time())
            changed, value = change(state)
            if changed is not state:
                self._db.execute("update hosts set state = ? where host = ?", (changed.as_text(), self._host))
        return changed, value

    def close(self) -> None:
        self._db.close()


@contextmanager
def _exclusive(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that takes the file's write lock at once, so that reading and writing are one step."""
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")


def _parse(host: str, text: str | None, now: float) -> HostState:
    """Parses a host's state. Raises ``sqlite3.DatabaseError`` for a damaged one: without its state a host that refuses
    would get requests at full rate."""
    try:
        return HostState() if text is None else HostState.from_text(text).repaired(now)
    except (ValueError, KeyError, TypeError) as error:
        raise sqlite3.DatabaseError(f"the state of {host} cannot be read ({error})") from error


@dataclass(frozen=True, slots=True)
class HostReport:
    """One host, for the user. ``rate`` (requests a second, ``None``: unlimited) is the current one, ``full_rate`` the
    one without refusals. The host refuses until ``refuses_until``, when one request is sent, or asked to wait until
    ``paused_until``; ``None`` when that is over. It refused this address last at ``address_refused_at``."""

    host: str
    full_rate: float | None
    rate: float | None
    concurrency: int
    refuses_until: datetime | None
    paused_until: datetime | None
    last_refusal: str | None
    last_refusal_at: datetime | None
    address_refused_at: datetime | None


def read_hosts(path: Path) -> tuple[HostReport, ...]:
    """Returns every host that got requests, by name; empty without a file. Never blocks a run. Raises
    ``EnvironmentFault`` for a damaged file."""
    now = time.time()
    return tuple(
        HostReport(
            host=host,
            full_rate=rate,
            rate=state.rate_at(SourceLimits(rate, concurrency, default_limits(f"https://{host}").cautious), now),
            concurrency=concurrency,
            refuses_until=_moment(state.pause_until, now) if state.is_refusing else None,
            paused_until=_moment(state.asked_until, now),
            last_refusal=state.last_refusal,
            last_refusal_at=_moment(state.last_refusal_at),
            address_refused_at=_moment(state.address_refused_at),
        )
        for host, rate, concurrency, state in _read_states(path, now)
    )


def rate_in_force(path: Path, host: str, limits: SourceLimits) -> float | None:
    """Returns the current rate of a host with these limits, in requests a second: it is lower after refusals."""
    now = time.time()
    try:
        states = {known_host: state for known_host, _, _, state in _read_states(path, now)}
    except EnvironmentFault:
        # a damaged file raises at the next request
        return limits.rate
    return states.get(host, HostState()).rate_at(limits, now)


def reset_host(path: Path, host: str) -> bool:
    """Resets a host that refuses, for the user. Returns whether the file knows the host. Raises ``EnvironmentFault``
    if the file cannot be written."""
    for known_host, rate, concurrency, _ in _read_states(path, time.time()):
        if known_host == host:
            with closing(HostFile(path, host, SourceLimits(rate, concurrency))) as file:
                file.change(lambda state: (state.reset(), None))
            return True
    return False


def _read_states(path: Path, now: float) -> list[tuple[str, float | None, int, HostState]]:
    if not path.exists():
        return []
    with naming(path), closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
        try:
            rows = db.execute("select host, rate, concurrency, state from hosts order by host").fetchall()
        except sqlite3.OperationalError:
            return []  # the file is being made
        return [(host, rate, concurrency, _parse(host, text, now)) for host, rate, concurrency, text in rows]


def _moment(seconds: float, now: float = 0.0) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds > now else None
