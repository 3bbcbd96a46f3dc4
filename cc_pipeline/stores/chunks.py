"""Undoing the chunked transfer coding (RFC 9112, section 7.1) piece by piece."""

from __future__ import annotations

import re
from typing import Final

_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
_MAX_LINE: Final = 4096


class Dechunker:
    """Fed with pieces as they come. ``broken`` once a size line cannot be read, ``surplus`` when more than the
    answer came with its end."""

    def __init__(self) -> None:
        self._rest = b""
        self._missing = 0
        self._in_trailer = False
        self.broken = False
        self.surplus = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """The payload in ``data``, and whether the last chunk has been read."""
        buffer = self._rest + data
        parts: list[bytes] = []
        position = 0
        while position < len(buffer):
            if self._missing > 2:
                part = buffer[position : position + self._missing - 2]
                parts.append(part)
                position += len(part)
                self._missing -= len(part)
                continue
            if self._missing:  # the line break behind a chunk
                step = min(self._missing, len(buffer) - position)
                position += step
                self._missing -= step
                continue
            if self._in_trailer:
                ended, position = self._skip_trailer(buffer, position)
                if ended:
                    self._rest = b""
                    self.surplus = position < len(buffer)
                    return b"".join(parts), True
                break
            match = _SIZE.match(buffer, position)
            if match is None:
                self.broken = b"\n" in buffer[position:] or len(buffer) - position > _MAX_LINE
                break
            position = match.end()
            size = int(match[1], 16)
            self._in_trailer = not size
            self._missing = size + 2 if size else 0
        self._rest = buffer[position:]
        return b"".join(parts), False

    def _skip_trailer(self, buffer: bytes, position: int) -> tuple[bool, int]:
        """Passes over trailer fields up to the empty line."""
        while True:
            end = buffer.find(b"\n", position)
            if end < 0:
                return False, position
            line = buffer[position:end].rstrip(b"\r")
            position = end + 1
            if not line:
                return True, position
