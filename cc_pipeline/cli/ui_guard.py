"""A guard in front of Dagster's webserver, for ``cc-pipeline ui``.

Dagster's own webserver checks neither Host nor Origin, runs mutations that come by GET or as a form, and asks for no
password. So any page that is open in an operator's browser could launch runs, and could read everything through a host
name of its own that resolves to this machine. The guard refuses such requests before Dagster sees them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import aiohttp
from aiohttp import web

from cc_pipeline.errors import UserInputError

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
#: Methods that change nothing, so that a link on another site may lead here.
_SAFE: Final = frozenset({"GET", "HEAD"})
#: Headers that are about one connection, or that the forwarding client writes.
_HOP_HEADERS: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length", "te", "trailer"}
)
_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)
_STOP_SECONDS: Final = 5.0


class Authority(NamedTuple):
    """A host, in lower case, and a port, ``None`` if there is none."""

    host: str
    port: int | None


def read_authority(text: str) -> Authority | None:
    """Parses host and port of ``example.org``, ``example.org:3000`` or ``[::1]:3000``; ``None`` for anything else."""
    if not text.isascii() or any(character in text for character in "/?#@\\,") or text != "".join(text.split()):
        return None
    try:
        parts = urlsplit(f"//{text}")
        return Authority(parts.hostname.rstrip("."), parts.port) if parts.hostname else None
    except ValueError:
        return None


def find_refusal(scope: Mapping[str, Any], hosts: Collection[Authority]) -> str | None:
    """Returns why a request is refused; ``None`` for an allowed one. ``hosts`` are those of the settings."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    host_headers = headers.get("host", [])
    host = read_authority(host_headers[0]) if len(host_headers) == 1 else None
    if host is None or not _is_own_host(host, scope.get("server"), hosts):
        host_text = ", ".join(host_headers) or "no host"
        return (
            f"{host_text} is not a known name of this server; if browsers use that name, add it to CC_PIPELINE_UI_HOSTS"
        )
    if not all(_is_own_origin(origin, host, hosts) for origin in headers.get("origin", [])):
        return "the request comes from a page of another site"
    method = str(scope.get("method", "WEBSOCKET"))
    if not {*headers.get("sec-fetch-site", [])} <= {"same-origin", "none"} and not _is_link(method, headers):
        return "the request comes from a page of another site"
    if _has_query(scope.get("query_string", b"")):
        return "an address may contain no GraphQL; send it by POST"
    if method not in {*_SAFE, "OPTIONS", "WEBSOCKET"} and not _is_json(headers.get("content-type", [])):
        return "a request that changes something has to be application/json"
    return None


def _is_own_host(host: Authority, server: Sequence[Any] | None, hosts: Collection[Authority]) -> bool:
    """Whether a request is addressed to this machine itself, or to a host of the settings."""
    if host.host in _LOOPBACK or any(
        allowed_host.host == host.host and allowed_host.port in (None, host.port) for allowed_host in hosts
    ):
        return True
    try:
        # an address is not a name that somebody else could resolve to this machine
        return server is not None and ipaddress.ip_address(host.host) == ipaddress.ip_address(server[0])
    except ValueError:
        return False


def _is_own_origin(origin: str, host: Authority, hosts: Collection[Authority]) -> bool:
    """Whether an origin is a page of this server, or one at a host of the settings."""
    scheme, _, authority_text = origin.partition("://")
    origin_host, usual = read_authority(authority_text), _DEFAULT_PORTS.get(scheme)
    if origin_host is None or usual is None:
        return False
    port = origin_host.port or usual
    allowed_hosts = [host, *hosts]
    return any(
        origin_host.host == allowed_host.host and port == (allowed_host.port or usual) for allowed_host in allowed_hosts
    )


def _is_link(method: str, headers: Mapping[str, list[str]]) -> bool:
    """Whether a person followed a link: the page opens in a window of its own, which the other site cannot read."""
    mode, destination = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return method in _SAFE and mode == ["navigate"] and destination == ["document"] and "origin" not in headers


def _has_query(query: bytes) -> bool:
    """Whether an address has a GraphQL operation. Dagster would run a mutation too."""
    return any(name == "query" for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))


def _is_json(types: Sequence[str]) -> bool:
    # Dagster accepts "text/plain; application/json" as JSON too, and browsers send that without a preflight request
    return len(types) == 1 and types[0].partition(";")[0].strip().lower() == "application/json"


class Guard:
    """A proxy in front of the webserver at the address ``inner``: it forwards what :func:`find_refusal` allows. Raises
    ``UserInputError`` for invalid host names."""

    def __init__(self, inner: str, hosts: Collection[str]) -> None:
        read = {host: read_authority(host) for host in hosts}
        if wrong := [host for host, authority in read.items() if authority is None]:
            raise UserInputError(f"CC_PIPELINE_UI_HOSTS: {', '.join(wrong)} is no host (example.org, example.org:8443)")
        self._inner = inner
        self._hosts = [authority for authority in read.values() if authority is not None]

    async def serve(self, port: int, ready: threading.Event, stop: asyncio.Event) -> None:
        """Answers at ``port`` of this machine until ``stop`` is set. Raises ``OSError`` if the port is taken."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        async with aiohttp.ClientSession(auto_decompress=False, timeout=_NO_TIMEOUT) as self._session:
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", port, shutdown_timeout=1.0).start()
                ready.set()
                await stop.wait()
            finally:
                await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        is_socket = request.headers.get("upgrade", "").lower() == "websocket"
        transport = request.transport
        scope = {
            "headers": request.raw_headers,
            "query_string": request.query_string.encode("latin-1", "replace"),
            "server": transport.get_extra_info("sockname") if transport is not None else None,
        } | ({} if is_socket else {"method": request.method})
        reason = find_refusal(scope, self._hosts)
        if reason is not None:
            refused = web.Response(
                status=403, text=f"refused: {reason}\n", headers={"x-content-type-options": "nosniff"}
            )
            refused.force_close()
            return refused
        try:
            return await (self._forward_socket(request) if is_socket else self._forward(request))
        except aiohttp.ClientConnectorError:
            return web.Response(status=503, text="Dagster is starting\n", headers={"refresh": "2"})

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = _without_hops(request.headers)
        body = request.content if request.can_read_body else None
        async with self._session.request(
            request.method, self._inner + request.raw_path, headers=headers, data=body, allow_redirects=False
        ) as answer:
            # no frame on another site, where a person could be made to click
            framed = _without_hops(answer.headers) | {"x-frame-options": "SAMEORIGIN"}
            response = web.StreamResponse(status=answer.status, headers=framed)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    async def _forward_socket(self, request: web.Request) -> web.WebSocketResponse:
        protocols = [word.strip() for word in request.headers.get("sec-websocket-protocol", "").split(",") if word]
        async with self._session.ws_connect(self._inner + request.raw_path, protocols=protocols) as inner:
            outer = web.WebSocketResponse(protocols=protocols)
            await outer.prepare(request)
            pumps = [asyncio.create_task(_pump(inner, outer)), asyncio.create_task(_pump(outer, inner))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            await outer.close()
        return outer


async def _pump(source: Any, sink: Any) -> None:
    """Passes the messages of one side of a WebSocket to the other."""
    async for message in source:
        await (sink.send_str if message.type is aiohttp.WSMsgType.TEXT else sink.send_bytes)(message.data)


def _without_hops(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns headers without those that are about one connection."""
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS}


@contextmanager
def serve_guarded(port: int, hosts: Collection[str]) -> Iterator[Authority]:
    """Answers at ``port`` of this machine, and yields the address where Dagster's own webserver has to listen. No page
    can guess that address. Raises ``UserInputError`` if the port is taken, or for invalid host names."""
    inner = Authority(_draw_loopback(), _find_free_port())
    guard = Guard(f"http://{inner.host}:{inner.port}", hosts)
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    faults: list[OSError] = []

    def run() -> None:
        try:
            loop.run_until_complete(guard.serve(port, ready, stop))
        except OSError as error:
            faults.append(error)
            ready.set()

    thread = threading.Thread(target=run, name="cc-pipeline-ui", daemon=True)
    thread.start()
    ready.wait()
    if faults:
        raise UserInputError(f"the port {port} cannot be used ({faults[0].strerror}); choose another one with --port")
    try:
        yield inner
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_STOP_SECONDS)


def _draw_loopback() -> str:
    """Returns an address of this machine: on Linux one of 16 million, so that a page cannot try all of them."""
    if not sys.platform.startswith("linux"):
        return "127.0.0.1"
    return "127." + ".".join(str(1 + secrets.randbelow(254)) for _ in range(3))


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
