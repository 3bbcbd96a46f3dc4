"""Hadoop's ``Writable`` types and variable-length integers, as SequenceFiles have them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from cc_pipeline.errors import DataFault, DataKind


class Damage(ValueError):
    """Bytes that break their format, and the ``kind`` of that. Any other ``ValueError`` counts as ``malformed``."""

    def __init__(self, kind: DataKind, reason: str) -> None:
        self.kind = kind
        super().__init__(reason)


def damage_fault(error: ValueError, source: str, offset: int | None, where: str = "") -> DataFault:
    """The fault that ``error`` is at ``offset`` (bytes) of ``source``; ``where`` is set before its words."""
    kind = error.kind if isinstance(error, Damage) else DataKind.MALFORMED
    return DataFault(kind, source, offset, f"{where}{error}")


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
        raise Damage(DataKind.TRUNCATED, "a variable-length number is missing")
    first = data[position]
    if first <= 0x7F or first >= 0x90:
        return (first if first <= 0x7F else first - 256), position + 1
    size = 0x90 - first if first >= 0x88 else 0x88 - first
    end = position + 1 + size
    if end > len(data):
        raise Damage(DataKind.TRUNCATED, "a variable-length number is cut off")
    value = int.from_bytes(data[position + 1 : end])
    return (value if first >= 0x88 else ~value), end


#: What the known classes decode to; bytes of an unknown class are given as they are.
Value = str | bytes | int | float | bool | None

_IO: Final = "org.apache.hadoop.io."
TEXT: Final = f"{_IO}Text"
BYTES: Final = f"{_IO}BytesWritable"
LONG: Final = f"{_IO}LongWritable"
INT: Final = f"{_IO}IntWritable"
NULL: Final = f"{_IO}NullWritable"


def decode(class_name: str, data: bytes) -> Value:
    """The value of one serialized ``Writable``; ``data`` itself for a class that is not known here.

    Text that is not UTF-8 gets replacement characters, as Hadoop itself does. Raises ``ValueError`` where
    ``data`` is not exactly one such value.
    """
    decoder = _DECODERS.get(class_name)
    return data if decoder is None else decoder(data)


def encode_text(value: str) -> bytes:
    """A ``Text``: its length in UTF-8 bytes, then those. Lone surrogates become question marks, as in Hadoop."""
    data = value.encode("utf-8", "replace")
    return encode_vint(len(data)) + data


def _text(data: bytes) -> str:
    length, start = decode_vint(data, 0)
    if length != len(data) - start:
        raise ValueError(f"Text of {length} bytes in {len(data) - start}")
    return data[start:].decode("utf-8", "replace")


def _bytes(data: bytes) -> bytes:
    if len(data) < 4 or int.from_bytes(data[:4], signed=True) != len(data) - 4:
        raise ValueError("BytesWritable whose length is not its own")
    return data[4:]


def _packed(layout: str) -> Callable[[bytes], Value]:
    packing = struct.Struct(f">{layout}")

    def decode_packed(data: bytes) -> Value:
        if len(data) != packing.size:
            raise ValueError(f"{len(data)} bytes instead of {packing.size}")
        value: Value = packing.unpack(data)[0]
        return value

    return decode_packed


def _vint(data: bytes) -> int:
    value, end = decode_vint(data, 0)
    if end != len(data):
        raise ValueError("bytes behind a variable-length number")
    return value


def _null(data: bytes) -> None:
    if data:
        raise ValueError("NullWritable with bytes")


def _utf8(data: bytes) -> str:
    if len(data) < 2 or int.from_bytes(data[:2]) != len(data) - 2:
        raise ValueError("UTF8 whose length is not its own")
    return data[2:].decode("utf-8", "replace")


_DECODERS: Final[dict[str, Callable[[bytes], Value]]] = {
    TEXT: _text,
    BYTES: _bytes,
    LONG: _packed("q"),
    INT: _packed("i"),
    NULL: _null,
    f"{_IO}ShortWritable": _packed("h"),
    f"{_IO}ByteWritable": _packed("b"),
    f"{_IO}BooleanWritable": _packed("?"),
    f"{_IO}FloatWritable": _packed("f"),
    f"{_IO}DoubleWritable": _packed("d"),
    f"{_IO}VIntWritable": _vint,
    f"{_IO}VLongWritable": _vint,
    f"{_IO}UTF8": _utf8,
}
