"""A long range is worked on while it arrives: whole records leave it as pieces, and where a connection breaks only what
had not left is asked for again."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from cc_pipeline.stores.answer import Answer, Span
from cc_pipeline.transport.faults import Finding, Verified, judge_length, judge_range, promised
from cc_pipeline.transport.ranges import REQUEST_NUMBERS, ByteRange

#: Bytes of a piece, at least: it ends with the record that reaches them. A range keeps two in memory, one that nobody
#: took yet and one that arrives.
PIECE: Final = 2 << 20


def held(byte_range: ByteRange) -> int:
    """Bytes of a range in pieces that are in memory at most: two pieces, each with the longest record."""
    places = (byte_range.offset or 0, *byte_range.ends)
    return min(byte_range.length, 2 * (PIECE + max(end - start for start, end in pairwise(places))))


class Pieces:
    """Cuts the bytes of ``asked`` where its records end. An ``Intake`` of one answer after the other, each of which
    goes on where the pieces of those before end.

    ``give`` gets each piece but the last, which is what is left when the range is complete: the offset, the bytes, and
    what was said of the object. Whoever takes it calls :meth:`taken`. Belongs to one event loop.
    """

    def __init__(self, byte_range: ByteRange, etag: str | None, give: Callable[[int, bytes, Verified], None]) -> None:
        assert byte_range.offset is not None
        self._ends, self._etag, self._total, self._give = byte_range.ends, etag, byte_range.total, give
        self._next, self._end = byte_range.offset, byte_range.offset + byte_range.length
        self._seen = self._next
        self._answer: Verified | None = None
        #: The number of the request at hand.
        self.request = next(REQUEST_NUMBERS)
        #: Whether the answer at hand gave nothing yet.
        self.is_first = True
        self._came = bytearray()
        self._out = 0
        self._go_on: Callable[[], None] | None = None
        self._emptied: asyncio.Future[None] | None = None

    @property
    def span(self) -> Span:
        """What is still to come."""
        return Span(self._next, self._end - self._next)

    def start(self) -> None:
        """Another answer is asked for, or none any more: the whole records of the one before are kept."""
        if self._answer is not None:
            self._leave(self._next + len(self._came))
        self._came.clear()
        self._answer = self._go_on = None
        self.request = next(REQUEST_NUMBERS)
        self.is_first = True

    def went_on(self) -> bool:
        """Whether pieces came since this was asked last."""
        previous, self._seen = self._seen, self._next
        return self._next > previous

    def begins(self, status: int, headers: Mapping[str, str]) -> bool:
        verdict = promised(self.span, status, headers, self._etag, self._total)
        length = headers.get("content-length", "")
        if isinstance(verdict, Verified) and (not length.isdecimal() or int(length) == self.span.length):
            self._answer = verdict
        return self._answer is not None

    def take(self, data: bytes) -> None:
        self._came += data
        self._cut()

    @property
    def is_full(self) -> bool:
        return self._out > 0 and len(self._came) >= PIECE

    def when_room(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on

    @property
    def pause(self) -> object:
        """What the answer at hand waits with while nobody takes its piece, another for each time; else ``None``."""
        return self._go_on

    async def all_taken(self) -> None:
        """Returns when nobody holds a piece."""
        if self._out:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def taken(self) -> None:
        """Nobody holds a piece any more."""
        self._out -= 1
        if self._emptied is not None and not self._out and not self._emptied.done():
            self._emptied.set_result(None)
        self._cut()
        if self._go_on is not None and not self.is_full:
            go_on, self._go_on = self._go_on, None
            go_on()

    def judged(self, answer: Answer) -> Verified | Finding:
        """Whether an answer is the rest of the range; :meth:`rest` has its bytes then."""
        if self._answer is None:
            return judge_range(self.span, answer.status, answer.headers, answer.body, self._etag, self._total)
        if wrong := judge_length(self.span.length, self._came):
            if len(self._came) > self.span.length:
                # nobody knows which of them are too many
                self._came.clear()
            return wrong
        return Verified(self._next, self._answer.total, self._answer.etag)

    def rest(self, answer: Answer) -> bytes:
        """The last bytes, when the range is complete. They are given once: a piece that is taken later gives none."""
        data = answer.body if self._answer is None else bytes(self._came)
        self._came.clear()
        self._answer = self._go_on = None
        return data

    def _cut(self) -> None:
        if self._answer is not None and not self._out and len(self._came) >= PIECE:
            # what reaches the end waits for the verdict on all of it
            self._leave(min(self._next + len(self._came), self._end - 1))

    def _leave(self, limit: int) -> None:
        """Gives the records that end at ``limit`` or before."""
        number = bisect_right(self._ends, limit)
        end = self._ends[number - 1] if number else self._next
        if end > self._next:
            assert self._answer is not None
            offset, size = self._next, end - self._next
            data = bytes(memoryview(self._came)[:size])
            del self._came[:size]
            self._next = end
            self._out += 1
            self._give(offset, data, self._answer)
            self.is_first = False
