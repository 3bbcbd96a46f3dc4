"""Content that goes on over several gzip members, one behind the other."""

from __future__ import annotations

import io
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

from cc_pipeline.archive import record as flag
from cc_pipeline.archive.gzip_members import (
    GZIP_MAGIC,
    InflatedMember,
    MemberReader,
    Window,
    inflate_at,
    inflate_member,
    salvage,
)
from cc_pipeline.errors import DataKind

_PROBE: Final = 1 << 16


def inflate_run(
    data: bytes, source: str, offset: int, limit: int, wanted: Callable[[bytes], int]
) -> tuple[bytes, tuple[str, ...]]:
    """The content of the first gzip member of ``data`` and of those behind it that it needs, and what is odd of them.

    ``wanted`` tells of content how many bytes a record that begins there has: 0 where none does, -1 where more of it
    must be seen. A member behind that begins a record of its own is left alone. Raises as ``inflate_member`` does.
    """
    first = inflate_member(data, source, offset, limit)
    content, consumed = first.content, first.consumed
    need = wanted(content) if consumed < len(data) else 0
    parts, size, window = [content], len(content), Window(io.BytesIO(data))
    while (need < 0 or size < need) and size < limit:
        following = inflate_at(window, consumed, limit - size)
        if not isinstance(following, InflatedMember) or wanted(following.content) > 0:
            break
        parts.append(following.content)
        size += len(following.content)
        consumed += following.consumed
        if need < 0 and size >= 2 * len(content):
            content = b"".join(parts)
            parts, need = [content], wanted(content)
    behind = () if consumed == len(data) else (flag.BYTES_AFTER_MEMBER,)
    return b"".join(parts), (*behind, *((flag.SEVERAL_MEMBERS,) if consumed > first.consumed else ()))


class RunReader:
    """``read(n)`` over the contents of members that lie one behind the other, as of one; it ends before a member that
    ``ends`` tells to be a new begin, and at damage."""

    def __init__(self, window: Window, offset: int, ends: Callable[[bytes], bool]) -> None:
        self._window = window
        self._ends = ends
        self._member = MemberReader(window, offset)
        #: Where each member begins: in the contents and in the file.
        self._begins = [(0, offset)]
        self._read = 0
        self._done = False

    @property
    def position(self) -> int:
        """Where the last member that was read ends, or how far it was read."""
        return self._member.position

    @property
    def fault(self) -> tuple[DataKind, str] | None:
        """The kind of the damage at which reading ended, and why."""
        return self._member.fault

    def read(self, size: int, /) -> bytes:
        while not self._done:
            if part := self._member.read(size):
                self._read += len(part)
                return part
            at = self._member.position
            head = b"" if self.fault else self._window.slice(at, len(GZIP_MAGIC))
            if head != GZIP_MAGIC or self._ends(salvage(self._window, at, _PROBE)):
                self._done = True
                break
            self._member = MemberReader(self._window, at)
            self._begins.append((self._read, at))
        return b""

    def place(self, begin: int, end: int) -> tuple[int, int, int, bool]:
        """Of bytes of the contents: offset and length of the member they lie in (or of all they lie in), how far
        inside it they begin, and whether they lie in several."""
        first = bisect_right(self._begins, begin, key=lambda each: each[0]) - 1
        last = max(first, bisect_left(self._begins, end, key=lambda each: each[0]) - 1)
        inner, offset = self._begins[first]
        stop = self._begins[last + 1][1] if last + 1 < len(self._begins) else self.position
        return offset, stop - offset, begin - inner, last > first
