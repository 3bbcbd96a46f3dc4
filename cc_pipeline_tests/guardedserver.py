"""Serves a folder over HTTP on loopback to those who show credentials, and keeps each request's line and headers."""

from __future__ import annotations

import base64
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote, urlsplit

_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    target: str
    headers: dict[str, str]
    status: int


@dataclass(slots=True)
class GuardedServer:
    """``user`` and ``password`` are wanted as Basic authorization, ``query`` behind each address, where given.

    A key in ``moved`` is answered with a redirect to its value.
    """

    root: Path
    user: str = ""
    password: str = ""
    query: str = ""
    moved: dict[str, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None

    def __enter__(self) -> GuardedServer:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def place(self) -> str:
        """Host and port."""
        assert self._server is not None
        return f"127.0.0.1:{self._server.server_port}"

    def answer(self, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(target)
        key = unquote(parts.path).lstrip("/")
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        if self.user and headers.get("authorization") != f"Basic {pair}":
            return 401, {"WWW-Authenticate": "Basic"}, b""
        if parts.query != self.query:
            return 403, {}, b""
        if key in self.moved:
            return 302, {"Location": self.moved[key]}, b""
        path = self.root / key
        return (404, {}, b"") if not path.is_file() else _part(path.read_bytes(), headers.get("range", ""))


def _part(data: bytes, asked: str) -> tuple[int, dict[str, str], bytes]:
    match = _RANGE.match(asked)
    if match is None:
        return 200, {}, data
    first, last = match.groups()
    start = int(first) if first else max(0, len(data) - int(last))
    stop = min(len(data), int(last) + 1) if first and last else len(data)
    if start >= stop:
        return 416, {"Content-Range": f"bytes */{len(data)}"}, b""
    return 206, {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}, data[start:stop]


def _handler(server: GuardedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, fields, body = server.answer(self.path, headers)
            server.asked.append(Asked(self.path, headers, status))
            with suppress(OSError):
                self.send_response(status)
                for name, value in (fields | {"Content-Length": str(len(body))}).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    return Handler
