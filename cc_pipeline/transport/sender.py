"""Sends a request to one host until its answer is verified, or until another try makes no sense."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from cc_pipeline.stores.answer import Answer, NoAnswer
from cc_pipeline.transport.faults import FaultKind, Finding, Verified
from cc_pipeline.transport.host_state import NextStep
from cc_pipeline.transport.ranges import RetryPolicy, TransportStats
from cc_pipeline.transport.rate_limiter import HostUnavailable, RateLimiter

#: A verdict, the answer it is about, and how many requests it took.
SourceAnswer: TypeAlias = tuple[Verified | Finding, Answer, int]
Fetch: TypeAlias = Callable[[], Awaitable[Answer]]
Judge: TypeAlias = Callable[[Answer], Verified | Finding]

NO_BODY: Final = Answer(0, {}, b"")


class Attempt(NamedTuple):
    """One try: the verdict on the last answer, the answer, the number of requests (0: the host refuses, and none was
    sent), and what follows unless it is verified."""

    verdict: Verified | Finding
    answer: Answer
    requests: int
    next_step: NextStep = NextStep.SEND_AGAIN


#: Follows a redirect.
Follow: TypeAlias = Callable[[Answer], Awaitable[Attempt]]


class FolderSender:
    """Sends each request to a folder once: it has no limits, and does not refuse."""

    def __init__(self, stats: TransportStats) -> None:
        self._stats = stats

    async def send(self, key: str, fetch: Fetch, judge: Judge, follow: Follow | None = None) -> SourceAnswer:
        """Returns the verdict on the answer, the answer, and the number of requests."""
        self._stats.requests += 1
        answer = await fetch()
        self._stats.bytes += len(answer.body)
        return judge(answer), answer, 1


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

    async def send(self, key: str, fetch: Fetch, judge: Judge, follow: Follow | None = None) -> SourceAnswer:
        """Returns the verdict on the last answer about the object ``key``, the answer, and the number of requests.

        A refusal of the host is no attempt: the request waits. ``follow`` is called if the answer is a redirect.
        """
        attempts = requests = 0
        last_wait = 0.0
        while True:
            attempt = await self.send_once(key, fetch, judge)
            requests += attempt.requests
            if follow is not None and is_redirect(attempt.verdict):
                attempt = await follow(attempt.answer)
                requests += attempt.requests
            verdict, answer, _, next_step = attempt
            if isinstance(verdict, Verified):
                return verdict, answer, requests
            if next_step is NextStep.WAIT:
                attempts = 0
                continue
            attempts += 1
            if next_step is NextStep.GIVE_UP or self._retry.is_exhausted(verdict, attempts):
                return verdict, answer, requests
            last_wait = self._retry.next_wait(last_wait)
            await asyncio.sleep(last_wait)

    async def send_once(self, key: str, fetch: Fetch, judge: Judge) -> Attempt:
        """Sends a request once its host may get it, and tells the host's state what came."""
        try:
            await self.limiter.enter()
        except HostUnavailable as refusal:
            finding = Finding(FaultKind.REFUSED, str(refusal), refusal.seconds)
            return Attempt(finding, NO_BODY, 0, NextStep.GIVE_UP)
        sent = self._clock()
        self._stats.requests += 1
        try:
            answer = await fetch()
            verdict = judge(answer)
        except NoAnswer as error:
            answer, verdict = NO_BODY, Finding(FaultKind(error.kind), error.detail)
        finally:
            self.limiter.leave()
        self._stats.bytes += len(answer.body)
        if isinstance(verdict, Verified):
            self.limiter.answered(sent)
            return Attempt(verdict, answer, 1)
        return Attempt(verdict, answer, 1, await self.limiter.failed(verdict, key, sent))


def is_redirect(verdict: Verified | Finding) -> bool:
    """Whether a verdict is on a redirect."""
    return isinstance(verdict, Finding) and verdict.kind is FaultKind.REDIRECTED
