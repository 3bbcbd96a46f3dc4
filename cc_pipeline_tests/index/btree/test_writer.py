"""The writer against the original 2012 writer's files, and what it refuses."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.index.btree import writer
from cc_pipeline.index.btree.format import pack_pointer, separator, unpack_pointer
from cc_pipeline.index.btree.writer import write_btree
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
    ("items", "reason"),
    [
        ([(b"b", bytes(32)), (b"a", bytes(32))], r"key 'a' \(item 2\) sorts before 'b'"),
        ([(b"", bytes(32))], r"key '' \(item 1\) is empty"),
        ([(b"a\0b", bytes(32))], r"key 'a\\x00b' \(item 1\) has a NUL byte"),
        ([(b"a", bytes(32)), (b"b" * 80, bytes(32))], r"key 'b+' \(item 2\) needs 113 bytes, a block has 64"),
        ([(b"a", bytes(32)), (b"b", bytes(31))], r"key 'b' \(item 2\) has 31 bytes, not 32"),
        ([(b"a" * 60, b""), (b"a" * 60, b"")], r"needs 69 bytes"),
    ],
)
def test_refuses_by_name_and_writes_nothing(items: list[tuple[bytes, bytes]], reason: str) -> None:
    out = io.BytesIO()
    with pytest.raises(DataFault, match=reason):
        write_btree(items, out, 64, name="some-index")
    assert out.getvalue() == b""


def test_refuses_a_block_size_that_holds_nothing() -> None:
    with pytest.raises(UserInputError, match="block size 4"):
        write_btree([], io.BytesIO(), 4)


def test_pointer_round_trip_and_limits() -> None:
    numbers = (2**64 - 1, 2**64 - 2, 2**32 - 1, 2**40, 2**32 - 3)
    packed = pack_pointer(*numbers)
    assert len(packed) == 32
    assert unpack_pointer(packed) == numbers
    with pytest.raises(DataFault, match="do not fit"):
        pack_pointer(1, 1, 2**32, 1, 1)
    with pytest.raises(DataFault, match="31 bytes"):
        unpack_pointer(packed[:31])


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_separator_is_the_shortest_prefix_that_tells_keys_apart(one: bytes, two: bytes) -> None:
    low, high = sorted((one, two))
    found = separator(low, high)
    assert high.startswith(found)
    assert low < found <= high or low == high == found
    assert all(low.startswith(found[:cut]) for cut in range(len(found)))


def test_spills_to_files_and_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [(b"key-%06d" % number, bytes(32)) for number in range(2000)]
    in_memory = _written(items, 64)
    monkeypatch.setattr(writer, "SPILL_MEMORY", 100)
    with tempfile.TemporaryDirectory() as folder:
        out = io.BytesIO()
        write_btree(items, out, 64, scratch=folder)
    assert out.getvalue() == in_memory
