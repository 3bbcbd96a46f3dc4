"""``get``: one page nearest to a date, what it asks for, and that a home that has it asks for nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_pipeline.testing.mini_crawl import Capture
from cc_pipeline_tests.cli.conftest import ARC, NEW, OLD, Cli, World
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import copy_of, rehome, replace_file

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


def test_forms_of_a_page(cli: Cli, world: World, server: FaultServer, tmp_path: Path) -> None:
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
    # the name of a file says its form
    for name, content in (("p.md", "Markdown"), ("p.TXT", "its text"), ("p.warc.gz", "WARC record"), ("p", "the page")):
        written = cli(*asked, "--out", tmp_path / name)
        assert (written.status, content in written.told) == (0, True), written.err


def test_a_damaged_record_is_not_given(cli: Cli, world: World, tmp_path: Path) -> None:
    bucket = copy_of(world.bucket, tmp_path / "bucket")
    [truth] = pages(world, NEW)[in_each(world)]
    damaged = bytearray((bucket / truth.warc_filename).read_bytes())
    damaged[truth.warc_record_offset + truth.warc_record_length // 2] ^= 0x55
    replace_file(bucket / truth.warc_filename, bytes(damaged))
    said = cli("get", truth.url, "--format", "json", "--source", bucket)
    assert said.status == 0, said.err
    assert json.loads(said.out)["crawl"] == OLD
    assert f"{NEW}: the capture at" in said.err
