"""The 2012 simhash over numpy arrays: used if the compiled function is missing, and to test it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

#: The polynomial, the lowest power in the highest bit; also the fingerprint of nothing.
POLYNOMIAL = 0xD74307D3FD3382DB


@lru_cache(maxsize=1)
def _byte_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


def fingerprint(data: bytes) -> int:
    """Returns the 64-bit Rabin fingerprint of bytes, unsigned."""
    table = _byte_table()
    value = POLYNOMIAL
    for byte in data:
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    return value


_RUN = 4
_OCTET_MAX = 255

_Words = NDArray[np.uint64]


@lru_cache(maxsize=1)
def _unit_tables() -> tuple[_Words, ...]:
    """Returns a table for each position in a run: the contribution of each of the 65,536 units. The constant is in the
    first table."""
    empty = fingerprint(bytes(2 * _RUN))
    tables = []
    for place in range(_RUN):
        halves = []
        for byte_place in (2 * place, 2 * place + 1):
            run = bytearray(2 * _RUN)
            column = np.empty(256, dtype=np.uint64)
            for byte in range(256):
                run[byte_place] = byte
                column[byte] = fingerprint(bytes(run)) ^ empty
            halves.append(column)
        table = (halves[0][:, None] ^ halves[1][None, :]).reshape(-1)
        tables.append(table ^ np.uint64(empty) if place == 0 else table)
    return tuple(tables)


def text_simhash(text: str) -> int:
    """Returns the signed 64-bit simhash of a text; 0 for texts of fewer than four UTF-16 units."""
    runs = _distinct_runs(text)
    if not len(runs):
        return 0
    return _majority(_fingerprints(runs))


def _distinct_runs(text: str) -> _Words:
    """Returns every distinct run of four UTF-16 units, the first unit in the lowest bits."""
    data = text.encode("utf-16-le", "surrogatepass")
    size = 2 * _RUN
    parts = [
        np.frombuffer(data, dtype="<u8", offset=start, count=(len(data) - start) // size)
        for start in range(0, size, 2)
        if len(data) - start >= size
    ]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype="<u8")


def _fingerprints(runs: _Words) -> _Words:
    units = runs.astype("<u8", copy=False).view("<u2").reshape(-1, _RUN)
    tables = _unit_tables()
    prints: _Words = tables[0][units[:, 0]]
    for place in range(1, _RUN):
        prints ^= tables[place][units[:, place]]
    return prints


def _majority(prints: _Words) -> int:
    """Counts one vote per fingerprint and bit. Eight bits are counted at once in the octets of a word, which hold up to
    255 votes."""
    rows = -(-len(prints) // _OCTET_MAX)
    padded: NDArray[np.uint64] = np.zeros((_OCTET_MAX, rows), dtype=np.uint64)
    padded.reshape(-1)[: len(prints)] = prints
    result = 0
    for bit in range(8):
        octet_counts = ((padded >> np.uint64(bit)) & np.uint64(0x0101010101010101)).sum(axis=0, dtype=np.uint64)
        votes = octet_counts.astype("<u8", copy=False).view(np.uint8).reshape(rows, 8).sum(axis=0, dtype=np.int64)
        for octet in np.flatnonzero(2 * votes > len(prints)):
            result |= 1 << (8 * int(octet) + bit)
    return result - (1 << 64) if result >> 63 else result
