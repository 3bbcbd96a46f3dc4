"""Requests of a cold and a warm lookup, counted by a server, and what a locator says about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from cc_pipeline.commoncrawl.key_ranges import btree_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.index.btree.format import HEADER
from cc_pipeline.index.btree.locator import BTreeLocator
from cc_pipeline.index.btree.tree import BTree
from cc_pipeline.testing.mini_crawl.btree import pack_pointer, write_btree
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.index.btree.reading import items_below, values_of

CRAWL = "CC-MAIN-2012"
TREE = "projects/url-index/tree"
#: Long paths make long separators: 64 KiB blocks hold few of them, and a small file has three levels.
_PATH = "p" * 1990


def _url(number: int) -> str:
    return f"http://www.example{number // 1000:03d}.com/{_PATH}/{number:07d}"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("btree")
    (root / TREE).parent.mkdir(parents=True)
    items = sorted((btree_key(_url(n)), pack_pointer(1346876860567, 1346913882801, 7, n * 10, 10)) for n in range(2500))
    with (root / TREE).open("wb") as out:
        write_btree(items, out)
    # a third level as the 2012 file has one: the same tree with an index of one child more above it
    content = (root / TREE).read_bytes()
    (root / TREE).write_bytes(_with_one_more_level(content, HEADER.unpack_from(content)[1]))
    return root


def _with_one_more_level(content: bytes, index_blocks: int) -> bytes:
    block_size = 65536
    blocks = [bytearray(content[p : p + block_size]) for p in range(HEADER.size, len(content), block_size)]
    for block in blocks[:index_blocks]:
        position = 0
        while True:
            number = int.from_bytes(block[position : position + 4], "little") + 1
            block[position : position + 4] = number.to_bytes(4, "little")
            position += 4
            end = block.find(0, position)
            if end in (position, -1):
                break
            position = end + 1
    root = (1).to_bytes(4, "little").ljust(block_size, b"\0")
    return HEADER.pack(block_size, index_blocks + 1) + root + b"".join(map(bytes, blocks))


@pytest.fixture(scope="module")
def server(bucket: Path) -> Iterator[FaultServer]:
    with FaultServer(bucket) as running:
        yield running


def test_a_cold_look_up_takes_three_reads_and_a_warm_one_one(server: FaultServer) -> None:
    with Transport(server.url) as transport:
        reached = []
        for number in range(1100, 2500, 61):
            server.hits.clear()
            tree = BTree(transport, TREE)
            key = btree_key(_url(number))
            assert len(values_of(tree, key)) == 1
            block = next(items_below(tree, key)).block
            reached.append(len(server.hits))
            # warm: another page of another block
            other = next(n for n in range(number + 40, number + 200) if _block(tree, n) != block)
            tree = BTree(transport, TREE)
            values_of(tree, key)
            server.hits.clear()
            values_of(tree, btree_key(_url(other % 2500)))
            assert len(server.hits) <= 2
    # where the key is the first of its block, the blocks around it are read too
    assert median(reached) <= 3 and max(reached) <= 5


def _block(tree: BTree, number: int) -> int:
    return tree._descend(btree_key(_url(number % 2500))).block


def test_the_server_counts_what_the_answer_says(server: FaultServer) -> None:
    target = parse_target("example001.com")
    with Transport(server.url) as transport:
        locator = BTreeLocator(transport, TREE)
        price = locator.price(CRAWL, ["warc"], [target])
        said = len(server.hits)
        server.hits.clear()
        found = locator.locate(CRAWL, ["warc", "robotstxt"], [target])
        assert found.captures[target.slug].num_rows == 1000
        assert found.requests == len(server.hits) <= price.requests
        assert found.bytes == sum(hit.body_bytes for hit in server.hits)
        assert found.notes == ("the B-tree index has no captures of the subset robotstxt",)
        assert said <= 5
        with pytest.raises(UserInputError, match="index of CC-MAIN-2012"):
            locator.locate("CC-MAIN-2024-22", ["warc"], [target])


def test_prefixes_that_end_in_a_question_mark_find_pages_without_a_query(tmp_path: Path) -> None:
    urls = ["http://example.com/a", "http://example.com/a?", "http://example.com/a?b=1", "http://example.com/ab"]
    with (tmp_path / "tree").open("wb") as out:
        write_btree(sorted((btree_key(url), pack_pointer(1, 2, 3, n, 5)) for n, url in enumerate(urls)), out, 256)
    target = parse_target("prefix:http://example.com/a?")
    with Transport(str(tmp_path)) as transport:
        found = BTreeLocator(transport, "tree").locate(CRAWL, ["warc"], [target])
    expected = [url for url in urls if target.matches(url)]
    assert sorted(found.captures[target.slug]["url"].to_pylist()) == sorted(expected)
