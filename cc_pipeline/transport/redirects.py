"""Follows redirects to declared hosts, checked hop by hop, within each host's own budget.

A source with signed addresses (such as Hugging Face) is requested at its own address each time: the target of the
redirect expires, contains credentials, and is not stored.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from cc_pipeline.addresses import host_of, redact_address, scheme_of
from cc_pipeline.stores.answer import Answer, Intake, NoAnswer
from cc_pipeline.stores.opening import is_loopback, may_be_public
from cc_pipeline.stores.web import HttpClient, HttpStore
from cc_pipeline.transport.faults import FaultKind, Finding, Verified
from cc_pipeline.transport.ranges import TransportStats
from cc_pipeline.transport.rate_limiter import HostUnavailable, RateLimiter
from cc_pipeline.transport.retrying import closed_finding

#: Hosts that a source's host is known to redirect to. A star stands for anything within one label.
_KNOWN_REDIRECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "huggingface.co": ("cas-bridge.xethub.hf.co", "*.aws.cdn.hf.co", "cdn-lfs*.hf.co")
}
_MAX_HOPS: Final = 3
#: Maximum hosts that one source may redirect to; each has connections, a budget and a thread.
_MAX_HOSTS: Final = 32
_LONGEST: Final = 8192
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PORTS: Final = {"http": 80, "https": 443}
#: Without spaces and without characters that would end the head of a request.
_SENDABLE: Final = re.compile(r"[!-~]+")
#: Hugging Face's headers about an object in the redirect to it.
_SIZE, _ETAG = "x-linked-size", "x-linked-etag"


def declared_hosts(source: str, extra_hosts: Sequence[str]) -> tuple[str, ...]:
    """Returns the hosts (patterns, ``host`` or ``host:port``) that ``source`` may redirect to; none for most
    sources."""
    if scheme_of(source) not in _PORTS:
        return ()
    return tuple(dict.fromkeys([*_KNOWN_REDIRECTS.get(host_of(source), ()), *(host.lower() for host in extra_hosts)]))


class Undeclared(Exception):
    """A redirect that is not followed. The message says why, and shows only the host of the address."""


def target_of(base_address: str, location: str, declared: Sequence[str]) -> str:
    """Returns the address that ``location``, sent by ``base_address``, leads to. Raises ``Undeclared`` if it is not
    allowed."""
    if not location or len(location) > _LONGEST or not _SENDABLE.fullmatch(location):
        raise Undeclared("a redirect without a valid address")
    target = urljoin(base_address, location)
    base_parts, target_parts = _parts(base_address), _parts(target)
    if (
        base_parts is None
        or target_parts is None
        or target_parts.username is not None
        or target_parts.password is not None
    ):
        raise Undeclared("a redirect without a valid address")
    name = _netloc(target_parts)
    from_loopback = is_loopback(base_parts.hostname or "")
    to_host = (target_parts.hostname or "").rstrip(".")
    to_loopback = is_loopback(to_host)
    plain = (base_parts.scheme, target_parts.scheme) == ("http", "http") and from_loopback and to_loopback
    if not plain and (base_parts.scheme, target_parts.scheme) != ("https", "https"):
        raise Undeclared(f"a redirect to {target_parts.scheme}://{name}, which is not from https to https")
    if not from_loopback and not may_be_public(to_host):
        raise Undeclared(f"a redirect to {name}, which is an address of a private network")
    is_same_host = (base_parts.scheme, _netloc(base_parts)) == (target_parts.scheme, name)
    if not is_same_host and not any(_fits(name, pattern) for pattern in declared):
        raise Undeclared(f"a redirect to {name}, which is not in CC_PIPELINE_REDIRECTS")
    query = f"?{target_parts.query}" if target_parts.query else ""
    return f"{target_parts.scheme}://{target_parts.netloc}{target_parts.path or '/'}{query}"


def _parts(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.scheme in _PORTS and parts.hostname else None


def _netloc(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    host = f"[{host}]" if ":" in host else host
    return host if parts.port in (None, _PORTS[parts.scheme]) else f"{host}:{parts.port}"


def _fits(name: str, pattern: str) -> bool:
    return re.fullmatch("[a-z0-9-]*".join(map(re.escape, pattern.split("*"))), name) is not None


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of redirects: the verdict, the last answer, the rate limiter of its host (``None``: no request was
    sent to it), and the time of the request (0: none was sent)."""

    verdict: Verified | Finding
    answer: Answer
    gate: RateLimiter | None
    sent: float = 0.0


class Follower:
    """Follows the redirects of one source. It runs inside the transport's loop.

    ``client_for`` returns the client for an address, ``gate_for`` the rate limiter of an address's host.
    """

    def __init__(
        self,
        store: HttpStore,
        declared: Sequence[str],
        client_for: Callable[[str], HttpClient],
        gate_for: Callable[[str], RateLimiter],
        stats: TransportStats,
    ) -> None:
        self._store = store
        self._declared = tuple(declared)
        self._client_for = client_for
        self._gate_for = gate_for
        self._stats = stats
        self._hosts: set[str] = set()

    async def follow(
        self,
        method: str,
        key: str,
        answer: Answer,
        gate: RateLimiter,
        range_headers: Mapping[str, str],
        hoped_for: int,
        bound: int,
        judge: Callable[[Answer], Verified | Finding],
        intake: Intake | None = None,
    ) -> Followed:
        """Follows ``answer``, the redirect that ``gate``'s host sent for ``key``. ``range_headers`` say which bytes of
        the object to request. The last answer is cut and handed on as by ``HttpClient.ask``, and it is judged."""
        address = self._store.url(key)
        size: int | None = None
        sent = 0.0
        for _ in range(_MAX_HOPS):
            if answer.status not in _REDIRECTS:
                break
            try:
                address = target_of(address, answer.headers.get("location", ""), self._declared)
            except Undeclared as refused:
                return Followed(Finding(FaultKind.REDIRECTED, str(refused)), answer, gate)
            size_header = answer.headers.get(_SIZE, "")
            size = int(size_header) if size_header.isdecimal() and len(size_header) < 20 else size
            if method == "HEAD" and size is not None:
                # signed addresses are for GET alone
                object_headers = {"content-length": size_header, "etag": answer.headers.get(_ETAG, "")}
                answer = Answer(200, {name: value for name, value in object_headers.items() if value}, b"")
                return Followed(judge(answer), answer, gate)
            host = urlsplit(address).netloc
            if host not in self._hosts and len(self._hosts) >= _MAX_HOSTS:
                reason = f"redirects to more than {_MAX_HOSTS} hosts"
                return Followed(Finding(FaultKind.REDIRECTED, reason), answer, gate)
            self._hosts.add(host)
            gate = self._gate_for(address)
            headers = {**range_headers, **self._store.headers_at(address)}
            try:
                await gate.enter()
                sent = time.time()
                answer = await self._send(gate, method, address, headers, hoped_for, bound, intake)
            except HostUnavailable as closed:
                return Followed(closed_finding(closed), answer, None)
            except NoAnswer as error:
                return Followed(Finding(FaultKind(error.kind), error.detail), Answer(0, {}, b""), gate, sent)
        if answer.status in _REDIRECTS:
            return Followed(Finding(FaultKind.REDIRECTED, "a redirect to another redirect"), answer, gate)
        verdict = judge(answer)
        if isinstance(verdict, Finding):
            verdict = replace(verdict, detail=f"{verdict.detail}, from {host_of(redact_address(address))}")
        elif size is not None and verdict.total and verdict.total != size:
            detail = f"the file has {verdict.total} bytes, but the redirect announced {size}"
            verdict = Finding(FaultKind.WRONG_RANGE, detail)
        return Followed(verdict, answer, gate, sent)

    async def _send(
        self,
        gate: RateLimiter,
        method: str,
        address: str,
        headers: Mapping[str, str],
        hoped_for: int,
        bound: int,
        intake: Intake | None,
    ) -> Answer:
        self._stats.requests += 1
        try:
            client = self._client_for(address)
            return await client.ask(method, address, headers, hoped_for=hoped_for, bound=bound, intake=intake)
        finally:
            gate.leave()
