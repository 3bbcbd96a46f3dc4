"""The state of one host, which all processes share: when the next request may be sent, and what refusals change.

======================================================  ===============================================================
what comes                                              what follows
======================================================  ===============================================================
an answer                                               the row of refusals ends, and with it a pause; the next pause
                                                        would be half as long
a refusal (403, 429, 503, 502, 504)                     the request is sent again, the rate stays
three refusals in a row: the host refuses               a pause of 5 s; at its end one waiting request is sent. It is
                                                        answered, or the pause is twice as long, up to an hour
``Retry-After``                                         a pause of that time
30 points (+3 a refusal, -1 an answer, none below 0)    half the rate
200 answers, or an hour, at a lowered rate              twice the rate
======================================================  ===============================================================

So a quarter of refusals or more, but not a fifth, lowers the rate. In a row, a 403 counts once an object, since it may
be the object's; it counts each time at a host that refuses addresses by 403 (``SourceLimits.cautious``), and such a row
means the cautious rate for a day. An object that is refused alone, after every pause that its request waits for, is
given up. The next request shows whether that was its host.

Pure: no I/O, no clock. Times are seconds since the epoch, rates are requests a second.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum, auto
from hashlib import blake2b
from math import inf
from typing import Final

from cc_pipeline.transport.limits import SourceLimits

#: Seconds of the first pause, and of the longest one; also the longest ``Retry-After``.
FIRST_PAUSE = 5.0
LONGEST_PAUSE: Final = 3_600.0
#: Refusals in a row from which the host refuses, and not the object or chance. At one in five by chance ("on a bad
#: day, independent of request rate", a user, August 2026) such a row comes once in 150 requests and costs 5 s.
ROW: Final = 3
#: Points of a refusal, and the points that halve the rate. One in five by chance reaches them once in 2,000 answers;
#: a limiter that refuses every other request, after 30.
REFUSAL_POINTS: Final = 3
SLOWING_POINTS: Final = 30
#: Answers, or seconds, after which a lowered rate is doubled. A limiter then refuses some 15 of 230 requests.
FASTER_ANSWERS: Final = 200
FASTER_SECONDS: Final = 3_600.0
#: The rate is halved at most so often: to 1/64.
MAX_HALVINGS: Final = 6
#: Seconds for which the cautious rate holds.
CAUTION: Final = 86_400.0
#: Seconds by which a request may be late without losing its place, so that a busy machine still gets its rate.
_LATENESS: Final = 0.1
#: Seconds. A stored time this much further in the future than possible was written before the clock was set back.
_CLOCK_JUMP: Final = 60.0


class NextStep(Enum):
    """What follows for a refused request: it is sent again soon, it waits for its host, or it is given up."""

    SEND_AGAIN = auto()
    WAIT = auto()
    GIVE_UP = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of a request for the object ``key`` that was sent at ``sent`` and refused at ``now``, for the given
    ``reason``. ``retry_after`` is the number of seconds for which the host asks to wait, if it does. The request
    waits for ``wait`` more seconds, if no other object is refused."""

    key: str
    sent: float
    now: float
    reason: str
    is_forbidden: bool = False
    retry_after: float | None = None
    wait: float = inf


@dataclass(frozen=True, slots=True)
class Admission:
    """``count`` requests may be sent now. If none, the next one may at ``next_time``, and ``reason`` says why the host
    gets none (``None``: only the rate). The request that ended the last pause was sent at ``tested_at``, and is not
    answered yet. ``is_requested_by_host``: the host asked for the pause."""

    count: int
    next_time: float = 0.0
    reason: str | None = None
    tested_at: float | None = None
    is_requested_by_host: bool = False


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of a host; see the module's table.

    ``next_at`` is when the rate allows the next request. ``row`` are the objects of the last refusals in a row. The
    current or last pause has ``pause`` seconds and ends at ``pause_until``; what was sent before ``refused_at`` says
    nothing about it. ``asked_until`` is the end of a ``Retry-After``. ``points`` and ``answers`` are counted since the
    rate was changed, at ``changed_at``; it was halved ``halvings`` times. The host refused this address by 403 at
    ``address_refused_at``."""

    next_at: float = 0.0
    row: tuple[str, ...] = ()
    pause: float = 0.0
    pause_until: float = 0.0
    refused_at: float = 0.0
    asked_until: float = 0.0
    points: int = 0
    answers: int = 0
    halvings: int = 0
    changed_at: float = 0.0
    address_refused_at: float = 0.0
    last_refusal: str | None = None
    last_refusal_at: float = 0.0

    @property
    def is_refusing(self) -> bool:
        """Whether the host refuses, and not an object."""
        return len(self.row) >= ROW

    @property
    def is_calm(self) -> bool:
        """Whether an answer would change nothing that matters to other processes at once."""
        return not self.row and not self.pause

    def rate_at(self, limits: SourceLimits, now: float) -> float | None:
        """Returns the current rate."""
        if limits.rate is None:
            return None
        is_cautious = limits.cautious is not None and now - self.address_refused_at < CAUTION
        full = min(limits.rate, limits.cautious) if is_cautious and limits.cautious is not None else limits.rate
        return full / 2**self.halvings

    def admit(self, limits: SourceLimits, now: float, max_count: int) -> tuple[HostState, Admission]:
        """Admits up to ``max_count`` requests, or says when to ask again."""
        if now < self.asked_until:
            return self, Admission(0, self.asked_until, self.last_refusal or "", is_requested_by_host=True)
        rate = self.rate_at(limits, now)
        if self.is_refusing:
            if now < self.pause_until:
                sent = self.pause_until - 2 * self.pause
                tested_at = sent if sent > self.refused_at else None
                return self, Admission(0, self.pause_until, self.last_refusal or "", tested_at)
            # the others wait for the answer to this request; if it is lost, for twice as long
            return replace(self, pause_until=now + 2 * self.pause, next_at=now + 1 / (rate or 1e9)), Admission(1)
        if rate is None:
            return self, Admission(max_count)
        # a time further ahead was written before the clock was set back
        start = max(self.next_at, now - _LATENESS) if self.next_at <= now + 1 / rate + _LATENESS else now
        if start > now:
            return self, Admission(0, start)
        count = min(max_count, 1 + int((now - start) * rate))
        return replace(self, next_at=start + count / rate), Admission(count)

    def answered(self, now: float, sent: float, count: int = 1) -> HostState:
        """Returns the state after ``count`` answers, whatever they say of their objects; the last was sent at
        ``sent``."""
        state = replace(self, points=max(0, self.points - count), answers=self.answers + count)
        if sent > self.refused_at:
            pause = self.pause / 2 if self.pause > FIRST_PAUSE else 0.0
            state = replace(state, row=(), pause=pause, pause_until=0.0)
        if self.halvings and (state.answers >= FASTER_ANSWERS or now - self.changed_at >= FASTER_SECONDS):
            state = replace(state, halvings=self.halvings - 1, points=0, answers=0, changed_at=now)
        return state

    def refused(self, limits: SourceLimits, refusal: Refusal) -> tuple[HostState, NextStep]:
        """Returns the state after a refusal, and what follows for the request."""
        now = refusal.now
        state = replace(self, last_refusal=refusal.reason[:300], last_refusal_at=now)
        if refusal.retry_after:
            state = replace(state, asked_until=max(self.asked_until, now + min(refusal.retry_after, LONGEST_PAUSE)))
        if not limits.pauses:
            return state, NextStep.SEND_AGAIN
        if refusal.sent <= self.refused_at:
            # it was in flight when the host refused others: no news
            return state, NextStep.WAIT if self.is_refusing else NextStep.SEND_AGAIN
        mark = blake2b(refusal.key.encode(), digest_size=6).hexdigest()
        counts_once = refusal.is_forbidden and limits.cautious is None
        row = self.row if counts_once and mark in self.row else (*self.row, mark)[-ROW:]
        if not self.is_refusing:
            state = state._with_points(now)
        if len(row) < ROW:
            return replace(state, row=row), NextStep.SEND_AGAIN
        pause = min(max(FIRST_PAUSE, 2 * self.pause), LONGEST_PAUSE)
        if self.is_refusing and len(set(row)) == 1 and pause > refusal.wait:
            return replace(state, row=row, pause_until=now + FIRST_PAUSE, refused_at=now), NextStep.GIVE_UP
        state = replace(state, row=row, pause=pause, pause_until=now + pause, refused_at=now)
        if refusal.is_forbidden and limits.cautious is not None:
            state = replace(state, address_refused_at=now)
        return state, NextStep.WAIT

    def _with_points(self, now: float) -> HostState:
        """Counts the refusal of a host that answers others."""
        points = self.points + REFUSAL_POINTS
        if points < SLOWING_POINTS:
            return replace(self, points=points)
        return replace(self, halvings=min(self.halvings + 1, MAX_HALVINGS), points=0, answers=0, changed_at=now)

    def reset(self) -> HostState:
        """Returns the state of a host that the user reset: the next request is sent at once."""
        return replace(self, row=(), pause=0.0, pause_until=0.0, asked_until=0.0)

    def repaired(self, now: float) -> HostState:
        """Returns the state without times that were written before the clock was set back."""
        latest = now + LONGEST_PAUSE + _CLOCK_JUMP
        is_possible = max(self.pause_until, self.asked_until) <= latest
        if is_possible and max(self.refused_at, self.last_refusal_at) <= now + _CLOCK_JUMP:
            return self
        past = {
            name: min(getattr(self, name), now)
            for name in ("changed_at", "refused_at", "address_refused_at", "last_refusal_at")
        }
        return replace(self, pause_until=now, asked_until=now, **past)

    def as_text(self) -> str:
        """Returns the state as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> HostState:
        """Parses the text of ``as_text``. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for any other text."""
        values = json.loads(text)
        return cls(**values | {"row": tuple(values["row"])})
