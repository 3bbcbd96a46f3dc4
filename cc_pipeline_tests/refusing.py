"""A server that refuses everything for a while, and what a budget is told of refusals."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase

from cc_pipeline.transport.faults import FaultKind, Refusal
from cc_pipeline.transport.refusals import Failed, Gave
from cc_pipeline_tests.faultserver import FaultServer, Hit, Rule


def forbidden(
    sent: float | None = None, retry_after: float | None = None, *, at_once: bool = False, why: str = "status 403"
) -> Failed:
    """A 403 to a request sent at ``sent`` (now), known now."""
    now = time.time()
    at = now if sent is None else sent
    return Failed(now, at, FaultKind.FORBIDDEN, why, Refusal.ADDRESS, retry_after, at_once=at_once)


def asked_for_less(retry_after: float | None = None, sent: float | None = None) -> Failed:
    """A 429."""
    now = time.time()
    return Failed(now, now if sent is None else sent, FaultKind.THROTTLED, "status 429", Refusal.RATE, retry_after)


def silent(key: str = "") -> Failed:
    """A request that brought nothing."""
    now = time.time()
    return Failed(now, now, FaultKind.UNREACHABLE, "silent", key=key)


def gave(sent: float | None = None) -> Gave:
    """A request sent at ``sent`` (now) that got what it asked for."""
    now = time.time()
    return Gave(now, 1, now if sent is None else sent)


class Window:
    """In the place of a server's rules: after ``after`` requests for objects that match ``key`` all are refused for
    ``seconds``, with the status that ``kind`` names."""

    def __init__(self, server: FaultServer, after: int, seconds: float, key: str = "*", kind: str = "403") -> None:
        self._kind = kind
        self._server, self._after, self._seconds, self._key = server, after, seconds, key
        self._before = len(server.hits)
        self._until = 0.0
        server.scene.rules = self

    def __iter__(self) -> Iterator[Rule]:
        # a request that is being judged is not among the hits yet
        if not self._until and sum(fnmatchcase(hit.key, self._key) for hit in self.hits) >= self._after:
            self._until = time.monotonic() + self._seconds
        if time.monotonic() < self._until:
            yield Rule(self._kind, times=None)

    @property
    def hits(self) -> list[Hit]:
        """What was asked since the window was set up."""
        return self._server.hits[self._before :]

    @property
    def refused(self) -> list[Hit]:
        """What was asked in vain."""
        return [hit for hit in self.hits if hit.status == int(self._kind)]

    def asked_again(self) -> dict[tuple[str, str | None], int]:
        """Ranges that came more than once, and how often."""
        good = Counter((hit.key, hit.range) for hit in self.hits if hit.status in (200, 206) and hit.method == "GET")
        return {asked: times for asked, times in good.items() if times > 1}
