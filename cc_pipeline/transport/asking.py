"""Sends a request again until the answer is the one asked for, or until another try makes no sense."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from cc_pipeline.stores.answer import Answer, NoAnswer, Store
from cc_pipeline.transport.faults import FaultKind, Finding, Verified
from cc_pipeline.transport.gate import Gate, GateClosed
from cc_pipeline.transport.outage import ANSWERS
from cc_pipeline.transport.ranges import RetryPolicy, TransportStats

if TYPE_CHECKING:
    from cc_pipeline.transport.redirects import Followed

Fetch = Callable[[], Awaitable[Answer]]
Judge = Callable[[Answer], Verified | Finding]
#: Goes on from a redirect that the host behind the gate gave.
Follow = Callable[[Answer, Gate], Awaitable["Followed"]]

NO_BODY = Answer(0, {}, b"")


class Asker:
    """Sends requests and judges their answers. It runs inside the transport's loop, as do the objects it is given."""

    def __init__(self, store: Store, gate: Gate, retry: RetryPolicy, stats: TransportStats) -> None:
        self.store = store
        self.gate = gate
        self._retry = retry
        self._stats = stats

    async def ask(
        self, key: str, fetch: Fetch, judge: Judge, tries: int | None = None, follow: Follow | None = None
    ) -> tuple[Verified | Finding, Answer, int]:
        """The verdict, the last answer and the number of attempts, at most ``tries``; every attempt passes the gate.

        ``key`` is the object that they are about. ``follow`` goes on where the answer is a redirect.
        """
        stats = self._stats
        attempt = 0
        last_wait = 0.0
        answer = NO_BODY
        while True:
            gate: Gate | None = self.gate
            attempt += 1
            asked = time.monotonic()
            try:
                await self.gate.enter()
            except GateClosed as closed:
                return Finding(FaultKind.BREAKER_OPEN, str(closed), closed.seconds), NO_BODY, attempt - 1
            stats.budget_seconds += time.monotonic() - asked
            stats.requests += 1
            sent = time.time()
            try:
                answer = await fetch()
                found = judge(answer)
            except NoAnswer as error:
                answer = NO_BODY
                found = Finding(FaultKind(error.kind), error.detail)
            finally:
                self.gate.leave()
            if follow is not None and isinstance(found, Finding) and found.kind is FaultKind.REDIRECTED:
                led = await follow(answer, self.gate)
                found, answer, gate = led.found, led.answer, led.gate
            stats.bytes += len(answer.body)
            if isinstance(found, Verified):
                self.gate.succeeded()
                if gate is not None and gate is not self.gate:
                    gate.succeeded()
                return found, answer, attempt
            stats.faults[found.kind.value] += 1
            if gate is not None:
                gate.failed(found, sent, key)
            if gate is not self.gate and found.kind not in ANSWERS:
                self.gate.gave_nothing(found, key)
            wait = self._retry.next_wait(found, attempt, last_wait)
            if wait is None or attempt == tries:
                return found, answer, attempt
            last_wait = wait
            stats.retries += 1
            started = time.monotonic()
            await asyncio.sleep(wait)
            stats.retry_seconds += time.monotonic() - started
