"""Serves a folder over HTTP on loopback, with scripted latency and faults, and counts what it was asked. It is a proxy
for HTTPS, too.

Two ways to run it: ``FaultServer`` on a thread of the test (its ``hits`` can be read at any time), and
``FaultServerProcess`` as a process of its own (for benchmarks, and for clients that are killed).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cc_pipeline_tests.faultbodies import BODY_FAULTS, error_xml
from cc_pipeline_tests.faultlies import LIES, is_archive
from cc_pipeline_tests.faultlink import Link
from cc_pipeline_tests.frontmanners import Front, Manners, Request

#: Answers with that status and an error body.
STATUS_FAULTS = {"403": 403, "404": 404, "416": 416, "429": 429, "500": 500, "503": 503}
#: The conversation itself goes wrong.
WIRE_FAULTS = frozenset({"reset", "stall", "drip", "cut"})
#: The head says something wrong, or the wrong thing is sent with a right head.
HEAD_FAULTS = frozenset(
    {"short", "long", "empty", "whole_object", "xml_200", "wrong_range", "no_range", "changed_etag"}
)
FAULT_KINDS: tuple[str, ...] = tuple(sorted({*STATUS_FAULTS, *WIRE_FAULTS, *HEAD_FAULTS, *BODY_FAULTS}))
#: Manners that are no faults: a server that cannot do something, says no total, or sends on to another.
MANNERS = frozenset({"501", "unknown_total", "redirect"})

#: Seconds between two looks of an answer that is held.
_HELD_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Rule:
    """``kind`` happens to requests of keys that match ``key`` (shell pattern).

    ``share`` of the distinct (key, range) pairs are hit, always the same ones; each at most ``times`` times
    (``None``: always), or each key at most so often when ``by_key``. ``retry_after`` goes into the header of
    429 and 503, ``bytes_per_second`` is for ``drip``, ``to`` the address (``{key}`` in it) of a ``redirect``.
    ``LIES`` happen to archive files alone, whatever ``key`` says.
    ``ranges`` are patterns of the header that asks for one.
    """

    kind: str
    key: str = "*"
    share: float = 1.0
    times: int | None = 1
    retry_after: int | None = None
    bytes_per_second: int = 200
    ranges: tuple[str, ...] = ()
    by_key: bool = False
    to: str = ""

    def __post_init__(self) -> None:
        if self.kind not in {*FAULT_KINDS, *LIES, *MANNERS}:
            raise ValueError(f"{self.kind!r} is not one of {', '.join((*FAULT_KINDS, *LIES))}")

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Rule:
        """The rule that ``dataclasses.asdict`` made ``fields`` of."""
        return cls(**{**fields, "ranges": tuple(fields.get("ranges", ()))})


@dataclass(frozen=True, slots=True)
class Hit:
    """One request: when it was read (seconds since the epoch), what for, what it got. Header names are in lower
    case."""

    at: float
    method: str
    key: str
    range: str | None
    status: int
    fault: str | None
    body_bytes: int
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""

    @property
    def agent(self) -> str:
        return self.headers.get("user-agent", "")

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")


@dataclass(slots=True)
class Scene:
    """What a server serves, and what happened so far. ``bandwidth`` is of its link in bits per second. Nobody
    gets an answer about keys that match ``held`` (shell pattern) before it is another one."""

    root: Path
    latency: float = 0.0
    held: str = ""
    rules: tuple[Rule, ...] = ()
    hits: list[Hit] = field(default_factory=list)
    log: Path | None = None
    bandwidth: float | None = None
    front: Front = field(default_factory=Front)
    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def fault_for(self, key: str, asked: str) -> Rule | None:
        for rule in self.rules:
            if not fnmatchcase(key, rule.key):
                continue
            if rule.kind in LIES and not is_archive(key):
                continue
            if rule.ranges and asked not in rule.ranges and not any(fnmatchcase(asked, one) for one in rule.ranges):
                continue
            if rule.share < 1 and zlib.crc32(f"{rule.kind} {key} {asked}".encode()) % 10_000 >= rule.share * 10_000:
                continue
            if rule.times is not None:
                counted = (rule.kind, key, "" if rule.by_key else asked)
                self.seen[counted] += 1
                if self.seen[counted] > rule.times:
                    continue
            return rule
        return None


_REASONS = {200: "OK", 206: "Partial Content", 403: "Forbidden", 404: "Not Found", 416: "Range Not Satisfiable"}


class _Connection(asyncio.Protocol):
    def __init__(self, scene: Scene, connections: set[asyncio.BaseTransport], link: Link | None) -> None:
        self._scene = scene
        self._link = link
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._tunnel: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport
        self._connections.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._connections.discard(self._transport)
        if self._tunnel is not None:
            self._tunnel.close()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.write(data)
            return
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
            at = time.time()
            if latency := self._scene.latency or self._scene.front.manners.latency:
                self._loop.call_later(latency, self._answer, head, at)
            else:
                self._answer(head, at)

    def _answer(self, head: bytes, at: float) -> None:
        if self._transport is None:
            return
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        if method == "CONNECT":
            self._loop.create_task(self._open_tunnel(target, at))
            return
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        key = unquote(target.split("?", 1)[0]).lstrip("/")
        if fnmatchcase(key, self._scene.held):
            self._loop.call_later(_HELD_SECONDS, self._answer, head, at)
            return
        query = target.partition("?")[2]
        address = self._transport.get_extra_info("peername")[0]
        request = Request(key, headers, address, query)
        status, fields, body, cut, rule, fault = self._reply(request)
        self._keep(Hit(at, method, key, headers.get("range"), status, fault, len(body), headers, query))
        if rule is not None and rule.kind == "stall":
            return
        fields.setdefault("Content-Length", str(len(body)))
        fields["Content-Type"] = fields.get("Content-Type", "application/octet-stream")
        top = f"HTTP/1.1 {status} {_REASONS.get(status, 'Odd')}\r\n" + "".join(
            f"{k}: {v}\r\n" for k, v in fields.items()
        )
        self._send(top.encode("latin-1") + b"\r\n", b"" if method == "HEAD" else body, rule, cut)

    def _keep(self, hit: Hit) -> None:
        self._scene.hits.append(hit)
        if self._scene.log is not None:
            with open(self._scene.log, "a") as log:
                log.write(json.dumps(asdict(hit)) + "\n")

    async def _open_tunnel(self, target: str, at: float) -> None:
        """Joins this connection with one to ``target`` (host and port), as a proxy does."""
        assert self._transport is not None
        host, _, port = target.rpartition(":")
        self._tunnel, _ = await self._loop.create_connection(lambda: _FarEnd(self._transport), host, int(port))
        self._keep(Hit(at, "CONNECT", target, None, 200, None, 0))
        self._transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    def _reply(self, request: Request) -> tuple[int, dict[str, str], bytes, int | None, Rule | None, str | None]:
        """Status, headers, body, after how many bytes of it the connection ends; the rule, and what went wrong."""
        scene, front = self._scene, self._scene.front
        if (refusal := front.refuse(request)) is not None:
            reply, fault = refusal
            return *reply, None, None, fault
        key, asked = request.key, request.headers.get("range")
        rule = scene.fault_for(key, asked or "")
        lie = rule.kind if rule is not None and rule.kind in LIES else None
        status, fields, body = front.reply(scene.root, key, asked, lie)
        if rule is not None:
            return *_spoil(scene, rule, key, status, fields, body), rule, rule.kind
        return status, fields, body, None, None, None

    def _send(self, top: bytes, body: bytes, rule: Rule | None, cut: int | None) -> None:
        assert self._transport is not None
        if rule is not None and rule.kind == "drip":
            self._transport.write(top)
            self._drip(body, max(1, rule.bytes_per_second // 10))
            return
        if rule is None and self._link is not None:
            self._link.send(self._transport, top + body)
            return
        self._transport.write(top + body[:cut])
        if rule is not None and rule.kind == "cut":
            self._transport.close()
        elif rule is not None and rule.kind == "reset":
            connection = self._transport.get_extra_info("socket")
            # lingering for no time makes closing send RST instead of FIN
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._loop.call_later(0.01, self._transport.abort)

    def _drip(self, body: bytes, portion: int) -> None:
        if self._transport is None:
            return
        self._transport.write(body[:portion])
        if len(body) > portion:
            self._loop.call_later(0.1, self._drip, body[portion:], portion)


class _FarEnd(asyncio.Protocol):
    """The other end of a tunnel: hands on what comes to ``near``."""

    def __init__(self, near: asyncio.Transport | None) -> None:
        self._near = near

    def data_received(self, data: bytes) -> None:
        if self._near is not None:
            self._near.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._near is not None:
            self._near.close()


def _spoil(
    scene: Scene, rule: Rule, key: str, status: int, fields: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes, int | None]:
    """The answer with the rule's fault in it, and after how many body bytes the connection ends."""
    kind = rule.kind
    if kind in STATUS_FAULTS:
        fields = {"Content-Type": "application/xml"}
        if rule.retry_after is not None:
            fields["Retry-After"] = str(rule.retry_after)
        code = {"503": "SlowDown", "429": "SlowDown", "403": "AccessDenied", "404": "NoSuchKey"}.get(
            kind, "InternalError"
        )
        return STATUS_FAULTS[kind], fields, error_xml(code), None
    if kind == "501":
        return 501, {}, b"", None
    if kind == "redirect":
        return 302, {"Location": rule.to.replace("{key}", key)}, b"over there", None
    if kind in ("cut", "reset"):
        return status, fields, body, len(body) // 2
    if kind == "short":
        return status, fields, body[: len(body) // 2], None
    if kind == "long":
        return status, fields, body + b"overlong" * 4, None
    if kind == "empty":
        return status, fields, b"", None
    if kind == "whole_object":
        return 200, {"ETag": fields.get("ETag", "")}, (scene.root / key).read_bytes(), None
    if kind == "xml_200":
        return 200, {"Content-Type": "application/xml"}, error_xml("SlowDown"), None
    if kind == "wrong_range":
        numbers = [int(number) for number in re.findall(r"\d+", fields.get("Content-Range", "0-0/1"))]
        fields["Content-Range"] = f"bytes {numbers[0] + 1}-{numbers[1] + 1}/{numbers[-1] + 1}"
    elif kind == "unknown_total" and status == 206:
        fields["Content-Range"] = fields["Content-Range"].rpartition("/")[0] + "/*"
    elif kind == "no_range":
        fields.pop("Content-Range", None)
    elif kind == "changed_etag":
        fields["ETag"] = f'"{random.getrandbits(64):016x}"'
    elif kind in BODY_FAULTS:
        body = BODY_FAULTS[kind](body)
    return status, fields, body, None


async def _serve(
    scene: Scene, port: int, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> tuple[asyncio.Server, set[asyncio.BaseTransport]]:
    loop = asyncio.get_running_loop()
    connections: set[asyncio.BaseTransport] = set()
    link = None if scene.bandwidth is None else Link(scene.bandwidth)
    server = await loop.create_server(
        lambda: _Connection(scene, connections, link), address, port, backlog=1024, ssl=tls
    )
    return server, connections


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415  # optional
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class FaultServer:
    """A context manager: ``with FaultServer(folder, rules=[…]) as server: Transport(server.url)``.

    ``port`` is that of a server of before, which is to be back. ``manners`` can be changed with ``set_manners``.
    ``address`` is one of this machine's own, ``tls`` for HTTPS, ``log`` as of ``FaultServerProcess``.
    """

    def __init__(
        self,
        root: Path,
        *,
        latency: float = 0.0,
        rules: Iterable[Rule] = (),
        port: int = 0,
        manners: Manners | None = None,
        address: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        log: Path | None = None,
    ) -> None:
        self.scene = Scene(root, latency, rules=tuple(rules), log=log, front=Front(manners or Manners()))
        self._address, self._tls = address, tls
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faultserver", daemon=True)
        self.port = port

    @property
    def hits(self) -> list[Hit]:
        return self.scene.hits

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def set_rules(self, rules: Iterable[Rule]) -> None:
        self.scene.rules = tuple(rules)
        self.scene.seen.clear()

    def set_manners(self, manners: Manners) -> None:
        self.scene.front = Front(manners)

    def __enter__(self) -> FaultServer:
        self._thread.start()
        self._server, self._connections = asyncio.run_coroutine_threadsafe(
            _serve(self.scene, self.port, self._address, self._tls), self._loop
        ).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            self._server.close()
            for connection in tuple(self._connections):
                connection.abort()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def read_hits(log: Path) -> list[Hit]:
    """The requests that a server has written to its log, none where there is no log yet."""
    return [Hit(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


class FaultServerProcess:
    """The same in a process of its own. ``hits()`` reads its log (only when ``logged``; logging costs time)."""

    def __init__(
        self,
        root: Path,
        *,
        latency: float = 0.0,
        rules: Sequence[Rule] = (),
        log: Path | None = None,
        bandwidth: float | None = None,
    ) -> None:
        self._log = log
        arguments = [sys.executable, "-m", "cc_pipeline_tests.faultserver", str(root), "--latency", str(latency)]
        arguments += ["--rules", json.dumps([asdict(rule) for rule in rules])]
        if log is not None:
            arguments += ["--log", str(log)]
        if bandwidth is not None:
            arguments += ["--bandwidth", str(bandwidth)]
        self._arguments = arguments
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def hits(self) -> list[Hit]:
        return [] if self._log is None else read_hits(self._log)

    def __enter__(self) -> FaultServerProcess:
        root = Path(__file__).resolve().parents[1]
        self._process = subprocess.Popen(self._arguments, stdout=subprocess.PIPE, cwd=root, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def main() -> None:
    """``python -m cc_pipeline_tests.faultserver FOLDER``: prints its port and serves until it is killed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--rules", default="[]", help="JSON list of rules")
    parser.add_argument("--log", type=Path, help="write one JSON line per request here")
    parser.add_argument("--bandwidth", type=float, help="bits per second that all answers together may take")
    given = parser.parse_args()
    rules = tuple(map(Rule.from_json, json.loads(given.rules)))
    scene = Scene(given.root, given.latency, rules=rules, log=given.log, bandwidth=given.bandwidth)
    loop = _new_loop()
    server, _ = loop.run_until_complete(_serve(scene, given.port))
    print(server.sockets[0].getsockname()[1], flush=True)
    loop.run_forever()


if __name__ == "__main__":
    main()
