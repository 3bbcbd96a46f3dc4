"""The 2012 simhash over numpy arrays: used where the compiled one is missing, and to test the compiled one."""

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
    """The 64-bit Rabin fingerprint of bytes, unsigned."""
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
    runs = _distinct_runs(text)
    if not len(runs):
        return 0
    return _majority(_fingerprints(runs))


def _distinct_runs(text: str) -> _Words:
    """Every run of four UTF-16 units once, the first unit in the lowest bits.

    Sorting is what this costs, and 32-bit runs sort twice as fast: units below 256 are packed to bytes, and the
    few runs that reach a unit above are taken apart.
    """
    try:
        return _widened(_distinct(_windows(text.encode("latin-1"), 1)))
    except UnicodeEncodeError:
        pass
    data = text.encode("utf-16-le", "surrogatepass")
    units = np.frombuffer(data, dtype="<u2")
    high = np.flatnonzero(units > 0xFF)
    if len(high) * 8 > len(units) or len(units) < 64:
        return _distinct(_windows(data, 2))
    places = np.unique((high[:, None] - np.arange(_RUN)).reshape(-1))
    places = places[(places >= 0) & (places <= len(units) - _RUN)]
    wide = np.zeros(len(places), dtype=np.uint64)
    for step in range(_RUN):
        wide |= units[places + step].astype(np.uint64) << np.uint64(16 * step)
    narrow = _windows(units.astype(np.uint8).tobytes(), 1)
    starts = np.array([0, *np.cumsum([(len(units) - step) // _RUN for step in range(_RUN - 1)])])
    spoilt = starts[places % _RUN] + places // _RUN
    sound = np.setdiff1d(np.arange(min(len(narrow), len(spoilt) + 1)), spoilt)
    if not len(sound):
        return _distinct(wide)
    narrow[spoilt] = narrow[sound[0]]  # a run that is there anyway
    return np.concatenate((_widened(_distinct(narrow)), _distinct(wide)))


def _windows(data: bytes, width: int) -> NDArray[np.uint32] | _Words:
    """Every run of four units of ``width`` bytes as one number, grouped by the run's place modulo four."""
    kind = "<u4" if width == 1 else "<u8"
    size = _RUN * width
    parts = [
        np.frombuffer(data, dtype=kind, offset=step * width, count=(len(data) - step * width) // size)
        for step in range(_RUN)
        if len(data) - step * width >= size
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)


def _widened(runs: NDArray[np.uint32]) -> _Words:
    """Packed runs of bytes as runs of 16-bit units."""
    wide = runs.astype(np.uint64)
    wide = (wide | (wide << np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return (wide | (wide << np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)


def _distinct(values: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    values.sort()
    return np.concatenate((values[:1], values[1:][np.flatnonzero(values[1:] != values[:-1])]))


def _fingerprints(runs: _Words) -> _Words:
    units = runs.astype("<u8", copy=False).view("<u2").reshape(-1, _RUN)
    tables = _unit_tables()
    prints: _Words = tables[0][units[:, 0]]
    for place in range(1, _RUN):
        prints ^= tables[place][units[:, place]]
    return prints


def _majority(prints: _Words) -> int:
    """One vote per fingerprint and bit. Eight bits are counted at once in the octets of a word, which hold up to
    255 votes."""
    rows = -(-len(prints) // _OCTET_MAX)
    padded: NDArray[np.uint64] = np.zeros((_OCTET_MAX, rows), dtype=np.uint64)
    padded.reshape(-1)[: len(prints)] = prints
    result = 0
    for bit in range(8):
        counted = ((padded >> np.uint64(bit)) & np.uint64(0x0101010101010101)).sum(axis=0, dtype=np.uint64)
        votes = counted.astype("<u8", copy=False).view(np.uint8).reshape(rows, 8).sum(axis=0, dtype=np.int64)
        for octet in np.flatnonzero(2 * votes > len(prints)):
            result |= 1 << (8 * int(octet) + bit)
    return result - (1 << 64) if result >> 63 else result
