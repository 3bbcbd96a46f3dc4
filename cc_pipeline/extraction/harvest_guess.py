"""How many bytes to ask for so that nearly every footer comes whole with the first request."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from typing import Final

#: Before anything is known: real footers are 30 to 66 KB.
FIRST_GUESS: Final = 64 * 1024
_MEMORY: Final = 512
_ENOUGH: Final = 16
_PERCENTILE: Final = 0.98
_STEP: Final = 1024
_LEAST, _MOST = 1024, 2**20


class FooterGuess:
    """Learns from the last few hundred footers; lengths are in bytes, trailer included."""

    def __init__(self, seen: Iterable[int] = ()) -> None:
        self._recent: deque[int] = deque()
        self._ordered: list[int] = []
        for length in seen:
            self.learn(length)

    @property
    def length(self) -> int:
        """What to ask for now: the 98th percentile of what was seen, rounded up to a whole KiB."""
        if len(self._ordered) < _ENOUGH:
            return FIRST_GUESS
        expected = self._ordered[int(_PERCENTILE * (len(self._ordered) - 1))]
        return min(_MOST, max(_LEAST, -(-expected // _STEP) * _STEP))

    def learn(self, length: int) -> None:
        """Takes the length of one footer into account."""
        self._recent.append(length)
        insort(self._ordered, length)
        if len(self._recent) > _MEMORY:
            oldest = self._recent.popleft()
            del self._ordered[bisect_left(self._ordered, oldest)]
