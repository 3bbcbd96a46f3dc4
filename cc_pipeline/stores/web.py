"""Objects below an HTTP address: aiohttp sessions; answers are bounded and unchanged."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp.abc import ResolveResult
from yarl import URL

from cc_pipeline.addresses import NO_ACCESS, Access, redact_address, split_access
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer, Intake, ListedObject, NoAnswer, Span, Timeouts
from cc_pipeline.stores.opening import ca_bundle, is_public, may_be_public

__all__ = ["HttpClient", "HttpStore", "Timeouts"]

#: Seconds after which an idle connection is closed. Common Crawl's servers have refused an address for the number of
#: its connections, and the idle connections of one process count together with another one's.
IDLE_SECONDS: Final = 4.0
_OK = 200
_PARTIAL = 206


class HttpClient:
    """Requests over HTTP. Connections are opened on first use, inside the loop that will run them.

    A ``public_only`` client connects to no address of this machine or of a private network, under any name (a proxy
    resolves names itself).
    """

    def __init__(
        self, user_agent: str, timeouts: Timeouts, proxy: str | None = None, *, public_only: bool = False
    ) -> None:
        self.user_agent = user_agent
        self._public_only = public_only
        self.timeouts = timeouts
        self.proxy = proxy
        self._ca_bundle = ca_bundle()
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity", "Accept": "*/*"}
        # one session per connection; the most recent one is reused, so that the others are idle and end
        self._sessions: list[aiohttp.ClientSession] = []
        self._idle: list[aiohttp.ClientSession] = []
        self._context: ssl.SSLContext | None = None

    def _open(self) -> aiohttp.ClientSession:
        """Opens or reuses a session of one connection. aiohttp itself reuses the oldest of several connections, so none
        would ever be idle, and a process that once had many would keep them all."""
        if self._idle:
            return self._idle.pop()
        # with a proxy, only the proxy's name is resolved here
        resolver = _PublicResolver() if self._public_only and self.proxy is None else None
        session = aiohttp.ClientSession(
            # checked once in this interval, so that an idle connection ends after at most twice as long
            connector=aiohttp.TCPConnector(
                limit=1, ttl_dns_cache=300, keepalive_timeout=IDLE_SECONDS / 2, resolver=resolver
            ),
            headers=self._headers,
            auto_decompress=False,  # a range of a gzip file is requested as it is, not inflated
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            middlewares=(_send_once,),
            timeout=aiohttp.ClientTimeout(total=None, connect=self.timeouts.connect, sock_read=self.timeouts.silence),
        )
        self._sessions.append(session)
        return session

    def _tls(self) -> ssl.SSLContext:
        """Returns the TLS context. Raises ``NoAnswer`` if the configured certificates cannot be read."""
        if self._context is not None:
            return self._context
        bundle = self._ca_bundle
        try:
            context = ssl.create_default_context()
            if bundle is not None:
                is_folder = os.path.isdir(bundle)
                context.load_verify_locations(**{"capath" if is_folder else "cafile": bundle})
        except (OSError, ssl.SSLError) as error:
            raise NoAnswer("unreachable", f"the certificates of {bundle} cannot be read: {error}") from error
        self._context = context
        return context

    async def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        hoped_for: int,
        bound: int,
        intake: Intake | None = None,
    ) -> Answer:
        """Sends one request without a body. The body of a ``hoped_for`` answer is read up to ``bound + 1`` bytes,
        others up to 4 KiB. An ``intake`` may take the body of a ``hoped_for`` answer.

        ``url`` is escaped. Raises ``NoAnswer`` if the connection fails before the answer is complete.
        """
        if self._public_only and self.proxy is None and not may_be_public(URL(url, encoded=True).host or ""):
            raise NoAnswer("redirected", f"{redact_address(url)} is an address of a private network")
        is_secure = url.startswith("https:") or (self.proxy or "").startswith("https:")
        tls = self._tls() if is_secure else True
        session = self._open()
        closed: asyncio.Future[None] | None = None
        try:
            async with (
                asyncio.timeout(self.timeouts.total + bound / self.timeouts.slowest) as deadline,
                session.request(
                    method, URL(url, encoded=True), headers=headers, allow_redirects=False, proxy=self.proxy, ssl=tls
                ) as response,
            ):
                closed = _watch_end(response)
                max_bytes = (bound if response.status == hoped_for else ERROR_BODY_BYTES) + 1
                response_headers = response.headers
                if (
                    intake is not None
                    and response.status == hoped_for
                    and intake.begins(response.status, response_headers)
                ):
                    return Answer(
                        response.status, response_headers, b"", await _hand_on(response, max_bytes, intake, deadline)
                    )
                return Answer(response.status, response_headers, await _read_bounded(response, max_bytes))
        except TimeoutError as error:
            raise NoAnswer("timeout", str(error) or "the answer took too long") from error
        except aiohttp.ClientPayloadError as error:
            # a broken connection, in contrast to one that the server closed in the middle of a body
            is_reset = (
                closed is not None and closed.done() and not closed.cancelled() and closed.exception() is not None
            )
            raise NoAnswer("connection_reset" if is_reset else "short_body", str(error.__cause__ or error)) from error
        except (aiohttp.ClientConnectorError, UnicodeError) as error:  # the latter for an invalid name
            raise NoAnswer("unreachable", str(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer("connection_reset", f"{type(error).__name__}: {error}".rstrip(": ")) from error
        finally:
            self._idle.append(session)

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, []
        self._idle.clear()
        for session in sessions:
            await session.close()


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Sends a request once. aiohttp itself repeats a request if a reused connection has ended, and the budget would not
    count that. ``NoAnswer`` lets the transport repeat it within the budget."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise NoAnswer("connection_reset", str(error) or "the connection closed without an answer") from error


class _PublicResolver(aiohttp.ThreadedResolver):
    """Refuses names that resolve to addresses of private networks."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = await super().resolve(host, port, family)
        if not all(is_public(address["host"]) for address in addresses):
            raise NoAnswer("redirected", f"{host} has an address of a private network")
        return addresses


def _watch_end(response: aiohttp.ClientResponse) -> asyncio.Future[None] | None:
    """Returns the future that ends with a response's connection, with the error that broke it; ``None`` if the body is
    complete."""
    connection = response.connection
    closed = connection.protocol.closed if connection is not None and connection.protocol is not None else None
    if closed is not None:
        # registered once a connection, for any number of answers
        closed.remove_done_callback(_take_error)
        closed.add_done_callback(_take_error)
    return closed


def _take_error(closed: asyncio.Future[None]) -> None:
    """Marks an error as retrieved, so that asyncio does not log it."""
    if not closed.cancelled():
        closed.exception()


async def _read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < max_bytes:
        block = await response.content.read(max_bytes - size)
        if not block:
            return b"".join(parts)
        parts.append(block)
        size += len(block)
    if not response.content.at_eof():
        response.close()  # the rest is not needed: close the connection instead of reading it
    return b"".join(parts)


async def _hand_on(response: aiohttp.ClientResponse, max_bytes: int, intake: Intake, deadline: asyncio.Timeout) -> int:
    size = 0
    while size < max_bytes and (block := await response.content.read(min(max_bytes - size, 1 << 16))):
        size += len(block)
        intake.take(block)
        if intake.is_full:
            await _wait_for_room(intake, deadline)
    if not response.content.at_eof():
        response.close()
    return size


async def _wait_for_room(intake: Intake, deadline: asyncio.Timeout) -> None:
    """Waits until the intake has room. The deadline is moved, since the server is not to blame for this pause."""
    room, clock, until = asyncio.Event(), asyncio.get_running_loop(), deadline.when()
    intake.when_room(room.set)
    began = clock.time()
    deadline.reschedule(None)
    await room.wait()
    if until is not None:
        deadline.reschedule(until + clock.time() - began)


def as_sent(address: str) -> str:
    """Returns ``address`` as it is sent: escaped, with its host in ASCII.

    Raises ``UserInputError`` for an impossible host or port.
    """
    try:
        return str(URL(address))
    except ValueError as error:
        raise UserInputError(f"{redact_address(address)!r} is not an address: {error}") from error


class HttpStore:
    """A store at ``base``, an ``http(s)://`` address; keys are appended to it.

    ``access``, or the credentials in ``base``, are part of each request and of nothing else: redirects are not
    followed here.
    """

    def __init__(self, base: str, client: HttpClient, access: Access = NO_ACCESS) -> None:
        place, own_access = split_access(base)
        self._access = own_access or access
        self._headers = self._access.headers
        self._base = as_sent(place).rstrip("/") + "/"
        self._client = client
        self.host = urlsplit(self._base).netloc.lower()

    def url(self, key: str) -> str:
        return self._base + quote(key, safe="/-_.~=,:@!$&'()*+;")

    def headers_at(self, address: str) -> Mapping[str, str]:
        """Returns the headers with credentials for an address at this store's own scheme, host and port; else none."""
        base, target = urlsplit(self._base), urlsplit(address)
        return self._headers if (base.scheme, base.netloc) == (target.scheme, target.netloc.lower()) else {}

    async def fetch(self, key: str, span: Span | None = None, limit: int = 0, intake: Intake | None = None) -> Answer:
        request_url = self.url(key) + self._access.suffix
        if span is None:
            return await self._client.ask("GET", request_url, self._headers, hoped_for=_OK, bound=limit, intake=intake)
        headers = {**self._headers, "Range": span.header}
        return await self._client.ask("GET", request_url, headers, hoped_for=_PARTIAL, bound=span.length, intake=intake)

    async def head(self, key: str) -> Answer:
        request_url = self.url(key) + self._access.suffix
        return await self._client.ask("HEAD", request_url, self._headers, hoped_for=_OK, bound=0)

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer:
        raise EnvironmentFault(f"{self._base} cannot be written to", "Use a local folder or an s3:// place")

    async def delete(self, key: str) -> Answer:
        raise EnvironmentFault(f"{self._base} cannot be written to", "Use a local folder or an s3:// place")

    async def listing(self, prefix: str) -> tuple[Answer, list[ListedObject]]:
        raise EnvironmentFault(f"{self._base} cannot be listed", "Read its *.paths.gz lists instead")

    async def close(self) -> None:
        await self._client.close()
