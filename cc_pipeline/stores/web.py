"""Objects behind an HTTP address: one aiohttp session, answers bounded and untouched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlsplit

import aiohttp
from yarl import URL

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer, Listed, NoAnswer, Span

_OK = 200
_PARTIAL = 206


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. ``silence`` is the longest wait for the next byte; the whole answer may take ``total`` plus the
    time its length needs at ``slowest`` bytes per second, so that a dripping answer ends."""

    connect: float = 10.0
    silence: float = 30.0
    total: float = 60.0
    slowest: float = 20_000.0


class Conversation:
    """An aiohttp session opened on first use (inside the loop that will run it), and requests made on it."""

    def __init__(self, user_agent: str, timeouts: Timeouts, proxy: str | None = None) -> None:
        self._timeouts = timeouts
        self._proxy = proxy
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity", "Accept": "*/*"}
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=55),
                headers=self._headers,
                auto_decompress=False,  # a range of a gzip file is what was asked for, not what it inflates to
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._timeouts.connect, sock_read=self._timeouts.silence
                ),
            )
        return self._session

    async def ask(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        *,
        hoped_for: int,
        bound: int,
        data: bytes | IO[bytes] | None = None,
        size: int = 0,
    ) -> Answer:
        """One request. The body of a ``hoped_for`` answer is read up to ``bound + 1`` bytes, others up to 4 KiB.

        ``size`` is the length of ``data`` in bytes; it only lengthens the deadline.
        Raises ``NoAnswer`` when the conversation breaks.
        """
        try:
            # a deadline for the whole answer; its cost is one timer handle
            async with asyncio.timeout(self._timeouts.total + (bound + size) / self._timeouts.slowest):
                return await self._ask(method, url, headers, hoped_for, bound, data)
        except TimeoutError as error:
            raise NoAnswer("timeout", str(error) or "the answer took too long") from error
        except aiohttp.ClientPayloadError as error:
            raise NoAnswer("short_body", str(error.__cause__ or error)) from error
        except aiohttp.ClientConnectorError as error:
            raise NoAnswer("unreachable", str(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer("connection_reset", f"{type(error).__name__}: {error}".rstrip(": ")) from error

    async def _ask(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        hoped_for: int,
        bound: int,
        data: bytes | IO[bytes] | None,
    ) -> Answer:
        async with self._open().request(
            method, url, headers=headers, allow_redirects=False, proxy=self._proxy, data=data
        ) as response:
            most = bound if response.status == hoped_for else ERROR_BODY_BYTES
            declared = response.content_length
            if declared is not None and declared <= most:
                body = await response.read()
            else:
                body = await _read_bounded(response, most + 1)
            return Answer(response.status, response.headers, body)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


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


class HttpStore:
    """``base`` is an ``http(s)://`` address; keys are appended to it."""

    def __init__(self, base: str, conversation: Conversation) -> None:
        self._base = base.rstrip("/") + "/"
        self._conversation = conversation
        self.host = urlsplit(base).netloc.rpartition("@")[2].lower()

    def url(self, key: str) -> str:
        return self._base + quote(key, safe="/-_.~=,:@!$&'()*+;")

    async def fetch(self, key: str, span: Span | None = None, limit: int = 0) -> Answer:
        url = URL(self.url(key), encoded=True)
        if span is None:
            return await self._conversation.ask("GET", url, {}, hoped_for=_OK, bound=limit)
        return await self._conversation.ask("GET", url, {"Range": span.header}, hoped_for=_PARTIAL, bound=span.length)

    async def head(self, key: str) -> Answer:
        return await self._conversation.ask("HEAD", URL(self.url(key), encoded=True), {}, hoped_for=_OK, bound=0)

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer:
        raise EnvironmentFault(f"{self._base} cannot be written to", "Use a local folder or an s3:// place")

    async def delete(self, key: str) -> Answer:
        raise EnvironmentFault(f"{self._base} cannot be written to", "Use a local folder or an s3:// place")

    async def listing(self, prefix: str) -> AsyncIterator[Listed]:
        raise EnvironmentFault(f"{self._base} cannot be listed", "Its *.paths.gz lists say what it has")
        yield  # pragma: no cover - makes this an asynchronous iterator

    async def close(self) -> None:
        await self._conversation.close()
