"""Hadoop's types and codecs in SequenceFiles: ``Writable`` values, variable-length integers, and the codings around
them."""

from __future__ import annotations

import bz2
import mmap
import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import cramjam

from cc_pipeline.errors import DataFault, DataKind

#: The types of decoded values; bytes of an unknown class stay unchanged.
Value = str | bytes | int | float | bool | None

_IO: Final = "org.apache.hadoop.io."
TEXT: Final = f"{_IO}Text"
BYTES: Final = f"{_IO}BytesWritable"
LONG: Final = f"{_IO}LongWritable"
INTEGER: Final = f"{_IO}IntWritable"
NULL: Final = f"{_IO}NullWritable"

_COMPRESS: Final = "org.apache.hadoop.io.compress."
DEFAULT_CODEC: Final = f"{_COMPRESS}DefaultCodec"
GZIP_CODEC: Final = f"{_COMPRESS}GzipCodec"


class Damage(ValueError):
    """Bytes that violate their format, with the ``kind`` of fault. Any other ``ValueError`` counts as ``malformed``."""

    def __init__(self, kind: DataKind, reason: str) -> None:
        self.kind = kind
        super().__init__(reason)


def damage_fault(error: ValueError, source: str, offset: int | None, where: str = "") -> DataFault:
    """Returns the fault for ``error`` at ``offset`` (bytes) of ``source``; ``where`` is put before its text."""
    kind = error.kind if isinstance(error, Damage) else DataKind.MALFORMED
    return DataFault(kind, source, offset, f"{where}{error}")


def decode_vint(data: bytes, position: int) -> tuple[int, int]:
    """Returns the number at ``position`` and the position after it. Raises ``ValueError`` if ``data`` ends before."""
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


def decode(class_name: str, data: bytes) -> Value:
    """Returns the value of one serialized ``Writable``; ``data`` itself for an unknown class.

    Text that is not UTF-8 gets replacement characters, as in Hadoop. Raises ``ValueError`` unless ``data`` is exactly
    one such value.
    """
    decoder = _DECODERS.get(class_name)
    return data if decoder is None else decoder(data)


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
        raise ValueError("bytes after a variable-length number")
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
    INTEGER: _packed("i"),
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


def decompress(codec: str, data: bytes, limit: int) -> bytes:
    """Inflates ``data`` to at most ``limit`` bytes. Raises ``Damage`` for bytes that cannot be inflated, exceed the
    limit, or have an unknown codec."""
    decoder = _DECOMPRESSORS.get(codec)
    if decoder is None:
        raise Damage(DataKind.UNSUPPORTED, f"unknown codec {codec[:80]}")
    try:
        return decoder(data, limit)
    except (zlib.error, OSError, EOFError, cramjam.DecompressionError) as error:
        raise Damage(DataKind.MALFORMED, f"{codec.rpartition('.')[2]}: {str(error)[:80]}") from None


class _Engine(Protocol):
    """The common interface of zlib's and bz2's decompressors."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _stream_decoder(new_engine: Callable[[], _Engine]) -> Callable[[bytes, int], bytes]:
    """Returns a decoder of a coding whose data may be several consecutive streams, each with its own engine."""

    def inflate(data: bytes, limit: int) -> bytes:
        parts: list[bytes] = []
        room = limit
        while True:
            engine = new_engine()
            part = engine.decompress(data, room + 1)
            room -= len(part)
            if room < 0:
                raise Damage(DataKind.TOO_LARGE, f"inflates beyond {limit} bytes")
            if not engine.eof:
                raise Damage(DataKind.TRUNCATED, "compressed bytes are cut off")
            parts.append(part)
            data = engine.unused_data
            if not data:
                return b"".join(parts)

    return inflate


def _into_room(inflate_into: Callable[[bytes, mmap.mmap], int], data: bytes, room: int) -> bytes:
    """Inflates to at most ``room`` bytes. Pages of an anonymous map cost memory only once they are written."""
    with mmap.mmap(-1, max(room, 1)) as scratch:
        return scratch[: inflate_into(data, scratch)]


def _snappy_chunk(chunk: bytes, room: int) -> bytes:
    length = cramjam.snappy.decompress_raw_len(chunk)
    if length > room:
        raise Damage(DataKind.MALFORMED, "a chunk inflates beyond its block")
    return bytes(cramjam.snappy.decompress_raw(chunk))


def _framed(inflate_chunk: Callable[[bytes, int], bytes]) -> Callable[[bytes, int], bytes]:
    """Returns a decoder of ``BlockCompressorStream``: blocks of an inflated length, then chunks of length and bytes up
    to it."""

    def inflate(data: bytes, limit: int) -> bytes:
        parts: list[bytes] = []
        room = limit
        position = 0
        while position < len(data):
            missing, position = _uint32(data, position)
            if missing > room:
                raise Damage(DataKind.TOO_LARGE, f"inflates beyond {limit} bytes")
            room -= missing
            while missing:
                length, position = _uint32(data, position)
                if length > len(data) - position:
                    raise Damage(DataKind.TRUNCATED, "a chunk is cut off")
                part = inflate_chunk(data[position : position + length], missing) if length else b""
                if not 0 < len(part) <= missing:
                    raise Damage(DataKind.MALFORMED, "a chunk does not fit its block")
                parts.append(part)
                missing -= len(part)
                position += length
        return b"".join(parts)

    return inflate


def _uint32(data: bytes, position: int) -> tuple[int, int]:
    if position + 4 > len(data):
        raise Damage(DataKind.TRUNCATED, "a length is cut off")
    return int.from_bytes(data[position : position + 4]), position + 4


_DECOMPRESSORS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    DEFAULT_CODEC: _stream_decoder(partial(zlib.decompressobj, 15)),
    f"{_COMPRESS}DeflateCodec": _stream_decoder(partial(zlib.decompressobj, 15)),
    GZIP_CODEC: _stream_decoder(partial(zlib.decompressobj, 31)),
    f"{_COMPRESS}BZip2Codec": _stream_decoder(bz2.BZ2Decompressor),
    f"{_COMPRESS}ZStandardCodec": partial(_into_room, cramjam.zstd.decompress_into),
    f"{_COMPRESS}SnappyCodec": _framed(_snappy_chunk),
    f"{_COMPRESS}Lz4Codec": _framed(partial(_into_room, cramjam.lz4.decompress_block_into)),
}
