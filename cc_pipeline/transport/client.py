"""The transport: verified ranges of a source, one at a time or many as they complete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

from cc_pipeline.addresses import NO_ACCESS, Access, split_access
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stores.answer import Answer, Listed, Span, Timeouts
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.stores.opening import DEFAULT_USER_AGENT, open_store
from cc_pipeline.stores.s3_options import S3Options
from cc_pipeline.transport.asking import Asker
from cc_pipeline.transport.budget import BreakerPolicy, Budget, chosen_limits, default_limits, shared_among
from cc_pipeline.transport.faults import (
    FaultKind,
    Finding,
    RangeFault,
    Verified,
    advice,
    judge_range,
    judge_status,
    judge_whole,
    range_fault,
)
from cc_pipeline.transport.gate import Gate
from cc_pipeline.transport.loop import LoopThread, Stream
from cc_pipeline.transport.ranges import ByteRange, ObjectInfo, RangeBytes, RetryPolicy, TransportStats

#: Bytes that ``read_all`` reads at most unless its caller says otherwise.
_WHOLE_LIMIT = 64 << 20
_PRECONDITION_FAILED = 412
#: Bytes of answers that are being read, or that the caller of ``read_many`` has not taken yet.
_MEMORY_BOUND = 256 << 20


class Transport:
    """Verified reads of one source. Synchronous, thread-safe, a context manager; ``stats`` counts.

    ``source`` is anything ``open_store`` takes; credentials in it, or ``access``, are sent and not shown. ``rate``
    (requests per second) and ``concurrency`` (requests at the same time) are limits per host and, with a
    ``budget_path``, for all processes that use the same file; ``None`` means the source's own default.
    ``hosts`` share them, each with a file of its own: this one keeps to its even share.
    ``memory_bound`` limits the bytes of answers being read or not yet taken.
    """

    def __init__(
        self,
        source: str,
        *,
        user_agent: str = DEFAULT_USER_AGENT,
        concurrency: int | None = None,
        rate: float | None = None,
        hosts: int = 1,
        budget_path: Path | None = None,
        retry: RetryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        s3_endpoint: str | None = None,
        s3_region: str | None = None,
        s3_anonymous: bool = False,
        timeouts: Timeouts | None = None,
        memory_bound: int = _MEMORY_BOUND,
        access: Access = NO_ACCESS,
    ) -> None:
        self.source, own = split_access(source)
        s3 = S3Options(s3_endpoint, s3_region, s3_anonymous)
        self.store = open_store(self.source, user_agent=user_agent, timeouts=timeouts, s3=s3, access=own or access)
        self.stats = TransportStats()
        self._local = self.store if isinstance(self.store, LocalStore) else None
        self.limits = shared_among(chosen_limits(default_limits(self.source, s3_endpoint), rate, concurrency), hosts)
        self._concurrency = self.limits.concurrency
        self._budget_path = budget_path
        self._breaker = breaker
        self._retry = retry or RetryPolicy()
        self._memory_bound = memory_bound
        self._thread = LoopThread()
        self._asker: Asker | None = None

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
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

    def read_suffix(self, key: str, length: int, etag: str | None = None) -> RangeBytes:
        """The last ``length`` bytes (all, when the object is shorter). Raises ``RangeFault``."""
        return self._value(ByteRange(key, None, length, etag))

    def read_all(self, key: str, limit: int = _WHOLE_LIMIT) -> RangeBytes:
        """A whole object of at most ``limit`` bytes. Raises ``RangeFault`` (``long_body`` when it is larger)."""
        if self._local is not None:
            answer = self._local.fetch_now(key, None, limit)
            found = judge_whole(limit, answer.status, answer.headers, answer.body)
            self._count(found, answer)
            attempts = 1
        else:
            found, answer, attempts = self._thread.run(self._whole(key, limit))
        if isinstance(found, Finding):
            raise range_fault(found.kind, key, None, None, found.detail, attempts)
        return RangeBytes(key, 0, answer.body, found.total, found.etag, attempts)

    def head(self, key: str, tries: int | None = None) -> ObjectInfo | None:
        """Size and ETag of an object, ``None`` when there is none, asked for at most ``tries`` times (``None``: as the
        retry policy says). Raises ``RangeFault`` for any other refusal."""
        if self._local is not None:
            answer = self._local.head_now(key)
            found = _judge_head(answer)
            attempts = 1
        else:
            found, answer, attempts = self._thread.run(self._head(key, tries))
        if isinstance(found, Finding):
            if found.kind is FaultKind.NOT_FOUND:
                return None
            raise range_fault(found.kind, key, None, None, found.detail, attempts)
        length = answer.headers.get("content-length", "")
        return ObjectInfo(key, int(length) if length.isdecimal() else None, answer.headers.get("etag"))

    def exists(self, key: str, tries: int | None = None) -> bool:
        """Whether there is an object under this key. Raises ``RangeFault`` when the source does not say."""
        return self.head(key, tries) is not None

    def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> bool:
        """Writes an object whole or not at all, in a place we own; ``False`` when it was to be new and is there.

        Raises ``RangeFault`` or ``EnvironmentFault``.
        """
        if self._local is not None:
            answer = self._local.put_now(key, data, only_if_absent=only_if_absent)
            found = _judge_write(answer)
        else:
            found, answer, _ = self._thread.run(
                self._write(lambda: self.store.put(key, data, only_if_absent=only_if_absent))
            )
        if isinstance(found, Finding):
            raise range_fault(found.kind, key, None, None, found.detail, 1)
        return answer.status != _PRECONDITION_FAILED

    def delete(self, key: str) -> None:
        """Removes an object of a place we own, if there is one. Raises ``RangeFault`` or ``EnvironmentFault``."""
        if self._local is not None:
            self._local.delete_now(key)
            return
        found, _, attempts = self._thread.run(self._write(lambda: self.store.delete(key)))
        if isinstance(found, Finding) and found.kind is not FaultKind.NOT_FOUND:
            raise range_fault(found.kind, key, None, None, found.detail, attempts)

    def listing(self, prefix: str) -> list[Listed]:
        """The objects of a place we own whose keys start with ``prefix``. Raises ``EnvironmentFault``."""
        if self._local is not None:
            return list(self._local.listing_now(prefix))
        found, listed = self._thread.run(self._listing(prefix))
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

        ``requests`` is drawn in the caller's thread, only as far ahead as ``concurrency`` requests and the
        memory bound allow. Leaving the iterator early cancels what is under way.
        """
        if self._local is not None:
            return map(self._read_local, requests)
        stream: Stream[ByteRange, RangeBytes | RangeFault] = Stream(
            self._thread.get(),
            self._range,
            lambda asked: asked.length,
            max(1, concurrency or self._concurrency),
            self._memory_bound,
        )
        return stream.run(requests)

    def _value(self, asked: ByteRange) -> RangeBytes:
        outcome = self._read_local(asked) if self._local is not None else self._thread.run(self._range(asked))
        if isinstance(outcome, RangeFault):
            raise outcome
        return outcome

    def _read_local(self, asked: ByteRange) -> RangeBytes | RangeFault:
        assert self._local is not None
        span = Span(asked.offset, asked.length)
        answer = self._local.fetch_now(asked.key, span)
        found = judge_range(span, answer.status, answer.headers, answer.body, asked.etag)
        self._count(found, answer)
        return _outcome(asked, found, answer, 1)

    def _count(self, found: Verified | Finding, answer: Answer) -> None:
        self.stats.requests += 1
        self.stats.bytes += len(answer.body)
        if isinstance(found, Finding):
            self.stats.faults[found.kind.value] += 1

    def _ask(self) -> Asker:
        if self._asker is None:
            self._asker = Asker(self.store, Gate(self._open_budget), self._retry, self.stats)
        return self._asker

    def _open_budget(self) -> Budget:
        path = self._budget_path if self.limits.shared else None
        return Budget(path, self.store.host, self.limits, self._breaker)

    async def _range(self, asked: ByteRange) -> RangeBytes | RangeFault:
        span = Span(asked.offset, asked.length)
        found, answer, attempts = await self._ask().ask(
            lambda: self.store.fetch(asked.key, span),
            lambda answer: judge_range(span, answer.status, answer.headers, answer.body, asked.etag),
            asked.tries,
        )
        return _outcome(asked, found, answer, attempts)

    async def _whole(self, key: str, limit: int) -> tuple[Verified | Finding, Answer, int]:
        return await self._ask().ask(
            lambda: self.store.fetch(key, None, limit),
            lambda answer: judge_whole(limit, answer.status, answer.headers, answer.body),
        )

    async def _head(self, key: str, tries: int | None) -> tuple[Verified | Finding, Answer, int]:
        return await self._ask().ask(lambda: self.store.head(key), _judge_head, tries)

    async def _write(self, write: Callable[[], Awaitable[Answer]]) -> tuple[Verified | Finding, Answer, int]:
        return await self._ask().ask(write, _judge_write)

    async def _listing(self, prefix: str) -> tuple[Verified | Finding, list[Listed]]:
        listed: list[Listed] = []

        async def fetch() -> Answer:
            nonlocal listed
            answer, listed = await self.store.listing(prefix)
            return answer

        found, _, _ = await self._ask().ask(fetch, _judge_write)
        return found, listed

    async def _close(self) -> None:
        await self.store.close()
        if self._asker is not None:
            await self._asker.gate.close()
            self._asker = None


def _judge_head(answer: Answer) -> Verified | Finding:
    if answer.status == 200:
        return Verified(0, 0, answer.headers.get("etag"))
    return judge_status(answer.status, answer.headers, answer.body)


def _judge_write(answer: Answer) -> Verified | Finding:
    if 200 <= answer.status < 300 or answer.status == _PRECONDITION_FAILED:
        return Verified(0, 0, answer.headers.get("etag"))
    return judge_status(answer.status, answer.headers, answer.body)


def _outcome(asked: ByteRange, found: Verified | Finding, answer: Answer, attempts: int) -> RangeBytes | RangeFault:
    if isinstance(found, Finding):
        return range_fault(found.kind, asked.key, asked.offset, asked.length, found.detail, attempts, tag=asked.tag)
    return RangeBytes(asked.key, found.offset, answer.body, found.total, found.etag, attempts, asked.tag)
