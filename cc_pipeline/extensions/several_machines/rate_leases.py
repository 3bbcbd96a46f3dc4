"""One rate for hosts that share nothing but a PostgreSQL: whose turn it is, and who may have requests under way.

Moments for requests are taken from one line of time per source, that of the database's clock, so no two hosts have the
same. What a dead or idle process does not take is taken by others. How many requests may be under way at the same time
is claimed for some seconds, and falls to others when the claim is not renewed.

A host that does not reach the database sends nothing: nobody can tell it from a dead one, and others have its turns.

Belongs here: arithmetic of clocks and claims, pure, and the two tables. Not here: refusals, outages and the learnt
rate, which each home keeps for itself (``budget.py``).
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
from cc_pipeline.transport.rate_source import RateSourceAway
from cc_pipeline.transport.rates import SourceLimits
from cc_pipeline.transport.refusals import CLOCK_JUMP

#: A lease reaches at most this many seconds ahead: a killed process loses no more to all others.
LEASE_SECONDS: Final = 0.25
#: Seconds for which a claim counts that is not renewed.
CLAIM_LIFE: Final = 10.0
#: Seconds after which one of too many processes leaves its place to another that waits.
TURN: Final = 20.0
#: Seconds between two looks whether there is a place, of a process that has none.
LOOK_AGAIN: Final = 1.0
#: Seconds after which a leased slot is void: fewer than for a slot of a home's own. Slots are spaced for this lateness,
#: and all hosts together are to use the rate.
LEASED_LIFE: Final = 0.01
#: Slots of a process that was late live up to so many seconds. It leaves the additional time free behind them, so that
#: a busy host is slower instead of never in time.
MAX_LIFE: Final = 0.5
#: Seconds by which one request may take longer to the source than another.
NETWORK: Final = 0.025
#: Seconds by which any host may be late, since it does not know the database's clock better: twice the way to a near
#: database, and what the clocks drift meanwhile. All slots are spaced for it.
KNOWN_LATE: Final = 0.004
#: Two clocks drift apart by at most this share of the time that passes.
_DRIFT: Final = 1e-4
#: Seconds that the database may take, for twice as long as that the clocks may drift apart before a slot is used.
_PATIENCE: Final = 10.0
#: The name of leases from PostgreSQL as a rate source.
RATE_SOURCE: Final = "postgresql"
_SETTING: Final = f"CC_PIPELINE_RATE_SOURCE={RATE_SOURCE}"
_INSTEAD: Final = "CC_PIPELINE_RATE_SOURCE=own"
#: Variables of PostgreSQL's own that say where a server is.
_WHERE: Final = ("PGHOST", "PGHOSTADDR", "PGSERVICE")


@dataclass(frozen=True, slots=True)
class Claim:
    """A process' claim to ``share`` requests at the same time, of which ``in_flight`` were under way when it was made.
    ``since``: when it got a place, or began to wait for one (seconds of the database's clock)."""

    holder: str
    share: int
    in_flight: int
    since: float

    @property
    def held(self) -> int:
        """The requests that may be under way."""
        return max(self.share, self.in_flight)


def claim(
    previous: Claim | None, other_claims: Sequence[Claim], limit: int, holder: str, in_flight: int, now: float
) -> Claim:
    """What ``holder`` claims next of ``limit``: an even share, of what is free.

    The sum of all ``held`` never grows above ``limit``. Where there are more processes than places, who waited longest
    is next, and who had a place for ``TURN`` seconds leaves it.
    """
    free = limit - sum(other.held for other in other_claims)
    waiting = [other for other in other_claims if not other.share]
    had_place = previous is not None and previous.share > 0
    since = now if previous is None else min(previous.since, now)
    if had_place:
        gives_way = waiting and len(other_claims) >= limit and now - since >= TURN
        share = 0 if gives_way else max(0, min(max(1, limit // (len(other_claims) + 1)), free))
    else:
        earlier = sum((waiting_claim.since, waiting_claim.holder) < (since, holder) for waiting_claim in waiting)
        share = max(0, min(max(1, limit // (len(other_claims) + 1)), free - earlier))
    return Claim(holder, share, in_flight, since if had_place == (share > 0) else now)


class DatabaseClock:
    """What the database's clock says, as far as a process can know: between when it was asked and when it answered."""

    def __init__(self) -> None:
        self._low = self._high = self._at = 0.0
        self._known = False

    def note(self, before: float, reading: float, after: float) -> None:
        """The clock said ``reading`` at some moment between ``before`` and ``after`` (monotonic seconds of this host)."""
        low, high = reading - after, reading - before
        if self._known:
            drift = _DRIFT * (after - self._at)
            bounds = max(low, self._low - drift), min(high, self._high + drift)
            # where they do not meet, one of the clocks was set
            low, high = bounds if bounds[0] <= bounds[1] else (low, high)
        self._low, self._high, self._at, self._known = low, high, after, True

    def now(self, moment: float) -> float:
        """What it says at least at ``moment``: who goes by this is late rather than early."""
        return moment + self._low - _DRIFT * (moment - self._at)

    def late(self, moment: float) -> float:
        """Seconds by which who goes by it may be late."""
        return self._high - self._low + 2 * _DRIFT * (moment - self._at)


class Ledger(Protocol):
    """What all hosts write to, by one clock."""

    def now(self) -> float:
        """Its clock, in seconds since the epoch."""

    def reserve(self, host: str, seconds: float, wait: float, max_wait: float) -> tuple[float, float]:
        """Takes ``seconds`` of the time of ``host`` that nobody else has, not before ``wait`` seconds from now. Gives
        the clock, and where they begin. A time that begins more than ``max_wait`` seconds later was written before the
        clock was set back."""

    def renew(self, host: str, holder: str, decide: Callable[[float, Claim | None, Sequence[Claim]], Claim]) -> Claim:
        """Replaces a claim by what is decided of the clock, the one before and those of all others, while nobody else
        does."""

    def leave(self, host: str, holder: str) -> None:
        """Ends a claim."""

    def close(self) -> None:
        """Ends the connection."""


def leased_spacing(rate: float) -> float:
    """Seconds between slots such that no second sees more than ``rate``, where nobody is later than ``KNOWN_LATE``."""
    # the millionth is for what floating point loses
    return max(1 / rate, (1 + LEASED_LIFE + NETWORK + KNOWN_LATE + 1e-6) / max(1, int(rate)))


@dataclass(slots=True)
class Leases:
    """The turns of one process at ``host``, among all that have the same ledger. Used by one thread at a time.

    Methods raise ``RateSourceAway`` while the ledger does not answer, and what it raises where it cannot be used."""

    host: str
    limits: SourceLimits
    ledger: Ledger
    monotonic: Callable[[], float] = time.monotonic
    #: Seconds after which the slots that were given last are void.
    life: float = LEASED_LIFE
    look_again: float = LOOK_AGAIN
    name: str = "the database that requests are leased from"
    _holder: str = field(default_factory=lambda: uuid.uuid4().hex)
    _clock: DatabaseClock | None = None

    def slots(self, max_slots: int, rate: float, wait: float, lateness: float = 0.0) -> tuple[float, float, int]:
        """Up to ``max_slots`` slots at ``rate``, the first ``wait`` seconds from now or later: in how many seconds it is,
        how far apart they are, and how many. ``lateness`` is by how many seconds this process missed slots of the lease
        before, or nearly missed them."""
        self.life = min(MAX_LIFE, max(LEASED_LIFE, 2 * lateness, self.life / 2))
        clock = self._known()
        late = clock.late(self.monotonic()) + _DRIFT * _PATIENCE
        spacing = leased_spacing(rate)
        count = max(1, min(max_slots, int(LEASE_SECONDS / spacing)))
        # who may be later than others leaves as much time to whoever comes next: those slots are spaced for their own
        reserved_seconds = count * spacing + max(0.0, late - KNOWN_LATE) + self.life - LEASED_LIFE
        queue = CLOCK_JUMP + (self.limits.concurrency + 1) * max(reserved_seconds, 1 / rate)
        asked_at = self.monotonic()
        clock_reading, start = self.ledger.reserve(self.host, reserved_seconds, wait, queue)
        now = self.monotonic()
        clock.note(asked_at, clock_reading, now)
        if clock.late(now) > late:
            raise RateSourceAway("its clock was set")
        return start - clock.now(now), spacing, count

    def renew(self, in_flight: int) -> int:
        """How many requests this process may have under way, of which ``in_flight`` are."""

        def decide(now: float, previous: Claim | None, other_claims: Sequence[Claim]) -> Claim:
            return claim(previous, other_claims, self.limits.concurrency, self._holder, in_flight, now)

        return self.ledger.renew(self.host, self._holder, decide).share

    def close(self) -> None:
        """Gives back what this process claims; where the database is away, that ends by itself."""
        with suppress(RateSourceAway):
            self.ledger.leave(self.host, self._holder)
        self.ledger.close()

    def _known(self) -> DatabaseClock:
        if self._clock is None:
            # the first answer takes a connection longer
            self.ledger.now()
            asked_at = self.monotonic()
            clock_reading = self.ledger.now()
            clock = DatabaseClock()
            clock.note(asked_at, clock_reading, self.monotonic())
            self._clock = clock
        return self._clock


def open_leases(host: str, limits: SourceLimits) -> Leases:
    """The turns of this process at a host, from PostgreSQL."""
    return Leases(host, limits, PostgresLedger())


_TABLES: Final = """
select pg_advisory_xact_lock(hashtext('cc_pipeline_turns'));
create table if not exists cc_pipeline_turns (host text primary key, next_slot double precision not null);
create table if not exists cc_pipeline_claims (
  host text, holder text, share integer not null, in_flight integer not null, since double precision not null,
  expires double precision not null, primary key (host, holder)
);
"""
_NOW: Final = "extract(epoch from clock_timestamp())::double precision"
#: Seconds to wait for the database, in its own words.
_PATIENT: Final = """
set statement_timeout = '5s'; set idle_in_transaction_session_timeout = '5s'; set synchronous_commit = on
"""


class PostgresLedger:
    """The ledger in the PostgreSQL that ``PGHOST`` and the like name: Dagster's own, where a team has one.

    Methods raise ``RateSourceAway`` while it does not answer, ``EnvironmentFault`` where it cannot be used, and
    ``UserInputError`` where no variable says where it is."""

    def __init__(self, *, makes: bool = True) -> None:
        """``makes``: whether it makes its tables where there are none."""
        self._makes = makes
        self._connection: Any = None

    def now(self) -> float:
        with self._statements() as execute:
            return float(execute(f"select {_NOW}")[0][0])

    def reserve(self, host: str, seconds: float, wait: float, max_wait: float) -> tuple[float, float]:
        with self._statements() as execute:
            [(now, end)] = execute(
                "insert into cc_pipeline_turns as turn values (%(host)s, "
                f"{_NOW} + %(wait)s + %(seconds)s) on conflict (host) do update set next_slot = %(seconds)s + "
                f"case when turn.next_slot > {_NOW} + %(wait)s + %(ahead)s then {_NOW} + %(wait)s "
                f"else greatest(turn.next_slot, {_NOW} + %(wait)s) end returning {_NOW}, next_slot",
                {"host": host, "seconds": seconds, "wait": wait, "ahead": max_wait},
            )
        return float(now), float(end) - seconds

    def renew(self, host: str, holder: str, decide: Callable[[float, Claim | None, Sequence[Claim]], Claim]) -> Claim:
        with self._statements() as execute:
            # who is second sees what the first wrote: each statement of a transaction looks anew
            execute("begin; select pg_advisory_xact_lock(hashtext('cc_pipeline_claims'), hashtext(%s))", (host,))
            rows = execute(
                f"select {_NOW}, holder, share, in_flight, since from cc_pipeline_claims "
                f"where host = %s and expires between {_NOW} and {_NOW} + %s "
                f"union all select {_NOW}, null, 0, 0, 0",
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
        """How many processes have a claim now, to any source."""
        with self._statements() as execute:
            if execute("select to_regclass('cc_pipeline_claims')") == [(None,)]:
                return 0
            return int(execute(f"select count(*) from cc_pipeline_claims where expires > {_NOW}")[0][0])

    def last_used(self) -> float | None:
        """How many seconds ago somebody leased of any source; ``None`` where nobody ever did."""
        with self._statements() as execute:
            if execute("select to_regclass('cc_pipeline_turns')") == [(None,)]:
                return None
            [(seconds_ago,)] = execute(f"select {_NOW} - max(next_slot) from cc_pipeline_turns")
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
                self._connection = _connected(driver, makes=self._makes)
            with self._connection.cursor() as cursor:

                def run_statement(statement: str, values: object = None) -> list[tuple[Any, ...]]:
                    cursor.execute(statement, values)
                    return cursor.fetchall() if cursor.description else []

                yield run_statement
        except (driver.OperationalError, driver.InterfaceError, driver.InternalError) as error:
            # what was asked may have been done: a turn that nobody uses, a claim that expires
            self.close()
            raise RateSourceAway(_first_line(error)) from error
        except driver.Error as error:
            self.close()
            raise EnvironmentFault(
                f"requests cannot be leased from {where()}: {_first_line(error)}",
                f"Its user has to own a schema, as for Dagster's tables; or set {_INSTEAD} on all hosts.",
            ) from error
        except BaseException:
            self.close()
            raise


def _driver() -> Any:
    try:
        import psycopg2  # noqa: PLC0415
    except ImportError as error:
        raise EnvironmentFault(
            f"{_SETTING} is set, and there is no psycopg2 here, which asks PostgreSQL",
            f"Install it: pip install 'cc-pipeline[several-machines]'; or set {_INSTEAD} on all hosts.",
        ) from error
    return psycopg2


def _connected(driver: Any, *, makes: bool) -> Any:
    if not is_named():
        raise UserInputError(
            f"{_SETTING} is set, and nothing says which PostgreSQL: set PGHOST, PGPORT, PGDATABASE, PGUSER and "
            "PGPASSWORD, those of Dagster's database, for each process that fetches"
        )
    connection = driver.connect("", connect_timeout=5, tcp_user_timeout=5_000, application_name="cc_pipeline")
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(_PATIENT)
        cursor.execute("select to_regclass('cc_pipeline_claims') is null")
        if cursor.fetchone()[0] and makes:
            cursor.execute(_TABLES)
    return connection


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def is_named() -> bool:
    """Whether a variable says which PostgreSQL is meant."""
    return any(os.environ.get(name) for name in _WHERE)


def where(environ: Mapping[str, str] | None = None) -> str:
    """The database that is meant, without its password."""
    env = os.environ if environ is None else environ
    host = next((env[name] for name in _WHERE if env.get(name)), "an unnamed server")
    return f"PostgreSQL at {host}:{env.get('PGPORT') or 5432}, database {env.get('PGDATABASE') or env.get('PGUSER')}"
