"""The chunked transfer coding (RFC 9112 §7.1) of bodies that were stored with it."""

from __future__ import annotations

import re

_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]{0,4096})?\r?\n")


def dechunked(payload: bytes) -> bytes | None:
    """``payload`` without its chunked coding; ``None`` where it is not chunked throughout."""
    parts: list[bytes] = []
    position = 0
    while True:
        line = _CHUNK.match(payload, position)
        if line is None:
            return None
        size = int(line[1], 16)
        start = line.end()
        if size == 0:
            return b"".join(parts)
        if start + size > len(payload):
            return None
        parts.append(payload[start : start + size])
        position = start + size
        if payload[position : position + 2] == b"\r\n":
            position += 2
        elif payload[position : position + 1] == b"\n":
            position += 1
        else:
            return None
