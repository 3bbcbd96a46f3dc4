"""The transport: verified ranges of a source, one at a time or many as they complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from cc_pipeline.addresses import NO_ACCESS, Access
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.stores.answer import Answer, Listed, Span
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
from cc_pipeline.transport.mirrored import Answered, Mirrored
from cc_pipeline.transport.outage import OutagePolicy
from cc_pipeline.transport.pieces import PIECE, Pieces, held
from cc_pipeline.transport.place import PRECONDITION_FAILED, Place, PlaceOptions, judge_write, size_in
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
    say how it and all ``mirrors`` are asked: those are further places with the same objects, with what lets somebody in
    there, in the order in which they are asked for what a place before them does not give (``mirrored.py``); with
    ``shares`` requests are shared among all of them by what each gives.
    ``memory_bound`` limits the bytes of answers being read or not yet taken.
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
        self._mirrored = Mirrored(places, options.retry, self.stats, shares=shares) if mirrors else None
        self._urls = {place.source: place.store.url for place in places}
        self.source, self.store = self._place.source, self._place.store
        self.sources = tuple(place.source for place in places)
        #: Of each place, as ``states.HostState`` names it: a bucket's endpoint, a port that is not the usual one.
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
        """``length`` bytes from ``offset``. Raises ``RangeFault``."""
        return self._value(ByteRange(key, offset, length, etag))

    def read_suffix(self, key: str, length: int, whole_up_to: int = 0) -> RangeBytes:
        """The last ``length`` bytes (all, when the object is shorter); ``whole_up_to`` as of ``ByteRange``. Raises
        ``RangeFault``."""
        return self._value(ByteRange(key, None, length, whole_up_to=whole_up_to))

    def read_all(self, key: str, limit: int = _WHOLE_LIMIT) -> RangeBytes:
        """A whole object of at most ``limit`` bytes. Raises ``RangeFault`` (``long_body`` when it is larger)."""
        if self._local is not None:
            answer = self._local.fetch_now(key, None, limit)
            found = judge_whole(limit, answer.status, answer.headers, answer.body)
            self._count(found, answer)
            attempts, place = 1, self._place
        else:
            answered = self._thread.run(self._whole(key, limit))
            found, answer, attempts, place = answered.found, answered.answer, answered.attempts, answered.place
        if isinstance(found, Finding):
            raise range_fault(found.kind, key, None, None, found.detail, attempts)
        return RangeBytes(key, 0, answer.body, found.total, place.etag(found), attempts, None, place.source)

    def read_parsed(self, key: str, parse: Callable[[bytes], T]) -> T:
        """What ``parse`` makes of a whole object. Where it refuses the bytes of one place (``DataFault``), the next is
        asked. Raises ``RangeFault`` as :meth:`read_all`, and what ``parse`` raises."""
        while True:
            data = self.read_all(key).data
            try:
                return parse(data)
            except DataFault:
                if not self.doubt(key):
                    raise

    def head(self, key: str) -> ObjectInfo | None:
        """Size and ETag of an object, ``None`` when there is none. Raises ``RangeFault`` for any other refusal."""
        if self._local is not None:
            answer = self._local.head_now(key)
            found = judge_head(answer)
            attempts, place = 1, self._place
        else:
            answered = self._thread.run(self._head(key))
            found, answer, attempts, place = answered.found, answered.answer, answered.attempts, answered.place
        if isinstance(found, Finding):
            if found.kind is FaultKind.NOT_FOUND:
                return None
            raise range_fault(found.kind, key, None, None, found.detail, attempts)
        return ObjectInfo(key, size_in(answer), place.etag(found))

    def exists(self, key: str) -> bool:
        """Whether there is an object under this key. Raises ``RangeFault`` when the source does not say."""
        return self.head(key) is not None

    def doubt(self, key: str) -> bool:
        """What came of an object is not what it should be: other places are asked for it from now on, if there are
        any that were not, which is the answer."""
        return self._mirrored is not None and self._mirrored.doubt(key)

    def url(self, key: str, source: str | None = None) -> str:
        """The full address of an object at a place (one of ``sources``; the first), fit to be shown and stored."""
        return self._urls[self.source if source is None else source](key)

    def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> bool:
        """Writes an object whole or not at all, in a place we own; ``False`` when it was to be new and is there.

        What is there counts as written where it is these bytes and an answer was lost before: bytes that others may
        write too say nothing. A file is not compared. Raises ``RangeFault`` or ``EnvironmentFault``.
        """
        attempts = 1
        if self._local is not None:
            answer = self._local.put_now(key, data, only_if_absent=only_if_absent)
            found = judge_write(answer)
        else:
            found, answer, attempts = self._thread.run(
                self._place.write(lambda: self.store.put(key, data, only_if_absent=only_if_absent))
            )
        if isinstance(found, Finding):
            raise range_fault(found.kind, key, None, None, found.detail, 1)
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
        """Removes an object of a place we own, if there is one. Raises ``RangeFault`` or ``EnvironmentFault``."""
        if self._local is not None:
            self._local.delete_now(key)
            return
        found, _, attempts = self._thread.run(self._place.write(lambda: self.store.delete(key)))
        if isinstance(found, Finding) and found.kind is not FaultKind.NOT_FOUND:
            raise range_fault(found.kind, key, None, None, found.detail, attempts)

    def listing(self, prefix: str) -> list[Listed]:
        """The objects of a place we own whose keys start with ``prefix``. Raises ``EnvironmentFault``."""
        if self._local is not None:
            return list(self._local.listing_now(prefix))
        found, listed = self._thread.run(self._place.listing(prefix))
        if isinstance(found, Finding):
            raise EnvironmentFault(
                f"{self.store.url(prefix)} cannot be listed: {found.kind.value} ({found.detail})",
                advice(found.kind, "Check the bucket and its permissions"),
            )
        return listed

    def read_many(
        self, requests: Iterable[ByteRange], concurrency: int | None = None
    ) -> Iterator[RangeBytes | RangeFault]:
        """Each request's bytes or fault, as they complete and in no order. Faults are yielded, not raised.

        A long request with ``ends`` is given in pieces, in order, and a fault then is of what is left of it: together
        they are what was asked for. It takes little memory, however long it is.

        ``requests`` is drawn in the caller's thread, only as far ahead as ``concurrency`` requests and the
        memory bound allow. Leaving the iterator early cancels what is under way.
        """
        if self._local is not None:
            return (self._read_local(part) for asked in requests for part in _parts(asked))
        stream: Stream[ByteRange, RangeBytes | RangeFault] = Stream(
            self._thread.get(),
            self._range,
            lambda asked: held(asked) if self._in_pieces(asked) else asked.length,
            max(1, concurrency or self._concurrency),
            self._memory_bound,
        )
        return stream.run(requests)

    def _value(self, asked: ByteRange) -> RangeBytes:
        outcome = self._read_local(asked) if self._local is not None else self._thread.run(self._alone(asked))
        if isinstance(outcome, RangeFault):
            raise outcome
        return outcome

    def _read_local(self, asked: ByteRange) -> RangeBytes | RangeFault:
        assert self._local is not None
        span = Span(asked.offset, asked.length)
        answer = self._local.fetch_now(asked.key, span)
        etag = asked.etag and self._place.expected(asked.etag)
        found = judge_range(span, answer.status, answer.headers, answer.body, etag, asked.total, or_less=asked.or_less)
        self._count(found, answer)
        return _outcome(asked, found, answer, 1, self._place)

    def _count(self, found: Verified | Finding, answer: Answer) -> None:
        self.stats.requests += 1
        self.stats.bytes += len(answer.body)
        if isinstance(found, Finding):
            self.stats.faults[found.kind.value] += 1

    def _in_pieces(self, asked: ByteRange) -> bool:
        return self._mirrored is None and bool(asked.ends) and asked.length > PIECE

    async def _range(self, asked: ByteRange, part: Part[RangeBytes | RangeFault]) -> RangeBytes | RangeFault:
        if not self._in_pieces(asked):
            return await self._alone(asked)
        place = self._place

        def give(offset: int, data: bytes, found: Verified) -> None:
            etag = found.etag if place.alone else place.etag(found)
            got = RangeBytes(asked.key, offset, data, found.total, etag, 1, asked.tag, place.source)
            part(replace(got, first=pieces.is_first, request=pieces.request), pieces.taken)

        pieces = Pieces(asked, asked.etag and place.expected(asked.etag), give)
        found, answer, attempts = await place.in_pieces(asked, asked.tries, pieces)
        left = pieces.span
        rest = _outcome(replace(asked, offset=left.offset, length=left.length), found, answer, attempts, place)
        return rest if isinstance(rest, RangeFault) else replace(rest, first=pieces.is_first, request=pieces.request)

    async def _alone(self, asked: ByteRange) -> RangeBytes | RangeFault:
        if self._mirrored is None:
            found, answer, attempts = await self._place.range(asked, asked.tries)
            return _outcome(asked, found, answer, attempts, self._place)
        answered = await self._mirrored.range(asked)
        return _outcome(asked, answered.found, answered.answer, answered.attempts, answered.place, answered.unknown)

    async def _whole(self, key: str, limit: int) -> Answered:
        if self._mirrored is not None:
            return await self._mirrored.whole(key, limit)
        return Answered(*await self._place.whole(key, limit), self._place)

    async def _head(self, key: str) -> Answered:
        if self._mirrored is not None:
            return await self._mirrored.head(key)
        return Answered(*await self._place.head(key), self._place)

    async def _close(self) -> None:
        await (self._place if self._mirrored is None else self._mirrored).close()


def _parts(asked: ByteRange) -> Iterator[ByteRange]:
    """The pieces of a range, as a folder gives them."""
    start, end = asked.offset, 0 if asked.offset is None else asked.offset + asked.length
    if start is not None and asked.length > PIECE:
        for stop in asked.ends:
            if stop - start >= PIECE and stop < end:
                yield replace(asked, offset=start, length=stop - start)
                start = stop
    yield asked if start == asked.offset or start is None else replace(asked, offset=start, length=end - start)


def _outcome(
    asked: ByteRange, found: Verified | Finding, answer: Answer, attempts: int, place: Place, unknown: bool = False
) -> RangeBytes | RangeFault:
    if isinstance(found, Finding):
        return range_fault(found.kind, asked.key, asked.offset, asked.length, found.detail, attempts, tag=asked.tag)
    etag = found.etag if place.alone else place.etag(found)
    return RangeBytes(
        asked.key, found.offset, answer.body, found.total, etag, attempts, asked.tag, place.source, unknown
    )
