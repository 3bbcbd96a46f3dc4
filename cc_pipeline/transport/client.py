"""The transport: verified ranges of a source, one at a time or many as they complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from cc_pipeline.addresses import NO_ACCESS, Access
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.stores.answer import Answer, ListedObject, Span
from cc_pipeline.transport.faults import (
    FaultKind,
    Finding,
    RangeFault,
    Verified,
    advice,
    judge_head,
    judge_range,
    judge_whole,
    range_fault,
)
from cc_pipeline.transport.loop import LoopThread, Part, Stream
from cc_pipeline.transport.mirror import PRECONDITION_FAILED, Place, PlaceOptions, judge_write, size_in
from cc_pipeline.transport.mirror_set import MirrorAnswer, MirrorSet
from cc_pipeline.transport.outage import OutagePolicy
from cc_pipeline.transport.pieces import PIECE, Pieces, peak_memory
from cc_pipeline.transport.ranges import ByteRange, ObjectInfo, RangeBytes, TransportStats

T = TypeVar("T")
#: Bytes that ``read_all`` reads at most unless its caller says otherwise.
_WHOLE_LIMIT = 64 << 20
#: Bytes of answers that are being read, or that the caller of ``read_many`` has not taken yet.
_MEMORY_BOUND = 256 << 20
_DEFAULTS = PlaceOptions()


class Transport:
    """Verified reads of one source. Synchronous, thread-safe, a context manager; ``stats`` counts.

    ``source`` is anything ``open_store`` takes; credentials in it, or ``access``, are sent and not shown. ``options``
    apply to it and to all ``mirrors``: further places with the same objects, each with its credentials, in the order in
    which they are tried if an earlier place fails (``mirror_set.py``). With ``shares`` requests are spread over all of
    them by their speed. ``memory_bound`` limits the bytes of answers being read or not yet taken.
    """

    def __init__(
        self,
        source: str,
        options: PlaceOptions = _DEFAULTS,
        *,
        mirrors: Sequence[tuple[str, Access]] = (),
        shares: bool = False,
        access: Access = NO_ACCESS,
        memory_bound: int = _MEMORY_BOUND,
    ) -> None:
        self.stats = TransportStats()
        options = replace(options, outage=(options.outage or OutagePolicy()) if mirrors else None)
        places = [Place(place, lets_in, options, self.stats) for place, lets_in in ((source, access), *mirrors)]
        self._place = places[0]
        self._mirrored = MirrorSet(places, options.retry, self.stats, shares=shares) if mirrors else None
        self._urls = {place.source: place.store.url for place in places}
        self.source, self.store = self._place.source, self._place.store
        self.sources = tuple(place.source for place in places)
        #: The host of each place as in ``states.HostState``: a bucket's endpoint, the port if it is not the default.
        self.hosts = tuple(place.host for place in places)
        self._local = self._place.local if not mirrors else None
        self.limits = self._place.limits
        self._concurrency = (sum if shares else max)(place.limits.concurrency for place in places)
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
                self._thread.run(self._close())
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
        if self._local is not None:
            answer = self._local.fetch_now(key, None, limit)
            verdict = judge_whole(limit, answer.status, answer.headers, answer.body)
            self._count(verdict, answer)
            attempts, place = 1, self._place
        else:
            answered = self._thread.run(self._read_whole(key, limit))
            verdict, answer, attempts, place = answered.verdict, answered.answer, answered.attempts, answered.place
        if isinstance(verdict, Finding):
            raise range_fault(verdict.kind, key, None, None, verdict.detail, attempts)
        return RangeBytes(key, 0, answer.body, verdict.total, place.etag(verdict), attempts, None, place.source)

    def read_parsed(self, key: str, parse: Callable[[bytes], T]) -> T:
        """Reads a whole object and returns the result of ``parse``. If that raises ``DataFault`` for the bytes of one
        place, the next place is tried. Raises ``RangeFault`` as :meth:`read_all`, and the errors of ``parse``."""
        while True:
            data = self.read_all(key).data
            try:
                return parse(data)
            except DataFault:
                if not self.report_corrupt(key):
                    raise

    def head(self, key: str) -> ObjectInfo | None:
        """Returns size and ETag of an object, ``None`` if there is none. Raises ``RangeFault`` for any other
        refusal."""
        if self._local is not None:
            answer = self._local.head_now(key)
            verdict = judge_head(answer)
            attempts, place = 1, self._place
        else:
            answered = self._thread.run(self._head(key))
            verdict, answer, attempts, place = answered.verdict, answered.answer, answered.attempts, answered.place
        if isinstance(verdict, Finding):
            if verdict.kind is FaultKind.NOT_FOUND:
                return None
            raise range_fault(verdict.kind, key, None, None, verdict.detail, attempts)
        return ObjectInfo(key, size_in(answer), place.etag(verdict))

    def exists(self, key: str) -> bool:
        """Whether there is an object under this key. Raises ``RangeFault`` if the source does not answer."""
        return self.head(key) is not None

    def report_corrupt(self, key: str) -> bool:
        """Reports a corrupt object. Later reads use other mirrors. Returns whether an untried mirror exists."""
        return self._mirrored is not None and self._mirrored.report_suspect(key)

    def url(self, key: str, source: str | None = None) -> str:
        """Returns the full address of an object at a place (one of ``sources``; default: the first), without
        credentials."""
        return self._urls[self.source if source is None else source](key)

    def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> bool:
        """Writes an object whole or not at all, in the user's own place; ``False`` if ``only_if_absent`` and it exists.

        An existing object with the same bytes counts as written by this call if the answer of an earlier try was lost.
        A file is not compared. Raises ``RangeFault`` or ``EnvironmentFault``.
        """
        attempts = 1
        if self._local is not None:
            answer = self._local.put_now(key, data, only_if_absent=only_if_absent)
            verdict = judge_write(answer)
        else:
            verdict, answer, attempts = self._thread.run(
                self._place.write(lambda: self.store.put(key, data, only_if_absent=only_if_absent))
            )
        if isinstance(verdict, Finding):
            raise range_fault(verdict.kind, key, None, None, verdict.detail, 1)
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
        """Removes an object of the user's own place, if it exists. Raises ``RangeFault`` or ``EnvironmentFault``."""
        if self._local is not None:
            self._local.delete_now(key)
            return
        verdict, _, attempts = self._thread.run(self._place.write(lambda: self.store.delete(key)))
        if isinstance(verdict, Finding) and verdict.kind is not FaultKind.NOT_FOUND:
            raise range_fault(verdict.kind, key, None, None, verdict.detail, attempts)

    def listing(self, prefix: str) -> list[ListedObject]:
        """Lists the objects of the user's own place whose keys start with ``prefix``. Raises ``EnvironmentFault``."""
        if self._local is not None:
            return list(self._local.listing_now(prefix))
        verdict, objects = self._thread.run(self._place.listing(prefix))
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

        A long request with ``ends`` comes in pieces, in order, and a fault then covers its remaining bytes. It takes
        little memory, however long it is.

        ``requests`` is drawn in the caller's thread, only as far ahead as ``concurrency`` requests and the memory bound
        allow. Leaving the iterator early cancels requests in flight.
        """
        if self._local is not None:
            return (self._read_local(part) for byte_range in requests for part in _parts(byte_range))
        stream: Stream[ByteRange, RangeBytes | RangeFault] = Stream(
            self._thread.get(),
            self._range,
            lambda byte_range: peak_memory(byte_range) if self._uses_pieces(byte_range) else byte_range.length,
            max(1, concurrency or self._concurrency),
            self._memory_bound,
        )
        return stream.run(requests)

    def _value(self, byte_range: ByteRange) -> RangeBytes:
        outcome = (
            self._read_local(byte_range)
            if self._local is not None
            else self._thread.run(self._read_undivided(byte_range))
        )
        if isinstance(outcome, RangeFault):
            raise outcome
        return outcome

    def _read_local(self, byte_range: ByteRange) -> RangeBytes | RangeFault:
        assert self._local is not None
        span = Span(byte_range.offset, byte_range.length)
        answer = self._local.fetch_now(byte_range.key, span)
        etag = byte_range.etag and self._place.expected(byte_range.etag)
        verdict = judge_range(
            span,
            answer.status,
            answer.headers,
            answer.body,
            etag,
            byte_range.total,
            may_be_short=byte_range.may_be_short,
        )
        self._count(verdict, answer)
        return _outcome(byte_range, verdict, answer, 1, self._place)

    def _count(self, verdict: Verified | Finding, answer: Answer) -> None:
        self.stats.requests += 1
        self.stats.bytes += len(answer.body)
        if isinstance(verdict, Finding):
            self.stats.faults[verdict.kind.value] += 1

    def _uses_pieces(self, byte_range: ByteRange) -> bool:
        return self._mirrored is None and bool(byte_range.ends) and byte_range.length > PIECE

    async def _range(self, byte_range: ByteRange, part: Part[RangeBytes | RangeFault]) -> RangeBytes | RangeFault:
        if not self._uses_pieces(byte_range):
            return await self._read_undivided(byte_range)
        place = self._place

        def give(offset: int, data: bytes, verdict: Verified) -> None:
            etag = verdict.etag if place.is_only_place else place.etag(verdict)
            piece = RangeBytes(byte_range.key, offset, data, verdict.total, etag, 1, byte_range.tag, place.source)
            part(replace(piece, first=pieces.is_first, request=pieces.request), pieces.release_piece)

        pieces = Pieces(byte_range, byte_range.etag and place.expected(byte_range.etag), give)
        verdict, answer, attempts = await place.read_in_pieces(byte_range, byte_range.tries, pieces)
        open_span = pieces.span
        last_part = _outcome(
            replace(byte_range, offset=open_span.offset, length=open_span.length), verdict, answer, attempts, place
        )
        return (
            last_part
            if isinstance(last_part, RangeFault)
            else replace(last_part, first=pieces.is_first, request=pieces.request)
        )

    async def _read_undivided(self, byte_range: ByteRange) -> RangeBytes | RangeFault:
        if self._mirrored is None:
            verdict, answer, attempts = await self._place.range(byte_range, byte_range.tries)
            return _outcome(byte_range, verdict, answer, attempts, self._place)
        answered = await self._mirrored.range(byte_range)
        return _outcome(
            byte_range, answered.verdict, answered.answer, answered.attempts, answered.place, answered.is_inconclusive
        )

    async def _read_whole(self, key: str, limit: int) -> MirrorAnswer:
        if self._mirrored is not None:
            return await self._mirrored.read_whole(key, limit)
        return MirrorAnswer(*await self._place.read_whole(key, limit), self._place)

    async def _head(self, key: str) -> MirrorAnswer:
        if self._mirrored is not None:
            return await self._mirrored.head(key)
        return MirrorAnswer(*await self._place.head(key), self._place)

    async def _close(self) -> None:
        await (self._place if self._mirrored is None else self._mirrored).close()


def _parts(byte_range: ByteRange) -> Iterator[ByteRange]:
    """Yields the pieces of a range that is read from a folder."""
    start, end = byte_range.offset, 0 if byte_range.offset is None else byte_range.offset + byte_range.length
    if start is not None and byte_range.length > PIECE:
        for stop in byte_range.ends:
            if stop - start >= PIECE and stop < end:
                yield replace(byte_range, offset=start, length=stop - start)
                start = stop
    yield (
        byte_range
        if start == byte_range.offset or start is None
        else replace(byte_range, offset=start, length=end - start)
    )


def _outcome(
    byte_range: ByteRange,
    verdict: Verified | Finding,
    answer: Answer,
    attempts: int,
    place: Place,
    is_inconclusive: bool = False,
) -> RangeBytes | RangeFault:
    if isinstance(verdict, Finding):
        return range_fault(
            verdict.kind,
            byte_range.key,
            byte_range.offset,
            byte_range.length,
            verdict.detail,
            attempts,
            tag=byte_range.tag,
        )
    etag = verdict.etag if place.is_only_place else place.etag(verdict)
    return RangeBytes(
        byte_range.key,
        verdict.offset,
        answer.body,
        verdict.total,
        etag,
        attempts,
        byte_range.tag,
        place.source,
        is_inconclusive,
    )
