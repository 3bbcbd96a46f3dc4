"""Objects behind an HTTP address: one aiohttp session, answers bounded and untouched."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp.abc import ResolveResult
from yarl import URL

from cc_pipeline.addresses import NO_ACCESS, Access, shown, split_access
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer, Listed, NoAnswer, NoAnswerKind, Span, Timeouts

_OK = 200
_PARTIAL = 206
#: Bytes of a line of an answer's head; some sites send policies far longer than aiohttp's 8 KiB.
_LONGEST_LINE: Final = 64 << 10
#: So many requests may be sent once more because a server had closed an idle connection, which nobody else counts;
#: then each request has a connection of its own for so many seconds, and after these one may be sent again.
_RESENT: Final = 3
_NOT_AGAIN_SECONDS: Final = 60.0
#: After this long what was sent again counts no more: now and then a server closes an idle connection.
_FORGOTTEN_SECONDS: Final = 3_600.0
#: Seconds after which an idle connection is not used again.
_IDLE_SECONDS: Final = 50.0
#: Seconds for which a host's addresses are kept.
_RESOLVED_SECONDS: Final = 300


class HttpClient:
    """Requests over HTTP. Connections are opened on first use, inside the loop that will run them, and kept for others.

    A ``public_only`` client connects to no address of this machine or of a private network, whatever a name stands for
    (a proxy looks names up itself).
    """

    def __init__(
        self, user_agent: str, timeouts: Timeouts, proxy: str | None = None, *, public_only: bool = False
    ) -> None:
        self.user_agent = user_agent
        self._public_only = public_only
        self.timeouts = timeouts
        self.proxy = proxy
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._tls: ssl.SSLContext | None = None
        self._resent: dict[str, _Resent] = {}

    def _session(self, *, alone: bool) -> aiohttp.ClientSession:
        """The session whose connections serve one request each (``alone``), or many."""
        if alone not in self._sessions:
            # through a proxy, the only name that is looked up here is the proxy's
            resolver = _PublicResolver() if self._public_only and self.proxy is None else None
            timeouts = aiohttp.ClientTimeout(None, sock_connect=self.timeouts.connect, sock_read=self.timeouts.silence)
            self._sessions[alone] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    ttl_dns_cache=_RESOLVED_SECONDS,
                    resolver=resolver,
                    **({"force_close": True} if alone else {"keepalive_timeout": _IDLE_SECONDS}),
                ),
                headers={"User-Agent": self.user_agent, "Accept-Encoding": "identity", "Accept": "*/*"},
                auto_decompress=False,  # a range of a gzip file is what was asked for, not what it inflates to
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                timeout=timeouts,
                max_line_size=_LONGEST_LINE,
                max_field_size=_LONGEST_LINE,
            )
        return self._sessions[alone]

    async def ask(self, method: str, url: str, headers: Mapping[str, str], *, hoped_for: int, bound: int) -> Answer:
        """One request without a body. The body of a ``hoped_for`` answer is read up to ``bound + 1`` bytes, others up
        to 4 KiB.

        ``url`` is escaped. Raises ``NoAnswer`` when the connection fails before the answer is complete.
        """
        if self._tls is None and url.startswith("https"):
            # not aiohttp's own, which is as old as its import
            self._tls = ssl.create_default_context()
        try:
            # a deadline for the whole answer costs one timer handle
            async with asyncio.timeout(self.timeouts.total + bound / self.timeouts.slowest):
                return await self._ask(method, url, headers, hoped_for, bound)
        except TimeoutError as error:
            raise NoAnswer("timeout", str(error) or "the answer took too long") from error
        except (aiohttp.ClientConnectorError, UnicodeError) as error:  # the latter for a name that cannot be asked for
            raise NoAnswer("unreachable", str(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer("connection_reset", f"{type(error).__name__}: {error}".rstrip(": ")) from error

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], hoped_for: int, bound: int) -> Answer:
        asked = URL(url, encoded=True)
        resent = self._resent.setdefault(asked.authority, _Resent())
        async with self._session(alone=resent.is_much).request(
            method,
            asked,
            headers=headers,
            allow_redirects=False,
            proxy=self.proxy,
            ssl=self._tls or True,
            middlewares=(resent.counter(),),
        ) as response:
            if response.status < _OK:
                raise NoAnswer("connection_reset", f"status {response.status} is no answer to {method}")
            most = (bound if response.status == hoped_for else ERROR_BODY_BYTES) + 1
            return Answer(response.status, response.headers, await read_bounded(response, most))

    async def close(self) -> None:
        while self._sessions:
            await self._sessions.popitem()[1].close()


@dataclass(slots=True)
class _Resent:
    """How often a host was sent a request for a second time: aiohttp does so when a connection that was kept is found
    closed. Nobody else counts these, and a host that closes them all would get twice what its budget says."""

    times: int = 0
    last: float = 0.0
    alone_until: float = 0.0

    @property
    def is_much(self) -> bool:
        """Whether each request needs a connection of its own for now."""
        return time.monotonic() < self.alone_until

    def counter(self) -> aiohttp.ClientMiddlewareType:
        """Counts what is sent for one request, and ends it where it must not be sent again."""
        sent = False

        async def count(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
            nonlocal sent
            if sent:
                self._again()
            sent = True
            return await send(request)

        return count

    def _again(self) -> None:
        if self.is_much:
            raise NoAnswer("connection_reset", "the connection closed without an answer")
        now = time.monotonic()
        self.times = self.times + 1 if now - self.last < _FORGOTTEN_SECONDS else 1
        self.last = now
        if self.times >= _RESENT:
            self.times, self.alone_until = _RESENT - 1, now + _NOT_AGAIN_SECONDS


class _PublicResolver(aiohttp.ThreadedResolver):
    """Refuses names of private networks' addresses."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        if not all(is_public(one["host"]) for one in found):
            raise NoAnswer("redirected", f"{host} is a name of a private network's address")
        return found


def is_public(address: object) -> bool:
    """Whether a numeric address can be reached from everywhere, and means one host."""
    found = ipaddress.ip_address(str(address).partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    found = found if mapped is None else mapped
    return found.is_global and not found.is_multicast


async def read_bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    """At most ``most`` bytes of an answer's body. Raises ``NoAnswer`` for one that is shorter than it says, or whose
    connection breaks."""
    # a server that ends a body early says something of the object, a connection that breaks says nothing of it
    connection = None if response.connection is None else response.connection.protocol
    # in its place: a server may send bytes one by one, each of which would be an object
    body = bytearray()
    try:
        while len(body) < most:
            block = await response.content.read(most - len(body))
            if not block:
                return bytes(body)
            body += block
    except aiohttp.ClientPayloadError as error:
        broken = connection is not None and isinstance(connection.exception(), aiohttp.ClientOSError)
        kind: NoAnswerKind = "connection_reset" if broken else "short_body"
        raise NoAnswer(kind, str(error.__cause__ or error), len(body)) from error
    if not response.content.at_eof():
        response.close()  # the rest is not wanted: give the connection up rather than read it
    return bytes(body)


def as_sent(address: str) -> str:
    """``address`` as it is sent: escaped, with its host in ASCII.

    Raises ``UserInputError`` for an impossible host or port.
    """
    try:
        return str(URL(address))
    except ValueError as error:
        raise UserInputError(f"{shown(address)!r} is not an address: {error}") from error


class HttpStore:
    """``base`` is an ``http(s)://`` address; keys are appended to it.

    ``access``, or the credentials in ``base``, go into each request and nowhere else: a redirect is not followed here.
    """

    def __init__(self, base: str, client: HttpClient, access: Access = NO_ACCESS) -> None:
        place, own = split_access(base)
        self._access = own or access
        self._headers = self._access.headers
        self._base = as_sent(place).rstrip("/") + "/"
        self._client = client
        self.host = urlsplit(self._base).netloc.lower()

    def url(self, key: str) -> str:
        return self._base + quote(key, safe="/-_.~=,:@!$&'()*+;")

    def headers_at(self, address: str) -> Mapping[str, str]:
        """What lets somebody in, for an address at this place's own scheme, host and port; nothing for any other."""
        here, there = urlsplit(self._base), urlsplit(address)
        return self._headers if (here.scheme, here.netloc) == (there.scheme, there.netloc.lower()) else {}

    async def fetch(self, key: str, span: Span | None = None, limit: int = 0) -> Answer:
        asked = self.url(key) + self._access.suffix
        if span is None:
            return await self._client.ask("GET", asked, self._headers, hoped_for=_OK, bound=limit)
        headers = {**self._headers, "Range": span.header}
        return await self._client.ask("GET", asked, headers, hoped_for=_PARTIAL, bound=span.length)

    async def head(self, key: str) -> Answer:
        asked = self.url(key) + self._access.suffix
        return await self._client.ask("HEAD", asked, self._headers, hoped_for=_OK, bound=0)

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer:
        raise EnvironmentFault(f"{self._base} cannot be written to", "Use a local folder or an s3:// place")

    async def delete(self, key: str) -> Answer:
        raise EnvironmentFault(f"{self._base} cannot be written to", "Use a local folder or an s3:// place")

    async def listing(self, prefix: str) -> tuple[Answer, list[Listed]]:
        raise EnvironmentFault(f"{self._base} cannot be listed", "Read its *.paths.gz lists instead")

    async def close(self) -> None:
        await self._client.close()
