"""The client's GET against servers that say odd things, byte by byte."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer, NoAnswer, Timeouts
from cc_pipeline.stores.web import HttpClient, HttpStore

#: Long enough for an answer on a busy machine.
PATIENT = Timeouts(connect=20, silence=20, window=40, slowest=1_000_000)
#: Where nothing but a timeout ends what is tested.
QUICK = Timeouts(connect=5, silence=0.5, window=1.0, slowest=1_000_000)
#: In a script: the connection is reset.
RESET = -1.0
Script = Callable[[int, int], list[bytes | float | None]]


class Server:
    """Answers each request with what its script gives for (connection, request).

    Bytes are sent, numbers are seconds to wait, ``None`` closes the connection.
    """

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.tls = tls
        self.connections = 0
        self.heads: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, self.connections = self.connections, self.connections + 1
        try:
            for number in range(100):
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                for piece in self.script(connection, number):
                    if piece is None:
                        return
                    if piece == RESET:
                        linger = struct.pack("ii", 1, 0)
                        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                        writer.transport.abort()
                        return
                    if isinstance(piece, float):
                        await asyncio.sleep(piece)
                    else:
                        writer.write(piece)
                        await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    @asynccontextmanager
    async def run(self, timeouts: Timeouts = PATIENT) -> AsyncIterator[tuple[str, HttpClient]]:
        server = await asyncio.start_server(self.talk, "127.0.0.1", 0, ssl=self.tls)
        port = server.sockets[0].getsockname()[1]
        client = HttpClient("tester/1 (+Łukasz)", timeouts)
        try:
            yield f"{'https' if self.tls else 'http'}://127.0.0.1:{port}", client
        finally:
            await client.close()
            server.close()


def answer_of(
    *pieces: bytes | float | None, bound: int = 10, hoped_for: int = 200, timeouts: Timeouts = PATIENT
) -> Answer:
    async def work() -> Answer:
        async with Server(lambda connection, number: list(pieces)).run(timeouts) as (url, client):
            return await client.ask("GET", f"{url}/x", {}, hoped_for=hoped_for, bound=bound)

    return asyncio.run(work())


HEAD = b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "e"\r\n\r\n'


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ((None,), "connection_reset"),
        ((b"HTTP/1.1 200 OK\r\nContent-", None), "connection_reset"),
        ((b"HTTP/1.1 abc\r\n\r\n",), "connection_reset"),
        ((b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,), "connection_reset"),
        ((HEAD + b"hel", None), "short_body"),
        ((HEAD + b"hel", 0.05, RESET), "connection_reset"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello", None), "short_body"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello",), "connection_reset"),
        ((HEAD + b"hello and more than announced",), "connection_reset"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n" * 3000,), "timeout"),
        ((HEAD + b"hel", 5.0), "timeout"),
        ((5.0,), "timeout"),
        (tuple(piece for n in range(20) for piece in (b"HTTP/1.1 200 OK\r\n"[n : n + 1], 0.15)), "timeout"),
    ],
)
def test_broken_conversations_are_named(pieces: tuple[bytes | float | None, ...], kind: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        answer_of(*pieces, timeouts=QUICK if kind == "timeout" else PATIENT)
    assert raised.value.kind == kind


def test_bodies_are_cut_at_their_bound() -> None:
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000)
    assert len(answer_of(long, bound=10).body) == 11
    assert len(answer_of(long, bound=10, hoped_for=206).body) == ERROR_BODY_BYTES + 1
    assert len(answer_of(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1_000_000), None, bound=10).body) == 11
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + bytes(0xFFFFF)
    assert len(answer_of(chunked, bound=10).body) == 11


def ask_in_turn(script: Script, times: int, timeouts: Timeouts = PATIENT) -> tuple[list[Answer | NoAnswer], Server]:
    server = Server(script)

    async def work() -> list[Answer | NoAnswer]:
        answers: list[Answer | NoAnswer] = []
        async with server.run(timeouts) as (url, client):
            for _ in range(times):
                try:
                    answers.append(await client.ask("GET", f"{url}/x", {}, hoped_for=200, bound=10))
                except NoAnswer as error:
                    answers.append(error)
        return answers

    return asyncio.run(work()), server


def bodies(answers: list[Answer | NoAnswer]) -> list[bytes]:
    return [answer.body if isinstance(answer, Answer) else answer.kind.encode() for answer in answers]


def test_connections_are_used_again() -> None:
    answers, server = ask_in_turn(lambda connection, number: [HEAD + b"hello"], 5)
    assert bodies(answers) == [b"hello"] * 5
    assert server.connections == 1
    assert server.heads[0].startswith(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "User-Agent: tester/1 (+Łukasz)\r\n".encode() in server.heads[0]


@pytest.mark.parametrize(("later", "kind"), [(None, b"connection_reset"), (9.0, b"timeout")])
def test_a_used_connection_that_ends_or_is_silent_gets_no_request_twice(later: float | None, kind: bytes) -> None:
    # the budget would not count it: the transport is told, and asks again
    timeouts = PATIENT if later is None else QUICK
    answers, server = ask_in_turn(lambda connection, number: [later if number else HEAD + b"hello"], 2, timeouts)
    assert bodies(answers) == [b"hello", kind]
    assert (len(server.heads), server.connections) == (2, 1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", str(path) + ".crt"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl cannot make a certificate here: {error}")
    path.write_bytes(path.read_bytes() + Path(str(path) + ".crt").read_bytes())
    return path


@pytest.mark.parametrize("trusted", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", ""])
def test_tls_is_verified(certificate: Path, monkeypatch: pytest.MonkeyPatch, trusted: str) -> None:
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    if trusted:
        monkeypatch.setenv(trusted, str(certificate) + ".crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def work() -> Answer:
        server = Server(lambda connection, number: [HEAD + b"hello"], context)
        async with server.run() as (url, client):
            return await client.ask("GET", f"{url}/x", {}, hoped_for=200, bound=10)

    if trusted:
        assert asyncio.run(work()).body == b"hello"
        return
    with pytest.raises(NoAnswer) as raised:
        asyncio.run(work())
    assert raised.value.kind == "unreachable"
    assert "certificate" in raised.value.detail.lower()


def test_a_folder_is_escaped_and_a_host_spelt_as_the_network_knows_it() -> None:
    store = HttpStore("https://Bücher.example/my földer/a%20b/", HttpClient("tester/1", QUICK))
    assert store.url("x y") == "https://xn--bcher-kva.example/my%20f%C3%B6lder/a%20b/x%20y"
    assert store.host == "xn--bcher-kva.example"


def test_a_host_no_address_can_be_asked_for_is_unreachable() -> None:
    async def work() -> None:
        client = HttpClient("tester/1", QUICK)
        with pytest.raises(NoAnswer) as raised:
            await client.ask("GET", "http://a..b/x", {}, hoped_for=200, bound=10)
        assert raised.value.kind == "unreachable"
        await client.close()

    asyncio.run(work())
