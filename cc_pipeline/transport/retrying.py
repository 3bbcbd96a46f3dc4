"""Repeats a request until its answer is verified, or until another try makes no sense."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from cc_pipeline.stores.answer import Answer, NoAnswer, Store
from cc_pipeline.transport.faults import FaultKind, Finding, Verified, judge_head
from cc_pipeline.transport.ranges import RetryPolicy, TransportStats
from cc_pipeline.transport.rate_limiter import HostUnavailable, RateLimiter

if TYPE_CHECKING:
    from cc_pipeline.transport.redirects import Followed

Fetch = Callable[[], Awaitable[Answer]]
Judge = Callable[[Answer], Verified | Finding]
#: Follows a redirect that the rate limiter's host sent.
Follow = Callable[[Answer, RateLimiter], Awaitable["Followed"]]

_NO_BODY = Answer(0, {}, b"")
#: Seconds for which an object that was refused at every try is requested only once more. Many targets may need it, and
#: a row of its refusals would look like those of its host.
_STUCK_SECONDS: Final = 300.0
_MAX_STUCK: Final = 1_000


def closed_finding(closed: HostUnavailable) -> Finding:
    """Returns the finding of a request that was not sent, with the seconds until it may be sent."""
    return Finding(FaultKind.BREAKER_OPEN, str(closed), closed.seconds)


@dataclass(frozen=True, slots=True)
class _Stuck:
    """An object that was refused at every try: since when, how, and whether it was refused once more since."""

    since: float
    finding: Finding
    is_repeated: bool = False


@dataclass(slots=True)
class _Refusal:
    """The last refusal of one request: ``well`` is how often its host had answered after refusals by then. ``leads`` is
    set if the request is repeated before others for the same object."""

    finding: Finding
    well: int
    leads: asyncio.Event | None = None

    @property
    def is_forbidden(self) -> bool:
        return self.finding.kind is FaultKind.FORBIDDEN


class RetryingSender:
    """Sends requests and checks their answers. It runs inside the transport's loop, as do the objects it uses."""

    def __init__(self, store: Store, gate: RateLimiter, retry: RetryPolicy, stats: TransportStats) -> None:
        self.store = store
        self.gate = gate
        self._retry = retry
        self._stats = stats
        self._retries_by_object: dict[str, asyncio.Event] = {}
        # objects that were refused at every try
        self._stuck: dict[str, _Stuck] = {}
        # the sample that failed at the last probe
        self._failed_sample = ""

    async def ask(
        self, key: str, fetch: Fetch, judge: Judge, tries: int | None = None, follow: Follow | None = None
    ) -> tuple[Verified | Finding, Answer, int]:
        """Returns the verdict, the last answer and the number of attempts, at most ``tries``; the rate limiter admits
        each attempt.

        ``key`` is the requested object. ``follow`` is called if the answer is a redirect.

        The request waits for a blocked host. Another refusal (of a probe, or a 403) counts as an attempt only if the
        host has answered others since the last one: then the object is refused. An object that was refused at every
        try a while ago, and once more since, is not requested.
        """
        stuck = self._stuck_at(key)
        if stuck is not None and stuck.is_repeated:
            return replace(stuck.finding, detail=f"{stuck.finding.detail} at all recent tries"), _NO_BODY, 0
        refusal: _Refusal | None = None
        try:
            attempt = 1
            last_wait = 0.0
            while True:
                gate: RateLimiter | None = self.gate
                if refusal is not None and refusal.is_forbidden and await self._is_denied(key, refusal):
                    return refusal.finding, _NO_BODY, attempt
                try:
                    probes = await self.gate.enter()
                except HostUnavailable as closed:
                    return closed_finding(closed), _NO_BODY, attempt - (refusal is None)
                if probes and (refusal is not None or self.gate.denied) and await self._request_sample():
                    continue
                verdict, answer, sent = await self._send(fetch, judge)
                if follow is not None and isinstance(verdict, Finding) and verdict.kind is FaultKind.REDIRECTED:
                    led = await follow(answer, self.gate)
                    verdict, answer, gate, sent = led.verdict, led.answer, led.gate, led.sent or sent
                self._stats.bytes += len(answer.body) + answer.taken_bytes
                if isinstance(verdict, Verified):
                    self._stuck.pop(key, None)
                    self._report(gate, verdict, sent, key)
                    return verdict, answer, attempt
                is_forbidden = verdict.kind is FaultKind.FORBIDDEN
                if gate is not None and gate.waits and (is_forbidden or (probes and verdict.refusal is not None)):
                    is_exhausted = False
                    if refusal is not None and refusal.well != gate.well:
                        attempt += 1
                        max_attempts = self._retry.max_attempts(verdict)
                        is_exhausted = attempt >= min(tries or max_attempts, max_attempts)
                        if is_exhausted and is_forbidden:
                            gate.denied.add(key)
                    self._report(gate, verdict, sent, key)
                    if is_exhausted or key in gate.denied:
                        return verdict, answer, attempt
                    refusal = _Refusal(verdict, gate.well, None if refusal is None else refusal.leads)
                    continue
                self._report(gate, verdict, sent, key, is_repeat=attempt > 1)
                wait = self._retry.next_wait(verdict, attempt, last_wait)
                if wait is None or (tries is not None and attempt >= tries) or self._is_stuck(key, verdict):
                    self._note_refusal(key, verdict, attempt)
                    return verdict, answer, attempt
                last_wait = wait
                attempt += 1
                await asyncio.sleep(wait)
        finally:
            if refusal is not None and refusal.leads is not None:
                del self._retries_by_object[key]
                refusal.leads.set()

    def _stuck_at(self, key: str) -> _Stuck | None:
        stuck = self._stuck.get(key)
        return stuck if stuck is not None and time.monotonic() - stuck.since < _STUCK_SECONDS else None

    def _is_stuck(self, key: str, finding: Finding) -> bool:
        return finding.kind is FaultKind.THROTTLED and self._stuck_at(key) is not None

    def _note_refusal(self, key: str, finding: Finding, attempts: int) -> None:
        # writes have no key
        if not key or finding.kind is not FaultKind.THROTTLED:
            return
        previous = self._stuck_at(key)
        if previous is not None:
            self._stuck[key] = replace(previous, finding=finding, is_repeated=True)
        elif attempts >= self._retry.max_attempts(finding) > 1:
            if len(self._stuck) >= _MAX_STUCK:
                self._stuck.clear()
            self._stuck[key] = _Stuck(time.monotonic(), finding)

    async def _is_denied(self, key: str, refusal: _Refusal) -> bool:
        """Whether an object is refused permanently. One of its refused requests finds out for all of them."""
        leader = self._retries_by_object.get(key)
        if leader is not None and leader is not refusal.leads:
            await leader.wait()
        elif leader is None:
            refusal.leads = self._retries_by_object[key] = asyncio.Event()
        return key in self.gate.denied

    async def _request_sample(self) -> bool:
        """Probes the host with an object that it gave before: a refused object is a bad probe. Returns whether it did.
        If the sample fails, the next probe is the waiting request, since the sample itself may be refused by now."""
        key = self.gate.sample
        if not key or key == self._failed_sample:
            self._failed_sample = ""
            return False
        verdict, _, sent = await self._send(partial(self.store.head, key), judge_head)
        self._report(self.gate, verdict, sent, key)
        self._failed_sample = key if isinstance(verdict, Finding) else ""
        if isinstance(verdict, Finding) and verdict.kind is FaultKind.NOT_FOUND:
            self.gate.sample = ""
        return True

    async def _send(self, fetch: Fetch, judge: Judge) -> tuple[Verified | Finding, Answer, float]:
        """Returns the verdict, the answer, and the time of the request (seconds since the epoch)."""
        self._stats.requests += 1
        sent = time.time()
        try:
            answer = await fetch()
            return judge(answer), answer, sent
        except NoAnswer as error:
            return Finding(FaultKind(error.kind), error.detail), _NO_BODY, sent
        finally:
            self.gate.leave()

    def _report(
        self, gate: RateLimiter | None, verdict: Verified | Finding, sent: float, key: str, *, is_repeat: bool = False
    ) -> None:
        """Reports to the rate limiter of the host that gave the answer, and a success to that of the host that
        redirected."""
        if isinstance(verdict, Verified):
            self.gate.succeeded(sent, key)
            if gate is not None and gate is not self.gate:
                gate.succeeded(sent)
            return
        self._stats.faults[verdict.kind.value] += 1
        if gate is not None:
            gate.failed(verdict, sent, key, is_repeat=is_repeat)
