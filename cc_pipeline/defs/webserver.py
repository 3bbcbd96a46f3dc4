"""Dagster's webserver with a guard: the program of ``cc-pipeline ui``.

Dagster's own webserver checks neither Host nor Origin, runs mutations that come by GET or as a form, and asks for no
password. So any page that is open in an operator's browser could launch runs, and could read everything through a host
name of its own that resolves to this machine. The guard refuses such requests before Dagster sees them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse

from cc_pipeline.defs.internals import run_webserver
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import load_settings

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
#: Methods that change nothing, so that a link on another site may lead here.
_SAFE: Final = frozenset({"GET", "HEAD"})
#: Close code of a WebSocket that breaks a rule of its server.
_REFUSED: Final = 1008


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
    if not _only_queries(scope.get("query_string", b"")):
        return "an address may contain queries only"
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


def _only_queries(query: bytes) -> bool:
    """Whether all GraphQL operations in an address are queries."""
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name != "query":
            continue
        try:
            operations = [
                definition for definition in parse(value).definitions if isinstance(definition, OperationDefinitionNode)
            ]
        except (GraphQLError, RecursionError):
            return False
        if any(operation.operation is not OperationType.QUERY for operation in operations):
            return False
    return True


def _is_json(types: Sequence[str]) -> bool:
    # Dagster accepts "text/plain; application/json" as JSON too, and browsers send that without a preflight request
    return len(types) == 1 and types[0].partition(";")[0].strip().lower() == "application/json"


class Guard:
    """An ASGI application in front of ``app``. Raises ``UserInputError`` for invalid host names."""

    def __init__(self, app: App, hosts: Collection[str]) -> None:
        read = {host: read_authority(host) for host in hosts}
        if wrong := [host for host, authority in read.items() if authority is None]:
            raise UserInputError(f"CC_PIPELINE_UI_HOSTS: {', '.join(wrong)} is no host (example.org, example.org:8443)")
        self._app = app
        self._hosts = [authority for authority in read.values() if authority is not None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._app(scope, receive, send)
            return
        reason = find_refusal(scope, self._hosts)
        if reason is None:
            await self._app(scope, receive, _unframed(send))
        elif kind == "http":
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": f"refused: {reason}\n".encode()})
        else:
            # a server answers 403 to one that is closed before it is accepted
            await send({"type": "websocket.close", "code": _REFUSED, "reason": reason[:100]})


def _unframed(send: Send) -> Send:
    """Adds a header to each answer that forbids frames on other sites, where a person could be made to click."""

    async def with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"x-frame-options", b"SAMEORIGIN")]}
        await send(message)

    return with_header


def main() -> None:
    """Runs ``dagster-webserver`` with its own options, behind the guard."""
    hosts = load_settings().ui_hosts
    run_webserver(lambda app: Guard(app, hosts))


if __name__ == "__main__":
    main()
