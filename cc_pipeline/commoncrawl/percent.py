"""Percent-escapes: resolve them until none is left, and write the few that a key needs."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_HEX = frozenset("0123456789abcdefABCDEF")
_CHARACTER = {f"{number:02x}": chr(number) for number in range(256)}

#: Bytes that may not stand bare in a key: controls, the space, ``#``, ``%`` and everything from 0x7F on.
_UNSAFE = re.compile(r"[^!-\"$&-~]")
_UNSAFE_BUT_ESCAPED = re.compile(r"[^!-~]")


def unescape_fully(text: str) -> str:
    """Resolve ``%XX`` again and again until the text does not change (``%2525`` gives ``%``).

    ``text`` is latin-1 text of bytes, and so is the result. Linear in the length however deep the nesting.
    """
    for _ in range(4):
        if "%" not in text:
            return text
        resolved = _ESCAPE.sub(_resolve, text)
        if resolved == text:
            return text
        text = resolved
    return _unescape_with_stack(text)


def escape(text: str, keep: str = "") -> str:
    """Write unsafe bytes of latin-1 text as lower-case ``%xx``; ``keep="%#"`` leaves these two as they are."""
    unsafe = _UNSAFE_BUT_ESCAPED if keep == "%#" else _UNSAFE
    return unsafe.sub(_write, text)


def _resolve(match: re.Match[str]) -> str:
    return _CHARACTER[match[1].lower()]


def _write(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in match[0].encode("latin-1", "replace"))


def _unescape_with_stack(text: str) -> str:
    # Two escapes never share a character, so resolving in any order ends in the same text: one pass will do.
    stack: list[str] = []
    for character in text:
        stack.append(character)
        while len(stack) >= 3 and stack[-3] == "%" and stack[-2] in _HEX and stack[-1] in _HEX:
            pair = (stack[-2] + stack[-1]).lower()
            del stack[-3:]
            stack.append(_CHARACTER[pair])
    return "".join(stack)
