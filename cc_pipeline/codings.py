"""Removes HTTP transfer and content codings from bytes, within a size limit."""

from __future__ import annotations

import mmap
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import cramjam

#: Maximum bytes of a decoded body.
DEFAULT_LIMIT: Final = 64 << 20
#: Maximum codings of one body that are removed: each may take as long as ``DEFAULT_LIMIT`` bytes.
MAX_CODINGS: Final = 8

_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]{0,4096})?\r?\n")


def dechunked(payload: bytes) -> bytes | None:
    """Returns ``payload`` without its chunked coding; ``None`` if it is not chunked to its end."""
    plain, is_complete = dechunked_prefix(payload)
    return plain if is_complete else None


def dechunked_prefix(payload: bytes) -> tuple[bytes | None, bool]:
    """Returns the chunks that can be decoded, and whether that is the complete payload.

    Returns (``None``, ``False``) if the payload does not begin with a chunk.
    """
    parts: list[bytes] = []
    position = 0
    while True:
        line = _CHUNK.match(payload, position)
        if line is None:
            return (b"".join(parts), False) if parts else (None, False)
        size = int(line[1], 16)
        start = line.end()
        if size == 0:
            return b"".join(parts), True
        end = start + size
        if payload[end : end + 2] == b"\r\n":
            position = end + 2
        elif payload[end : end + 1] == b"\n":
            position = end + 1
        elif parts and end >= len(payload):
            return b"".join((*parts, payload[start:])), False
        else:
            return (b"".join(parts), False) if parts else (None, False)
        parts.append(payload[start:end])


_PIECE: Final = 65_536
_HEAD_BYTES: Final = 512
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_UNTOUCHED: Final = bytes(4096)


@dataclass(frozen=True, slots=True)
class DecodedPayload:
    """A body without its codings. ``codings`` are the removed ones, in that order. ``complete`` is false if the encoded
    bytes were cut off or damaged, or if the body exceeds the limit: ``body`` is then its beginning."""

    body: bytes
    codings: tuple[str, ...]
    complete: bool


def decoded(payload: bytes, headers: Sequence[tuple[str, str]], limit: int = DEFAULT_LIMIT) -> DecodedPayload:
    """Removes the transfer and content codings that the HTTP headers name; returns at most ``limit`` bytes. Stops at a
    coding that the bytes do not have, and after ``MAX_CODINGS`` content codings. Never raises."""
    body = payload
    undone: list[str] = []
    complete = True
    if "chunked" in coding_tokens(headers, "transfer-encoding"):
        plain, is_complete = dechunked_prefix(body)
        if plain is not None:
            body, complete = plain, is_complete
            undone.append("chunked")
    for coding in reversed(coding_tokens(headers, "content-encoding")[-MAX_CODINGS:]):
        result = undo(coding, body, limit)
        if result is None:
            break
        body, is_complete = result
        complete = complete and is_complete
        undone.append(coding)
    return DecodedPayload(body, tuple(undone), complete)


def coding_tokens(headers: Sequence[tuple[str, str]], name: str) -> list[str]:
    """Returns the codings in the headers called ``name``, in lower case and in order, without ``identity``."""
    values = ",".join(value for header, value in headers if header.lower() == name)
    return [token for token in (part.strip().lower() for part in values.split(",")) if token not in ("", "identity")]


def undo(coding: str, data: bytes, limit: int) -> tuple[bytes, bool] | None:
    """Removes one coding. Returns at most ``limit`` bytes and whether these are all; ``None`` for an unknown coding, or
    one that the bytes do not have."""
    decoder = _DECODERS.get(coding)
    return None if decoder is None or not data else decoder(data, limit)


def _gzip(data: bytes, limit: int) -> tuple[bytes, bool] | None:
    return _inflate(data, limit, 31) if data[:3] == _GZIP_MAGIC else None


def _deflate(data: bytes, limit: int) -> tuple[bytes, bool] | None:
    """RFC 9110 demands zlib. Some servers send raw deflate, which has no signature, so it is accepted only if
    complete."""
    if len(data) > 1 and data[0] & 15 == 8 and int.from_bytes(data[:2]) % 31 == 0:
        return _inflate(data, limit, 15)
    bare = _inflate(data, limit, -15)
    return bare if bare is not None and bare[1] else None


def _inflate(data: bytes, limit: int, window_bits: int) -> tuple[bytes, bool] | None:
    parts: list[bytes] = []
    room = limit
    engine = zlib.decompressobj(window_bits)
    position, size = 0, _PIECE
    while position < len(data):
        piece = data[position : position + size]
        unchanged = engine.copy()
        try:
            part = engine.decompress(piece, room + 1)
        except zlib.error:
            if size == 1:
                return (b"".join(parts), False) if any(parts) else None
            engine, size = unchanged, 1  # zlib gives nothing of a piece with an error: its bytes are read one by one
            continue
        position += len(piece)
        if len(part) > room:
            return b"".join((*parts, part[:room])), False
        room -= len(part)
        parts.append(part)
        if engine.eof:
            position -= len(engine.unused_data)
            if window_bits != 31 or data[position : position + 3] != _GZIP_MAGIC:
                return b"".join(parts), True
            engine = zlib.decompressobj(window_bits)
    return b"".join(parts), False


def _brotli(data: bytes, limit: int) -> tuple[bytes, bool] | None:
    """Decompresses Brotli; arguments and result as of :func:`undo`. Brotli has no signature, and its decoder accepts
    many texts. So an incomplete result is accepted only if the bytes are no text themselves."""
    decompressed = _decompress_bounded(cramjam.brotli.decompress_into, data, limit)
    return None if decompressed is not None and not decompressed[1] and _is_text(data[:_HEAD_BYTES]) else decompressed


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4
    return True


def _zstd(data: bytes, limit: int) -> tuple[bytes, bool] | None:
    return _decompress_bounded(cramjam.zstd.decompress_into, data, limit) if data[:4] == _ZSTD_MAGIC else None


def _decompress_bounded(
    inflate_into: Callable[[bytes, mmap.mmap], int], data: bytes, limit: int
) -> tuple[bytes, bool] | None:
    """Decompresses into an anonymous map, which costs memory only where it is written. If data is damaged, cut off or
    above the limit, decoders have written the beginning and do not say how much: it ends where the map is untouched."""
    with mmap.mmap(-1, max(limit, 1)) as scratch:
        try:
            return scratch[: inflate_into(data, scratch)], True
        except cramjam.DecompressionError:
            end = scratch.find(_UNTOUCHED)
            beginning = scratch[: limit if end < 0 else end].rstrip(b"\0")
            return (beginning, False) if beginning else None


_DECODERS: Final[dict[str, Callable[[bytes, int], tuple[bytes, bool] | None]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
