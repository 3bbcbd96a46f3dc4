"""The client of a source inside a transport's loop: requests within the host's limits, answers verified."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from cc_pipeline.addresses import Access, host_of, split_access
from cc_pipeline.stores.answer import Answer, ListedObject, S3Options, Span, Store, Timeouts
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.stores.opening import DEFAULT_USER_AGENT, is_loopback, open_store, system_proxy
from cc_pipeline.transport import rate_limiter
from cc_pipeline.transport.faults import (
    ENVIRONMENT_KINDS,
    FaultKind,
    Finding,
    Verified,
    etag_in,
    judge_head,
    judge_part_of_whole,
    judge_range,
    judge_status,
    judge_whole,
)
from cc_pipeline.transport.limits import SourceLimits, chosen_limits, default_limits, shared_among
from cc_pipeline.transport.ranges import ByteRange, RetryPolicy, TransportStats
from cc_pipeline.transport.rate_limiter import RateLimiter
from cc_pipeline.transport.sender import FolderSender, Follow, Judge, Sender, SourceAnswer

if TYPE_CHECKING:
    from cc_pipeline.stores.web import HttpClient
    from cc_pipeline.transport.redirects import Follower

#: The answers of servers to a kind of range that they do not support.
_UNSUPPORTED_KINDS: Final = frozenset(
    {FaultKind.WHOLE_OBJECT, FaultKind.WRONG_RANGE, FaultKind.RANGE_NOT_SATISFIABLE, FaultKind.CLIENT_ERROR}
)
_NOT_IMPLEMENTED: Final = 501
#: If a second refusal is one of these, it is reported instead of the first: it is the same for any kind of range.
_PLAINER_KINDS: Final = ENVIRONMENT_KINDS | {FaultKind.NOT_FOUND, FaultKind.WHOLE_OBJECT}

_OK = 200
PRECONDITION_FAILED = 412


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a transport.

    ``rate`` (requests per second) and ``concurrency`` (requests at the same time) are limits per host and, with a
    ``budget_path``, for all processes that use the same file; ``None`` means the host's own default. ``hosts``
    (machines) share the limits, each with its own file: this one uses its even share. ``wait`` is the number of seconds
    a request waits for a host that refuses (``None``: the default, ``math.inf``: for ever); with ``pauses=False``
    refusals are about single objects. ``redirects`` are hosts that a web source may redirect to (``redirects.py``), in
    addition to the known ones.
    """

    user_agent: str = DEFAULT_USER_AGENT
    timeouts: Timeouts = field(default_factory=Timeouts)
    s3: S3Options = field(default_factory=S3Options)
    rate: float | None = None
    concurrency: int | None = None
    hosts: int = 1
    budget_path: Path | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    wait: float | None = None
    pauses: bool = True
    redirects: tuple[str, ...] = ()

    def limits(self, address: str) -> SourceLimits:
        """Returns the limits of the host of ``address``."""
        host_limits = chosen_limits(default_limits(address, self.s3.endpoint), self.rate, self.concurrency)
        return replace(shared_among(host_limits, self.hosts), pauses=self.pauses)


class SourceClient:
    """A source. ``source`` is anything ``open_store`` takes; credentials in it, or ``access``, are sent only to its
    host.

    The coroutines belong to one event loop, from the first use until ``close``.
    """

    def __init__(self, source: str, access: Access, options: SourceOptions, stats: TransportStats) -> None:
        self.source, own_access = split_access(source)
        self._options, self._stats = options, stats
        self._opened = open_store(
            self.source,
            user_agent=options.user_agent,
            timeouts=options.timeouts,
            s3=options.s3,
            access=own_access or access,
        )
        #: Whether it is a folder: its coroutines wait for nothing.
        self.is_local = isinstance(self._opened, LocalStore)
        self.store: Store = self._opened
        self.limits = options.limits(self.source)
        self.host = self.source if self.is_local else self.store.host
        #: Whether the host answers suffix ranges; ``None`` until it is known.
        self._has_suffixes: bool | None = None
        self._senders: dict[str, Sender] = {}
        self._clients: dict[str, HttpClient] = {}
        self._sender: Sender | FolderSender | None = FolderSender(stats) if self.is_local else None
        self._follower: Follower | None = None

    async def read_range(self, byte_range: ByteRange) -> SourceAnswer:
        """Reads the bytes of a range."""
        if byte_range.offset is None:
            return await self._read_suffix(byte_range)
        verdict, answer, requests = await self._send_range(byte_range)
        if isinstance(verdict, Finding) and verdict.kind is FaultKind.WHOLE_OBJECT:
            stop = byte_range.offset + byte_range.length
            if stop <= byte_range.max_object_bytes:
                verdict, answer, further_requests = await self._read_part_of_whole(byte_range, byte_range.offset)
                requests += further_requests
        return verdict, answer, requests

    def _send_range(self, byte_range: ByteRange) -> Awaitable[SourceAnswer]:
        span = Span(byte_range.offset, byte_range.length)

        def judge(answer: Answer) -> Verified | Finding:
            return judge_range(span, answer, byte_range.etag, byte_range.total, may_be_short=byte_range.may_be_short)

        return self._send_get(byte_range.key, span, span.length, judge)

    async def _read_part_of_whole(self, byte_range: ByteRange, offset: int) -> SourceAnswer:
        """Reads an explicit range out of the whole object, from a host that sends nothing else. Bytes before the range
        are read and dropped, bytes after it are not read."""

        def judge(answer: Answer) -> Verified | Finding:
            return judge_part_of_whole(answer, offset, byte_range.length, byte_range.etag, byte_range.total)

        limit = byte_range.length - 1  # a store reads one byte more
        return await self._send_get(byte_range.key, None, limit, judge, skip=offset)

    async def _read_suffix(self, byte_range: ByteRange) -> SourceAnswer:
        """Reads the end of an object, by the kind of range that the host is known to support, else by the other."""
        ways = (self._send_suffix, self._read_by_size)
        first, second = ways if self._has_suffixes is not False else ways[::-1]
        verdict, answer, requests = await first(byte_range)
        if isinstance(verdict, Verified):
            if self._has_suffixes is None:
                self._has_suffixes = True
            return verdict, answer, requests
        if not _is_unsupported(verdict, answer):
            return verdict, answer, requests
        second_verdict, second_answer, further_requests = await second(byte_range)
        if isinstance(second_verdict, Verified) and self._has_suffixes is not True:
            # a single failing object says nothing about a host that answers for others
            self._has_suffixes = first == self._read_by_size
        if isinstance(second_verdict, Verified) or second_verdict.kind in _PLAINER_KINDS:
            verdict, answer = second_verdict, second_answer
        return verdict, answer, requests + further_requests

    def _send_suffix(self, byte_range: ByteRange) -> Awaitable[SourceAnswer]:
        span = Span(None, byte_range.length)

        def judge(answer: Answer) -> Verified | Finding:
            verdict = judge_range(span, answer, byte_range.etag, byte_range.total)
            if isinstance(verdict, Finding) and _is_unsupported(verdict, answer):
                return replace(verdict, final=not self._has_suffixes)
            return verdict

        return self._send_get(byte_range.key, span, span.length, judge)

    async def _read_by_size(self, byte_range: ByteRange) -> SourceAnswer:
        """Reads the end of an object as an explicit range, after a HEAD request if its size is not known."""
        size, requests = byte_range.total, 0
        if size is None:
            head_verdict, answer, requests = await self.head(byte_range.key)
            if isinstance(head_verdict, Finding):
                return head_verdict, answer, requests
            size = size_in(answer)
            if not size:
                reason = "the object is empty" if size == 0 else "HEAD does not say how long the object is"
                return Finding(FaultKind.RANGE_NOT_SATISFIABLE, reason), answer, requests
        start = max(0, size - byte_range.length)
        explicit_range = replace(byte_range, offset=start, length=size - start, total=size)
        verdict, answer, range_requests = await self.read_range(explicit_range)
        return verdict, answer, requests + range_requests

    async def read_whole(self, key: str, limit: int) -> SourceAnswer:
        """Reads a whole object of at most ``limit`` bytes."""

        def judge(answer: Answer) -> Verified | Finding:
            return judge_whole(limit, answer)

        return await self._send_get(key, None, limit, judge)

    async def head(self, key: str) -> SourceAnswer:
        """Requests the head of an object. The size is ``content-length``, if it has one."""
        sender, follower = self._ready()
        follow: Follow | None = None
        if follower is not None:
            follow = follower.following("HEAD", key, None, 0, 0, judge_head)
        return await sender.send(key, lambda: self.store.head(key), judge_head, follow)

    async def write(self, write: Callable[[], Awaitable[Answer]]) -> SourceAnswer:
        """Sends a change to the user's own bucket and returns its result."""
        return await self._ready()[0].send("", write, judge_write)

    async def listing(self, prefix: str) -> tuple[Verified | Finding, list[ListedObject]]:
        """Lists the objects of the user's own bucket."""
        objects: list[ListedObject] = []

        async def fetch() -> Answer:
            nonlocal objects
            answer, objects = await self.store.listing(prefix)
            return answer

        verdict, _, _ = await self._ready()[0].send(prefix, fetch, judge_write)
        return verdict, objects

    async def close(self) -> None:
        """Ends connections, and frees the slots of this process."""
        await self.store.close()
        for client in self._clients.values():
            await client.close()
        senders = list(self._senders.values())
        self._sender = self._follower = None
        self._clients, self._senders = {}, {}
        for sender in senders:
            await sender.limiter.close()

    def _send_get(
        self, key: str, span: Span | None, limit: int, judge: Judge, *, skip: int = 0
    ) -> Awaitable[SourceAnswer]:
        sender, follower = self._ready()
        follow: Follow | None = None
        if follower is not None:
            follow = follower.following("GET", key, span, limit, skip, judge)
        return sender.send(key, lambda: self.store.fetch(key, span, limit, skip), judge, follow)

    def _ready(self) -> tuple[Sender | FolderSender, Follower | None]:
        if self._sender is None:
            self._sender = self._sender_to(self.store.host, self.limits)
            self._follower = self._open_follower()
        return self._sender, self._follower

    def _sender_to(self, host: str, limits: SourceLimits) -> Sender:
        if host not in self._senders:
            options = self._options
            wait = rate_limiter.WAIT if options.wait is None else options.wait
            limiter = RateLimiter(host, limits, wait, options.budget_path)
            self._senders[host] = Sender(limiter, options.retry, self._stats)
        return self._senders[host]

    def _open_follower(self) -> Follower | None:
        # imported here, since a source that is not on the web needs no web libraries
        from cc_pipeline.transport.redirects import Follower, declared_hosts  # noqa: PLC0415

        declared = declared_hosts(self.source, self._options.redirects)
        if not declared:
            return None
        from cc_pipeline.stores.web import HttpStore  # noqa: PLC0415

        assert isinstance(self._opened, HttpStore)
        return Follower(self._opened, declared, self._client_to, self._sender_at)

    def _sender_at(self, address: str) -> Sender:
        """Returns the sender to the host that a redirect leads to."""
        return self._sender_to(urlsplit(address).netloc, self._options.limits(address))

    def _client_to(self, address: str) -> HttpClient:
        """Returns the client for an address that a redirect leads to."""
        from cc_pipeline.stores.web import HttpClient  # noqa: PLC0415

        host = urlsplit(address).netloc
        if host not in self._clients:
            options, private = self._options, is_loopback(host_of(self.source))
            self._clients[host] = HttpClient(
                options.user_agent, options.timeouts, system_proxy(address), public_only=not private
            )
        return self._clients[host]


def _is_unsupported(finding: Finding, answer: Answer) -> bool:
    return finding.kind in _UNSUPPORTED_KINDS or answer.status == _NOT_IMPLEMENTED


def size_in(answer: Answer) -> int | None:
    """Returns the size of an object in bytes from the answer to a HEAD request."""
    length = answer.headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


def judge_write(answer: Answer) -> Verified | Finding:
    """Checks that a change was made, or was refused because the object exists."""
    if _OK <= answer.status < 300 or answer.status == PRECONDITION_FAILED:
        return Verified(0, 0, etag_in(answer.headers))
    return judge_status(answer.status, answer.headers, answer.body)
