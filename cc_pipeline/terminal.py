"""Shows untrusted text on a terminal: control characters become visible escapes."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TextIO

#: C0 without tab and line feed, DEL, C1, and the controls of text direction.
_ORDERS = (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPED = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _ORDERS} | {13: "\\r"}
_IN_A_LINE = _ESCAPED | {9: "\\t", 10: "\\n"}


def escape_controls(text: str, *, one_line: bool = False) -> str:
    """Escapes control characters, except tabs and line ends; with ``one_line``, these too."""
    return text.translate(_IN_A_LINE if one_line else _ESCAPED)


class EscapingTerminal:
    """A text stream to a terminal that escapes control characters, also in bytes that are written to ``buffer``.

    Rich writes its own escape sequences to ``rich_proxied_file``; ``cli/output.py`` escapes its input before.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = self.rich_proxied_file = stream
        self.buffer = _EscapingBytes(stream)

    def write(self, text: str) -> int:
        self._stream.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class _EscapingBytes:
    """A stream of UTF-8 bytes to a terminal. Invalid bytes are shown as escapes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, data: bytes) -> int:
        self._stream.write(escape_controls(self._decoder.decode(data)))
        return len(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
