"""Mutated B-trees: an answer or a fault, bounded, never a hang.

A mutated tree may hold other keys than the one it came from; what must hold is that every item of an answer lies
in the asked range, in order, and that asking twice gives the same.
"""

from __future__ import annotations

import io
import itertools
import random
import struct

from hypothesis import strategies as st

from cc_pipeline.commoncrawl.key_ranges import prefix_range
from cc_pipeline.errors import DataFault
from cc_pipeline.index.btree.format import HEADER
from cc_pipeline.index.btree.tree import BTree, Item
from cc_pipeline.testing.mini_crawl.btree import pack_pointer, write_btree
from cc_pipeline_tests.fuzzing import bounded, edits, fuzz
from cc_pipeline_tests.index.btree.test_tree import items_below
from cc_pipeline_tests.index.memory import Memory

MOST = 20_000


def _written(block_size: int, keys: list[bytes]) -> bytes:
    out = io.BytesIO()
    write_btree([(key, pack_pointer(number, 2, 3, 4, 5)) for number, key in enumerate(sorted(keys))], out, block_size)
    return out.getvalue()


def _keys(seed: int, count: int) -> list[bytes]:
    draw = random.Random(seed)
    hosts = [b"com.example", b"com.example.www", b"org.site", b"uk.gov", b"com.example-foo"]
    return [draw.choice(hosts) + b"/%d:http" % draw.randrange(count) for _ in range(count)]


TREES = [
    _written(128, _keys(1, 200)),
    _written(256, _keys(2, 400)),
    _written(1024, _keys(3, 1500)),
    _written(96, [b"one"]),
    _written(64, []),
]


@st.composite
def trees(draw: st.DrawFn) -> bytes:
    """A mutated tree; often with one number of it replaced, which is where a reader could be led in circles."""
    data = bytearray(draw(edits(TREES)))
    for _ in range(draw(st.integers(0, 3))):
        if len(data) < HEADER.size + 4:
            break
        at = draw(st.sampled_from((0, 4, 8))) if draw(st.booleans()) else draw(st.integers(0, len(data) - 4))
        number = draw(st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 1), st.sampled_from((64, 96, 128, 256))))
        struct.pack_into("<I", data, min(at, len(data) - 4), number)
    return bytes(data)


def _answer(content: bytes, prefix: bytes) -> list[Item] | str:
    try:
        tree = BTree(Memory(content), "tree")
        return list(itertools.islice(items_below(tree, prefix), MOST))
    except DataFault as fault:
        assert fault.source == "tree"
        return str(fault)


@fuzz(120, content=trees(), prefix=st.sampled_from((b"", b"com.", b"com.example/", b"org", b"z")))
def test_mutated_trees(content: bytes, prefix: bytes) -> None:
    with bounded(1, 100):
        found = _answer(content, prefix)
    assert found == _answer(content, prefix)
    if isinstance(found, list):
        bound = prefix_range(prefix)
        keys = [item.key for item in found]
        assert len(found) < MOST
        assert keys == sorted(keys)
        assert all(bound.start <= key and (bound.end is None or key < bound.end) for key in keys)
