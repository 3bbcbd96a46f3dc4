"""One request rate for hosts that share only a PostgreSQL: leases of time slots, and claims to parallel requests.

Slots are taken from one time line per source, that of the database's clock, so no two hosts have the same slot. Slots
that a dead or idle process does not take go to others. The number of parallel requests is claimed for some seconds, and
goes to others if the claim is not renewed.

A host without a connection to the database sends nothing: it looks like a dead host, and others use its slots.

This module has the arithmetic of clocks and claims, as pure functions, and the two tables. Refusals, outages and the
learnt rate belong to each home (``budget.py``).
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.transport.circuit_breaker import CLOCK_JUMP
from cc_pipeline.transport.rate_source import RateSourceDown
from cc_pipeline.transport.rates import SourceLimits

#: Maximum seconds of slots in a lease. A killed process wastes no more than this.
LEASE_SECONDS: Final = 0.25
#: Seconds after which a claim expires that is not renewed.
CLAIM_LIFE: Final = 10.0
#: Seconds after which a process leaves its place, if there are too many processes and another one waits.
PLACE_SECONDS: Final = 20.0
#: Seconds between two checks for a free place.
RETRY_SECONDS: Final = 1.0
#: Seconds after which a leased slot expires. This is shorter than for a home's own slots: slots are spaced for this
#: lateness, and all hosts together must be able to use the rate.
LEASED_LIFE: Final = 0.01
#: Maximum life of slots of a process that was late. It leaves the additional time free after them, so that a busy host
#: is slower instead of never in time.
MAX_LIFE: Final = 0.5
#: Maximum difference of two requests' times to the source, in seconds.
NETWORK_JITTER: Final = 0.025
#: Maximum error of a host's estimate of the database's clock, in seconds: the round trip to a near database, and the
#: drift of the clocks. All slots are spaced for it.
MAX_CLOCK_ERROR: Final = 0.004
#: Maximum drift between two clocks, as a share of the elapsed time.
_DRIFT: Final = 1e-4
#: Maximum seconds of an answer of the database. The clocks may drift for twice as long before a slot is used.
_TIMEOUT_SECONDS: Final = 10.0
#: The name of leases from PostgreSQL as a rate source.
RATE_SOURCE: Final = "postgresql"
_SETTING: Final = f"CC_PIPELINE_RATE_SOURCE={RATE_SOURCE}"
_OWN_RATE_SETTING: Final = "CC_PIPELINE_RATE_SOURCE=own"
#: PostgreSQL's variables that name a server.
_SERVER_VARIABLES: Final = ("PGHOST", "PGHOSTADDR", "PGSERVICE")


@dataclass(frozen=True, slots=True)
class Claim:
    """A process' claim to ``share`` parallel requests, of which ``in_flight`` were running when it was made. ``since``
    is when it got a place, or began to wait for one (seconds of the database's clock).
    """

    holder: str
    share: int
    in_flight: int
    since: float

    @property
    def max_in_flight(self) -> int:
        """The number of requests that may be in flight."""
        return max(self.share, self.in_flight)


def claim(
    previous: Claim | None, other_claims: Sequence[Claim], limit: int, holder: str, in_flight: int, now: float
) -> Claim:
    """The next claim of ``holder`` to ``limit`` parallel requests: an even share, limited to what is free.

    The sum of all ``max_in_flight`` never grows above ``limit``. If there are more processes than places, the process
    that has waited longest is next, and a process that had a place for ``PLACE_SECONDS`` seconds leaves it."""
    free = limit - sum(other_claim.max_in_flight for other_claim in other_claims)
    waiting = [other_claim for other_claim in other_claims if not other_claim.share]
    had_place = previous is not None and previous.share > 0
    since = now if previous is None else min(previous.since, now)
    if had_place:
        gives_way = waiting and len(other_claims) >= limit and now - since >= PLACE_SECONDS
        share = 0 if gives_way else max(0, min(max(1, limit // (len(other_claims) + 1)), free))
    else:
        earlier = sum((waiting_claim.since, waiting_claim.holder) < (since, holder) for waiting_claim in waiting)
        share = max(0, min(max(1, limit // (len(other_claims) + 1)), free - earlier))
    return Claim(holder, share, in_flight, since if had_place == (share > 0) else now)


class DatabaseClock:
    """Bounds of the database's clock: a reading is between the time of its request and the time of its answer."""

    def __init__(self) -> None:
        self._low = self._high = self._reading_time = 0.0
        self._has_reading = False

    def add_reading(self, before: float, reading: float, after: float) -> None:
        """Adds a reading that was taken between ``before`` and ``after`` (monotonic seconds of this host)."""
        low, high = reading - after, reading - before
        if self._has_reading:
            drift = _DRIFT * (after - self._reading_time)
            bounds = max(low, self._low - drift), min(high, self._high + drift)
            # If the bounds do not overlap, one of the clocks was set.
            low, high = bounds if bounds[0] <= bounds[1] else (low, high)
        self._low, self._high, self._reading_time, self._has_reading = low, high, after, True

    def now(self, moment: float) -> float:
        """The earliest time of the database's clock at ``moment``. A process that uses it is late rather than early."""
        return moment + self._low - _DRIFT * (moment - self._reading_time)

    def max_error(self, moment: float) -> float:
        """The maximum error of :meth:`now` at ``moment``, in seconds."""
        return self._high - self._low + 2 * _DRIFT * (moment - self._reading_time)


class Ledger(Protocol):
    """The claims and slots of all hosts, with one clock."""

    def now(self) -> float:
        """The time of its clock, in seconds since the epoch."""

    def reserve(self, host: str, seconds: float, wait: float, max_wait: float) -> tuple[float, float]:
        """Reserves ``seconds`` of the time line of ``host``, at least ``wait`` seconds from now. Returns the clock and
        the start. A start more than ``max_wait`` seconds later was written before the clock was set back, and is
        ignored.
        """

    def renew(self, host: str, holder: str, decide: Callable[[float, Claim | None, Sequence[Claim]], Claim]) -> Claim:
        """Replaces a claim by the result of ``decide`` (of the clock, the previous claim and all other claims), while
        no other process can do so.
        """

    def leave(self, host: str, holder: str) -> None:
        """Ends a claim."""

    def close(self) -> None:
        """Ends the connection."""


def leased_spacing(rate: float) -> float:
    """Seconds between slots such that no second has more than ``rate`` requests, if no host is later than
    ``MAX_CLOCK_ERROR``.
    """
    # The millionth compensates rounding errors.
    return max(1 / rate, (1 + LEASED_LIFE + NETWORK_JITTER + MAX_CLOCK_ERROR + 1e-6) / max(1, int(rate)))


@dataclass(slots=True)
class RateLeases:
    """The slots of one process at ``host``, among all processes with the same ledger. Used by one thread at a time.

    Methods raise ``RateSourceDown`` while the ledger does not answer, and its own errors if it cannot be used.
    """

    host: str
    limits: SourceLimits
    ledger: Ledger
    monotonic: Callable[[], float] = time.monotonic
    #: Seconds after which the slots that were given last are void.
    life: float = LEASED_LIFE
    retry_seconds: float = RETRY_SECONDS
    name: str = "the database that gives out the request rate"
    _holder: str = field(default_factory=lambda: uuid.uuid4().hex)
    _clock: DatabaseClock | None = None

    def slots(self, max_slots: int, rate: float, wait: float, lateness: float = 0.0) -> tuple[float, float, int]:
        """Reserves up to ``max_slots`` slots at ``rate``, the first at least ``wait`` seconds from now. Returns the
        seconds until the first slot, the seconds between slots, and their number. ``lateness`` is by how many
        seconds this process missed, or nearly missed, slots of the previous lease.
        """
        self.life = min(MAX_LIFE, max(LEASED_LIFE, 2 * lateness, self.life / 2))
        clock = self._read_clock()
        late = clock.max_error(self.monotonic()) + _DRIFT * _TIMEOUT_SECONDS
        spacing = leased_spacing(rate)
        count = max(1, min(max_slots, int(LEASE_SECONDS / spacing)))
        # A process that may be later than others leaves that time free for the next one, whose slots are spaced for its
        # own lateness only.
        reserved_seconds = count * spacing + max(0.0, late - MAX_CLOCK_ERROR) + self.life - LEASED_LIFE
        queue = CLOCK_JUMP + (self.limits.concurrency + 1) * max(reserved_seconds, 1 / rate)
        request_time = self.monotonic()
        clock_reading, start = self.ledger.reserve(self.host, reserved_seconds, wait, queue)
        now = self.monotonic()
        clock.add_reading(request_time, clock_reading, now)
        if clock.max_error(now) > late:
            raise RateSourceDown("the clock of the database was changed")
        return start - clock.now(now), spacing, count

    def renew(self, in_flight: int) -> int:
        """Renews the claim. Returns the number of requests that may be in flight; ``in_flight`` are now."""

        def decide(now: float, previous: Claim | None, other_claims: Sequence[Claim]) -> Claim:
            return claim(previous, other_claims, self.limits.concurrency, self._holder, in_flight, now)

        return self.ledger.renew(self.host, self._holder, decide).share

    def close(self) -> None:
        """Gives back the claims of this process. If the database does not answer, they expire."""
        with suppress(RateSourceDown):
            self.ledger.leave(self.host, self._holder)
        self.ledger.close()

    def _read_clock(self) -> DatabaseClock:
        if self._clock is None:
            # The first answer also takes the time of connecting.
            self.ledger.now()
            request_time = self.monotonic()
            clock_reading = self.ledger.now()
            clock = DatabaseClock()
            clock.add_reading(request_time, clock_reading, self.monotonic())
            self._clock = clock
        return self._clock


def open_leases(host: str, limits: SourceLimits) -> RateLeases:
    """The slots of this process at a host, from PostgreSQL."""
    return RateLeases(host, limits, PostgresLedger())


_TABLES: Final = """
select pg_advisory_xact_lock(hashtext('cc_pipeline_turns'));
create table if not exists cc_pipeline_turns (host text primary key, next_slot double precision not null);
create table if not exists cc_pipeline_claims (
  host text, holder text, share integer not null, in_flight integer not null, since double precision not null,
  expires double precision not null, primary key (host, holder)
);
"""
_SQL_NOW: Final = "extract(epoch from clock_timestamp())::double precision"
#: Time limits of the database session.
_SESSION_SETTINGS: Final = """
set statement_timeout = '5s'; set idle_in_transaction_session_timeout = '5s'; set synchronous_commit = on
"""


class PostgresLedger:
    """The ledger in the PostgreSQL of ``PGHOST`` and related variables: Dagster's own, if a team has one.

    Methods raise ``RateSourceDown`` while it does not answer, ``EnvironmentFault`` if it cannot be used, and
    ``UserInputError`` if no variable names a server.
    """

    def __init__(self, *, creates_tables: bool = True) -> None:
        """``creates_tables``: whether it makes its tables where there are none."""
        self._creates_tables = creates_tables
        self._connection: Any = None

    def now(self) -> float:
        with self._statements() as execute:
            return float(execute(f"select {_SQL_NOW}")[0][0])

    def reserve(self, host: str, seconds: float, wait: float, max_wait: float) -> tuple[float, float]:
        with self._statements() as execute:
            [(now, end)] = execute(
                "insert into cc_pipeline_turns as turn values (%(host)s, "
                f"{_SQL_NOW} + %(wait)s + %(seconds)s) on conflict (host) do update set next_slot = %(seconds)s + "
                f"case when turn.next_slot > {_SQL_NOW} + %(wait)s + %(ahead)s then {_SQL_NOW} + %(wait)s "
                f"else greatest(turn.next_slot, {_SQL_NOW} + %(wait)s) end returning {_SQL_NOW}, next_slot",
                {"host": host, "seconds": seconds, "wait": wait, "ahead": max_wait},
            )
        return float(now), float(end) - seconds

    def renew(self, host: str, holder: str, decide: Callable[[float, Claim | None, Sequence[Claim]], Claim]) -> Claim:
        with self._statements() as execute:
            # The second transaction sees the rows of the first: each statement has a new snapshot.
            execute("begin; select pg_advisory_xact_lock(hashtext('cc_pipeline_claims'), hashtext(%s))", (host,))
            rows = execute(
                f"select {_SQL_NOW}, holder, share, in_flight, since from cc_pipeline_claims "
                f"where host = %s and expires between {_SQL_NOW} and {_SQL_NOW} + %s "
                f"union all select {_SQL_NOW}, null, 0, 0, 0",
                (host, CLAIM_LIFE + CLOCK_JUMP),
            )
            claims = {name: Claim(name, *claim_fields) for _, name, *claim_fields in rows if name is not None}
            now = float(rows[-1][0])
            previous = claims.pop(holder, None)
            new_claim = decide(now, previous, list(claims.values()))
            execute(
                "delete from cc_pipeline_claims where host = %(host)s and (holder = %(holder)s or not expires between "
                "%(now)s and %(last)s); insert into cc_pipeline_claims values (%(host)s, %(holder)s, %(share)s, "
                "%(in_flight)s, %(since)s, %(expires)s); commit",
                {
                    "host": host, "holder": holder, "share": new_claim.share, "in_flight": new_claim.in_flight,
                    "since": new_claim.since, "now": now, "expires": now + CLAIM_LIFE,
                    "last": now + CLAIM_LIFE + CLOCK_JUMP,
                },
            )  # fmt: skip
        return new_claim

    def leave(self, host: str, holder: str) -> None:
        if self._connection is not None:
            with self._statements() as execute:
                execute("delete from cc_pipeline_claims where host = %s and holder = %s", (host, holder))

    def holders(self) -> int:
        """The number of processes with a claim, to any source."""
        with self._statements() as execute:
            if execute("select to_regclass('cc_pipeline_claims')") == [(None,)]:
                return 0
            return int(execute(f"select count(*) from cc_pipeline_claims where expires > {_SQL_NOW}")[0][0])

    def last_used(self) -> float | None:
        """Seconds since the last lease of any source; ``None`` if there was none."""
        with self._statements() as execute:
            if execute("select to_regclass('cc_pipeline_turns')") == [(None,)]:
                return None
            [(seconds_ago,)] = execute(f"select {_SQL_NOW} - max(next_slot) from cc_pipeline_turns")
        return None if seconds_ago is None else max(0.0, float(seconds_ago))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _statements(self) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
        driver = _driver()
        try:
            if self._connection is None:
                self._connection = _connect(driver, creates_tables=self._creates_tables)
            with self._connection.cursor() as cursor:

                def run_statement(statement: str, values: object = None) -> list[tuple[Any, ...]]:
                    cursor.execute(statement, values)
                    return cursor.fetchall() if cursor.description else []

                yield run_statement
        except (driver.OperationalError, driver.InterfaceError, driver.InternalError) as error:
            # The statement may have run: then a slot stays unused, or a claim expires.
            self.close()
            raise RateSourceDown(_first_line(error)) from error
        except driver.Error as error:
            self.close()
            raise EnvironmentFault(
                f"{server_text()} cannot give out the request rate: {_first_line(error)}",
                "The database user must own a schema, as for Dagster's tables; or set "
                f"{_OWN_RATE_SETTING} on all hosts.",
            ) from error
        except BaseException:
            self.close()
            raise


def _driver() -> Any:
    try:
        import psycopg2  # noqa: PLC0415
    except ImportError as error:
        raise EnvironmentFault(
            f"{_SETTING} is set, and psycopg2, which connects to PostgreSQL, is not installed",
            f"Install it: pip install 'cc-pipeline[several-machines]'; or set {_OWN_RATE_SETTING} on all hosts.",
        ) from error
    return psycopg2


def _connect(driver: Any, *, creates_tables: bool) -> Any:
    if not has_server_variable():
        raise UserInputError(
            f"{_SETTING} is set, but no variable names the PostgreSQL server that shares the rate: set PGHOST, PGPORT, "
            "PGDATABASE, PGUSER and PGPASSWORD to the values of Dagster's database wherever runs fetch"
        )
    connection = driver.connect("", connect_timeout=5, tcp_user_timeout=5_000, application_name="cc_pipeline")
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(_SESSION_SETTINGS)
        cursor.execute("select to_regclass('cc_pipeline_claims') is null")
        if cursor.fetchone()[0] and creates_tables:
            cursor.execute(_TABLES)
    return connection


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def has_server_variable() -> bool:
    """Whether a variable names a PostgreSQL server."""
    return any(os.environ.get(name) for name in _SERVER_VARIABLES)


def server_text(environ: Mapping[str, str] | None = None) -> str:
    """The address of the database, without its password."""
    env = os.environ if environ is None else environ
    host = next((env[name] for name in _SERVER_VARIABLES if env.get(name)), "an unnamed server")
    return f"PostgreSQL at {host}:{env.get('PGPORT') or 5432}, database {env.get('PGDATABASE') or env.get('PGUSER')}"
