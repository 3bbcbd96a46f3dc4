"""The 64-bit Rabin fingerprint that the 2012 simhash votes with."""

from __future__ import annotations

from functools import lru_cache

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
