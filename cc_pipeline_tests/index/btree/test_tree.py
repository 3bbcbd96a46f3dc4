"""The reader against the original reader's answers, a sorted list, and every way to break a file."""

from __future__ import annotations

import ast
import gzip
import io
import json
import struct
from bisect import bisect_left
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.key_ranges import KeyRange, prefix_range
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.btree.format import HEADER, unpack_pointer
from cc_pipeline.index.btree.tree import BTree, Item
from cc_pipeline.testing.mini_crawl.btree import pack_pointer, write_btree
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.index.memory import Memory

Items = list[tuple[bytes, bytes]]


def values_of(tree: BTree, key: bytes) -> list[bytes]:
    """The values of exactly ``key``, in file order."""
    return [item.value for item in tree.scan(KeyRange(key, key + b"\0"))]


def items_below(tree: BTree, prefix: bytes) -> Iterator[Item]:
    """All items whose key starts with ``prefix``, in order."""
    return tree.scan(prefix_range(prefix))


def _file(items: Items, block_size: int) -> bytes:
    out = io.BytesIO()
    write_btree(items, out, block_size)
    return out.getvalue()


def _tree(content: bytes) -> BTree:
    return BTree(Memory(content), "tree")


def _pairs(tree: BTree, prefix: bytes) -> Items:
    return [(item.key, item.value) for item in items_below(tree, prefix)]


def _value(number: int) -> bytes:
    return pack_pointer(number, 2, 3, 4, 5)


def _drifted(content: bytes, by: int) -> bytes:
    """The file with every pointer to a data block moved by ``by`` blocks, as far as blocks go."""
    block_size, index_blocks = HEADER.unpack_from(content)
    blocks = (len(content) - HEADER.size) // block_size
    moved = bytearray(content)
    for number in range(index_blocks):
        position = HEADER.size + number * block_size
        end = position + block_size
        while True:
            (child,) = struct.unpack_from("<I", moved, position)
            if child >= index_blocks:
                struct.pack_into("<I", moved, position, max(index_blocks, min(child + by, blocks - 1)))
            position += 4
            after = moved.find(0, position, end)
            if after in (position, -1):
                break
            position = after + 1
    return bytes(moved)


@needs_corpus
def test_every_answer_of_the_original_reader() -> None:
    folder = CORPUS / "btree_golden"
    with gzip.open(folder / "expected-1024.json.gz") as lines:
        expected = json.load(lines)
    tree = _tree((folder / "url-index-1024.pbtree").read_bytes())
    for prefix, answer in expected.items():
        found = [[key.decode("latin-1"), list(unpack_pointer(v))] for key, v in _pairs(tree, prefix.encode())]
        assert found == answer, prefix
    assert tree.drifts == []


@needs_corpus
def test_real_blocks_of_the_published_index() -> None:
    """Two real data blocks (not neighbours) behind an index of our own: all items with all duplicates."""
    blocks = [(CORPUS / "pbtree_url_index/centic9_real_blocks" / f"block{n}.bin").read_bytes() for n in (0, 3)]
    first_key = blocks[1][: blocks[1].index(0)]
    root = struct.pack("<I", 1) + first_key[:9] + b"\0" + struct.pack("<I", 2)
    tree = _tree(HEADER.pack(65536, 1) + root.ljust(65536, b"\0") + b"".join(blocks))
    items = list(items_below(tree, b""))
    assert [sum(item.block == block for item in items) for block in (1, 2)] == [846, 800]
    for item in items:
        assert item.value in values_of(tree, item.key)
    rebuilt = _tree(_file([(item.key, item.value) for item in items], 65536))
    assert [item[:2] for item in items_below(rebuilt, b"")] == [item[:2] for item in items]


@needs_corpus
def test_twenty_thousand_real_rows_of_one_domain() -> None:
    with gzip.open(CORPUS / "pbtree_url_index/umd_real_lookup/edu.umd.first.txt.gz", "rb") as lines:
        rows = [line.rstrip(b"\n").rsplit(b" {", 1) for line in lines]
    fields = ("arcSourceSegmentId", "arcFileDate", "arcFilePartition", "arcFileOffset", "compressedSize")
    items: Items = []
    for key, numbers in rows:
        named = ast.literal_eval("{" + numbers.decode())
        items.append((key, pack_pointer(*(named[field] for field in fields))))
    assert len(items) == 20000
    items.sort(key=lambda item: item[0])
    tree = _tree(_file(items, 4096))
    assert _pairs(tree, b"edu.umd.") == items
    for key, _ in items[::97]:
        assert values_of(tree, key) == [value for other, value in items if other == key]


keys = st.lists(
    st.text("ab/", min_size=1, max_size=6).map(str.encode)
    | st.sampled_from([b"com.example/", b"com.example/a", b"com.example.www/"]),
    max_size=120,
)


@given(keys, st.sampled_from([64, 65, 128, 200, 1024]), st.integers(-6, 6), st.data())
@settings(max_examples=150)
def test_answers_like_a_sorted_list(found: list[bytes], size: int, drift: int, data: st.DataObject) -> None:
    items = [(key, _value(number)) for number, key in enumerate(sorted(found))]
    content = _drifted(_file(items, size), drift)
    wanted = data.draw(st.lists(st.sampled_from([*found, b"", b"a", b"com.", b"zz"]), min_size=1, max_size=8))
    tree = _tree(content)
    for key in wanted:
        assert _pairs(tree, key) == [item for item in items if item[0].startswith(key)]
        assert values_of(tree, key) == [value for other, value in items if other == key]
        keys_from = KeyRange(key, None)
        assert [item[:2] for item in tree.scan(keys_from)] == items[bisect_left(items, (key, b"")) :]


def test_reports_where_the_index_led_astray() -> None:
    items = [(b"key-%05d" % number, _value(number)) for number in range(3000)]
    tree = _tree(_drifted(_file(items, 256), 14))
    assert values_of(tree, b"key-01500") == [_value(1500)]
    assert [(drift.key, drift.pointed - drift.actual) for drift in tree.drifts] == [(b"key-01500", 14)]


@pytest.mark.parametrize("cut", [1, 100, 255, 256])
def test_a_cut_file_is_an_error(cut: int) -> None:
    content = _file([(b"key-%05d" % number, _value(number)) for number in range(300)], 256)
    with pytest.raises(DataFault, match=r"not a multiple of|points to block"):
        list(items_below(_tree(content[:-cut]), b"key"))


def test_bytes_that_do_not_come_are_an_error() -> None:
    content = _file([(b"key-%05d" % number, _value(number)) for number in range(30000)], 65536)
    memory = Memory(content[:-10], len(content))
    with pytest.raises(DataFault, match=r"the answer has .* bytes instead of"):
        list(items_below(BTree(memory, "tree"), b"key"))


def test_an_unknown_size_is_an_error() -> None:
    with pytest.raises(EnvironmentFault, match="size of tree"):
        values_of(BTree(Memory(_file([], 64), None), "tree"), b"a")


@pytest.mark.parametrize(
    ("position", "patch", "reason"),
    [
        (0, struct.pack("<I", 3), "blocks of 3 bytes"),
        (4, struct.pack("<I", 0), "0 index blocks"),
        (4, struct.pack("<I", 10**9), "index blocks of"),
        (8, struct.pack("<I", 0), "points to block 0, not forward"),
        (8, struct.pack("<I", 10**9), "points to block 1000000000"),
        (-256, b"\0" * 256, "is empty"),
        (-256, b"\xff" * 256, "runs over its end"),
        (-256, b"zzz\0" + bytes(32) + b"aaa\0" + bytes(32) + bytes(184), "unsorted keys"),
        (-256, b"aaa\0" + bytes(32) + bytes(220), "sorts before"),
        (-256, b"zzz\0" + bytes(32) + bytes(219) + b"x", "bytes after its last item"),
    ],
)
def test_damage_is_an_error_and_never_a_shorter_answer(position: int, patch: bytes, reason: str) -> None:
    content = bytearray(_file([(b"key-%05d" % number, _value(number)) for number in range(200)], 256))
    position %= len(content)
    content[position : position + len(patch)] = patch
    with pytest.raises(DataFault, match=reason):
        list(items_below(_tree(bytes(content)), b"key"))


def test_prefix_of_the_last_possible_byte() -> None:
    items = [(b"\xfe", _value(1)), (b"\xff\xff", _value(2)), (b"\xff\xff\xff", _value(3))]
    assert _pairs(_tree(_file(items, 64)), b"\xff\xff") == items[1:]
    assert prefix_range(b"\xff").end is None


SIZE = 256
KEYS = st.sets(st.integers(0, 99_999), min_size=40, max_size=150)


def keys_of(numbers: set[int]) -> list[bytes]:
    return sorted(b"com.site%02d/%d:http" % (number % 37, number) for number in numbers)


def content_of(keys: list[bytes]) -> bytes:
    return _file([(key, _value(place)) for place, key in enumerate(keys)], SIZE)


def swapped(content: bytes, one: int, other: int) -> bytes:
    moved = bytearray(content)
    for here, there in ((one, other), (other, one)):
        start = HEADER.size + there * SIZE
        moved[HEADER.size + here * SIZE : HEADER.size + (here + 1) * SIZE] = content[start : start + SIZE]
    return bytes(moved)


def answer(tree: BTree, key: bytes) -> list[bytes] | DataKind:
    try:
        return values_of(tree, key)
    except DataFault as fault:
        assert fault.source == "tree" and fault.offset is not None and isinstance(fault.kind, DataKind)
        return fault.kind


@given(KEYS, st.integers(0, 1000), st.integers(0, 1000))
@settings(max_examples=40)
def test_data_blocks_in_the_wrong_order_never_lose_a_key(numbers: set[int], one: int, other: int) -> None:
    keys = keys_of(numbers)
    content = content_of(keys)
    index_blocks = HEADER.unpack_from(content)[1]
    count = (len(content) - HEADER.size) // SIZE - index_blocks
    broken = swapped(content, index_blocks + one % count, index_blocks + other % count)
    tree = BTree(Memory(broken), "tree")
    for place, key in enumerate(keys):
        assert answer(tree, key) in ([_value(place)], DataKind.MALFORMED)
