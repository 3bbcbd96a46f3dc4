"""Order that contradicts itself is a fault and never an empty answer; pointers that drifted are still followed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.btree.format import HEADER
from cc_pipeline.index.btree.tree import BTree
from cc_pipeline_tests.index.btree.reading import values_of
from cc_pipeline_tests.index.btree.test_tree import Memory, _drifted, _file, _tree, _value

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


@given(KEYS, st.integers(-4, 4))
@settings(max_examples=40)
def test_drifted_pointers_are_followed_and_noted(numbers: set[int], drift: int) -> None:
    keys = keys_of(numbers)
    tree = _tree(_drifted(content_of(keys), drift))
    assert [answer(tree, key) for key in keys] == [[_value(place)] for place in range(len(keys))]
    assert bool(tree.drifts) or abs(drift) < 2
