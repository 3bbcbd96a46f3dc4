"""The client of a source inside a transport's loop: requests within the host's budget, answers verified."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from cc_pipeline.addresses import Access, host_of, split_access
from cc_pipeline.stores.answer import Answer, ListedObject, S3Options, Span, Store, Timeouts
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.stores.opening import DEFAULT_USER_AGENT, is_loopback, open_store, system_proxy
from cc_pipeline.transport.budget import Budget, open_file
from cc_pipeline.transport.circuit_breaker import RefusalPolicy
from cc_pipeline.transport.excerpt import Excerpt
from cc_pipeline.transport.faults import (
    ENVIRONMENT_KINDS,
    PERMANENT_KINDS,
    FaultKind,
    Finding,
    Verified,
    etag_in,
    judge_head,
    judge_range,
    judge_status,
    judge_whole,
)
from cc_pipeline.transport.pieces import Pieces
from cc_pipeline.transport.ranges import ByteRange, RetryPolicy, TransportStats
from cc_pipeline.transport.rate_limiter import RateLimiter
from cc_pipeline.transport.rates import SourceLimits, chosen_limits, default_limits, shared_among
from cc_pipeline.transport.retrying import Follow, Judge, RetryingSender

if TYPE_CHECKING:
    from cc_pipeline.stores.web import HttpClient
    from cc_pipeline.transport.redirects import Followed, Follower


#: A verdict, the answer it is about, and how many requests it took.
SourceAnswer = tuple[Verified | Finding, Answer, int]
Way = Callable[[], Awaitable[SourceAnswer]]

#: The answers of servers to a kind of range that they do not support.
_REFUSALS: Final = frozenset(
    {FaultKind.WHOLE_OBJECT, FaultKind.WRONG_RANGE, FaultKind.RANGE_NOT_SATISFIABLE, FaultKind.CLIENT_ERROR}
)
_NOT_IMPLEMENTED: Final = 501
#: If a second refusal is one of these, it is reported instead of the first: it is the same for any kind of range.
_PLAINER: Final = ENVIRONMENT_KINDS | {FaultKind.NOT_FOUND, FaultKind.WHOLE_OBJECT}
#: Seconds for which a host counts as without suffix ranges; then one request tries again.
_HOLDS: Final = 86_400.0
#: Seconds for which other requests wait for the result of the first one.
_FIRST_TRY_SECONDS: Final = 10.0

#: Seconds for which an answer waits for its piece to be taken (at most twice as long) while other requests are blocked.
_STALL_SECONDS: Final = 30.0

_OK = 200
_PARTIAL = 206
PRECONDITION_FAILED = 412


class _StalledAnswer(Exception):
    """An answer waits for its piece to be taken, and other requests wait for the answer."""


class SuffixRangeSupport:
    """Whether one host supports suffix ranges; ``memory`` is the budget's file. It belongs to one event loop at a
    time."""

    def __init__(self, host: str, memory: Path | None) -> None:
        self._host = host
        self._memory = memory
        self._until: float | None = None
        self._answers = False
        self._first: asyncio.Future[None] | None = None

    def mark_final(self, verdict: Verified | Finding, answer: Answer) -> Verified | Finding:
        """``verdict`` of a suffix range. Where the host has not answered one yet, a refusal is not asked for again."""
        if isinstance(verdict, Finding) and _is_refusal(verdict, answer) and not self._answers:
            return replace(verdict, final=True)
        return verdict

    async def read(self, by_suffix: Way, by_size: Way) -> SourceAnswer:
        """Reads the end of an object, by the kind of range that the host is known to support, else by the other."""
        if self._until is None:
            self._until = await asyncio.to_thread(self._remembered)
        if not self._answers and not self._is_unsupported:
            if self._first is None:
                self._first = asyncio.get_running_loop().create_future()
                try:
                    return await self._ask(by_suffix, by_size)
                finally:
                    self._first.set_result(None)
            if not self._first.done():
                await asyncio.wait([self._first], timeout=_FIRST_TRY_SECONDS)
        return await self._ask(by_suffix, by_size)

    @property
    def _is_unsupported(self) -> bool:
        return self._until is not None and time.time() < self._until

    async def _ask(self, by_suffix: Way, by_size: Way) -> SourceAnswer:
        by_size_first = self._is_unsupported
        verdict, answer, sent = await (by_size if by_size_first else by_suffix)()
        if isinstance(verdict, Verified):
            self._answers = self._answers or not by_size_first
            return verdict, answer, sent
        if not _is_refusal(verdict, answer):
            return verdict, answer, sent
        second_verdict, second_answer, second_sent = await (by_suffix if by_size_first else by_size)()
        if isinstance(second_verdict, Verified):
            # a single failing object says nothing about a host that answers for others
            if by_size_first or not self._answers:
                await self._learn(answers=by_size_first)
            return second_verdict, second_answer, sent + second_sent
        if second_verdict.kind in _PLAINER:
            return second_verdict, second_answer, sent + second_sent
        return verdict, answer, sent + second_sent

    async def _learn(self, *, answers: bool) -> None:
        self._answers, self._until = answers, 0.0 if answers else time.time() + _HOLDS
        await asyncio.to_thread(self._remember)

    def _remembered(self) -> float:
        """Returns until when the host counts as without suffix ranges (seconds since the epoch); 0 if not known."""
        if self._memory is None or not self._memory.exists():
            return 0.0
        # an entry that cannot be read, or was written before the clock was set back, is ignored
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"{self._memory.resolve().as_uri()}?mode=ro", uri=True)) as db,
        ):
            row = db.execute("select until from no_suffixes where host = ?", (self._host,)).fetchone()
            return row[0] if row is not None and row[0] <= time.time() + _HOLDS else 0.0
        return 0.0

    def _remember(self) -> None:
        if self._memory is None:
            return
        with suppress(sqlite3.Error, OSError), closing(open_file(self._memory)) as db:
            db.execute("insert or replace into no_suffixes values (?, ?)", (self._host, self._until))


def _is_refusal(finding: Finding, answer: Answer) -> bool:
    return finding.kind in _REFUSALS or answer.status == _NOT_IMPLEMENTED


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a transport.

    ``rate`` (requests per second) and ``concurrency`` (requests at the same time) are limits per host and, with a
    ``budget_path``, for all processes that use the same file; ``None`` means the host's own default. ``hosts``
    (machines) share the limits, each with its own file: this one uses its even share. ``refusals`` says how long a
    request waits for a host that refuses. ``redirects`` are hosts that a web source may redirect to (``redirects.py``),
    in addition to the known ones. ``bounded`` is as in ``open_store``.
    """

    user_agent: str = DEFAULT_USER_AGENT
    timeouts: Timeouts = field(default_factory=Timeouts)
    s3: S3Options = field(default_factory=S3Options)
    rate: float | None = None
    concurrency: int | None = None
    hosts: int = 1
    budget_path: Path | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    refusals: RefusalPolicy = field(default_factory=RefusalPolicy)
    redirects: tuple[str, ...] = ()
    bounded: bool = False

    def limits(self, address: str) -> SourceLimits:
        """Returns the limits of the host of ``address``."""
        host_limits = chosen_limits(default_limits(address, self.s3.endpoint), self.rate, self.concurrency)
        return shared_among(host_limits, self.hosts)


class SourceClient:
    """A source. ``source`` is anything ``open_store`` takes; credentials in it, or ``access``, are sent only to its
    host.

    The coroutines belong to one event loop, from the first use until ``close``.
    """

    def __init__(self, source: str, access: Access, options: SourceOptions, stats: TransportStats) -> None:
        self.source, own_access = split_access(source)
        self.options = options
        self.stats = stats
        self._opened = open_store(
            self.source,
            user_agent=options.user_agent,
            timeouts=options.timeouts,
            s3=options.s3,
            access=own_access or access,
            bounded=options.bounded,
        )
        self.local = self._opened if isinstance(self._opened, LocalStore) else None
        self.store: Store = self._opened
        self.limits = options.limits(self.source)
        self.host = self.store.host if self.local is None else self.source
        self._suffixes = SuffixRangeSupport(self.host, options.budget_path)
        self._sender: RetryingSender | None = None
        self._follower: Follower | None = None
        self._gates: dict[str, RateLimiter] = {}
        self._clients: dict[str, HttpClient] = {}

    async def range(self, byte_range: ByteRange) -> SourceAnswer:
        """Reads the bytes of a range."""
        if byte_range.offset is None:
            return await self._suffixes.read(partial(self._range, byte_range), partial(self._by_size, byte_range))
        return await self._explicit(byte_range)

    async def _explicit(self, byte_range: ByteRange) -> SourceAnswer:
        verdict, answer, sent = await self._range(byte_range)
        is_whole_object = isinstance(verdict, Finding) and verdict.kind is FaultKind.WHOLE_OBJECT
        if (
            is_whole_object
            and byte_range.offset is not None
            and byte_range.offset + byte_range.length <= byte_range.max_object_bytes
        ):
            verdict, answer, object_requests = await self._out_of_whole(byte_range, byte_range.offset)
            sent += object_requests
        return verdict, answer, sent

    async def _out_of_whole(self, byte_range: ByteRange, offset: int) -> SourceAnswer:
        """Reads the bytes of an explicit range out of an answer with the whole object."""
        excerpt = Excerpt(offset, byte_range.length, byte_range.etag, byte_range.total)
        sender, follower = self._ready(), self._follower

        async def follow(answer: Answer, gate: RateLimiter) -> Followed:
            assert follower is not None
            return await follower.follow(
                "GET", byte_range.key, answer, gate, {}, _OK, excerpt.bound, excerpt.judge, excerpt
            )

        verdict, answer, sent = await sender.ask(
            byte_range.key,
            lambda: self.store.fetch(byte_range.key, None, excerpt.bound, excerpt),
            excerpt.judge,
            byte_range.tries,
            None if follower is None else follow,
        )
        return verdict, replace(answer, body=excerpt.body()) if isinstance(verdict, Verified) else answer, sent

    async def read_in_pieces(self, byte_range: ByteRange, pieces: Pieces) -> SourceAnswer:
        """Reads a range in ``pieces`` and returns its end. While pieces come, a failure is no final one, but its
        requests count, up to ``tries``. An answer whose piece nobody takes is dropped once other requests wait for it,
        and requested again from there: the receiver may have ended, or may be the one that waits."""
        spent, tries = 0, byte_range.tries
        sender, follower = self._ready(), self._follower

        async def fetch() -> Answer:
            pieces.start()
            fetching = asyncio.ensure_future(self.store.fetch(byte_range.key, pieces.span, intake=pieces))
            paused: object = None
            try:
                while not (await asyncio.wait({fetching}, timeout=_STALL_SECONDS))[0]:
                    if paused is not None and paused is pieces.pause and sender.gate.has_blocked_requests:
                        raise _StalledAnswer
                    paused = pieces.pause
                return fetching.result()
            finally:
                fetching.cancel()

        async def follow(answer: Answer, gate: RateLimiter) -> Followed:
            assert follower is not None
            span = pieces.span
            range_headers = {"Range": span.header}
            return await follower.follow(
                "GET", byte_range.key, answer, gate, range_headers, _PARTIAL, span.length, pieces.judge, pieces
            )

        while True:
            try:
                verdict, answer, sent = await sender.ask(
                    byte_range.key, fetch, pieces.judge, tries, None if follower is None else follow
                )
            except _StalledAnswer:
                await pieces.wait_for_release()
                continue
            # capped, so that the remaining range does not seem to be tried more often than it was
            spent = spent + sent if tries is None else min(spent + sent, tries)
            if isinstance(verdict, Verified):
                return verdict, replace(answer, body=pieces.take_remainder(answer)), spent
            pieces.start()
            if verdict.final or verdict.kind in PERMANENT_KINDS or not pieces.has_progressed():
                return verdict, answer, spent

    async def _range(self, byte_range: ByteRange) -> SourceAnswer:
        span = Span(byte_range.offset, byte_range.length)

        def judge(answer: Answer) -> Verified | Finding:
            verdict = judge_range(
                span,
                answer.status,
                answer.headers,
                answer.body,
                byte_range.etag,
                byte_range.total,
                may_be_short=byte_range.may_be_short,
            )
            return verdict if span.offset is not None else self._suffixes.mark_final(verdict, answer)

        sender = self._sender
        if sender is None or self._follower is not None:
            return await self._ask(byte_range.key, span, span.length, judge, byte_range.tries)
        # the path of nearly every range
        return await sender.ask(byte_range.key, lambda: self.store.fetch(byte_range.key, span), judge, byte_range.tries)

    async def _by_size(self, byte_range: ByteRange) -> SourceAnswer:
        """Reads the end of an object as an explicit range, after a HEAD request if its size is not known."""
        size, sent = byte_range.total, 0
        if size is None:
            head_verdict, answer, sent = await self.head(byte_range.key, byte_range.tries)
            if isinstance(head_verdict, Finding):
                return head_verdict, answer, sent
            size = size_in(answer)
            if not size:
                reason = "the object is empty" if size == 0 else "HEAD does not say how long the object is"
                return Finding(FaultKind.RANGE_NOT_SATISFIABLE, reason), answer, sent
        start = max(0, size - byte_range.length)
        explicit_range = replace(byte_range, offset=start, length=size - start, total=size)
        verdict, answer, range_requests = await self._explicit(explicit_range)
        return verdict, answer, sent + range_requests

    async def read_whole(self, key: str, limit: int) -> SourceAnswer:
        """Reads a whole object of at most ``limit`` bytes."""
        return await self._ask(
            key, None, limit, lambda answer: judge_whole(limit, answer.status, answer.headers, answer.body)
        )

    async def head(self, key: str, tries: int | None = None) -> SourceAnswer:
        """Requests the head of an object. The size is ``content-length``, if it has one."""
        sender = self._ready()
        follow = self._following("HEAD", key, {}, _OK, 0, judge_head)
        return await sender.ask(key, lambda: self.store.head(key), judge_head, tries, follow)

    async def write(self, write: Callable[[], Awaitable[Answer]]) -> SourceAnswer:
        """Sends a change to the user's own bucket and returns its result."""
        return await self._ready().ask("", write, judge_write)

    async def listing(self, prefix: str) -> tuple[Verified | Finding, list[ListedObject]]:
        """Lists the objects of the user's own bucket."""
        objects: list[ListedObject] = []

        async def fetch() -> Answer:
            nonlocal objects
            answer, objects = await self.store.listing(prefix)
            return answer

        verdict, _, _ = await self._ready().ask(prefix, fetch, judge_write)
        return verdict, objects

    async def close(self) -> None:
        """Ends connections, and releases this process's share of the budgets."""
        await self.store.close()
        for client in self._clients.values():
            await client.close()
        gates = [*self._gates.values(), *([self._sender.gate] if self._sender is not None else [])]
        self._sender = self._follower = None
        self._clients, self._gates = {}, {}
        for gate in gates:
            await gate.close()

    async def _ask(
        self, key: str, span: Span | None, bound: int, judge: Judge, tries: int | None = None
    ) -> SourceAnswer:
        sender = self._ready()
        if self._follower is None:
            return await sender.ask(key, lambda: self.store.fetch(key, span, bound), judge, tries)
        range_headers = {} if span is None else {"Range": span.header}
        follow = self._following("GET", key, range_headers, _OK if span is None else _PARTIAL, bound, judge)
        return await sender.ask(key, lambda: self.store.fetch(key, span, bound), judge, tries, follow)

    def _following(
        self, method: str, key: str, range_headers: dict[str, str], hoped_for: int, bound: int, judge: Judge
    ) -> Follow | None:
        follower = self._follower
        if follower is None:
            return None
        return lambda answer, gate: follower.follow(method, key, answer, gate, range_headers, hoped_for, bound, judge)

    def _ready(self) -> RetryingSender:
        if self._sender is None:
            gate = self._new_gate(self.store.host, self.limits)
            self._sender = RetryingSender(self.store, gate, self.options.retry, self.stats)
            self._follower = self._open_follower()
        return self._sender

    def _new_gate(self, host: str, limits: SourceLimits) -> RateLimiter:
        return RateLimiter(lambda: self._budget(host, limits), self.options.refusals)

    def _budget(self, host: str, limits: SourceLimits) -> Budget:
        path = self.options.budget_path if limits.shared else None
        return Budget(path, host, limits, self.options.refusals)

    def _open_follower(self) -> Follower | None:
        # imported here, since a source that is not on the web needs no web libraries
        from cc_pipeline.transport.redirects import Follower, declared_hosts  # noqa: PLC0415

        declared = declared_hosts(self.source, self.options.redirects)
        if not declared:
            return None
        from cc_pipeline.stores.web import HttpStore  # noqa: PLC0415

        assert isinstance(self._opened, HttpStore)
        return Follower(self._opened, declared, self._client, self._gate, self.stats)

    def _gate(self, address: str) -> RateLimiter:
        """Returns the rate limiter of the host that a redirect leads to."""
        host = urlsplit(address).netloc
        if self._sender is not None and host == self.store.host:
            return self._sender.gate
        if host not in self._gates:
            limits = self.options.limits(address)
            self._gates[host] = self._new_gate(host, limits)
        return self._gates[host]

    def _client(self, address: str) -> HttpClient:
        """Returns the client for an address that a redirect leads to."""
        from cc_pipeline.stores.web import HttpClient  # noqa: PLC0415

        host = urlsplit(address).netloc
        if host not in self._clients:
            options, private = self.options, is_loopback(host_of(self.source))
            self._clients[host] = HttpClient(
                options.user_agent, options.timeouts, system_proxy(address), public_only=not private
            )
        return self._clients[host]


def size_in(answer: Answer) -> int | None:
    """Returns the size of an object in bytes from the answer to a HEAD request."""
    length = answer.headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


def judge_write(answer: Answer) -> Verified | Finding:
    """Checks that a change was made, or was refused because the object exists."""
    if _OK <= answer.status < 300 or answer.status == PRECONDITION_FAILED:
        return Verified(0, 0, etag_in(answer.headers))
    return judge_status(answer.status, answer.headers, answer.body)
