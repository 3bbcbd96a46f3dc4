"""Looks ranges of keys up in a prefixed B-tree.

In the published 2012 file some index pointers lead to a block after the right one. So a block is believed only if its
first key is below the requested key and not below the separator that led there. Otherwise the reader searches the
first keys of the data blocks for the right block (galloping) and notes the drift. Only pointers can have drifted. If
first keys fall from one block to a later one, a ``DataFault`` is raised, because the position of a key is then unknown.
An answer is complete or an error.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.btree.format import Layout
from cc_pipeline.index.btree.source import MAX_AHEAD_BLOCKS, BlockSource
from cc_pipeline.transport.client import Transport


class Item(NamedTuple):
    """One entry: key, value (32 bytes, see ``format.unpack_pointer``) and the number of its block."""

    key: bytes
    value: bytes
    block: int


class Drift(NamedTuple):
    """A wrong pointer: the index led to block ``pointed`` for ``key``, but its keys begin in block ``actual``."""

    key: bytes
    pointed: int
    actual: int


class _Arrival(NamedTuple):
    """A data block, and the separator before the pointer that led to it (empty before the first)."""

    block: int
    separator: bytes


class BTree:
    """One B-tree file. ``drifts`` collects wrong pointers."""

    def __init__(self, reader: Transport, key: str) -> None:
        self.source = BlockSource(reader, key)
        self.drifts: list[Drift] = []

    @property
    def layout(self) -> Layout:
        """Block size and counts, from the header and the file's size."""
        return self.source.layout()

    def scan(self, keys: KeyRange) -> Iterator[Item]:
        """Yields all items with a key in ``keys``, in order. ``KeyRange(key, None)`` reads to the index's end.

        Raises ``DataFault`` if a block breaks the format, or does not continue the previous one.
        """
        layout = self.layout
        number = self._first_block(keys.start)
        blocks_ahead = 1
        last = b""
        while number < layout.blocks:
            block = self.source.data_block(number, blocks_ahead)
            if block.keys and block.keys[0] < last:
                raise self._fault(number, f"data block {number} sorts before {number - 1}")
            for place in range(bisect_left(block.keys, keys.start), len(block.keys)):
                key = block.keys[place]
                if keys.end is not None and key >= keys.end:
                    return
                yield Item(key, block.values[place], number)
            last = block.keys[-1] if block.keys else last
            number += 1
            blocks_ahead = min(2 * blocks_ahead, MAX_AHEAD_BLOCKS) if last >= keys.start else 1
        self._check_end()

    def blocks_of(self, keys: KeyRange) -> int:
        """Returns the number of data blocks that a scan of ``keys`` reads if the index is right; reads index blocks
        only."""
        first = self._descend(keys.start).block
        last = self.layout.blocks - 1 if keys.end is None else self._descend(keys.end).block
        return max(last - first, 0) + 1

    def _check_end(self) -> None:
        """Follows the last pointers: if they lead beyond the last block, the file has lost its end."""
        number = 0
        while number < self.layout.index_blocks:
            number = self.source.index_block(number).children[-1]

    def _descend(self, key: bytes) -> _Arrival:
        number = 0
        separator = b""
        while number < self.layout.index_blocks:
            block = self.source.index_block(number)
            place = block.find(key)
            if place:
                separator = max(separator, block.separators[place - 1])
            number = block.children[place]
        return _Arrival(number, separator)

    def _first_block(self, key: bytes) -> int:
        """Returns the data block to start reading at for ``key``."""
        number, separator = self._descend(key)
        first = self._first_key(number)
        if separator <= first < key:
            return number
        if first >= key and number == self.layout.index_blocks:
            self._check_order(number, number)
            return number
        actual_block = self._gallop(key, number, is_forward=first < key)
        self._check_order(number, actual_block)
        keys = self.source.data_block(actual_block).keys
        right = actual_block if keys and keys[-1] >= key else actual_block + 1
        if right != number:
            self.drifts.append(Drift(key, number, right))
        return actual_block

    def _check_order(self, pointed_block: int, actual_block: int) -> None:
        """Tells drift from order that contradicts itself: blocks around both places ascend."""
        blocks = self.layout.blocks
        near = sorted({actual_block, actual_block + 1, *(pointed_block + step for step in (-1, 0, 1))})
        firsts = [(number, self._first_key(number)) for number in near if self.layout.index_blocks <= number < blocks]
        for (previous, first), (number, second) in pairwise(firsts):
            if second < first:
                raise self._fault(number, f"data block {number} sorts before {previous}")

    def _fault(self, number: int, reason: str) -> DataFault:
        return DataFault(DataKind.MALFORMED, self.source.key, self.layout.offset(number), reason)

    def _gallop(self, key: bytes, start: int, *, is_forward: bool) -> int:
        """Returns the last data block whose first key is below ``key`` (else the first one), searched from
        ``start``."""
        low, high = self.layout.index_blocks, self.layout.blocks
        step = 1
        if is_forward:
            low = start
            while low + step < high:
                if self._first_key(low + step) < key:
                    low, step = low + step, 2 * step
                else:
                    high = low + step
        else:
            high = start
            while high - step > low:
                if self._first_key(high - step) < key:
                    low = high - step
                else:
                    high, step = high - step, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._first_key(middle) < key else (low, middle)
        return low

    def _first_key(self, number: int) -> bytes:
        keys = self.source.data_block(number).keys
        return keys[0] if keys else b""
