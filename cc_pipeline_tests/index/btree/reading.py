"""Reads items of a B-tree."""

from __future__ import annotations

from collections.abc import Iterator

from cc_pipeline.commoncrawl.key_ranges import KeyRange, prefix_range
from cc_pipeline.index.btree.tree import BTree, Item


def values_of(tree: BTree, key: bytes) -> list[bytes]:
    """The values of exactly ``key``, in file order."""
    return [item.value for item in tree.scan(KeyRange(key, key + b"\0"))]


def items_below(tree: BTree, prefix: bytes) -> Iterator[Item]:
    """All items whose key starts with ``prefix``, in order."""
    return tree.scan(prefix_range(prefix))
