"""HTTP/1.1 connections of our own for GET: kept alive, one request at a time each."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections import deque
from typing import Any, Final

from aiohappyeyeballs import start_connection

from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer, NoAnswer, NoAnswerKind, Timeouts

_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
_MAX_LINE: Final = 4096


class Dechunker:
    """Fed with pieces as they come. ``broken`` once a size line cannot be read, ``surplus`` when more than the
    answer came with its end."""

    def __init__(self) -> None:
        self._rest = b""
        self._missing = 0
        self._in_trailer = False
        self.broken = False
        self.surplus = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """The payload in ``data``, and whether the last chunk has been read."""
        buffer = self._rest + data
        parts: list[bytes] = []
        position = 0
        while position < len(buffer):
            if self._missing > 2:
                part = buffer[position : position + self._missing - 2]
                parts.append(part)
                position += len(part)
                self._missing -= len(part)
                continue
            if self._missing:  # the line break behind a chunk
                step = min(self._missing, len(buffer) - position)
                position += step
                self._missing -= step
                continue
            if self._in_trailer:
                ended, position = self._skip_trailer(buffer, position)
                if ended:
                    self._rest = b""
                    self.surplus = position < len(buffer)
                    return b"".join(parts), True
                break
            match = _SIZE.match(buffer, position)
            if match is None:
                self.broken = b"\n" in buffer[position:] or len(buffer) - position > _MAX_LINE
                break
            position = match.end()
            size = int(match[1], 16)
            self._in_trailer = not size
            self._missing = size + 2 if size else 0
        self._rest = buffer[position:]
        return b"".join(parts), False

    def _skip_trailer(self, buffer: bytes, position: int) -> tuple[bool, int]:
        """Passes over trailer fields up to the empty line."""
        while True:
            end = buffer.find(b"\n", position)
            if end < 0:
                return False, position
            line = buffer[position:end].rstrip(b"\r")
            position = end + 1
            if not line:
                return True, position


_MAX_HEAD: Final = 64 << 10
_IDLE_SECONDS: Final = 50.0
_RESOLVED_SECONDS: Final = 300.0
_NO_BODY: Final = frozenset({204, 304})


class Line(asyncio.Protocol):
    """One connection. Answers nobody waits for, or that do not end where they say, close it."""

    def __init__(self) -> None:
        self.transport: asyncio.WriteTransport | None = None
        self.waiter: asyncio.Future[Answer] | None = None
        self.active = 0.0
        self.deadline = 0.0
        self.reusable = True
        self.fresh = True
        self.heard = False
        self._hoped_for = 0
        self._bound = 0
        self._reset()

    def _reset(self) -> None:
        self._head = b""
        self._status = 0
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._missing = 0
        self._surplus = False
        self._dechunker: Dechunker | None = None
        self._until_close = False

    def ask(self, request: bytes, hoped_for: int, bound: int, deadline: float) -> asyncio.Future[Answer]:
        """Sends a request; the answer's body is cut as ``Conversation.ask`` says."""
        assert self.transport is not None
        self._hoped_for, self._bound = hoped_for, bound
        self.heard = False
        self.active, self.deadline = time.monotonic(), deadline
        self.waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.waiter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # create_connection makes transports that can write

    def data_received(self, data: bytes) -> None:
        if self.waiter is None:
            self.close()
            return
        self.active = time.monotonic()
        self.heard = True
        if not self._status:
            rest = self._take_head(data)
            if rest is None:
                return
            data = rest
        self._take_body(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.reusable = False
        if self.waiter is None:
            return
        if self._status and self._until_close and error is None:
            self._finish()
        elif self._status and error is None:
            have = sum(map(len, self._parts))
            self.fail("short_body", f"the connection closed {self._missing} bytes before the answer's end", have)
        else:
            self.fail("connection_reset", str(error) if error else "the connection closed without an answer")

    def fail(self, kind: NoAnswerKind, detail: str, received: int = 0) -> None:
        """Gives up on the answer and the connection."""
        waiter, self.waiter = self.waiter, None
        self.close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(NoAnswer(kind, detail, received))

    def close(self) -> None:
        self.reusable = False
        if self.transport is not None:
            self.transport.abort()

    def _take_head(self, data: bytes) -> bytes | None:
        """What follows the head, ``None`` while the head is not complete."""
        buffer = self._head + data if self._head else data
        while True:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                self._head = buffer
                if len(buffer) > _MAX_HEAD:
                    self.fail("connection_reset", f"the answer's head is longer than {_MAX_HEAD} bytes")
                return None
            lines = buffer[:end].decode("latin-1").split("\r\n")
            version, _, rest = lines[0].partition(" ")
            if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
                self.fail("connection_reset", f"not an HTTP answer: {lines[0][:60]!r}")
                return None
            buffer = buffer[end + 4 :]
            status = int(rest[:3])
            if status >= 200:
                break
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers.setdefault(name.strip().lower(), value.strip())
        self._status, self._headers, self._head = status, headers, b""
        connection = headers.get("connection", "").lower()
        self.reusable = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
        self._plan_body(status, headers)
        return buffer

    def _plan_body(self, status: int, headers: dict[str, str]) -> None:
        most = (self._bound if status == self._hoped_for else ERROR_BODY_BYTES) + 1
        stated = headers.get("content-length", "")
        if status in _NO_BODY:
            self._missing = 0
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            self._dechunker, self._missing = Dechunker(), most
        elif stated.isascii() and stated.isdecimal() and len(stated) < 20:
            length = int(stated)
            self._missing = min(length, most)
            self._surplus = length > most
        else:
            self._until_close, self._missing = True, most
            self._surplus = True

    def _take_body(self, data: bytes) -> None:
        ended = False
        if self._dechunker is not None:
            data, ended = self._dechunker.feed(data)
            # bytes behind the last chunk belong to no answer we asked for, and would be taken for the next one's
            self._surplus = not ended or self._dechunker.surplus
            if self._dechunker.broken:
                self.fail("connection_reset", "a chunk's length cannot be read")
                return
        if len(data) > self._missing:
            data = data[: self._missing]
            self._surplus = True  # more than was announced or wanted: this connection is of no more use
        if data:
            self._parts.append(data)
            self._missing -= len(data)
        if not self._missing or ended:
            self._finish()

    def _finish(self) -> None:
        parts = self._parts
        answer = Answer(self._status, self._headers, parts[0] if len(parts) == 1 else b"".join(parts))
        waiter, self.waiter = self.waiter, None
        if self._surplus:
            self.close()
        self.fresh = False
        self._reset()
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)


class Lines:
    """The connections to one origin. Belongs to one event loop."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, timeouts: Timeouts) -> None:
        self._host, self._port, self._tls, self._timeouts = host, port, tls, timeouts
        self._idle: deque[tuple[Line, float]] = deque()
        self._busy: set[Line] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._resolved: tuple[float, list[Any]] | None = None

    async def get(self, request: bytes, hoped_for: int, bound: int) -> Answer:
        """The answer to ``request``, which is a whole GET. Raises ``NoAnswer``."""
        line = self._idle_line()
        if line is not None:
            try:
                return await self._on(line, request, hoped_for, bound)
            except NoAnswer:
                if line.heard or line.fresh or line.deadline <= time.monotonic():
                    raise
                # the server had given the connection up while nobody used it: that is nobody's fault
        return await self._on(await self._connect(), request, hoped_for, bound)

    async def _on(self, line: Line, request: bytes, hoped_for: int, bound: int) -> Answer:
        limits = self._timeouts
        deadline = time.monotonic() + limits.total + bound / limits.slowest
        self._busy.add(line)
        if self._watch is None:
            self._watch_later()
        try:
            return await line.ask(request, hoped_for, bound, deadline)
        except asyncio.CancelledError:
            line.fail("connection_reset", "nobody waits for the answer any more")
            raise
        finally:
            self._busy.discard(line)
            if line.reusable and line.transport is not None:
                self._idle.append((line, time.monotonic()))

    def _idle_line(self) -> Line | None:
        while self._idle:
            line, since = self._idle.pop()
            if line.reusable and line.transport is not None and time.monotonic() - since < _IDLE_SECONDS:
                return line
            line.close()
        return None

    async def _connect(self) -> Line:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeouts.connect):
                connected = await start_connection(await self._addresses(), happy_eyeballs_delay=0.25)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server_name = self._host if self._tls is not None else None
                _, line = await loop.create_connection(Line, sock=connected, ssl=self._tls, server_hostname=server_name)
        except TimeoutError as error:
            raise NoAnswer("timeout", f"no connection to {self._host}:{self._port} in time") from error
        except (OSError, UnicodeError) as error:  # the latter for a name that no address can be asked for
            raise NoAnswer("unreachable", f"{self._host}:{self._port}: {error}") from error
        return line

    async def _addresses(self) -> list[Any]:
        now = time.monotonic()
        if self._resolved is None or now - self._resolved[0] > _RESOLVED_SECONDS:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
            self._resolved = (now, list(found))
        return self._resolved[1]

    def _watch_later(self) -> None:
        often = max(0.02, min(self._timeouts.silence, self._timeouts.total) / 5)
        self._watch = asyncio.get_running_loop().call_later(often, self._look)

    def _look(self) -> None:
        """Ends what is silent or takes too long; one timer for all connections."""
        self._watch = None
        now = time.monotonic()
        for line in tuple(self._busy):
            if now - line.active > self._timeouts.silence:
                line.fail("timeout", f"nothing came for {self._timeouts.silence:g} s")
            elif now > line.deadline:
                line.fail("timeout", "the answer took too long")
        if self._busy:
            self._watch_later()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for line, _ in self._idle:
            line.close()
        self._idle.clear()
        for line in tuple(self._busy):
            line.fail("connection_reset", "the transport was closed")
