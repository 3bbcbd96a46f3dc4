"""The prefixed B-tree of the 2012 URL index, byte by byte: header, blocks, items, the 32-byte pointer.

Numbers are little-endian and unsigned, keys compare as bytes::

    header   8 bytes      u32 block_size   u32 index_blocks
    block n  block_size   n < index_blocks: index block, block 0 is the root; else data block, in key order
    data block            ( key  00  segment u64  date u64  partition u32  offset u64  size u32 )*  then 00
    index block           u32 pointer_0 ( prefix  00  u32 pointer )*  then 00

The key of ``http://www.example.com:8080/a/b?c=d`` is ``com.example.www/a/b?c=d:8080:http``.

Blocks are decoded one by one; bytes that the writer could not have written are refused.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from cc_pipeline.errors import DataFault, DataKind

#: Block size of the published index, in bytes.
BLOCK_SIZE = 65536
#: Block size and number of index blocks.
HEADER = struct.Struct("<II")
#: A block number inside an index block.
BLOCK_NUMBER = struct.Struct("<I")
#: Segment id, ARC file date in milliseconds, ARC file partition, offset, compressed size.
POINTER = struct.Struct("<QQIQI")


class Pointer(NamedTuple):
    """The location of a record as the five numbers of the 2012 index. ``offset`` and ``size`` are bytes, ``date`` is
    ms."""

    segment: int
    date: int
    partition: int
    offset: int
    size: int


def unpack_pointer(value: bytes) -> Pointer:
    """Returns the five numbers of a 32-byte value. Raises ``DataFault`` for any other length."""
    if len(value) != POINTER.size:
        raise DataFault(
            DataKind.MALFORMED, "pointer", None, f"a pointer has {len(value)} bytes instead of {POINTER.size}"
        )
    return Pointer(*POINTER.unpack(value))


@dataclass(frozen=True, slots=True)
class Layout:
    """The division of a file into blocks. Blocks below ``index_blocks`` are index, the others up to ``blocks`` data."""

    block_size: int
    index_blocks: int
    blocks: int

    def offset(self, block: int) -> int:
        """The byte at which ``block`` starts."""
        return HEADER.size + block * self.block_size


def read_header(data: bytes, size: int, source: str) -> Layout:
    """Returns the layout of a file of ``size`` bytes from its first bytes. Raises ``DataFault`` if they disagree."""
    if len(data) < HEADER.size or size < HEADER.size:
        raise DataFault(DataKind.TRUNCATED, source, 0, f"{size} bytes are too few for a header")
    block_size, index_blocks = HEADER.unpack_from(data)
    if block_size <= BLOCK_NUMBER.size:
        raise DataFault(DataKind.MALFORMED, source, 0, f"header claims blocks of {block_size} bytes")
    blocks, remainder = divmod(size - HEADER.size, block_size)
    if remainder:
        raise DataFault(
            DataKind.MALFORMED,
            source,
            0,
            f"{size} bytes are not a multiple of the block size {block_size}: the file is cut off or not an index",
        )
    if not 0 < index_blocks < blocks:
        raise DataFault(
            DataKind.MALFORMED, source, 4, f"header claims {index_blocks} index blocks of {blocks} blocks in all"
        )
    return Layout(block_size, index_blocks, blocks)


@dataclass(frozen=True, slots=True)
class IndexBlock:
    """``children[i]`` holds keys from ``separators[i - 1]`` to ``separators[i]``; one child more than separators."""

    separators: tuple[bytes, ...]
    children: tuple[int, ...]

    def find(self, key: bytes) -> int:
        """Returns the child that may hold the first key that is not below ``key``: a key that equals a separator goes
        left."""
        return bisect_left(self.separators, key)


def parse_index_block(block: bytes, number: int, layout: Layout, source: str) -> IndexBlock:
    """Raises ``DataFault`` for pointers that lead out of the file, backwards or down to both kinds of block."""
    offset = layout.offset(number)
    separators: list[bytes] = []
    children: list[int] = []
    position = 0
    while True:
        if position + BLOCK_NUMBER.size > len(block):
            raise DataFault(
                DataKind.MALFORMED, source, offset + position, f"index block {number} ends inside a pointer"
            )
        (child,) = BLOCK_NUMBER.unpack_from(block, position)
        if not number < child < layout.blocks or (children and child < children[-1]):
            reason = f"index block {number} points to block {child}, not forward within {layout.blocks} blocks"
            raise DataFault(DataKind.MALFORMED, source, offset + position, reason)
        children.append(child)
        position += BLOCK_NUMBER.size
        end = block.find(0, position)
        if end == position or position == len(block):
            break
        if end < 0:
            raise DataFault(
                DataKind.MALFORMED, source, offset + position, f"index block {number} has a prefix without an end"
            )
        prefix = block[position:end]
        if separators and prefix < separators[-1]:
            raise DataFault(
                DataKind.MALFORMED,
                source,
                offset + position,
                f"the keys in index block {number} of the B-tree are not in order",
            )
        separators.append(prefix)
        position = end + 1
    _check_padding(block, position, number, offset, source)
    if (children[0] < layout.index_blocks) != (children[-1] < layout.index_blocks):
        raise DataFault(
            DataKind.MALFORMED, source, offset, f"index block {number} points to index and data blocks at once"
        )
    return IndexBlock(tuple(separators), tuple(children))


@dataclass(frozen=True, slots=True)
class DataBlock:
    """Sorted keys with their values, in file order."""

    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]


def parse_data_block(block: bytes, number: int, layout: Layout, source: str) -> DataBlock:
    """Raises ``DataFault`` for items that run over the block's end, unsorted keys, and bytes after the last item."""
    offset = layout.offset(number)
    keys: list[bytes] = []
    values: list[bytes] = []
    position = 0
    size = len(block)
    find = block.find
    while position < size:
        end = find(0, position)
        if end == position:
            break
        item_end = end + 1 + POINTER.size
        if end < 0 or item_end > size:
            raise DataFault(
                DataKind.MALFORMED, source, offset + position, f"data block {number} has an item that runs over its end"
            )
        keys.append(block[position:end])
        values.append(block[end + 1 : item_end])
        position = item_end
    _check_padding(block, position, number, offset, source)
    if not keys and layout.blocks - layout.index_blocks > 1:
        raise DataFault(DataKind.MALFORMED, source, offset, f"data block {number} is empty")
    if any(keys[place] > keys[place + 1] for place in range(len(keys) - 1)):
        raise DataFault(DataKind.MALFORMED, source, offset, f"data block {number} has unsorted keys")
    return DataBlock(tuple(keys), tuple(values))


def _check_padding(block: bytes, position: int, number: int, offset: int, source: str) -> None:
    if block[position:].strip(b"\0"):
        raise DataFault(DataKind.MALFORMED, source, offset + position, f"block {number} has bytes after its last item")
