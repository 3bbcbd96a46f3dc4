"""The writer against the original 2012 writer's files, and what it refuses."""

from __future__ import annotations

import gzip
import io
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault
from cc_pipeline.testing.mini_crawl.btree import pack_pointer, separator, write_btree
from cc_pipeline_tests.corpus import CORPUS, needs_corpus


def _written(items: list[tuple[bytes, bytes]], block_size: int) -> bytes:
    out = io.BytesIO()
    write_btree(items, out, block_size)
    return out.getvalue()


@needs_corpus
def test_equals_the_original_writer_with_three_levels() -> None:
    original = (CORPUS / "btree_golden" / "url-index-1024.pbtree").read_bytes()
    with gzip.open(CORPUS / "btree_golden" / "expected-1024.json.gz") as lines:
        every_item = json.load(lines)[""]
    items = [(key.encode("latin-1"), pack_pointer(*numbers)) for key, numbers in every_item]
    assert _written(items, 1024) == original


@needs_corpus
def test_equals_the_original_writer_on_real_captures() -> None:
    original = (CORPUS / "realcrawl/bucket/projects/url-index/url-index.1356128792").read_bytes()
    with gzip.open(CORPUS / "realcrawl" / "expected.json.gz") as lines:
        rows = json.load(lines)["CC-MAIN-2012"]
    items = [(row[0].encode(), pack_pointer(*row[1])) for row in rows]
    assert _written(items, struct.unpack_from("<I", original)[0]) == original


def test_overflow_repeats_the_previous_pointer_in_the_new_block() -> None:
    value = struct.pack("<Q", 1)
    expected = "0a00000003000000 01000000630002000000 03000000620004000000 04000000630005000000"
    data = "".join(f"{key}00 0100000000000000" for key in ("61", "62", "63"))
    assert _written([(b"a", value), (b"b", value), (b"c", value)], 10) == bytes.fromhex(expected + data)


def test_an_empty_index_is_a_root_and_one_empty_block() -> None:
    assert _written([], 16) == struct.pack("<III", 16, 1, 1).ljust(8 + 32, b"\0")


@pytest.mark.parametrize(
    ("items", "key"),
    [
        ([(b"b", bytes(32)), (b"a", bytes(32))], r"key b'a' \(item 2\)"),
        ([(b"", bytes(32))], r"key b'' \(item 1\)"),
        ([(b"a\0b", bytes(32))], r"key b'a\\x00b' \(item 1\)"),
        ([(b"a", bytes(32)), (b"b" * 80, bytes(32))], r"key b'b+' \(item 2\)"),
    ],
)
def test_refuses_by_name_and_writes_nothing(items: list[tuple[bytes, bytes]], key: str) -> None:
    out = io.BytesIO()
    with pytest.raises(DataFault, match=key):
        write_btree(items, out, 64)
    assert out.getvalue() == b""


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_separator_is_the_shortest_prefix_that_tells_keys_apart(one: bytes, two: bytes) -> None:
    low, high = sorted((one, two))
    found = separator(low, high)
    assert high.startswith(found)
    assert low < found <= high or low == high == found
    assert all(low.startswith(found[:cut]) for cut in range(len(found)))
