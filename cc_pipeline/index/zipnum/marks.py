"""A guess where in a file that is sorted by SURT keys a key lies: from the places other keys have in files like it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, TypeAlias

#: A key, and the share of the file that lies before it (0 to 1).
Mark: TypeAlias = tuple[bytes, float]

#: Where nothing is known: about half of a crawl is .com (155 of 300 shards).
_NOTHING_KNOWN: Final[tuple[Mark, ...]] = ((b"com,", 0.14), (b"com-", 0.66))
#: The bytes that most keys are made of, and how many of them a guess looks at.
_DIGITS: Final = b")+,-./0123456789:_abcdefghijklmnopqrstuvwxyz"
_RANKS: Final = bytes(bisect_right(_DIGITS, byte) for byte in range(256))
_DEPTH: Final = 8
_LAST: Final = b"\xff"


class Marks:
    """Keys with their places, in any order; where they contradict each other, later keys do not lie before earlier."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._keys: list[bytes] = [b""]
        self._shares: list[float] = [0.0]
        for key, share in sorted(marks) or _NOTHING_KNOWN:
            self._keys.append(key)
            self._shares.append(min(1.0, max(self._shares[-1], share)))

    def share(self, key: bytes) -> float:
        """The share of a file that probably lies before ``key``; never falls as keys rise."""
        place = bisect_right(self._keys, key)
        low, before = self._keys[place - 1], self._shares[place - 1]
        high, behind = (self._keys[place], self._shares[place]) if place < len(self._keys) else (_LAST, 1.0)
        return before + _between(low, high, key) * (behind - before)


def _between(low: bytes, high: bytes, key: bytes) -> float:
    """How far ``key`` is on the way from ``low`` to ``high``, were all names equally frequent: 0 to 1."""
    same = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    first, last, here = (_number(one[same : same + _DEPTH]) for one in (low, high, key))
    return (here - first) / (last - first) if first < last else 0.0


def _number(text: bytes) -> int:
    number = 0
    for rank in text.translate(_RANKS).ljust(_DEPTH, b"\0"):
        number = number * (len(_DIGITS) + 1) + rank
    return number
