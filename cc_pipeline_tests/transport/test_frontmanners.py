"""The manners of the test server are those it is given, and a plain one has none."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline_tests.faultserver import FaultServer, FaultServerProcess
from cc_pipeline_tests.frontmanners import CLOUDFRONT, Front, Manners, Request, Wave

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


def test_a_plain_server_answers_as_s3_does(server: FaultServer) -> None:
    status, headers, body = ask(server.port, asked="bytes=-10")
    assert (status, headers["content-range"], body) == (206, "bytes 990-999/1000", CONTENT[-10:])
    assert headers["etag"].endswith('-1"')
    assert "via" not in headers
    assert ask(server.port, asked="bytes=-10")[1]["etag"] == headers["etag"]
    status, headers, body = ask(server.port, "nothing")
    assert (status, headers["content-type"]) == (404, "application/xml")
    assert b"NoSuchKey" in body


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


def test_ranges_that_servers_answer_otherwise(server: FaultServer) -> None:
    server.set_manners(Manners(suffixes="whole"))
    assert ask(server.port, asked="bytes=-10")[::2] == (200, CONTENT)
    assert ask(server.port, asked="bytes=5-9")[::2] == (206, CONTENT[5:10])
    server.set_manners(Manners(suffixes="refused"))
    assert ask(server.port, asked="bytes=-10")[0] == 416
    server.set_manners(Manners(totals=False))
    assert ask(server.port, asked="bytes=5-9")[1]["content-range"] == "bytes 5-9/*"


def test_etags(server: FaultServer) -> None:
    def seen(etags: str) -> list[str | None]:
        server.set_manners(Manners(etags=etags))
        return [ask(server.port)[1].get("etag") for _ in range(4)]

    first, second, *again = seen("two")
    assert first != second
    assert again == [first, second]
    [weak] = set(seen("weak"))
    assert weak is not None
    assert weak.startswith('W/"')
    assert set(seen("none")) == {None}


def test_an_index_without_archives(server: FaultServer) -> None:
    server.set_manners(Manners(archives=False))
    assert ask(server.port, KEY)[0] == 404
    assert ask(server.port, LIST)[0] == 200


def test_answers_are_cut(server: FaultServer) -> None:
    server.set_manners(Manners(cut_every=2))
    assert ask(server.port)[2] == CONTENT
    with pytest.raises(http.client.IncompleteRead):
        ask(server.port)
    assert [hit.fault for hit in server.hits] == [None, "cut"]


def test_bytes_come_slowly_and_whole(server: FaultServer) -> None:
    server.set_manners(Manners(bytes_per_second=4_000))
    assert ask(server.port)[2] == CONTENT


def test_an_address_that_asks_too_often_is_refused_alone(server: FaultServer) -> None:
    server.set_manners(Manners(front=True, most=3, refused=600))
    assert [ask(server.port)[0] for _ in range(5)] == [200, 200, 200, 403, 403]
    status, headers, body = ask(server.port, "nothing")
    assert (status, headers["content-type"], headers["x-cache"]) == (403, "text/html", "Error from cloudfront")
    assert body.startswith(b"<html>")
    assert [hit.fault for hit in server.hits] == [None] * 3 + ["refused"] * 3
    assert ask(server.port, address="127.0.0.2")[0] == 200


def test_a_refusal_ends_and_comes_again_as_often_as_it_may() -> None:
    moments: list[float] = []
    front = Front(Manners(most=2, window=10, refused=30, waves=2), clock=lambda: moments[-1])

    def refused(*times: float) -> list[bool]:
        return [moments.append(at) or front.is_blocked(Request("k", address="a")) for at in times]

    assert refused(0, 11, 22) == [False] * 3, "two in ten seconds are not too many"
    assert refused(23, 24, 53.9) == [False, True, True]
    assert refused(54, 55, 56, 85) == [False, False, True, True]
    assert refused(90, 90, 90, 90) == [False] * 4, "two waves are all there are"


def test_a_plain_server_refuses_nobody() -> None:
    front = Front(clock=lambda: 0.0)
    assert not any(front.refuse(Request("k", address="a")) for _ in range(1000))


def test_a_sliding_window_counts_what_it_refuses() -> None:
    moments: list[float] = []
    front = Front(Manners(most=3, window=10, sliding=True), clock=lambda: moments[-1])

    def blocked(*times: float) -> list[bool]:
        return [moments.append(at) or front.is_blocked(Request("k", address="a")) for at in times]

    assert blocked(0, 1, 2, 3) == [False, False, False, True]
    assert blocked(10.5, 11.5, 12.5, 13.5) == [True] * 4, "who goes on asking is refused longer"
    assert blocked(24) == [False]
    assert not front.is_blocked(Request("k", address="b"))


def test_a_firewall_that_looks_now_and_then_sees_late() -> None:
    moments: list[float] = []
    front = Front(Manners(most=2, window=10, sliding=True, check_every=5), clock=lambda: moments[-1])
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


@pytest.mark.parametrize("status", [503, 403])
def test_a_wave_comes_once_and_passes(status: int) -> None:
    now = 0.0
    front = Front(Manners(wave=Wave(2, 10.0, status, "*.gz")), clock=lambda: now)

    def ask_front(key: str) -> int | None:
        refusal = front.refuse(Request(key))
        return None if refusal is None else refusal[0][0]

    assert [ask_front(key) for key in ("a", "b", "a.gz", "b.gz")] == [None] * 4
    assert [ask_front(key) for key in ("a", "a.gz")] == [status] * 2
    now = 10.1
    assert [ask_front("a.gz") for _ in range(5)] == [None] * 5


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


def test_manners_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="loud"):
        Manners(etags="loud")


def test_the_process_has_manners_too(tmp_path: Path) -> None:
    manners = Manners(missing="html", front=True, wave=Wave(1, 600.0))
    with FaultServerProcess(tmp_path, manners=manners) as server:
        assert ask(server.port, "nothing")[1]["content-type"] == "text/html"
        assert ask(server.port, "nothing")[0] == 503
