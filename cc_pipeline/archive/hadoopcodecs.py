"""Hadoop's compression codecs, bounded: zlib, gzip, bzip2, zstd, and snappy and lz4 in Hadoop's block framing."""

from __future__ import annotations

import bz2
import gzip
import mmap
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import cramjam

from cc_pipeline.archive.writables import Damage
from cc_pipeline.errors import DataKind

_COMPRESS: Final = "org.apache.hadoop.io.compress."
DEFAULT_CODEC: Final = f"{_COMPRESS}DefaultCodec"
GZIP_CODEC: Final = f"{_COMPRESS}GzipCodec"


class CodecError(Damage):
    """Compressed bytes that cannot be inflated, inflate beyond the bound, or are of an unknown codec."""


def decompress(codec: str, data: bytes, limit: int) -> bytes:
    """Inflate ``data`` to at most ``limit`` bytes. Raises ``CodecError``."""
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise CodecError(DataKind.UNSUPPORTED, f"unknown codec {codec[:80]}")
    try:
        return decoder(data, limit)
    except (zlib.error, OSError, EOFError, cramjam.DecompressionError) as error:
        raise CodecError(DataKind.MALFORMED, f"{codec.rpartition('.')[2]}: {str(error)[:80]}") from None


def compress(codec: str, data: bytes) -> bytes:
    """Deflate with ``DEFAULT_CODEC`` or ``GZIP_CODEC``. The same input always gives the same output."""
    if codec == DEFAULT_CODEC:
        return zlib.compress(data)
    if codec == GZIP_CODEC:
        return gzip.compress(data, compresslevel=6, mtime=0)
    raise CodecError(DataKind.UNSUPPORTED, f"cannot write with codec {codec[:80]}")


class _Engine(Protocol):
    """What zlib's and bz2's decompressors have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _one_after_another(new_engine: Callable[[], _Engine]) -> Callable[[bytes, int], bytes]:
    """Takes off a coding whose streams may stand one behind the other, each by an engine of its own."""

    def inflate(data: bytes, limit: int) -> bytes:
        parts: list[bytes] = []
        room = limit
        while True:
            engine = new_engine()
            part = engine.decompress(data, room + 1)
            room -= len(part)
            if room < 0:
                raise CodecError(DataKind.TOO_LARGE, f"inflates beyond {limit} bytes")
            if not engine.eof:
                raise CodecError(DataKind.TRUNCATED, "compressed bytes are cut off")
            parts.append(part)
            data = engine.unused_data
            if not data:
                return b"".join(parts)

    return inflate


def _into_room(inflate_into: Callable[[bytes, mmap.mmap], int], data: bytes, room: int) -> bytes:
    """Inflate to at most ``room`` bytes. Pages of an anonymous map cost memory only once they are written to."""
    with mmap.mmap(-1, max(room, 1)) as scratch:
        return scratch[: inflate_into(data, scratch)]


def _zstd(data: bytes, limit: int) -> bytes:
    return _into_room(cramjam.zstd.decompress_into, data, limit)


def _snappy_chunk(chunk: bytes, room: int) -> bytes:
    length = cramjam.snappy.decompress_raw_len(chunk)
    if length > room:
        raise CodecError(DataKind.MALFORMED, "a chunk inflates beyond its block")
    return bytes(cramjam.snappy.decompress_raw(chunk))


def _lz4_chunk(chunk: bytes, room: int) -> bytes:
    return _into_room(cramjam.lz4.decompress_block_into, chunk, room)


def _framed(inflate_chunk: Callable[[bytes, int], bytes]) -> Callable[[bytes, int], bytes]:
    """``BlockCompressorStream``: blocks of (inflated length, then chunks of (length, bytes) until it is reached)."""

    def inflate(data: bytes, limit: int) -> bytes:
        parts: list[bytes] = []
        room = limit
        position = 0
        while position < len(data):
            missing, position = _uint32(data, position)
            if missing > room:
                raise CodecError(DataKind.TOO_LARGE, f"inflates beyond {limit} bytes")
            room -= missing
            while missing:
                length, position = _uint32(data, position)
                if length > len(data) - position:
                    raise CodecError(DataKind.TRUNCATED, "a chunk is cut off")
                part = inflate_chunk(data[position : position + length], missing) if length else b""
                if not 0 < len(part) <= missing:
                    raise CodecError(DataKind.MALFORMED, "a chunk does not fit its block")
                parts.append(part)
                missing -= len(part)
                position += length
        return b"".join(parts)

    return inflate


def _uint32(data: bytes, position: int) -> tuple[int, int]:
    if position + 4 > len(data):
        raise CodecError(DataKind.TRUNCATED, "a length is cut off")
    return int.from_bytes(data[position : position + 4]), position + 4


_DECODERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    DEFAULT_CODEC: _one_after_another(partial(zlib.decompressobj, 15)),
    f"{_COMPRESS}DeflateCodec": _one_after_another(partial(zlib.decompressobj, 15)),
    GZIP_CODEC: _one_after_another(partial(zlib.decompressobj, 31)),
    f"{_COMPRESS}BZip2Codec": _one_after_another(bz2.BZ2Decompressor),
    f"{_COMPRESS}ZStandardCodec": _zstd,
    f"{_COMPRESS}SnappyCodec": _framed(_snappy_chunk),
    f"{_COMPRESS}Lz4Codec": _framed(_lz4_chunk),
}
