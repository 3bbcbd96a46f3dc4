"""Delivers a long range in pieces while it arrives: whole records leave as a piece, and after a broken connection only
the bytes that had not left are requested again."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from cc_pipeline.stores.answer import Answer, Span
from cc_pipeline.transport.faults import Finding, Verified, judge_headers, judge_length, judge_range
from cc_pipeline.transport.ranges import REQUEST_NUMBERS, ByteRange

#: Minimum bytes of a piece: it ends with the record that reaches them. A range has two in memory, one that waits to be
#: taken and one that arrives.
PIECE: Final = 2 << 20


def peak_memory(byte_range: ByteRange) -> int:
    """Returns the maximum bytes of a range in memory: two pieces, each with the longest record."""
    places = (byte_range.offset or 0, *byte_range.ends)
    return min(byte_range.length, 2 * (PIECE + max(end - start for start, end in pairwise(places))))


class Pieces:
    """Cuts the bytes of a range where its records end. An ``Intake`` of one answer after the other; each continues
    where the pieces of the previous ones end.

    ``give`` gets each piece except the last (see :meth:`take_remainder`): the offset, the bytes, and the verdict on the
    object. The receiver calls :meth:`release_piece`. Belongs to one event loop."""

    def __init__(self, byte_range: ByteRange, give: Callable[[int, bytes, Verified], None]) -> None:
        assert byte_range.offset is not None
        self._ends, self._etag, self._total, self._give = byte_range.ends, byte_range.etag, byte_range.total, give
        self._next, self._end = byte_range.offset, byte_range.offset + byte_range.length
        self._seen = self._next
        self._answer: Verified | None = None
        #: The number of the current request.
        self.request = next(REQUEST_NUMBERS)
        #: Whether the current answer has given no piece yet.
        self.is_first = True
        self._buffer = bytearray()
        self._out = 0
        self._go_on: Callable[[], None] | None = None
        self._emptied: asyncio.Future[None] | None = None

    @property
    def span(self) -> Span:
        """The span that is still missing."""
        return Span(self._next, self._end - self._next)

    def start(self) -> None:
        """Prepares for another answer; complete records of the previous one leave first."""
        if self._answer is not None:
            self._leave(self._next + len(self._buffer))
        self._buffer.clear()
        self._answer = self._go_on = None
        self.request = next(REQUEST_NUMBERS)
        self.is_first = True

    def has_progressed(self) -> bool:
        """Whether pieces came since the last call."""
        previous, self._seen = self._seen, self._next
        return self._next > previous

    def begins(self, status: int, headers: Mapping[str, str]) -> bool:
        verdict = judge_headers(self.span, status, headers, self._etag, self._total)
        length = headers.get("content-length", "")
        if isinstance(verdict, Verified) and (not length.isdecimal() or int(length) == self.span.length):
            self._answer = verdict
        return self._answer is not None

    def take(self, data: bytes) -> None:
        self._buffer += data
        self._cut()

    @property
    def is_full(self) -> bool:
        return self._out > 0 and len(self._buffer) >= PIECE

    def when_room(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on

    @property
    def pause(self) -> object:
        """An object that identifies the current wait for a piece to be taken; ``None`` if there is no wait."""
        return self._go_on

    async def wait_for_release(self) -> None:
        """Returns once no piece is held."""
        if self._out:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def release_piece(self) -> None:
        """Notes that the receiver has released its piece."""
        self._out -= 1
        if self._emptied is not None and not self._out and not self._emptied.done():
            self._emptied.set_result(None)
        self._cut()
        if self._go_on is not None and not self.is_full:
            go_on, self._go_on = self._go_on, None
            go_on()

    def judge(self, answer: Answer) -> Verified | Finding:
        """Checks that an answer completes the range; :meth:`take_remainder` then has its bytes."""
        if self._answer is None:
            return judge_range(self.span, answer.status, answer.headers, answer.body, self._etag, self._total)
        if wrong := judge_length(self.span.length, self._buffer):
            if len(self._buffer) > self.span.length:
                # it is not known which bytes are too many
                self._buffer.clear()
            return wrong
        return Verified(self._next, self._answer.total, self._answer.etag)

    def take_remainder(self, answer: Answer) -> bytes:
        """Returns the last bytes of a complete range, once: a piece that is taken later gives none."""
        data = answer.body if self._answer is None else bytes(self._buffer)
        self._buffer.clear()
        self._answer = self._go_on = None
        return data

    def _cut(self) -> None:
        if self._answer is not None and not self._out and len(self._buffer) >= PIECE:
            # the last bytes wait for the verdict on the whole range
            self._leave(min(self._next + len(self._buffer), self._end - 1))

    def _leave(self, limit: int) -> None:
        """Delivers the records that end at ``limit`` or before."""
        number = bisect_right(self._ends, limit)
        end = self._ends[number - 1] if number else self._next
        if end > self._next:
            assert self._answer is not None
            offset, size = self._next, end - self._next
            data = bytes(memoryview(self._buffer)[:size])
            del self._buffer[:size]
            self._next = end
            self._out += 1
            self._give(offset, data, self._answer)
            self.is_first = False
