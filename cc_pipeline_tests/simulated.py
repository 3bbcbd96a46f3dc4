"""Requests to a host that does not exist, on a clock that jumps: hours pass in a moment, each time in the same way."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from cc_pipeline.stores.answer import Answer
from cc_pipeline.transport.faults import Finding, Verified, judge_whole
from cc_pipeline.transport.limits import FRONT, SourceLimits
from cc_pipeline.transport.ranges import RetryPolicy, TransportStats
from cc_pipeline.transport.rate_limiter import WAIT_ATTENDED, RateLimiter
from cc_pipeline.transport.sender import Sender

T = TypeVar("T")
#: Some time in 2033: times near 0 would look as if something had just happened.
EPOCH = 2e9


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Waits no time: the clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = EPOCH

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will happen")
        # never so little that the sum is the same number
        self.now += max(1e-6, timeout)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = _Selector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


def simulate(work: Callable[[SimulatedLoop], Awaitable[T]]) -> T:
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()


#: The status of the answer to a request for a key, at a time since the start.
Rule = Callable[[str, float], int]


@dataclass
class Result:
    """What became of the requests: seconds, statuses that were sent, in order, verdicts by key."""

    seconds: float = 0.0
    statuses: list[int] = field(default_factory=list)
    verdicts: dict[str, Verified | Finding] = field(default_factory=dict)

    @property
    def came(self) -> int:
        return sum(isinstance(verdict, Verified) for verdict in self.verdicts.values())

    @property
    def refused_share(self) -> float:
        counts = Counter(self.statuses)
        return 1 - counts[200] / max(1, len(self.statuses))


def fetch_all(
    keys: Iterable[str],
    rule: Rule,
    *,
    side_by_side: int = 4,
    limits: SourceLimits = FRONT,
    wait: float = WAIT_ATTENDED,
    latency: float = 0.3,
    spread: float = 0.05,
    retry_after: float | None = None,
    seed: int = 7,
) -> Result:
    """Requests ``keys``, so many at a time, of a host that answers by ``rule`` after ``latency`` seconds."""
    random.seed(seed)
    return simulate(
        partial(
            _fetch_all, list(keys), rule, side_by_side, limits, wait, latency, spread, retry_after, random.Random(seed)
        )
    )


async def _fetch_all(
    keys: list[str],
    rule: Rule,
    side_by_side: int,
    limits: SourceLimits,
    wait: float,
    latency: float,
    spread: float,
    retry_after: float | None,
    draw: random.Random,
    loop: SimulatedLoop,
) -> Result:
    result = Result()
    limiter = RateLimiter("data.commoncrawl.org", limits, wait, clock=loop.time)
    sender = Sender(limiter, RetryPolicy(), TransportStats(), loop.time)

    async def fetch(key: str) -> Answer:
        await asyncio.sleep(max(0.001, draw.gauss(latency / 2, spread / 2)))
        status = rule(key, loop.time() - EPOCH)
        result.statuses.append(status)
        await asyncio.sleep(latency / 2)
        headers = {} if retry_after is None or status == 200 else {"retry-after": str(retry_after)}
        return Answer(status, headers, b"")

    async def work() -> None:
        while keys:
            key = keys.pop(0)
            result.verdicts[key], _, _ = await sender.send(key, partial(fetch, key), partial(judge_whole, 10))

    await asyncio.gather(*(work() for _ in range(side_by_side)))
    await limiter.close()
    result.seconds = loop.time() - EPOCH
    return result


def by_chance(share: float, seed: int) -> Rule:
    """503 to a share of all requests, whatever their rate."""
    draw = random.Random(seed)
    return lambda key, now: 503 if draw.random() < share else 200


def limited_to(rate: float, status: int = 503) -> Rule:
    """A limiter without burst, as nginx's ``limit_req``: refuses what comes too soon after the last that it took."""
    last = -1e9

    def rule(key: str, now: float) -> int:
        nonlocal last
        if now - last < 1 / rate:
            return status
        last = now
        return 200

    return rule


def windowed(count: int, seconds: float) -> Rule:
    """A firewall: 403 while the last seconds saw more than ``count`` requests, refused ones too."""
    hits: list[float] = []

    def rule(key: str, now: float) -> int:
        hits.append(now)
        while hits[0] < now - seconds:
            hits.pop(0)
        return 403 if len(hits) > count else 200

    return rule


def refusing(begin: float, seconds: float, status: int) -> Rule:
    """Refuses everything for so many seconds."""
    return lambda key, now: status if begin <= now < begin + seconds else 200
