"""Lookups in the B-tree of 2012: their requests, counted by a server, and addresses with a question mark."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.key_ranges import btree_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.index.btree.locator import BTreeLocator
from cc_pipeline.testing.mini_crawl.btree import pack_pointer, write_btree
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.faultserver import FaultServer

CRAWL = "CC-MAIN-2012"


def _write(root: Path, urls: list[str]) -> None:
    with (root / "tree").open("wb") as out:
        write_btree(sorted((btree_key(url), pack_pointer(1, 2, 3, n, 5)) for n, url in enumerate(urls)), out, 256)


def test_the_server_counts_what_the_answer_says(tmp_path: Path) -> None:
    _write(tmp_path, [f"http://www.example{n // 1000:03d}.com/{n:07d}" for n in range(2500)])
    target = parse_target("example001.com")
    with FaultServer(tmp_path) as server, Transport(server.url) as transport:
        locator = BTreeLocator(transport, "tree")
        price = locator.price(CRAWL, ["warc"], [target])
        server.hits.clear()
        found = locator.locate(CRAWL, ["warc", "robotstxt"], [target])
        assert found.captures[target.slug].num_rows == 1000
        assert found.requests == len(server.hits) <= price.requests
        assert found.bytes == sum(hit.body_bytes for hit in server.hits)
        assert found.notes == ("the B-tree index has no captures of the subset robotstxt",)
        with pytest.raises(UserInputError, match="index of CC-MAIN-2012"):
            locator.locate("CC-MAIN-2024-22", ["warc"], [target])


def test_prefixes_that_end_in_a_question_mark_find_pages_without_a_query(tmp_path: Path) -> None:
    urls = ["http://example.com/a", "http://example.com/a?", "http://example.com/a?b=1", "http://example.com/ab"]
    _write(tmp_path, urls)
    target = parse_target("prefix:http://example.com/a?")
    with Transport(str(tmp_path)) as transport:
        found = BTreeLocator(transport, "tree").locate(CRAWL, ["warc"], [target])
    expected = [url for url in urls if target.matches(url)]
    assert sorted(found.captures[target.slug]["url"].to_pylist()) == sorted(expected)
