"""HTTP/1.1 connections for GET, kept alive, one request at a time each; ``httptools`` (llhttp) reads the answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from typing import Any, Final

from aiohappyeyeballs import start_connection
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer, Intake, NoAnswer, NoAnswerKind, Timeouts
from cc_pipeline.stores.opening import is_public

#: Bytes of heads, chunk lengths and trailers that may come in a row without a byte of the body.
_MAX_OVERHEAD: Final = 64 << 10
#: Pieces of a body that are objects of their own; a server may send chunks of a byte each.
_MOST_PARTS: Final = 1_024
#: So many requests may be sent once more because a server had closed an idle connection, which nobody else counts;
#: then no connection is used again for so many seconds, and after these one request may.
_RESENT: Final = 3
_NOT_AGAIN_SECONDS: Final = 60.0
#: After this long what was sent again counts no more: now and then a server closes an idle connection.
_FORGOTTEN_SECONDS: Final = 3_600.0
#: Seconds after which an idle connection is closed. Common Crawl's front was seen to refuse an address for the number
#: of its connections, and what one process keeps open counts beside what another one opens.
IDLE_SECONDS: Final = 4.0
#: Seconds for which a host's addresses are kept.
_RESOLVED_SECONDS: Final = 300.0
_FIRST_FINAL_STATUS: Final = 200


class Connection(asyncio.Protocol):
    """One connection. It closes after an answer that nobody waits for, or that does not end where it says.

    The methods named ``on_…`` are called by the parser while it is fed.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.waiter: asyncio.Future[Answer] | None = None
        self.active = 0.0
        self.deadline = 0.0
        self.reusable = True
        self.fresh = True
        self.heard = False
        self._hoped_for = 0
        self._bound = 0
        self._intake: Intake | None = None
        self._paused_at: float | None = None
        self._parser = HttpResponseParser(self)
        # old servers send both forms, and neither makes the length of an answer doubtful
        self._parser.set_dangerous_leniencies(lenient_chunked_length=True, lenient_spaces_after_chunk_size=True)
        self._reset()

    def _reset(self) -> None:
        self._status = 0
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._many: bytearray | None = None
        self._wanted = 0
        self._overhead = 0
        self._complete = False
        self._until_close = False
        self._takes: Intake | None = None
        self._handed_on = 0

    def ask(
        self, request: bytes, hoped_for: int, bound: int, deadline: float, intake: Intake | None = None
    ) -> asyncio.Future[Answer]:
        """Sends a request; the answer's body is cut as ``HttpClient.ask`` says.

        ``deadline`` is when the pool gives the answer up, on the clock of ``time.monotonic``. The future raises
        ``NoAnswer``.
        """
        assert self.transport is not None
        self._hoped_for, self._bound, self._intake = hoped_for, bound, intake
        self.heard = False
        self.active, self.deadline = time.monotonic(), deadline
        self.waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.waiter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # create_connection makes transports that read and write

    def data_received(self, data: bytes) -> None:
        if self.waiter is None:
            self.close()
            return
        self.active = time.monotonic()
        self.heard = True
        self._overhead += len(data)
        broken = False
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            broken = True
            if not self._has_all():
                self.fail("connection_reset", f"not an HTTP answer: {error or type(error).__name__}")
                return
        if self._has_all():
            # bytes behind an answer belong to no request of ours, and would be taken for the next answer
            self._finish(trusted=self._complete and not broken)
        elif self._overhead > _MAX_OVERHEAD:
            self.fail("connection_reset", f"the answer's head is longer than {_MAX_OVERHEAD} bytes")
        elif self._takes is not None and self._takes.is_full and self.transport is not None:
            self._paused_at = self.active
            self.transport.pause_reading()
            self._takes.when_room(self._go_on)

    def _go_on(self) -> None:
        if self._paused_at is None or self.waiter is None:
            return
        # the server is not to blame for time in which nothing was read
        now = time.monotonic()
        self.deadline += now - self._paused_at
        self.active, self._paused_at = now, None
        if self.transport is not None:
            self.transport.resume_reading()

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read for now, because what came was not taken yet."""
        return self._paused_at is not None

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.reusable = False
        if self.waiter is None:
            return
        if self._status and error is None:
            if self._until_close:
                self._finish(trusted=False)
            else:
                have = sum(map(len, self._parts)) + len(self._many or b"") + self._handed_on
                self.fail("short_body", f"the connection closed after {have} bytes of the answer's body", have)
        else:
            self.fail("connection_reset", str(error) if error else "the connection closed without an answer")

    def fail(self, kind: NoAnswerKind, detail: str, received: int = 0) -> None:
        """Gives up on the answer and the connection."""
        waiter, self.waiter = self.waiter, None
        self.close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(NoAnswer(kind, detail, received))

    def close(self) -> None:
        """Ends the connection at once; it is not used again."""
        self.reusable = False
        if self.transport is not None:
            self.transport.abort()

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("a second answer to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:  # later ones are a trailer's
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        self._status = status = self._parser.get_status_code()
        headers = self._headers
        coding = headers.get("transfer-encoding", "").lower()
        self._until_close = not coding.endswith("chunked") if coding else "content-length" not in headers
        # a byte more than was asked for, so that an overlong body shows
        self._wanted = (self._bound if status == self._hoped_for else ERROR_BODY_BYTES) + 1
        if self._intake is not None and status == self._hoped_for and self._intake.begins(status, headers):
            self._takes = self._intake

    def on_body(self, data: bytes) -> None:
        self._overhead = 0
        if self._wanted > 0:
            data = data if len(data) <= self._wanted else data[: self._wanted]
            self._wanted -= len(data)
            if self._takes is not None:
                self._takes.take(data)
                self._handed_on += len(data)
                return
            self._parts.append(data)
            if len(self._parts) >= _MOST_PARTS:
                if self._many is None:
                    self._many = bytearray()
                # in its place: a sum would copy all that is there
                self._many += b"".join(self._parts)
                self._parts.clear()

    def on_message_complete(self) -> None:
        if self._status < _FIRST_FINAL_STATUS:  # an announcement such as 103: the answer is still to come
            self._status, self._headers = 0, {}
            return
        self._complete = True
        self.reusable = self._parser.should_keep_alive()

    def _has_all(self) -> bool:
        return self._complete or (self._status >= _FIRST_FINAL_STATUS and self._wanted <= 0)

    def _finish(self, *, trusted: bool) -> None:
        parts: list[bytes | bytearray] = [*([] if self._many is None else [self._many]), *self._parts]
        body = self._parts[0] if len(parts) == len(self._parts) == 1 else b"".join(parts)
        answer = Answer(self._status, self._headers, body, self._handed_on)
        waiter, self.waiter = self.waiter, None
        if not (trusted and self.reusable):
            self.close()
        self.fresh = False
        self._reset()
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)


class ConnectionPool:
    """The connections to one origin. Belongs to one event loop.

    With ``public_only`` none goes to this machine or a private network: the addresses that are looked at are the ones
    connected to.
    """

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None, timeouts: Timeouts, *, public_only: bool = False
    ) -> None:
        self._host, self._port, self._tls, self._timeouts = host, port, tls, timeouts
        self._public_only = public_only
        self._idle: deque[tuple[Connection, float]] = deque()
        self._resent = 0
        self._resent_at = 0.0
        self._alone_until = 0.0
        self._busy: set[Connection] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._resolved: tuple[float, list[Any]] | None = None

    async def get(self, request: bytes, hoped_for: int, bound: int, intake: Intake | None = None) -> Answer:
        """The answer to ``request``, which is a whole GET. Raises ``NoAnswer``."""
        connection = self._idle_connection()
        if connection is not None:
            try:
                return await self._on(connection, request, hoped_for, bound, intake)
            except NoAnswer as error:
                closed = error.kind == "connection_reset"  # and not a server that was silent, which has the request
                if not closed or connection.heard or connection.fresh or connection.deadline <= time.monotonic():
                    raise
                # the server closed the connection while it was idle: this is normal, so send the request again
                now = time.monotonic()
                self._resent = self._resent + 1 if now - self._resent_at < _FORGOTTEN_SECONDS else 1
                self._resent_at = now
                if self._resent >= _RESENT:
                    self._resent, self._alone_until = _RESENT - 1, now + _NOT_AGAIN_SECONDS
        return await self._on(await self._connect(), request, hoped_for, bound, intake)

    async def _on(
        self, connection: Connection, request: bytes, hoped_for: int, bound: int, intake: Intake | None
    ) -> Answer:
        limits = self._timeouts
        deadline = time.monotonic() + limits.total + bound / limits.slowest
        self._busy.add(connection)
        if self._watch is None:
            self._watch_later()
        try:
            return await connection.ask(request, hoped_for, bound, deadline, intake)
        except asyncio.CancelledError:
            connection.fail("connection_reset", "nobody waits for the answer any more")
            raise
        finally:
            self._busy.discard(connection)
            if connection.reusable and connection.transport is not None:
                self._idle.append((connection, time.monotonic()))
                self._close_later()

    def _idle_connection(self) -> Connection | None:
        if time.monotonic() < self._alone_until:
            # this server has a way of closing them: each request gets a connection of its own
            self._close_idle()
            return None
        while self._idle:
            connection, since = self._idle.pop()
            if connection.reusable and connection.transport is not None and time.monotonic() - since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeouts.connect):
                connected = await start_connection(await self._addresses(), happy_eyeballs_delay=0.25)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server_name = self._host if self._tls is not None else None
                _, connection = await loop.create_connection(
                    Connection, sock=connected, ssl=self._tls, server_hostname=server_name
                )
        except TimeoutError as error:
            raise NoAnswer("timeout", f"no connection to {self._host}:{self._port} in time") from error
        except (OSError, UnicodeError) as error:  # the latter for a name that no address can be asked for
            raise NoAnswer("unreachable", f"{self._host}:{self._port}: {error}") from error
        return connection

    async def _addresses(self) -> list[Any]:
        now = time.monotonic()
        if self._resolved is None or now - self._resolved[0] > _RESOLVED_SECONDS:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
            if self._public_only and not all(is_public(one[4][0]) for one in found):
                raise NoAnswer("redirected", f"{self._host} is a name of a private network's address")
            self._resolved = (now, list(found))
        return self._resolved[1]

    def _watch_later(self) -> None:
        often = max(0.02, min(self._timeouts.silence, self._timeouts.total) / 5)
        self._watch = asyncio.get_running_loop().call_later(often, self._look)

    def _look(self) -> None:
        """Ends requests that are silent or take too long; one timer serves all connections."""
        self._watch = None
        now = time.monotonic()
        for connection in tuple(self._busy):
            if connection.is_paused:
                continue
            if now - connection.active > self._timeouts.silence:
                connection.fail("timeout", f"nothing came for {self._timeouts.silence:g} s")
            elif now > connection.deadline:
                connection.fail("timeout", "the answer took too long")
        if self._busy:
            self._watch_later()

    def _close_later(self) -> None:
        if self._closing is None and self._idle:
            seconds = self._idle[0][1] + IDLE_SECONDS - time.monotonic()
            self._closing = asyncio.get_running_loop().call_later(max(0.0, seconds), self._close_old)

    def _close_old(self) -> None:
        """Closes connections that were idle for long, the oldest of which is the first."""
        self._closing = None
        while self._idle and time.monotonic() - self._idle[0][1] >= IDLE_SECONDS:
            self._idle.popleft()[0].close()
        self._close_later()

    def _close_idle(self) -> None:
        for connection, _ in self._idle:
            connection.close()
        self._idle.clear()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self._close_idle()
        for connection in tuple(self._busy):
            connection.fail("connection_reset", "the transport was closed")
