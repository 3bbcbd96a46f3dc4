"""The ``text_simhash`` of the 2012 document, bit for bit.

Taken over the UTF-16 code units of a text: the set of all runs of four units, each run's eight big-endian bytes
fingerprinted, one vote per fingerprint and bit, a result bit set where ones are the majority.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from cc_pipeline import compiled

#: The polynomial, the lowest power in the highest bit; also the fingerprint of nothing.
POLYNOMIAL = 0xD74307D3FD3382DB
_RUN_BYTES = 8

_Words = NDArray[np.uint64]


@cache
def _byte_table() -> _Words:
    values = np.arange(256, dtype=np.uint64)
    for _ in range(8):
        values = (values >> np.uint64(1)) ^ np.where(values & np.uint64(1), np.uint64(POLYNOMIAL), np.uint64(0))
    return values


def fingerprints(rows: NDArray[np.uint8]) -> _Words:
    """Returns the 64-bit Rabin fingerprint of the bytes of each row."""
    table, prints = _byte_table(), np.full(len(rows), POLYNOMIAL, np.uint64)
    for column in rows.T:
        prints = (prints >> np.uint64(8)) ^ table[(prints ^ column) & np.uint64(0xFF)]
    return prints


def simhash_plainly(text: str) -> int:
    """Does the same as ``text_simhash``, for builds without the compiled function, and to test it."""
    units = np.frombuffer(text.encode("utf-16-be", "surrogatepass"), np.uint8)
    if len(units) < _RUN_BYTES:
        return 0
    runs = np.unique(np.ascontiguousarray(sliding_window_view(units, _RUN_BYTES)[::2]).view(np.uint64))
    prints = fingerprints(runs.view(np.uint8).reshape(-1, _RUN_BYTES))
    ones = (int(np.count_nonzero(prints & np.uint64(1 << bit))) for bit in range(64))
    value = sum(1 << bit for bit, count in enumerate(ones) if 2 * count > len(prints))
    return value - (1 << 64) if value >> 63 else value


#: Returns the signed 64-bit simhash of a text; 0 for texts of fewer than four UTF-16 units.
text_simhash: Callable[[str], int] = compiled("documents.document2012._simhash", "text_simhash") or simhash_plainly
#: Whether the compiled function is in use.
COMPILED = text_simhash is not simhash_plainly
