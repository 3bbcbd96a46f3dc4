"""How fast each source is asked: all numbers of it with their reasons, and the rate that is learnt of a host.

``docs/faults.md`` has them as a table. Belongs here: how many requests a second, and at the same time. Not here: who
may send the next one (``budget.py``), and what follows a refusal (``refusals.py``).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from typing import Final

from cc_pipeline.addresses import host_of, scheme_of
from cc_pipeline.errors import UserInputError
from cc_pipeline.stores.opening import is_loopback


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """Per host and machine: ``rate`` in requests per second (``None``: as fast as it goes), ``concurrency`` in
    requests under way. ``shared`` says whether other processes of this machine count too. ``begin`` is the rate of the
    first requests where ``rate`` has to be earned (``None``: it has not)."""

    rate: float | None
    concurrency: int
    shared: bool = True
    begin: float | None = None


#: The public mirror. Common Crawl asks all users together to stay at a few thousand requests a second; its front has
#: blocked users at two threads, and its own client sends a request in half a second.
_PUBLIC: Final = SourceLimits(rate=10.0, concurrency=8, begin=2.0)
#: The index server answers about 100,000 look-ups an hour for everybody together.
_INDEX_SERVER: Final = SourceLimits(rate=1.0, concurrency=2)
#: S3 itself takes some 5,500 reads a second and prefix, but the bucket is everybody's, as above. Whoever takes more
#: than this share of it can be written to.
_BUCKET: Final = SourceLimits(rate=100.0, concurrency=128)
_OWN_MACHINE: Final = SourceLimits(rate=None, concurrency=128, shared=False)
#: A bucket of one's own, where the lake lies, is nobody else's matter: what S3 takes well.
OWN_BUCKET_RATE: Final = 1_000.0

_BY_HOST: Final = {"data.commoncrawl.org": _PUBLIC, "index.commoncrawl.org": _INDEX_SERVER}

#: Requests that succeed at a rate before it is doubled.
SUCCESSES: Final = 10
#: Seconds for which a rate that was learnt is believed: a week.
KEPT: Final = 7 * 86_400.0
#: The smallest share of its full rate that a host is slowed down to.
_SLOWEST: Final = 1 / 64

#: Seconds by which a request may reach the place later than its slot. Slots are spaced so that even then no
#: window of one second sees more than 1.05 times the rate.
JITTER: Final = 0.1


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
    """The defaults with what a person set; a rate set on purpose is shared by the machine's processes, and need not be
    earned."""
    limits = defaults
    if rate is not None:
        limits = replace(limits, rate=rate, shared=True, begin=None)
    if concurrency is not None:
        limits = replace(limits, concurrency=concurrency)
    return limits


def refuse_nameless(source: str, s3_endpoint: str | None, rate: float | None, contact: str) -> None:
    """Raises ``UserInputError`` for a ``rate`` of Common Crawl's bucket above what each may have of it, from somebody
    who cannot be written to. Other buckets, and those at an endpoint of one's own, are nobody else's matter."""
    is_theirs = scheme_of(source) == "s3" and s3_endpoint is None and host_of(source) == "commoncrawl"
    if is_theirs and rate is not None and rate > (_BUCKET.rate or 0) and not contact:
        raise UserInputError(
            f"CC_PIPELINE_RATE is {rate:g}: more than {_BUCKET.rate:g} requests a second to s3://commoncrawl need an "
            "address that the operators can write to; set CC_PIPELINE_CONTACT, which is sent in the User-Agent"
        )


def shared_among(limits: SourceLimits, hosts: int) -> SourceLimits:
    """The even share of one of ``hosts`` (at least 1) that ask the same source, each with a budget file of its own.

    Rates of all shares add up to ``limits``. So do requests at the same time, unless there are more hosts than those:
    each may send one. Hosts know nothing of each other, so shares below one request a second may meet in one second.
    """
    rate = None if limits.rate is None else limits.rate / hosts
    begin = None if limits.begin is None else limits.begin / hosts
    return replace(limits, rate=rate, begin=begin, concurrency=max(1, limits.concurrency // hosts))


def slot_spacing(rate: float) -> float:
    """Seconds between slots such that no second sees more than 1.05 times ``rate``, jitter included."""
    most = max(1, int(rate * 1.05))
    # the millionth is for what floating point loses where a slot is late by exactly the jitter
    return max(1 / rate, (1 + JITTER + 1e-6) / most)


PACES_TABLE: Final = """
create table if not exists rates (
  host text not null, begins real not null, most real not null, pace real not null, at real not null,
  slowed_at real not null default 0, primary key (host, most, begins)
) without rowid;
"""
_ROW: Final = "host = ?1 and most = ?2 and begins = ?3"


class Pace:
    """The rate that one host is asked at, in a budget's file: earned by successes, halved by refusals, kept for a week,
    for each limits apart: a rate that somebody sets for one run says nothing of another's. Used inside the budget's
    transactions, for hosts that have a rate."""

    def __init__(self, db: sqlite3.Connection, host: str, limits: SourceLimits) -> None:
        self._db = db
        self.most = limits.rate or 0.0
        self._begins = limits.begin or self.most
        self._row = (host, self.most, self._begins)

    def open(self, now: float) -> None:
        """Goes on at the rate that was learnt; begins anew after a week."""
        self._db.execute(
            "insert into rates (host, most, begins, pace, at) values (?1, ?2, ?3, ?3, ?4) on conflict do update "
            "set pace = excluded.pace, at = excluded.at where at < ?4 - ?5",
            (*self._row, now, KEPT),
        )

    @property
    def rate(self) -> float:
        """Requests a second now, at most ``most``."""
        (pace,) = self._db.execute(f"select pace from rates where {_ROW}", self._row).fetchone()
        return min(float(pace), self.most)

    def slower(self, now: float) -> None:
        """The host asked for less: half, once a second."""
        self._db.execute(
            f"update rates set pace = max(?4, pace / 2), at = ?5, slowed_at = ?5 "
            f"where {_ROW} and not ?5 - slowed_at between 0 and 1",
            (*self._row, self.most * _SLOWEST, now),
        )

    def faster(self, now: float, since: float) -> None:
        """``SUCCESSES`` requests brought what they asked for, the first of them sent at ``since``: twice as fast. Those
        sent before the rate was halved say nothing of it."""
        self._db.execute(
            f"update rates set pace = min(most, pace * 2), at = ?4 where {_ROW} and not ?5 <= slowed_at",
            (*self._row, now, min(since, now)),
        )
