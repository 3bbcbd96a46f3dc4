"""``get``: one page nearest to a date, what it asks for, and that a home that has it asks for nothing."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.testing.mini_crawl import Capture
from cc_pipeline_tests.cli.conftest import ARC, NEW, OLD, Cli, World
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import announce, copy_of, rehome, replace_file

pytestmark = pytest.mark.xdist_group("cli")

#: Requests of a page's first lookup in a crawl, everything included: the list of crawls, the index, the record.
MOST_2012, MOST_MODERN = 8, 18


@pytest.fixture
def server(world: World) -> Iterator[FaultServer]:
    with FaultServer(world.bucket) as server:
        yield server


@pytest.fixture(autouse=True)
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a home, and caches of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def pages(world: World, crawl: str) -> dict[str, list[Capture]]:
    """Captures of whole HTML pages by key."""
    found: dict[str, list[Capture]] = {}
    for capture in world.truth.captures_of(crawl, subset="warc"):
        found.setdefault(capture.url_surtkey, []).append(capture)
    return {key: some for key, some in found.items() if all(c.kind == "html" and c.title for c in some)}


def archived(bucket: Path, capture: Capture) -> bytes:
    with (bucket / capture.warc_filename).open("rb") as file:
        file.seek(capture.warc_record_offset)
        return file.read(capture.warc_record_length)


def in_each(world: World) -> str:
    """The key of a page that all crawls have once."""
    per_crawl = [pages(world, crawl) for crawl in (NEW, OLD, ARC)]
    return next(key for key in per_crawl[0] if all(len(some.get(key, ())) == 1 for some in per_crawl))


@pytest.mark.parametrize(("at", "crawl"), [(None, NEW), ("2018-02", OLD), ("2012-05", ARC)])
def test_the_nearest_capture_comes_cold_in_few_requests(
    cli: Cli, world: World, server: FaultServer, away: Path, at: str | None, crawl: str
) -> None:
    [truth] = pages(world, crawl)[in_each(world)]
    when = ("--at", at) if at else ()
    out = away / "record.gz"
    said = cli("get", truth.url, *when, "--format", "record", "--out", out, "--source", server.url)
    assert said.status == 0, said.err
    assert out.read_bytes() == archived(world.bucket, truth)
    assert crawl in said.err
    hits = len(server.hits)
    assert hits <= (MOST_2012 if crawl == ARC else MOST_MODERN)
    assert f"{hits - 1} requests" in said.err or f"{hits} requests" in said.err
    assert list(away.iterdir()) == [out], "it made no home"


def test_a_home_that_stores_the_capture_asks_for_nothing(
    cli: Cli, world: World, server: FaultServer, tmp_path: Path
) -> None:
    by_key = pages(world, NEW)
    truth = next(
        some[0]
        for some in by_key.values()
        if some[0].domain == "example.com" and len(some) == 1 and some[0] != world.damaged
    )
    home = shutil.copytree(world.untouched, tmp_path / "home")
    rehome(home, server.url.rstrip("/"))
    said = cli("get", truth.url, "--format", "html", "--home", home)
    assert said.status == 0, said.err
    assert "stored in this home" in said.err
    assert server.hits == []
    assert truth.title is not None and truth.title in said.out
    # a nearer crawl is asked for all the same
    cli("get", truth.url, "--at", "2018-02", "--max-crawls", 1, "--home", home)
    assert server.hits


def test_where_the_nearest_crawl_lacks_the_page_it_says_so_and_takes_the_next(
    cli: Cli, world: World, server: FaultServer
) -> None:
    old = pages(world, OLD)
    truth = next(
        some[0] for key, some in old.items() if key not in {c.url_surtkey for c in world.truth.captures_of(NEW)}
    )
    said = cli("get", truth.url, "--format", "json", "--source", server.url)
    assert said.status == 0, said.err
    assert f"{NEW}: page not found" in said.err
    assert json.loads(said.out)["crawl"] == OLD
    said = cli("get", truth.url, "--source", server.url, "--max-crawls", 1)
    assert (said.status, said.out) == (1, "")
    assert "--max-crawls 3" in said.err
    said = cli("get", truth.url, "--source", server.url, "-c", NEW)
    assert (said.status, said.out) == (1, "")
    assert "Check the spelling" in said.err


def test_an_announced_crawl_does_not_stop_the_search(cli: Cli, world: World, tmp_path: Path) -> None:
    bucket = copy_of(world.bucket, tmp_path / "bucket")
    announce(bucket)
    [truth] = pages(world, NEW)[in_each(world)]
    said = cli("get", truth.url, "--format", "json", "--source", bucket)
    assert said.status == 0, said.err
    assert json.loads(said.out)["crawl"] == NEW
    announced = next(one["id"] for one in json.loads((bucket / "collinfo.json").read_text()) if one["id"] > NEW)
    for named in (announced, "newest"):
        said = cli(
            "get", truth.url, "--format", "json", "-c", named, "--source", bucket, "--out", tmp_path / "page.pdf"
        )
        assert (said.status, f"{announced}: the crawl is announced" in said.told) == (0, True)
        assert json.loads((tmp_path / "page.pdf").read_text())["crawl"] == NEW
        assert f"{tmp_path / 'page.pdf'}: a JSON object" in said.told


def test_the_name_of_the_file_says_its_form(cli: Cli, world: World, tmp_path: Path) -> None:
    [truth] = pages(world, NEW)[in_each(world)]
    words = ("get", truth.url, "-c", NEW, "--source", world.bucket)
    for name, content in (("p.md", "Markdown"), ("p.TXT", "its text"), ("p.warc.gz", "WARC record"), ("p", "the page")):
        said = cli(*words, "--out", tmp_path / name)
        assert (said.status, content in said.told) == (0, True), said.err


def test_forms_of_a_page(cli: Cli, world: World, server: FaultServer) -> None:
    [truth] = pages(world, NEW)[in_each(world)]
    assert truth.title is not None
    asked = ("get", truth.url, "--source", server.url)
    said = json.loads(cli(*asked, "--format", "json").out)
    assert (said["title"], said["status"], said["url"]) == (truth.title, truth.fetch_status, truth.url)
    assert said["record"]["digest_check"] == "match"
    assert said["record"]["payload_sha1"] == truth.payload_digest
    assert said["record"]["source"] == server.url + truth.warc_filename
    assert said["fetch_time"] == truth.fetch_time.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert cli(*asked, "--format", "text").out.strip() == said["main_text"].strip()
    assert cli(*asked, "--format", "markdown").out.strip() == said["markdown"].strip()
    assert "<html" in cli(*asked).out.lower()
    other = cli(*asked, "--format", "pdf")
    assert other.status == 1 and "choose one of" in other.err


def test_a_page_of_another_charset_is_utf_8(cli: Cli, world: World) -> None:
    truth = next(
        some[0]
        for some in pages(world, NEW).values()
        if len(some) == 1 and some[0].content_charset not in (None, "UTF-8", "US-ASCII")
    )
    said = cli("get", truth.url, "--format", "html", "--source", world.bucket)
    assert truth.title is not None and truth.title in said.out
    assert "to UTF-8" in said.err


def test_a_record_of_2012_becomes_warc_that_says_where_it_is_from(cli: Cli, world: World, tmp_path: Path) -> None:
    [truth] = pages(world, ARC)[in_each(world)]
    out = tmp_path / "one.warc.gz"
    with FaultServer(world.bucket) as server:
        said = cli("get", truth.url, "--at", "2012", "--format", "warc", "--out", out, "--source", server.url)
        assert said.status == 0, said.err
        [record] = [(r.rec_headers, r.content_stream().read()) for r in ArchiveIterator(io.BytesIO(out.read_bytes()))]
        assert record[0].get_header("WARC-Source-URI") == server.url + truth.warc_filename
        last = truth.warc_record_offset + truth.warc_record_length - 1
    assert record[0].get_header("WARC-Source-Range") == f"bytes={truth.warc_record_offset}-{last}"
    assert record[1] in gzip.decompress(archived(world.bucket, truth))


def test_a_damaged_record_is_not_given(cli: Cli, world: World, tmp_path: Path) -> None:
    bucket = copy_of(world.bucket, tmp_path / "bucket")
    [truth] = pages(world, NEW)[in_each(world)]
    path = bucket / truth.warc_filename
    data = bytearray(path.read_bytes())
    data[truth.warc_record_offset + truth.warc_record_length // 2] ^= 0x55
    replace_file(path, bytes(data))
    said = cli("get", truth.url, "--format", "json", "--source", bucket)
    assert said.status == 0, said.err
    assert json.loads(said.out)["crawl"] == OLD
    assert f"{NEW}: the capture at" in said.err


def test_what_is_no_page_is_refused(cli: Cli, world: World) -> None:
    assert cli("get", "not a url", "--source", world.bucket).status == 1
    assert cli("get", "example.com", "--at", "yesterday", "--source", world.bucket).status == 1
