"""The ``text_simhash`` of the 2012 document, bit for bit.

Taken over the UTF-16 code units of a text: the set of all runs of four units, each run's eight big-endian bytes
fingerprinted (Rabin, degree 64), one vote per fingerprint and bit, a result bit set where ones are the majority.

A Rabin fingerprint is linear over GF(2), so the fingerprint of a run is a constant combined by XOR with one table
entry for each of its four units; and, being of degree 64 over 64 bits, it is one to one, so the set of runs has
as many members as the set of fingerprints.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

#: The polynomial, the lowest power in the highest bit; also the fingerprint of nothing.
POLYNOMIAL = 0xD74307D3FD3382DB
_RUN = 4

_Words = NDArray[np.uint64]


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
    """The 64-bit Rabin fingerprint of bytes, unsigned."""
    table = _byte_table()
    value = POLYNOMIAL
    for byte in data:
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    return value


@lru_cache(maxsize=1)
def _unit_tables() -> tuple[_Words, ...]:
    """For each place in a run, what each of the 65,536 units contributes; the constant is in the first."""
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
    """The signed 64-bit simhash of a text; 0 for texts of fewer than four UTF-16 units."""
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), dtype="<u2")
    count = len(units) - _RUN + 1
    if count < 1:
        return 0
    first, second, third, fourth = _unit_tables()
    prints = first[units[:count]]
    prints ^= second[units[1 : count + 1]]
    prints ^= third[units[2 : count + 2]]
    prints ^= fourth[units[3 : count + 3]]
    return _majority(_distinct(prints))


def _distinct(prints: _Words) -> _Words:
    prints.sort()
    keep = np.empty(len(prints), dtype=bool)
    keep[0] = True
    np.not_equal(prints[1:], prints[:-1], out=keep[1:])
    return prints[keep]


def _majority(prints: _Words) -> int:
    votes = np.zeros(64, dtype=np.int64)
    octets = prints.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    for place in range(8):
        seen = np.bincount(octets[:, place], minlength=256)
        votes[8 * place : 8 * place + 8] = seen @ _bits_of_bytes()
    unsigned = sum(1 << int(bit) for bit in np.flatnonzero(2 * votes > len(prints)))
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


@lru_cache(maxsize=1)
def _bits_of_bytes() -> NDArray[np.int64]:
    return ((np.arange(256)[:, None] >> np.arange(8)[None, :]) & 1).astype(np.int64)
