"""A server that refuses everything for a while."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase

from cc_pipeline_tests.faultserver import FaultServer, Hit, Rule


class Window:
    """In the place of a server's rules: after ``after`` requests for objects that match ``key`` all are refused for
    ``seconds``."""

    def __init__(self, server: FaultServer, after: int, seconds: float, key: str = "*") -> None:
        self._server, self._after, self._seconds, self._key = server, after, seconds, key
        self._before = len(server.hits)
        self._until = 0.0
        server.scene.rules = self

    def __iter__(self) -> Iterator[Rule]:
        # a request that is being judged is not among the hits yet
        if not self._until and sum(fnmatchcase(hit.key, self._key) for hit in self.hits) >= self._after:
            self._until = time.monotonic() + self._seconds
        if time.monotonic() < self._until:
            yield Rule("403", times=None)

    @property
    def hits(self) -> list[Hit]:
        """What was asked since the window was set up."""
        return self._server.hits[self._before :]

    @property
    def refused(self) -> list[Hit]:
        """What was asked in vain."""
        return [hit for hit in self.hits if hit.status == 403]

    def asked_again(self) -> dict[tuple[str, str | None], int]:
        """Ranges that came more than once, and how often."""
        good = Counter((hit.key, hit.range) for hit in self.hits if hit.status in (200, 206) and hit.method == "GET")
        return {asked: times for asked, times in good.items() if times > 1}
