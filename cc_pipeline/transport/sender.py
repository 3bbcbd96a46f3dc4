"""Sends a request to one host until its answer is verified, or until another try makes no sense."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from cc_pipeline.stores.answer import Answer, NoAnswer
from cc_pipeline.transport.faults import FaultKind, Finding, Verified
from cc_pipeline.transport.host_state import NextStep
from cc_pipeline.transport.ranges import RetryPolicy, TransportStats
from cc_pipeline.transport.rate_limiter import HostUnavailable, RateLimiter

#: A verdict, the answer it is about, and how many requests it took.
SourceAnswer: TypeAlias = tuple[Verified | Finding, Answer, int]
Fetch: TypeAlias = Callable[[], Awaitable[Answer]]
Judge: TypeAlias = Callable[[Answer], Verified | Finding]
#: Follows a redirect.
Follow: TypeAlias = Callable[[Answer], Awaitable[SourceAnswer]]

NO_BODY: Final = Answer(0, {}, b"")


class FolderSender:
    """Sends each request to a folder once: it has no limits, and does not refuse."""

    def __init__(self, stats: TransportStats) -> None:
        self._stats = stats

    async def send(
        self, key: str, fetch: Fetch, judge: Judge, follow: Follow | None = None, max_attempts: int | None = None
    ) -> SourceAnswer:
        """Returns the verdict on the answer, the answer, and the number of requests."""
        self._stats.requests += 1
        answer = await fetch()
        verdict = judge(answer)
        self._stats.count(answer, verdict)
        return verdict, answer, 1


class Sender:
    """Sends requests to one host. It runs inside the transport's loop, as do the objects it uses."""

    def __init__(
        self,
        limiter: RateLimiter,
        retry: RetryPolicy,
        stats: TransportStats,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limiter = limiter
        self._retry, self._stats, self._clock = retry, stats, clock

    async def send(
        self, key: str, fetch: Fetch, judge: Judge, follow: Follow | None = None, max_attempts: int | None = None
    ) -> SourceAnswer:
        """Returns the verdict on the last answer about the object ``key``, the answer, and the number of requests.

        A refusal of the host is no attempt: the request waits. ``follow`` is called if the answer is a redirect.
        """
        attempts = requests = 0
        last_wait = 0.0
        while True:
            try:
                await self.limiter.enter()
            except HostUnavailable as refusal:
                return Finding(FaultKind.REFUSED, str(refusal), refusal.seconds), NO_BODY, requests
            requests += 1
            sent = self._clock()
            verdict, answer = await self._send_once(fetch, judge)
            if isinstance(verdict, Verified):
                self.limiter.answered(sent)
                return verdict, answer, requests
            next_step = await self.limiter.failed(verdict, key, sent)
            if verdict.kind is FaultKind.REDIRECTED and follow is not None:
                verdict, answer, further_requests = await follow(answer)
                requests += further_requests
                if isinstance(verdict, Verified):
                    return verdict, answer, requests
            if next_step is NextStep.WAIT:
                attempts = 0
                continue
            attempts += 1
            if (
                next_step is NextStep.GIVE_UP
                or self._retry.is_exhausted(verdict, attempts)
                or (max_attempts is not None and attempts >= max_attempts)
            ):
                return verdict, answer, requests
            last_wait = self._retry.next_wait(last_wait)
            await asyncio.sleep(last_wait)

    async def _send_once(self, fetch: Fetch, judge: Judge) -> tuple[Verified | Finding, Answer]:
        self._stats.requests += 1
        try:
            answer = await fetch()
            verdict = judge(answer)
        except NoAnswer as error:
            answer, verdict = NO_BODY, Finding(FaultKind(error.kind), error.detail)
        finally:
            self.limiter.leave()
        self._stats.count(answer, verdict)
        return verdict, answer
