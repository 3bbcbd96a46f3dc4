"""Reads an object of a source as a stream, in ranges from start to end, a few of them ahead, with flat memory."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol, Self

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.faults import RangeFault, advice
from cc_pipeline.transport.ranges import RangeBytes

#: Large enough for few requests per file of 1 GB, small enough to be requested again.
PIECE: Final = 8 << 20
#: Pieces in flight while one is read.
_AHEAD_PIECES: Final = 2


class RangeSource(Protocol):
    """The part of ``Transport`` that this module needs; it is called from several threads."""

    def read(self, key: str, offset: int, length: int, etag: str | None = None) -> RangeBytes: ...


class ReadAheadStream:
    """The bytes of ``key`` of ``source``, which has ``size`` of them, from the start; a context manager.

    Every range must have the ETag ``etag``. ``read`` raises ``EnvironmentFault`` for a failed range of any kind, so
    that readers do not take it for damaged bytes; ``fault`` then has the range's own fault.
    """

    def __init__(self, source: RangeSource, key: str, size: int, etag: str | None = None, piece: int = PIECE) -> None:
        self.bytes = 0
        self.fault: RangeFault | None = None
        self._source = source
        self._key = key
        self._size = size
        self._etag = etag
        self._piece = piece
        self._requested_bytes = 0
        self._waiting: deque[Future[RangeBytes]] = deque()
        self._unread_bytes = memoryview(b"")
        self._pool = ThreadPoolExecutor(_AHEAD_PIECES, thread_name_prefix="read-ahead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # ranges in flight end by themselves, within seconds
        self._pool.shutdown(wait=True, cancel_futures=True)

    def read(self, size: int, /) -> bytes:
        """Returns at most ``size`` of the next bytes; none at the end."""
        if not self._unread_bytes:
            while self._requested_bytes < self._size and len(self._waiting) <= _AHEAD_PIECES:
                length = min(self._piece, self._size - self._requested_bytes)
                self._waiting.append(
                    self._pool.submit(self._source.read, self._key, self._requested_bytes, length, self._etag)
                )
                self._requested_bytes += length
            if not self._waiting:
                return b""
            data = self._piece_data(self._waiting.popleft())
            self.bytes += len(data)
            self._unread_bytes = memoryview(data)
        chunk = bytes(self._unread_bytes[:size])
        self._unread_bytes = self._unread_bytes[len(chunk) :]
        return chunk

    def _piece_data(self, future: Future[RangeBytes]) -> bytes:
        try:
            return future.result().data
        except RangeFault as fault:
            self.fault = fault
            raise EnvironmentFault(
                f"{self._key} cannot be read at byte {fault.offset}: {fault.kind.value} ({fault.detail})",
                advice(fault.kind, "Check the source and the network, then run it again."),
            ) from fault
