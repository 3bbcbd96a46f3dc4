"""Goes over a whole B-tree and says what is wrong with it, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cc_pipeline.commoncrawl.key_ranges import KeyRange, prefix_range
from cc_pipeline.errors import DataFault
from cc_pipeline.index.btree.source import MAX_AHEAD_BLOCKS, BlockSource, RangeReader
from cc_pipeline.index.btree.tree import BTree, Item

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class BTreeHealth:
    """What a file holds, and where it breaks its format's promises: ``problems`` of ``problem_count`` in words."""

    items: int
    data_blocks: int
    index_blocks: int
    levels: int
    problem_count: int
    problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problem_count


def verify_btree(reader: RangeReader, key: str) -> BTreeHealth:
    """Reads every block of ``key`` once.

    Noticed are blocks that cannot be decoded, data out of order, pointers that do not go through the data blocks one
    by one, and separators that are not what the first key of their block begins with (as in the published 2012 index,
    whose pointers lead astray). Raises ``DataFault`` only where the file is no B-tree at all.
    """
    source = BlockSource(reader, key)
    layout = source.layout()
    problems: list[str] = []
    found: list[str] = []
    separators = dict(_leaves(source, problems))
    levels = _levels(source)
    items = 0
    last = b""
    for number in range(layout.index_blocks, layout.blocks):
        try:
            block = source.data_block(number, MAX_AHEAD_BLOCKS)
        except DataFault as fault:
            found.append(str(fault))
            continue
        items += len(block.keys)
        first = block.keys[0] if block.keys else b""
        if first < last:
            found.append(f"data block {number} begins with {first!r}, after {last!r}")
        last = block.keys[-1] if block.keys else last
        if number not in separators:
            found.append(f"no pointer leads to data block {number}")
        elif not first.startswith(separators[number]):
            found.append(f"data block {number} begins with {first!r}, its separator is {separators[number]!r}")
    found = problems + found
    data_blocks = layout.blocks - layout.index_blocks
    return BTreeHealth(items, data_blocks, layout.index_blocks, levels, len(found), tuple(found[:_SHOWN]))


def _leaves(source: BlockSource, problems: list[str]) -> Iterator[tuple[int, bytes]]:
    """Each data block that the index points to, with the separator in front of the pointer (the shortest, if two)."""
    layout = source.layout()
    for number in range(layout.index_blocks):
        try:
            block = source.index_block(number)
        except DataFault as fault:
            problems.append(str(fault))
            continue
        if block.children[0] < layout.index_blocks:
            continue
        # the first pointer of a block repeats the last of the one before, unless it is the very first
        start = 0 if block.children[0] == layout.index_blocks else 1
        for place in range(start, len(block.children)):
            yield block.children[place], block.separators[place - 1] if place else b""


def _levels(source: BlockSource) -> int:
    layout = source.layout()
    number = levels = 0
    try:
        while number < layout.index_blocks:
            number = source.index_block(number).children[0]
            levels += 1
    except DataFault:
        pass
    return levels


def values_of(tree: BTree, key: bytes) -> list[bytes]:
    """The values of exactly ``key``, in file order."""
    return [item.value for item in tree.scan(KeyRange(key, key + b"\0"))]


def items_below(tree: BTree, prefix: bytes) -> Iterator[Item]:
    """All items whose key starts with ``prefix``, in order."""
    return tree.scan(prefix_range(prefix))
