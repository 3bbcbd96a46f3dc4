"""A window moving forward over a byte source: what whole-file readers look through."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from cc_pipeline.errors import EnvironmentFault

_CHUNK: Final = 1 << 18
_FIRST_PIECE: Final = 1 << 12
_PEEK: Final = 1 << 14


class Readable(Protocol):
    """Anything with ``read(n)``: fewer bytes than asked mean nothing, no bytes mean the end."""

    def read(self, size: int, /) -> bytes: ...


#: What whole-file readers take: a path, the bytes themselves, or an open binary stream.
ByteSource = Path | bytes | bytearray | memoryview | Readable


class Window:
    """Random access between the released offset and wherever reading has come to. Offsets are bytes."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._ended = False
        seekable = getattr(stream, "seekable", None)
        self.seekable: bool = bool(seekable and seekable())
        self._base: int = stream.tell() if self.seekable else 0  # type: ignore[attr-defined]  # seekable streams tell

    @property
    def begin(self) -> int:
        """The lowest offset that can still be read."""
        return self._base

    @property
    def seen(self) -> int:
        """How far the source has been read."""
        return self._base + len(self._buffer)

    def slice(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; fewer only at the end of the source.

        Raises ``ValueError`` for an offset that was released.
        """
        if offset < self._base:
            raise ValueError(f"offset {offset} was released, the window begins at {self._base}")
        self._fill(offset + length)
        start = offset - self._base
        return bytes(memoryview(self._buffer)[start : start + length])

    def at_end(self, offset: int) -> bool:
        """Whether the source has no byte at ``offset``."""
        self._fill(offset + 1)
        return offset >= self.seen

    def release(self, offset: int) -> None:
        """Bytes before ``offset`` are not needed any more."""
        count = min(offset, self.seen) - self._base
        if count >= _CHUNK:
            del self._buffer[:count]
            self._base += count

    def search(
        self, find: Callable[[bytes], Iterable[int]], offset: int, longest: int, within: int | None = None
    ) -> int:
        """The first place at or behind ``offset`` that ``find`` finds, -1 if there is none.

        ``find`` gets pieces of the source, each but the first with one byte of the piece before, and gives positions
        in them, ascending; it may need up to ``longest`` bytes behind a position to know it. What was passed over is
        released, but for the last ``longest`` bytes. With ``within``, only so many bytes are searched, and kept.
        """
        stop = None if within is None else offset + within
        size = _FIRST_PIECE
        while stop is None or offset < stop:
            piece = self.slice(offset, size + longest)
            last = self.at_end(offset + len(piece))
            for place in find(piece):
                if place >= size and not last:
                    break
                return offset + place if stop is None or offset + place < stop else -1
            if last:
                return -1
            offset += size - 1
            size = min(2 * size, _CHUNK)
            if stop is None:
                self.release(offset - longest)
        return -1

    def reaches(self, offset: int) -> bytes:
        """What lies at ``offset``, for seekable sources: the byte before and a few KiB, read without keeping what
        lies between; empty where the source ends before."""
        if offset + _PEEK <= self.seen:
            return self.slice(offset - 1, _PEEK)
        stream: io.IOBase = self._stream  # type: ignore[assignment]  # callers check ``seekable``
        here = stream.tell()
        stream.seek(offset - 1)
        data: bytes = stream.read(_PEEK)
        stream.seek(here)
        return data

    def jump(self, offset: int) -> None:
        """Go on at ``offset``; what lies before is given up. Sources that cannot seek are read up to there."""
        if self.seekable and offset > self.seen:
            self._stream.seek(offset)  # type: ignore[attr-defined]  # seekable streams seek
            self._buffer.clear()
            self._base = offset
            return
        while self.seen < offset and not self._ended:
            self._base = self.seen
            self._buffer.clear()
            self._fill(self._base + min(_CHUNK, offset - self._base))
        self.release(offset)

    def _fill(self, stop: int) -> None:
        while self.seen < stop and not self._ended:
            data = self._stream.read(_CHUNK)
            if data:
                self._buffer += data
            else:
                self._ended = True


@contextmanager
def open_window(source: ByteSource) -> Iterator[Window]:
    """A window over ``source``; a path is opened and closed here, a stream stays the caller's."""
    if isinstance(source, Path):
        try:
            stream = source.open("rb", buffering=0)
        except OSError as error:
            raise EnvironmentFault(
                f"cannot open {source}: {error.strerror}", "check the path and its rights"
            ) from error
        with stream:
            yield Window(stream)
    elif isinstance(source, bytes | bytearray | memoryview):
        yield Window(io.BytesIO(source))
    else:
        yield Window(source)
