"""The transport: verified ranges of a source, one at a time or many as they complete."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from cc_pipeline.addresses import NO_ACCESS, Access
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stores.answer import Answer, ListedObject
from cc_pipeline.transport.faults import (
    FaultKind,
    Finding,
    RangeFault,
    Verified,
    advice,
    range_fault,
)
from cc_pipeline.transport.loop import LoopThread, Stream, run_now
from cc_pipeline.transport.ranges import ByteRange, ObjectInfo, RangeBytes, TransportStats
from cc_pipeline.transport.source_client import PRECONDITION_FAILED, SourceClient, SourceOptions, size_in

T = TypeVar("T")

#: Bytes that ``read_all`` reads at most unless its caller says otherwise.
_WHOLE_LIMIT = 64 << 20
#: Bytes of answers that are being read, or that the caller of ``read_many`` has not taken yet.
_MEMORY_BOUND = 256 << 20
_DEFAULTS = SourceOptions()


class Transport:
    """Verified reads of one source. Synchronous, thread-safe, a context manager; ``stats`` counts.

    ``source`` is anything ``open_store`` takes; credentials in it, or ``access``, are sent and not shown.
    ``memory_bound`` limits the bytes of answers being read or not yet taken.
    """

    def __init__(
        self,
        source: str,
        options: SourceOptions = _DEFAULTS,
        *,
        access: Access = NO_ACCESS,
        memory_bound: int = _MEMORY_BOUND,
    ) -> None:
        self.stats = TransportStats()
        self._client = SourceClient(source, access, options, self.stats)
        self.source, self.store = self._client.source, self._client.store
        #: The host as in ``host_file.HostReport``: a bucket's endpoint, the port if it is not the default.
        self.host = self._client.host
        self.limits = self._client.limits
        self._memory_bound = memory_bound
        self._thread = LoopThread()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends connections and the thread. The transport can be used again afterwards."""
        if self._thread.started:
            try:
                self._thread.run(self._client.close())
            finally:
                self._thread.stop()

    def read(self, key: str, offset: int, length: int, etag: str | None = None) -> RangeBytes:
        """Reads ``length`` bytes from ``offset``. Raises ``RangeFault``."""
        return self._value(ByteRange(key, offset, length, etag))

    def read_suffix(self, key: str, length: int, max_object_bytes: int = 0) -> RangeBytes:
        """The last ``length`` bytes (all, when the object is shorter); ``max_object_bytes`` as of ``ByteRange``. Raises
        ``RangeFault``."""
        return self._value(ByteRange(key, None, length, max_object_bytes=max_object_bytes))

    def read_all(self, key: str, limit: int = _WHOLE_LIMIT) -> RangeBytes:
        """Reads a whole object of at most ``limit`` bytes. Raises ``RangeFault`` (``long_body`` if it is larger)."""
        verdict, answer, attempts = self._run(self._client.read_whole(key, limit))
        if isinstance(verdict, Finding):
            raise range_fault(verdict.kind, key, None, None, verdict.detail, attempts)
        return RangeBytes(key, 0, answer.body, verdict.total, verdict.etag, attempts)

    def head(self, key: str) -> ObjectInfo | None:
        """Returns size and ETag of an object, ``None`` if there is none. Raises ``RangeFault`` for any other
        refusal."""
        verdict, answer, attempts = self._run(self._client.head(key))
        if isinstance(verdict, Finding):
            if verdict.kind is FaultKind.NOT_FOUND:
                return None
            raise range_fault(verdict.kind, key, None, None, verdict.detail, attempts)
        return ObjectInfo(key, size_in(answer), verdict.etag)

    def exists(self, key: str) -> bool:
        """Whether there is an object under this key. Raises ``RangeFault`` if the source does not answer."""
        return self.head(key) is not None

    def url(self, key: str) -> str:
        """Returns the full address of an object, without credentials."""
        return self.store.url(key)

    def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> bool:
        """Writes an object whole or not at all, in the user's own bucket or folder; ``False`` if ``only_if_absent`` and
        it exists.

        An existing object with the same bytes counts as written by this call if the answer of an earlier try was lost.
        A file is not compared. Raises ``RangeFault`` or ``EnvironmentFault``.
        """
        verdict, answer, attempts = self._run(
            self._client.write(lambda: self.store.put(key, data, only_if_absent=only_if_absent))
        )
        if isinstance(verdict, Finding):
            raise range_fault(verdict.kind, key, None, None, verdict.detail, attempts)
        if answer.status != PRECONDITION_FAILED:
            return True
        return attempts > 1 and isinstance(data, bytes) and self._holds(key, data)

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.read_all(key, len(data) + 1).data == data
        except RangeFault as fault:
            if fault.kind in (FaultKind.NOT_FOUND, FaultKind.LONG_BODY):
                return False
            raise

    def delete(self, key: str) -> None:
        """Removes an object of the user's own bucket or folder, if it exists. Raises ``RangeFault`` or
        ``EnvironmentFault``."""
        verdict, _, attempts = self._run(self._client.write(lambda: self.store.delete(key)))
        if isinstance(verdict, Finding) and verdict.kind is not FaultKind.NOT_FOUND:
            raise range_fault(verdict.kind, key, None, None, verdict.detail, attempts)

    def listing(self, prefix: str) -> list[ListedObject]:
        """Lists the objects of the user's own bucket or folder whose keys start with ``prefix``. Raises
        ``EnvironmentFault``."""
        verdict, objects = self._run(self._client.listing(prefix))
        if isinstance(verdict, Finding):
            raise EnvironmentFault(
                f"{self.store.url(prefix)} cannot be listed: {verdict.kind.value} ({verdict.detail})",
                advice(verdict.kind, "Check the bucket and its permissions"),
            )
        return objects

    def read_many(
        self, requests: Iterable[ByteRange], concurrency: int | None = None
    ) -> Iterator[RangeBytes | RangeFault]:
        """Yields each request's bytes or fault, as they complete and in no order. Faults are yielded, not raised.

        ``requests`` is drawn in the caller's thread, only as far ahead as ``concurrency`` requests and the memory bound
        allow. Leaving the iterator early cancels requests in flight.
        """
        if self._client.is_local:
            return (self._run(self._read_range(byte_range)) for byte_range in requests)
        stream: Stream[ByteRange, RangeBytes | RangeFault] = Stream(
            self._thread.get(),
            self._read_range,
            lambda byte_range: byte_range.length,
            max(1, concurrency or self.limits.concurrency),
            self._memory_bound,
        )
        return stream.run(requests)

    def _value(self, byte_range: ByteRange) -> RangeBytes:
        outcome = self._run(self._read_range(byte_range))
        if isinstance(outcome, RangeFault):
            raise outcome
        return outcome

    async def _read_range(self, byte_range: ByteRange) -> RangeBytes | RangeFault:
        return _outcome(byte_range, *await self._client.read_range(byte_range))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of ``work``; a folder needs no thread."""
        return run_now(work) if self._client.is_local else self._thread.run(work)


def _outcome(
    byte_range: ByteRange, verdict: Verified | Finding, answer: Answer, attempts: int
) -> RangeBytes | RangeFault:
    tag = byte_range.tag
    if isinstance(verdict, Finding):
        location = (byte_range.key, byte_range.offset, byte_range.length)
        return range_fault(verdict.kind, *location, verdict.detail, attempts, tag=tag)
    return RangeBytes(byte_range.key, verdict.offset, answer.body, verdict.total, verdict.etag, attempts, tag)
