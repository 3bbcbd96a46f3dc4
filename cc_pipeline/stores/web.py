"""Objects below an HTTP address: aiohttp sessions; answers are bounded and unchanged."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp.abc import ResolveResult
from yarl import URL

from cc_pipeline.addresses import NO_ACCESS, Access, redact_address, split_access
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer, ListedObject, NoAnswer, Span, Timeouts
from cc_pipeline.stores.opening import is_public, may_be_public
from cc_pipeline.stores.tls import check_bundle, tls_context

#: Seconds after which an idle connection is closed. Common Crawl's servers have refused an address for the number of
#: its connections, and the idle connections of one process count together with another one's.
IDLE_SECONDS: Final = 4.0
_OK = 200
_PARTIAL = 206
#: The status by which a proxy asks for a name and a password.
_PROXY_AUTHENTICATION: Final = 407


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
        check_bundle()
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity", "Accept": "*/*"}
        # one session per connection; the most recent one is reused, so that the others are idle and end
        self._sessions: list[aiohttp.ClientSession] = []
        self._idle: list[aiohttp.ClientSession] = []

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

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], *, hoped_for: int, bound: int, skip: int = 0
    ) -> Answer:
        """Sends one request without a body. Of the body of a ``hoped_for`` answer the first ``skip`` bytes are dropped,
        and the next ``bound + 1`` read; of others up to 4 KiB.

        ``url`` is escaped. Raises ``NoAnswer`` if the connection fails before the answer is complete.
        """
        if self._public_only and self.proxy is None and not may_be_public(URL(url, encoded=True).host or ""):
            raise NoAnswer("redirected", f"{redact_address(url)} is an address of a private network")
        is_secure = url.startswith("https:") or (self.proxy or "").startswith("https:")
        tls = tls_context() if is_secure else True
        session = self._open()
        closed: asyncio.Future[None] | None = None
        try:
            async with (
                asyncio.timeout(self.timeouts.window) as deadline,
                session.request(
                    method, URL(url, encoded=True), headers=headers, allow_redirects=False, proxy=self.proxy, ssl=tls
                ) as response,
            ):
                if response.status == _PROXY_AUTHENTICATION and self.proxy is not None:
                    raise NoAnswer("proxy", f"the proxy {self.proxy} answers with status {response.status}")
                closed = _watch_end(response)
                body = _Body(response, deadline, self.timeouts)
                if response.status != hoped_for:
                    skip, bound = 0, ERROR_BODY_BYTES
                return Answer(response.status, response.headers, await body.read(skip, bound + 1))
        except TimeoutError as error:
            raise NoAnswer("timeout", str(error) or "the answer took too long") from error
        except aiohttp.ClientPayloadError as error:
            # a broken connection, in contrast to one that the server closed in the middle of a body
            is_reset = (
                closed is not None and closed.done() and not closed.cancelled() and closed.exception() is not None
            )
            raise NoAnswer("connection_reset" if is_reset else "short_body", str(error.__cause__ or error)) from error
        except (aiohttp.ClientHttpProxyError, aiohttp.ClientProxyConnectionError) as error:
            raise NoAnswer("proxy", f"the proxy {self.proxy} {_describe_proxy_error(error)}") from error
        except aiohttp.ClientConnectorDNSError as error:
            raise NoAnswer("no_such_host", str(error)) from error
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


def _describe_proxy_error(error: aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError) -> str:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"answers with status {error.status}"
    return f"takes no connection ({error.os_error.strerror or error.os_error})"


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


class _Body:
    """The body of an answer. A ``deadline`` ends it if it comes too slowly."""

    def __init__(self, response: aiohttp.ClientResponse, deadline: asyncio.Timeout, timeouts: Timeouts) -> None:
        self._response, self._deadline, self._timeouts = response, deadline, timeouts
        self._quota = timeouts.slowest * timeouts.window
        self._missing = self._quota

    async def read(self, skip: int, max_bytes: int) -> bytes:
        """Returns up to ``max_bytes`` bytes after the first ``skip`` bytes; the first bytes if there are no others."""
        first = b""
        while skip > 0 and (block := await self._read_block(skip)):
            first = first or block
            skip -= len(block)
        if skip > 0:
            return first
        parts: list[bytes] = []
        size = 0
        while size < max_bytes:
            block = await self._read_block(max_bytes - size)
            if not block:
                return b"".join(parts)
            parts.append(block)
            size += len(block)
        if not self._response.content.at_eof():
            self._response.close()  # the rest is not needed: close the connection instead of reading it
        return b"".join(parts)

    async def _read_block(self, max_bytes: int) -> bytes:
        block = await self._response.content.read(max_bytes)
        self._missing -= len(block)
        if self._missing <= 0:
            self._missing = self._quota
            self._deadline.reschedule(asyncio.get_running_loop().time() + self._timeouts.window)
        return block


def as_sent(address: str) -> str:
    """Returns ``address`` as it is sent: escaped, with its host in ASCII.

    Raises ``UserInputError`` for an impossible host or port.
    """
    try:
        return str(URL(address))
    except ValueError as error:
        raise UserInputError(f"{redact_address(address)!r} is not an address: {error}") from error


@lru_cache(1_024)
def _escape(key: str) -> str:
    """Returns a key as in an address. A file has many records, each of which needs it."""
    return quote(key, safe="/-_.~=,:@!$&'()*+;")


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
        return self._base + _escape(key)

    def headers_at(self, address: str) -> Mapping[str, str]:
        """Returns the headers with credentials for an address at this store's own scheme, host and port; else none."""
        base, target = urlsplit(self._base), urlsplit(address)
        return self._headers if (base.scheme, base.netloc) == (target.scheme, target.netloc.lower()) else {}

    def fetch(self, key: str, span: Span | None = None, limit: int = 0, skip: int = 0) -> Awaitable[Answer]:
        request_url = self.url(key) + self._access.suffix
        if span is None:
            return self._client.ask("GET", request_url, self._headers, hoped_for=_OK, bound=limit, skip=skip)
        headers = {**self._headers, "Range": span.header}
        return self._client.ask("GET", request_url, headers, hoped_for=_PARTIAL, bound=span.length)

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
