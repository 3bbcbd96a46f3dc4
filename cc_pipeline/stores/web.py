"""Objects behind an HTTP address: one aiohttp session, answers bounded and untouched."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp.abc import ResolveResult
from yarl import URL

from cc_pipeline.addresses import NO_ACCESS, Access, shown, split_access
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer, Intake, Listed, NoAnswer, Span, Timeouts
from cc_pipeline.stores.connections import IDLE_SECONDS, ConnectionPool
from cc_pipeline.stores.opening import ca_bundle, is_public

__all__ = ["HttpClient", "HttpStore", "Timeouts"]

_OK = 200
_PARTIAL = 206


class HttpClient:
    """Requests over HTTP. Connections are opened on first use, inside the loop that will run them.

    Plain GETs go over a ``ConnectionPool``; everything else, and everything through a proxy, over an aiohttp session.
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
        self._ca_bundle = ca_bundle()
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity", "Accept": "*/*"}
        self._session: aiohttp.ClientSession | None = None
        self._pools: dict[str, tuple[ConnectionPool, bytes]] = {}

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # through a proxy, the only name that is looked up here is the proxy's
            resolver = _PublicResolver() if self._public_only and self.proxy is None else None
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, ttl_dns_cache=300, keepalive_timeout=IDLE_SECONDS, resolver=resolver, ssl=self._tls()
                ),
                headers=self._headers,
                auto_decompress=False,  # a range of a gzip file is what was asked for, not what it inflates to
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self.timeouts.connect, sock_read=self.timeouts.silence
                ),
            )
        return self._session

    async def get(
        self, url: str, headers: Mapping[str, str], *, hoped_for: int, bound: int, intake: Intake | None = None
    ) -> Answer:
        """One GET of an escaped address, cut and refused as ``ask`` says. An ``intake`` may take the body of a
        ``hoped_for`` answer, and is given up to ``bound + 1`` bytes."""
        end = url.find("/", url.index("://") + 3)
        origin, path = url[:end], url[end:]
        if self.proxy is not None or "@" in origin:
            return await self.ask("GET", url, headers, hoped_for=hoped_for, bound=bound, intake=intake)
        known = self._pools.get(origin)
        if known is None:
            known = self._pools[origin] = self._new_pool(origin)
        pool, common = known
        own = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = b"GET %b HTTP/1.1\r\n%b%b\r\n" % (path.encode("ascii"), common, own.encode("latin-1"))
        return await pool.get(request, hoped_for, bound, intake)

    def _tls(self) -> ssl.SSLContext:
        """Raises ``NoAnswer`` where the certificates that somebody named cannot be read."""
        bundle = self._ca_bundle
        try:
            context = ssl.create_default_context()
            if bundle is not None:
                is_folder = os.path.isdir(bundle)
                context.load_verify_locations(**{"capath" if is_folder else "cafile": bundle})
            return context
        except (OSError, ssl.SSLError) as error:
            raise NoAnswer("unreachable", f"the certificates of {bundle} cannot be read: {error}") from error

    def _new_pool(self, origin: str) -> tuple[ConnectionPool, bytes]:
        parts = urlsplit(origin)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        tls = self._tls() if secure else None
        common = "".join(f"{name}: {value}\r\n" for name, value in ({"Host": parts.netloc} | self._headers).items())
        pool = ConnectionPool(parts.hostname or "", port, tls, self.timeouts, public_only=self._public_only)
        return pool, common.encode()

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
        """One request without a body. The body of a ``hoped_for`` answer is read up to ``bound + 1`` bytes, others up
        to 4 KiB.

        ``url`` is escaped. Raises ``NoAnswer`` when the connection fails before the answer is complete.
        """
        try:
            # a deadline for the whole answer costs one timer handle
            async with asyncio.timeout(self.timeouts.total + bound / self.timeouts.slowest):
                return await self._ask(method, url, headers, hoped_for, bound, intake)
        except TimeoutError as error:
            raise NoAnswer("timeout", str(error) or "the answer took too long") from error
        except aiohttp.ClientPayloadError as error:
            raise NoAnswer("short_body", str(error.__cause__ or error)) from error
        except aiohttp.ClientConnectorError as error:
            raise NoAnswer("unreachable", str(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer("connection_reset", f"{type(error).__name__}: {error}".rstrip(": ")) from error

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str], hoped_for: int, bound: int, intake: Intake | None
    ) -> Answer:
        async with self._open().request(
            method, URL(url, encoded=True), headers=headers, allow_redirects=False, proxy=self.proxy
        ) as response:
            most = bound if response.status == hoped_for else ERROR_BODY_BYTES
            if intake is not None and response.status == hoped_for and intake.begins(response.status, response.headers):
                return Answer(response.status, response.headers, b"", await _handed_on(response, most + 1, intake))
            declared = response.content_length
            if declared is not None and declared <= most:
                body = await response.read()
            else:
                body = await _read_bounded(response, most + 1)
            return Answer(response.status, response.headers, body)

    async def close(self) -> None:
        for pool, _ in self._pools.values():
            pool.close()
        self._pools.clear()
        if self._session is not None:
            await self._session.close()
            self._session = None


class _PublicResolver(aiohttp.ThreadedResolver):
    """Refuses names of private networks' addresses."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        if not all(is_public(one["host"]) for one in found):
            raise NoAnswer("redirected", f"{host} is a name of a private network's address")
        return found


async def _read_bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    parts: list[bytes] = []
    have = 0
    while have < most:
        block = await response.content.read(most - have)
        if not block:
            return b"".join(parts)
        parts.append(block)
        have += len(block)
    if not response.content.at_eof():
        response.close()  # the rest is not wanted: give the connection up rather than read it
    return b"".join(parts)


async def _handed_on(response: aiohttp.ClientResponse, most: int, intake: Intake) -> int:
    have = 0
    while have < most and (block := await response.content.read(min(most - have, 1 << 16))):
        have += len(block)
        intake.take(block)
        if intake.is_full:
            room = asyncio.Event()
            intake.when_room(room.set)
            await room.wait()
    if not response.content.at_eof():
        response.close()
    return have


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

    async def fetch(self, key: str, span: Span | None = None, limit: int = 0, intake: Intake | None = None) -> Answer:
        asked = self.url(key) + self._access.suffix
        if span is None:
            return await self._client.get(asked, self._headers, hoped_for=_OK, bound=limit, intake=intake)
        headers = {**self._headers, "Range": span.header}
        return await self._client.get(asked, headers, hoped_for=_PARTIAL, bound=span.length, intake=intake)

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
