"""The circuit breaker of a host: a state machine without I/O. Every state has ``next``, which returns the state after
an event, and a note of its reason and source.

A refusal has one of three meanings, told apart by the pattern of refusals:

- by chance: a single 503, 502 or 504 among successes. The request is sent again with jitter, the rate stays.
- by rate: 429, ``Retry-After``, or a share of refusals that falls with the rate. All clients send less.
- by address: 403, or nothing but refusals for a second. All wait, and one request now and then is a probe.

::

    Serving ──a high share──► Comparing ──the share fell──► Slowed ──a minute of few refusals──► Serving
       │ ▲                        └──────the share stayed──────► Serving            (twice as fast, until at the limit)
       ▼ │
    Blocked  (403, nothing but refusals)

All processes of a budget share one state per host (``budget.py``). Times are seconds since the epoch, rates are
requests a second.

Belongs here: what follows a refusal. Not here: waiting (``rate_limiter.py``), and when a request is sent
(``budget.py``)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, LONGEST_WAIT, FaultKind, Refusal

#: Answers that are judged together. "One part in five served [as 503] on a bad day, independent of request rate" (a
#: user, 18 August 2026): a share below ``SHARE`` needs so many answers to say anything.
WINDOW: Final = 200
#: The share of refusals from which the rate is suspected at once, for at least ``MIN_ANSWERS`` answers: with one in
#: five by chance, a quarter of 100 comes once in eight times.
SHARE: Final = 0.25
MIN_ANSWERS: Final = 100
#: The share from which the rate is suspected after a whole window: with one in ten by chance it comes once in sixty
#: windows.
SUSPECT_SHARE: Final = 0.15
#: Answers at half the rate that decide whether the share of refusals follows the rate. At one in five by chance, a
#: thirtieth of such comparisons is wrong, and one costs twelve seconds at 5/s.
COMPARED_ANSWERS: Final = 60
#: Seconds for which a share that did not follow the rate counts as chance, unless it grows by half.
CHANCE_LIFE: Final = 3_600.0
_GROWN: Final = 1.5
#: Number of 429 and ``Retry-After`` within a window that halves the rate: a single one only pauses.
RATE_REFUSALS: Final = 3
#: Refusals in a row are a wave if chance brings such a row once in 100,000 requests. The number depends on the share
#: before; a few answers are weighed with ``_PRIOR`` (one in twenty). A wave takes at least a second, or ``SLOW_WAVE``
#: seconds for a client that sends one request at a time; or it is long at any speed.
WAVE: Final = 4
WAVE_CHANCE: Final = 1e-5
WAVE_SECONDS: Final = 1.0
SLOW_WAVE: Final = 10.0
LONG_WAVE: Final = 12
_PRIOR: Final = (1, 20)
#: If another wave comes within so many seconds, the rate is the reason.
WAVE_INTERVAL: Final = 300.0
#: Seconds after which a lowered rate is doubled if few of at least so many answers were refusals. After each failed try
#: the time doubles, to at most a quarter of an hour: an improvement is found within minutes.
CLIMB: Final = 60.0
LONGEST_CLIMB: Final = 900.0
CLIMB_ANSWERS: Final = 30
CLIMB_SHARE: Final = 0.10
#: Seconds for which a lowered rate is used: users report throttles of minutes, and one of an hour.
LOWERED_RATE_LIFE: Final = 6 * 3_600.0
#: Seconds for which an object that was read serves as a sample for probes.
SAMPLE_KEPT: Final = 7 * 86_400.0
#: The smallest share of its full rate that a host is slowed down to.
_SLOWEST: Final = 1 / 64
#: Seconds after a refusal by address for which ``HostRules.cautious`` holds.
CAUTION: Final = 86_400.0
#: Seconds of the window in which Common Crawl's firewall counts (cc-monitoring: aws/waf-webacl-*.json, 2023), and of
#: the buckets in which requests are counted here.
FIREWALL_WINDOW: Final = 300
_BUCKET_SECONDS: Final = 30

#: Seconds from a refusal to each probe; after the last, as long again each time.
PROBES: Final = (5.0, 15.0, 60.0)
#: Seconds that a request waits for a host that refuses, by default. They include the probe at six minutes, when no
#: earlier request is left in a window of 300 s.
WAIT: Final = 370.0
#: The same for a command at a terminal: until the user stops it. No run takes longer than these seconds.
WAIT_ATTENDED: Final = 7 * 86_400.0
#: Maximum seconds of a ``Retry-After`` that a request waits, unless it waits for ever.
LONGEST_PAUSE: Final = 300.0
#: Seconds of a pause that needs no message, and of the pause after a 429 without ``Retry-After``.
SHORT_PAUSE: Final = 2.0
_PAUSE: Final = 1.0
#: Seconds. A stored time this much further in the future than possible was written before the clock was set back.
CLOCK_JUMP: Final = 60.0


@dataclass(frozen=True, slots=True)
class BreakerOpen:
    """The circuit breaker is open: nothing is sent before ``until`` (seconds since the epoch). ``never_answered``: the
    host has never given anything, and it may require credentials."""

    until: float
    reason: str
    never_answered: bool = False


@dataclass(frozen=True, slots=True)
class RefusalPolicy:
    """The policy for hosts that refuse. ``probes`` are the seconds from a refusal to each probe;
    later probes repeat the last value as their distance. Without probes, a refusal concerns only the object. ``wait``
    is the number of seconds a request waits (0: not at all; ``math.inf``: for ever, and for any ``Retry-After``)."""

    probes: tuple[float, ...] = field(default_factory=lambda: PROBES)
    wait: float = field(default_factory=lambda: WAIT)

    @property
    def first_probe_delay(self) -> float:
        """The seconds until the first probe, at most the default."""
        return min(self.probes[0], 5.0) if self.probes else 0.0

    def gap(self, probes: int) -> float:
        """Seconds from a probe (or the refusal) to the next, when ``probes`` were sent. Below zero: at once."""
        if probes < 0:
            return 0.0
        if probes >= len(self.probes):
            return self.probes[-1]
        return self.probes[probes] - (self.probes[probes - 1] if probes else 0.0)

    def gives_up(self, waited: float, remaining: float) -> bool:
        """Whether a request that ``waited`` so many seconds gives up instead of waiting for the ``remaining`` ones."""
        return self.wait < math.inf and (remaining > LONGEST_PAUSE or waited + remaining > self.wait)

    def waits_for_probes(self, waited: float, remaining: float) -> bool:
        """Whether a request that would give up waits for the probe that is in flight. The next probe follows after
        ``remaining`` seconds."""
        return self.wait > 0 and 0 < waited <= self.wait + self.first_probe_delay and remaining <= self.probes[-1]


@dataclass(frozen=True, slots=True)
class HostRules:
    """The configured rules of a host: the full ``rate`` (``None``: no limit), the ``cautious`` rate for a day after the
    address was blocked (``None``: the full one), and the times of probes."""

    rate: float | None
    refusals: RefusalPolicy
    cautious: float | None = None


class Cause(StrEnum):
    """The cause of a block."""

    #: 403.
    ADDRESS = "address"
    #: Nothing but 503, 502 or 504.
    WAVE = "wave"


# events


@dataclass(frozen=True, slots=True)
class Gave:
    """``count`` requests succeeded, the last of them sent at ``sent``."""

    now: float
    count: int
    sent: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A request, sent at ``sent``, failed. ``refusal`` is the possible meaning, ``is_repeat``: not for the
    first time. ``probes_at_once``: it may concern only the object, so the first probe need not wait."""

    now: float
    sent: float
    kind: FaultKind
    reason: str
    refusal: Refusal | None = None
    retry_after: float | None = None
    probes_at_once: bool = False
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """``count`` requests may be sent from ``now`` on; for a blocked host it is the probe."""

    now: float
    count: int


Event: TypeAlias = Gave | Failed | Sent


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of answers since the last decision: all, refusals, and the ``row`` of refusals at the end, of which
    ``fresh`` are of requests that were not refused before. ``asks`` counts 429 and ``Retry-After``."""

    answers: int = 0
    refusals: int = 0
    asks: int = 0
    row: int = 0
    fresh: int = 0
    row_since: float = 0.0

    @property
    def share(self) -> float:
        return self.refusals / self.answers if self.answers else 0.0

    def with_answers(self, count: int) -> Tally:
        """Returns the tally with ``count`` more answers; a full window counts half from then on."""
        count = min(count, WINDOW)
        full = self.answers >= WINDOW
        tally = Tally(self.answers // 2, self.refusals // 2, self.asks // 2) if full else self
        return Tally(tally.answers + count, tally.refusals, tally.asks)

    def with_refusal(self, event: Failed) -> Tally:
        tally = self.with_answers(1)
        since = min(self.row_since, event.sent) if self.row else event.sent
        return replace(
            tally, refusals=tally.refusals + 1, row=self.row + 1,
            fresh=self.fresh + (not event.is_repeat), row_since=since,
        )  # fmt: skip

    def is_wave(self, sent: float) -> bool:
        """Whether the refusals in a row, up to the one sent at ``sent``, are more than chance. Repeated requests count
        less, since their objects may never come."""
        share = (self.refusals - self.row + _PRIOR[0]) / max(1, self.answers - self.row + _PRIOR[1])
        min_refusals = math.log(WAVE_CHANCE) / math.log(min(0.99, max(0.01, share)))
        lasted = sent - self.row_since
        is_slow = self.row >= WAVE and lasted >= SLOW_WAVE
        return is_slow or self.fresh >= (max(WAVE, min_refusals) if lasted >= WAVE_SECONDS else LONG_WAVE)


@dataclass(frozen=True, slots=True)
class Memory:
    """The facts about a host that every state has.

    ``rate`` was learnt at ``learnt_at`` (``None``: the full one). It is doubled after ``climb`` seconds, the last time
    at ``climbed_at``. ``chance`` is the share of refusals that did not follow the rate, found at ``chance_at``. The
    last block ended with an answer to a request sent at ``ended``. ``refused_at`` is the last block of the address,
    ``asked_before`` the requests that may have been sent within the ``FIREWALL_WINDOW`` seconds before it. ``sent``
    counts requests per half minute."""

    rate: float | None = None
    learnt_at: float = 0.0
    climb: float = CLIMB
    climbed_at: float = 0.0
    chance: float = 0.0
    chance_at: float = 0.0
    pause_until: float = 0.0
    ended: float = 0.0
    wave_ended: float = 0.0
    refused_at: float = 0.0
    asked_before: int = 0
    last_refusal: str | None = None
    last_refusal_at: float = 0.0
    sent: tuple[tuple[int, int], ...] = ()

    def full_rate(self, rules: HostRules, now: float) -> float | None:
        """Returns the maximum rate: the cautious one for a day after the address was blocked."""
        if rules.rate is None or rules.cautious is None or not self.refused_at:
            return rules.rate
        # also if the clock was set back a little
        if now - self.refused_at >= CAUTION:
            return rules.rate
        return min(rules.rate, rules.cautious)

    def rate_at(self, rules: HostRules, now: float) -> float | None:
        """Returns the current rate."""
        full = self.full_rate(rules, now)
        return full if full is None or self.rate is None else min(full, self.rate)

    def believed(self, now: float) -> float:
        """Returns the share of refusals that counts as chance, with the growth that is allowed."""
        return self.chance * _GROWN if 0 <= now - self.chance_at < CHANCE_LIFE else 0.0

    def halved(self, rules: HostRules, now: float) -> Memory:
        """Returns the memory with half the current rate."""
        rate = self.rate_at(rules, now)
        if rate is None or rules.rate is None:
            return self
        climbed_recently = bool(self.climbed_at) and 0 <= now - self.climbed_at < LONGEST_CLIMB
        climb = min(LONGEST_CLIMB, self.climb * 2) if climbed_recently else CLIMB
        return replace(self, rate=max(rules.rate * _SLOWEST, rate / 2), learnt_at=now, climb=climb)

    def notes(self, event: Failed) -> Memory:
        return replace(self, last_refusal=event.reason[:300], last_refusal_at=event.now)

    def pauses(self, event: Failed) -> Memory:
        seconds = _PAUSE if event.retry_after is None else event.retry_after
        return replace(self.notes(event), pause_until=max(self.pause_until, event.now + seconds))

    def counts(self, event: Sent) -> Memory:
        """Counts requests; drops those that are older than the firewall's window."""
        bucket = int(event.now // _BUCKET_SECONDS)
        oldest = bucket - FIREWALL_WINDOW // _BUCKET_SECONDS
        counts = dict(self.sent)
        counts[bucket] = counts.get(bucket, 0) + event.count
        return replace(self, sent=tuple((start, count) for start, count in sorted(counts.items()) if start >= oldest))

    def requests_within(self, now: float) -> int:
        """Returns the requests of the ``FIREWALL_WINDOW`` seconds before ``now``, rather too many than too few."""
        oldest = int((now - FIREWALL_WINDOW) // _BUCKET_SECONDS)
        return sum(count for start, count in self.sent if start >= oldest)


# states


@dataclass(frozen=True, slots=True)
class Serving:
    """The host answers, at the full rate. Refusals count as chance, until their share or their row says otherwise.

    Source: "one part in five served on a bad day, independent of request rate" (a user, August 2026); S3 answers 503
    ``SlowDown`` behind Common Crawl's front (commoncrawl-fetcher-lite#26).
    """

    memory: Memory = field(default_factory=Memory)
    tally: Tally = field(default_factory=Tally)

    def rate_at(self, rules: HostRules, now: float) -> float | None:
        return self.memory.rate_at(rules, now)

    def admits(self, now: float) -> BreakerOpen | bool:
        """Returns ``True`` if requests may be sent, ``BreakerOpen`` for a pause that is worth a message."""
        return _pause(self.memory, now) or True

    def next(self, event: Event, rules: HostRules) -> State:
        if isinstance(event, Sent):
            return replace(self, memory=self.memory.counts(event))
        if isinstance(event, Gave):
            return self._apply_tally(replace(self, tally=self.tally.with_answers(event.count)), event.now, rules)
        return _failed(self, event, rules)

    def chance(self, tally: Tally, event: Failed, rules: HostRules) -> State:
        """Returns the state after a refusal that may be chance."""
        return self._apply_tally(replace(self, tally=tally), event.now, rules)

    def _apply_tally(self, state: Serving, now: float, rules: HostRules) -> State:
        tally, memory = state.tally, state.memory
        is_suspect = (tally.answers >= MIN_ANSWERS and tally.share >= SHARE) or (
            tally.answers >= WINDOW and tally.share >= SUSPECT_SHARE
        )
        rate = memory.rate_at(rules, now)
        if not is_suspect or tally.share <= memory.believed(now) or rate is None:
            return state
        return Comparing(memory, before=tally.share, full=rate)


@dataclass(frozen=True, slots=True)
class Slowed(Serving):
    """The host asked for fewer requests, or answers more of them at a lower rate: it gets that rate, and after a minute
    of few refusals twice as much.

    Source: "4xx are mostly the operators' own rate rules" (status.commoncrawl.org); throttles lift within minutes, or
    "inside an hour of rest" (users, autumn 2026).
    """

    def next(self, event: Event, rules: HostRules) -> State:
        state = Serving.next(self, event, rules)
        if not isinstance(event, Gave) or not isinstance(state, Slowed):
            return state
        memory, tally = state.memory, state.tally
        waited, max_share = event.now - memory.learnt_at, max(CLIMB_SHARE, memory.believed(event.now))
        if waited < memory.climb or tally.answers < CLIMB_ANSWERS or tally.share >= max_share:
            return state
        faster, full = (memory.rate or math.inf) * 2, rules.rate or math.inf
        if faster >= full:
            return Serving(replace(memory, rate=None, learnt_at=event.now, climbed_at=event.now))
        return Slowed(replace(memory, rate=faster, learnt_at=event.now, climbed_at=event.now))


@dataclass(frozen=True, slots=True)
class Comparing:
    """Many refusals came, perhaps because of the rate. The host gets half of it (``full``), and the share of refusals
    is compared with that ``before``. If it falls to half, it follows the rate; if not, it is chance.

    Source: ours. A rate that any 503 halves takes 13 h for 10,000 requests at one in ten (our model); asking again
    without slowing takes a tenth more than at none.
    """

    memory: Memory
    before: float
    full: float
    tally: Tally = field(default_factory=Tally)

    def rate_at(self, rules: HostRules, now: float) -> float | None:
        rate = self.memory.rate_at(rules, now)
        return None if rate is None else min(rate, self.full / 2)

    def admits(self, now: float) -> BreakerOpen | bool:
        """Returns the same as ``Serving.admits``."""
        return _pause(self.memory, now) or True

    def next(self, event: Event, rules: HostRules) -> State:
        if isinstance(event, Sent):
            return replace(self, memory=self.memory.counts(event))
        if isinstance(event, Gave):
            return self._apply_tally(self.tally.with_answers(event.count), event.now, rules)
        return _failed(self, event, rules)

    def chance(self, tally: Tally, event: Failed, rules: HostRules) -> State:
        """Returns the state after a refusal that may be chance."""
        return self._apply_tally(tally, event.now, rules)

    def _apply_tally(self, tally: Tally, now: float, rules: HostRules) -> State:
        if tally.answers < COMPARED_ANSWERS:
            return replace(self, tally=tally)
        # the share at a host that gives a fixed number a second, and refuses the others
        expected = max(0.0, 2 * self.before - 1)
        if tally.share <= (self.before + expected) / 2:
            return Slowed(self.memory.halved(rules, now))
        memory = replace(self.memory, chance=max(self.before, tally.share), chance_at=now)
        return Serving(memory) if memory.rate is None else Slowed(memory)


@dataclass(frozen=True, slots=True)
class Blocked:
    """The host gives nothing: only a probe is sent now and then, and a good answer to it ends the block.

    The next probe is due at ``until``, ``probes`` were sent; -1 if the first is due at once. ``counts``: the block
    concerns more than one object. ``asked`` is the number of requests that may have been sent within the
    ``FIREWALL_WINDOW`` seconds before.

    Source: the firewall blocks an address that asked 900 times, later 6,000, in 300 s (cc-monitoring); "403s the whole
    address at 6 to 8 connections", lifting in minutes (users, autumn 2026).
    """

    memory: Memory
    since: float
    until: float
    why: str
    cause: Cause
    probes: int = 0
    counts: bool = True
    asked: int = 0

    def rate_at(self, rules: HostRules, now: float) -> float | None:
        """Returns the rate after the block; until then only probes are sent."""
        return self._ended(now, now, rules).rate_at(rules, now)

    def admits(self, now: float) -> BreakerOpen | bool:
        """Returns ``False`` if the next request is the probe, ``BreakerOpen`` if nothing is sent."""
        return BreakerOpen(self.until, self.why) if now < self.until else False

    def next(self, event: Event, rules: HostRules) -> State:
        if isinstance(event, Sent):
            probes = self.probes + 1
            return replace(
                self, memory=self.memory.counts(event), probes=probes, until=event.now + rules.refusals.gap(probes)
            )
        if isinstance(event, Gave):
            return self._ended(event.now, event.sent, rules) if event.sent >= self.since else self
        if is_answer(event.kind, event.refusal):
            return self._ended(event.now, event.sent, rules) if event.sent >= self.since else self
        if event.refusal is None:
            return self
        is_wave = self.cause == Cause.WAVE
        return replace(
            self,
            memory=self.memory.notes(event),
            until=max(self.until, event.now + (event.retry_after or 0.0)),
            why=event.reason[:300],
            # a front that is down for a minute may block the address afterwards
            cause=Cause.ADDRESS if is_wave and event.refusal is Refusal.ADDRESS else self.cause,
            counts=self.counts or (self.probes >= 0 and event.sent > self.since),
        )

    @property
    def is_of_address(self) -> bool:
        """Whether the address is blocked, and not one object."""
        return self.cause == Cause.ADDRESS and self.counts

    def _ended(self, now: float, sent: float, rules: HostRules) -> State:
        """Returns the state after the block. A block of the address lowers the rate to the cautious one if there is
        one; otherwise, and the next time, to half. A wave soon after another one also halves it."""
        previous = self.memory
        memory = replace(previous, ended=max(sent, self.since))
        if self.cause == Cause.WAVE:
            memory = replace(memory, wave_ended=now)
            if previous.wave_ended and 0 <= self.since - previous.wave_ended < WAVE_INTERVAL:
                memory = memory.halved(rules, now)
        if self.is_of_address:
            memory = replace(memory, refused_at=self.since, asked_before=self.asked)
            if previous.full_rate(rules, now) == memory.full_rate(rules, now):
                memory = memory.halved(rules, now)
        return Serving(memory) if memory.rate is None else Slowed(memory)


State: TypeAlias = Serving | Slowed | Comparing | Blocked


def is_answer(kind: FaultKind, refusal: Refusal | None) -> bool:
    """Whether a failed request shows that its host does not refuse, and only the object is wrong."""
    return refusal is None and kind not in ENVIRONMENT_KINDS


def _pause(memory: Memory, now: float) -> BreakerOpen | None:
    """Returns the pause that a host asked for, if it is worth a message."""
    is_long = memory.pause_until > now + SHORT_PAUSE
    return BreakerOpen(memory.pause_until, memory.last_refusal or "refused") if is_long else None


def _failed(state: Serving | Comparing, event: Failed, rules: HostRules) -> State:
    """Returns the state of an answering host after a failed request."""
    memory, tally = state.memory, state.tally
    if is_answer(event.kind, event.refusal):
        return replace(state, tally=tally.with_answers(1))
    # requests that were in flight at the last block are no news
    if event.refusal is None or event.sent <= memory.ended <= event.now:
        return state
    if event.refusal is Refusal.ADDRESS:
        return _blocked(memory, event, Cause.ADDRESS, rules)
    if event.refusal is Refusal.CHANCE:
        tally = tally.with_refusal(event)
        if rules.refusals.probes and tally.is_wave(event.sent):
            return _blocked(memory, replace(event, probes_at_once=False), Cause.WAVE, rules)
        return state.chance(tally, event, rules)
    if event.sent <= memory.learnt_at <= event.now:
        return replace(state, memory=memory.pauses(event), tally=tally)
    tally = replace(tally.with_answers(1), asks=tally.asks + 1)
    if tally.asks < RATE_REFUSALS:
        return replace(state, memory=memory.pauses(event), tally=tally)
    slower = memory.pauses(event).halved(rules, event.now)
    return Slowed(slower) if slower.rate is not None else Serving(slower)


def _blocked(memory: Memory, event: Failed, cause: Cause, rules: HostRules) -> Blocked:
    probes = -1 if event.probes_at_once else 0
    request_count = memory.requests_within(event.now)
    until = event.now + max(rules.refusals.gap(probes), event.retry_after or 0.0)
    return Blocked(
        memory.notes(event),
        event.now,
        until,
        event.reason[:300],
        cause,
        probes,
        not event.probes_at_once,
        request_count,
    )


def reset_by_user(state: State, now: float) -> State:
    """Returns the state of a host that the user reset: its block is over, also if it is reported again. The refusal of
    the address stays recorded."""
    since = state.since if isinstance(state, Blocked) else now
    memory = replace(state.memory, pause_until=0.0, ended=max(now, since))
    if isinstance(state, Blocked) and state.is_of_address:
        memory = replace(memory, refused_at=state.since, asked_before=state.asked)
    return Serving(memory) if memory.rate is None else Slowed(memory)


def blocked_elsewhere(
    state: State, since: float, until: float, probes: int, reason: str, cause: Cause = Cause.ADDRESS
) -> State:
    """Returns the state of a host that another machine found blocked, unless a later block is known here, or it
    ended."""
    memory = state.memory
    if memory.last_refusal_at < since:
        memory = replace(memory, last_refusal=reason, last_refusal_at=since)
    if since <= memory.ended:
        return state
    if isinstance(state, Blocked):
        if since <= state.since:
            return state
        until, probes = max(until, state.until), max(probes, state.probes)
        cause = Cause.ADDRESS if state.is_of_address else cause
    return Blocked(memory, since, until, reason, cause, probes)


_MOMENTS: Final = ("learnt_at", "climbed_at", "chance_at", "wave_ended", "refused_at")


def remembered(state: State, now: float) -> State:
    """Returns ``state`` corrected for ``now``: times in the future were written before the clock was set back, and a
    rate that was learnt hours ago is dropped."""
    memory = state.memory
    latest = max(getattr(memory, name) for name in ("ended", *_MOMENTS))
    if latest > now + CLOCK_JUMP or memory.pause_until > now + LONGEST_WAIT + CLOCK_JUMP:
        # learnt values count from now
        memory = replace(
            memory,
            **{name: min(getattr(memory, name), now) for name in _MOMENTS},
            ended=min(memory.ended, now - 1e-6),
            pause_until=min(memory.pause_until, now),
            sent=(),
        )
    if memory.last_refusal_at > now + CLOCK_JUMP:
        memory = replace(memory, last_refusal_at=now, pause_until=min(memory.pause_until, now))
    if isinstance(state, Blocked):
        if state.since > now + CLOCK_JUMP:
            # a probe is due, and answers count from now on
            return replace(state, memory=memory, since=now, until=now)
        if state.until > now + LONGEST_WAIT + CLOCK_JUMP:
            return replace(state, memory=memory, until=now)
        return state if memory is state.memory else replace(state, memory=memory)
    if memory.rate is not None and now - memory.learnt_at > LOWERED_RATE_LIFE:
        return Serving(replace(memory, rate=None, learnt_at=0.0, climb=CLIMB))
    return state if memory is state.memory else replace(state, memory=memory)


_STATES: Final = {kind.__name__: kind for kind in (Serving, Slowed, Comparing, Blocked)}


def as_text(state: State) -> str:
    """Returns a state as JSON, for ``from_text``."""
    return json.dumps({"state": type(state).__name__, **asdict(state)})


def from_text(text: str) -> State:
    """Parses a state that ``as_text`` wrote. Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``AttributeError``
    for any other text."""
    values: dict[str, Any] = json.loads(text)
    kind = _STATES[values.pop("state")]
    memory = values.pop("memory")
    memory["sent"] = tuple((bucket, count) for bucket, count in memory["sent"])
    if "cause" in values:
        values["cause"] = Cause(values["cause"])
    if "tally" in values:
        values["tally"] = Tally(**values["tally"])
    state: State = kind(memory=Memory(**memory), **values)
    return state
