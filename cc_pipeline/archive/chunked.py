"""The chunked transfer coding (RFC 9112 §7.1) of bodies that were stored with it."""

from __future__ import annotations

import re

_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]{0,4096})?\r?\n")


def dechunked(payload: bytes) -> bytes | None:
    """``payload`` without its chunked coding; ``None`` where it is not chunked throughout."""
    plain, whole = dechunked_prefix(payload)
    return plain if whole else None


def dechunked_prefix(payload: bytes) -> tuple[bytes | None, bool]:
    """(what can be dechunked, is that all of it?); (``None``, ``False``) where the first chunk already is none."""
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
