"""Hadoop's variable-length integers (``WritableUtils.writeVInt`` and ``writeVLong``)."""

from __future__ import annotations


def encode_vint(value: int) -> bytes:
    """One to nine bytes for a signed 64-bit number. Raises ``OverflowError`` beyond 64 bits."""
    if -112 <= value <= 127:
        return (value & 0xFF).to_bytes(1)
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{value} does not fit 64 bits")
    first = -112
    if value < 0:
        value = ~value
        first = -120
    size = (value.bit_length() + 7) // 8
    return (first - size & 0xFF).to_bytes(1) + value.to_bytes(size)


def decode_vint(data: bytes, position: int) -> tuple[int, int]:
    """(number, position behind it). Raises ``ValueError`` where ``data`` ends within the number."""
    if position >= len(data):
        raise ValueError("a variable-length number is missing")
    first = data[position]
    if first <= 0x7F or first >= 0x90:
        return (first if first <= 0x7F else first - 256), position + 1
    size = 0x90 - first if first >= 0x88 else 0x88 - first
    end = position + 1 + size
    if end > len(data):
        raise ValueError("a variable-length number is cut off")
    value = int.from_bytes(data[position + 1 : end])
    return (value if first >= 0x88 else ~value), end
