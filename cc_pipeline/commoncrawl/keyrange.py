"""Half-open ranges of SURT keys, compared as bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """All keys ``k`` with ``start <= k < end``; ``end`` is ``None`` for "to the end of the index".

    Keys are bytes because every index of Common Crawl is sorted bytewise, whatever the reader's locale.
    """

    start: bytes
    end: bytes | None

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)

    def may_overlap(self, low: bytes | None, high: bytes | None) -> bool:
        """Whether a block with keys from ``low`` to ``high`` (both inclusive) may hold a key of this range.

        ``None`` means unknown, and unknown is never pruned.
        """
        if high is not None and high < self.start:
            return False
        return low is None or self.end is None or low < self.end


def prefix_range(prefix: bytes) -> KeyRange:
    """The range of all keys that start with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    end = trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None
    return KeyRange(prefix, end)
