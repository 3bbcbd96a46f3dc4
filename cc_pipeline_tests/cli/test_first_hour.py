"""What a first command says of a network that does not let it through: each cause has an advice of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import Cli
from cc_pipeline_tests.world import closed_port

NOWHERE = "http://data.cc-pipeline.invalid"


@contextmanager
def network(status: int) -> Iterator[str]:
    """A proxy, or a network in front of the source, that answers everything itself with HTML."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = b"<!DOCTYPE html><title>Please sign in</title>"
            self.send_response(status)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def crawls(cli: Cli, home: Path, source: str) -> str:
    said = cli("crawls", "--source", source, "--home", home)
    assert said.status == 1
    return said.told


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("a proxy with a password", "answers with status 407) after 2 attempts) what to do: Check HTTPS_PROXY"),
        ("a dead proxy", "takes no connection (Connect call failed"),
        ("no such host", "what to do: Check the spelling of CC_PIPELINE_SOURCE. If it is right, this machine is off"),
        ("a sign-in", "the network sends pages of its own: sign in to it in a browser"),
    ],
)
def test_each_cause_has_its_advice(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str, advice: str
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with network(407 if cause.startswith("a proxy") else 200) as address:
        if "proxy" in cause:
            monkeypatch.setenv("http_proxy", closed_port() if cause.startswith("a dead") else address)
        said = crawls(cli, tmp_path / "home", address if cause == "a sign-in" else NOWHERE)
    assert advice in said
    assert "A crawl that you name (--crawl CC-MAIN-2024-22) needs no list." in said
