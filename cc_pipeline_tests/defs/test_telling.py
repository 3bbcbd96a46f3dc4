"""What a webhook is told, and what it is never told or led to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import cc_pipeline.defs.webhook as telling
from cc_pipeline.defs.webhook import post_event
from cc_pipeline_tests.world import closed_port


@contextmanager
def listener(status: int, to: str = "") -> Iterator[tuple[str, list[tuple[str, object]]]]:
    heard: list[tuple[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((self.path, json.loads(body)))
            self.send_response(status)
            if to:
                self.send_header("Location", to)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            heard.append((self.path, None))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_one_document_is_posted() -> None:
    with listener(204) as (address, heard):
        assert post_event(f"{address}/hook?key=secret", {"event": "run failed"}) is None
    assert heard == [("/hook?key=secret", {"event": "run failed"})]


def test_without_an_address_nothing_is_sent() -> None:
    assert post_event("", {"event": "x"}) is None


def test_a_redirect_is_not_followed_and_no_answer_raises() -> None:
    with listener(200) as (elsewhere, heard_elsewhere), listener(302, f"{elsewhere}/there") as (address, heard):
        assert post_event(f"{address}/hook?key=secret", {}) == "127.0.0.1 answered 302"
        assert [path for path, _ in heard] == ["/hook?key=secret"], "asked once"
        assert heard_elsewhere == []
    with listener(500) as (address, _):
        assert post_event(address, {}) == "127.0.0.1 answered 500"
    why = post_event(f"{closed_port()}/hook?key=secret", {})
    assert why is not None
    assert "could not be reached" in why
    assert "secret" not in why, "the address may be a secret"


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "_TIMEOUT_SECONDS", 0.3)
    left_alone = threading.Event()
    ended: list[str] = []

    def drip() -> None:
        connection = server.accept()[0]
        with connection:
            connection.recv(1 << 16)
            while not left_alone.wait(0.05):
                connection.send(b"H")
        ended.append("left alone")

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/hook?key=secret"
        # without an end of its own it would read on as long as bytes come
        limit = threading.Timer(20, left_alone.set)
        limit.start()
        assert post_event(address, {}) == "127.0.0.1 did not answer in 0.3 seconds"
        assert not ended
        limit.cancel()
        left_alone.set()
        dripping.join()
