"""Follows redirects to declared hosts, checked hop by hop, within each host's own budget.

A source with signed addresses (such as Hugging Face) is requested at its own address each time: the target of the
redirect expires, contains credentials, and is not stored.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from cc_pipeline.addresses import host_of, redact_address, scheme_of
from cc_pipeline.stores.answer import Answer, Span
from cc_pipeline.stores.opening import is_loopback, may_be_public
from cc_pipeline.stores.web import HttpClient, HttpStore
from cc_pipeline.transport.faults import FaultKind, Finding, Verified
from cc_pipeline.transport.sender import Attempt, Follow, Judge, Sender, is_redirect

#: Hosts that a source's host is known to redirect to. A star stands for anything within one label.
_KNOWN_REDIRECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "huggingface.co": ("cas-bridge.xethub.hf.co", "*.aws.cdn.hf.co", "cdn-lfs*.hf.co")
}
_MAX_HOPS: Final = 3
#: Maximum hosts that one source may redirect to; each has connections, a budget and a thread.
_MAX_HOSTS: Final = 32
_LONGEST: Final = 8192
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


class Follower:
    """Follows the redirects of one source. It runs inside the transport's loop.

    ``client_to`` returns the client for an address, ``sender_at`` the sender to an address's host.
    """

    def __init__(
        self,
        store: HttpStore,
        declared: Sequence[str],
        client_to: Callable[[str], HttpClient],
        sender_at: Callable[[str], Sender],
    ) -> None:
        self._store, self._declared = store, tuple(declared)
        self._client_to, self._sender_at = client_to, sender_at
        self._hosts: set[str] = set()

    def following(self, method: str, key: str, span: Span | None, limit: int, skip: int, judge: Judge) -> Follow:
        """Returns the function that follows a redirect of ``key`` and judges the last answer. ``span``, ``limit`` and
        ``skip`` are as of ``Store.fetch``."""

        async def follow(answer: Answer) -> Attempt:
            address, requests = self._store.url(key), 0
            size: int | None = None
            for _ in range(_MAX_HOPS):
                size_header = answer.headers.get(_SIZE, "")
                size = int(size_header) if size_header.isdecimal() and len(size_header) < 20 else size
                if method == "HEAD" and size is not None:
                    # signed addresses are for GET alone
                    object_headers = {"content-length": size_header, "etag": answer.headers.get(_ETAG, "")}
                    answer = Answer(200, {name: value for name, value in object_headers.items() if value}, b"")
                    return Attempt(judge(answer), answer, requests)
                try:
                    address = self._target(address, answer)
                except Undeclared as refused:
                    return Attempt(Finding(FaultKind.REDIRECTED, str(refused)), answer, requests)
                send = partial(self._send, method, address, span, limit, skip)
                # an address expires: the next try begins at the source
                hop = await self._sender_at(address).send_once(key, send, judge)
                answer, requests = hop.answer, requests + hop.requests
                if not is_redirect(hop.verdict):
                    return hop._replace(verdict=_judge_hop(hop.verdict, size, address), requests=requests)
            return Attempt(Finding(FaultKind.REDIRECTED, "a redirect to another redirect"), answer, requests)

        return follow

    def _target(self, address: str, answer: Answer) -> str:
        """Returns the address that ``answer`` of ``address`` leads to. Raises ``Undeclared``."""
        target = target_of(address, answer.headers.get("location", ""), self._declared)
        host = urlsplit(target).netloc
        if host not in self._hosts and len(self._hosts) >= _MAX_HOSTS:
            raise Undeclared(f"redirects to more than {_MAX_HOSTS} hosts")
        self._hosts.add(host)
        return target

    def _send(self, method: str, address: str, span: Span | None, limit: int, skip: int) -> Awaitable[Answer]:
        headers = {**({} if span is None else {"Range": span.header}), **self._store.headers_at(address)}
        hoped_for = 200 if span is None else 206
        return self._client_to(address).ask(method, address, headers, hoped_for=hoped_for, bound=limit, skip=skip)


def _judge_hop(verdict: Verified | Finding, size: int | None, address: str) -> Verified | Finding:
    """Returns the verdict on the last hop, at ``address``, compared with the ``size`` that a redirect announced."""
    if isinstance(verdict, Finding):
        return replace(verdict, detail=f"{verdict.detail}, from {host_of(redact_address(address))}")
    if size is None or not verdict.total or verdict.total == size:
        return verdict
    detail = f"the file has {verdict.total} bytes, but the redirect announced {size}"
    return Finding(FaultKind.WRONG_RANGE, detail)
