"""Manners of the test server that no test would miss where they did nothing."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.frontmanners import CLOUDFRONT, Front, Manners, Request

CONTENT = bytes(range(250)) * 4
KEY = "crawl-data/CC-MAIN-2024-22/segments/1/warc/a.warc.gz"
LIST = "crawl-data/CC-MAIN-2024-22/warc.paths.gz"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FaultServer]:
    for key in (KEY, LIST):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(CONTENT)
    with FaultServer(tmp_path) as server:
        yield server


def ask(
    port: int, key: str = KEY, asked: str | None = None, address: str = "127.0.0.1"
) -> tuple[int, dict[str, str], bytes]:
    """One request from an address of this machine; headers with lower-case names."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(address, 0))) as connection:
        connection.request("GET", f"/{key}", headers={} if asked is None else {"Range": asked})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def test_cloudfront_is_told_by_its_headers(server: FaultServer) -> None:
    server.set_manners(replace(CLOUDFRONT, latency=0.0))
    status, headers, _ = ask(server.port, asked="bytes=0-9")
    assert status == 206
    assert (headers["server"], headers["x-cache"]) == ("AmazonS3", "Miss from cloudfront")
    assert {"via", "x-amz-cf-pop", "accept-ranges"} <= set(headers)
    assert headers["etag"].endswith('-15"')
    status, headers, body = ask(server.port, "nothing")
    assert (status, headers["content-type"], headers["x-cache"]) == (404, "text/html", "Error from cloudfront")
    assert body.startswith(b"<html>")


def test_a_sliding_window_counts_what_it_refuses() -> None:
    moments: list[float] = []
    front = Front(Manners(most=3, window=10), clock=lambda: moments[-1])

    def blocked(*times: float) -> list[bool]:
        return [moments.append(at) or front.is_blocked(Request("k", address="a")) for at in times]

    assert blocked(0, 1, 2, 3) == [False, False, False, True]
    assert blocked(10.5, 11.5, 12.5, 13.5) == [True] * 4, "who goes on asking is refused longer"
    assert blocked(24) == [False]
    assert not front.is_blocked(Request("k", address="b"))


def test_a_firewall_that_looks_now_and_then_sees_late() -> None:
    moments: list[float] = []
    front = Front(Manners(most=2, window=10, check_every=5), clock=lambda: moments[-1])
    blocked = [moments.append(at) or front.is_blocked(Request("k", address="a")) for at in (0, 1, 2, 4, 5, 9, 16, 30)]
    assert blocked == [False, False, False, False, True, True, False, False]


def test_an_address_with_too_many_connections_is_refused(server: FaultServer) -> None:
    server.set_manners(Manners(max_connections=1, refused=600))
    assert ask(server.port)[0] == 200
    with socket.create_connection(("127.0.0.1", server.port)):
        assert ask(server.port)[0] == 403
    assert ask(server.port)[0] == 403
    assert ask(server.port, address="127.0.0.2")[0] == 200


def test_lone_503_come_by_chance_and_again_from_the_same_seed() -> None:
    def drawn(seed: int) -> list[bool]:
        front = Front(Manners(lone_503=0.1, seed=seed))
        return [front.refuse(Request("k")) is not None for _ in range(2_000)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert 160 < sum(drawn(1)) < 240
    reply, fault = Front(Manners(lone_503=1.0, front=True)).refuse(Request("k")) or ((0, {}, b""), "")
    assert (reply[0], reply[1]["X-Cache"], fault) == (503, "Error from cloudfront", "lone_503")
    assert b"SlowDown" in reply[2]


def test_one_index_file_in_ten_comes_whole(server: FaultServer, tmp_path: Path) -> None:
    server.set_manners(Manners(whole_objects=0.1))
    keys = [f"cc-index/f{number}" for number in range(100)]
    (tmp_path / "cc-index").mkdir()
    for key in keys:
        (tmp_path / key).write_bytes(CONTENT)
    first, second = ([ask(server.port, key, asked="bytes=5-9")[0] for key in keys] for _ in range(2))
    assert first == second, "the same objects each time"
    assert set(first) == {200, 206}
    assert 3 <= first.count(200) <= 20
