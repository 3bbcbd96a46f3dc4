"""The manners of the test server are those it is given, and a plain one has none."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline_tests.faultserver import FaultServer, FaultServerProcess
from cc_pipeline_tests.frontmanners import CLOUDFRONT, Front, Manners

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
        return [moments.append(at) or front.refuses("a") for at in times]

    assert refused(0, 11, 22) == [False] * 3, "two in ten seconds are not too many"
    assert refused(23, 24, 53.9) == [False, True, True]
    assert refused(54, 55, 56, 85) == [False, False, True, True]
    assert refused(90, 90, 90, 90) == [False] * 4, "two waves are all there are"


def test_a_plain_server_refuses_nobody() -> None:
    front = Front(clock=lambda: 0.0)
    assert not any(front.refuses("a") for _ in range(1000))


def test_manners_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="loud"):
        Manners(etags="loud")


def test_the_process_has_manners_too(tmp_path: Path) -> None:
    with FaultServerProcess(tmp_path, manners=Manners(missing="html", front=True)) as server:
        assert ask(server.port, "nothing")[1]["content-type"] == "text/html"
