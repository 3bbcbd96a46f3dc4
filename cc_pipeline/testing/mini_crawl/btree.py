"""Writes a prefixed B-tree from sorted items, byte for byte as the writer of 2012 did.

One difference: without items that writer made only a root. Here an empty data block follows it, so that a file which
lost its end does not look like an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO

from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.btree.format import BLOCK_NUMBER, BLOCK_SIZE, HEADER, POINTER

#: An entry of an index block: the prefix before a pointer (empty before the first), and the number of the child within
#: the level below.
_Entry = tuple[bytes, int]


def pack_pointer(segment: int, date: int, partition: int, offset: int, size: int) -> bytes:
    """Returns the 32 bytes that follow a key."""
    return POINTER.pack(segment, date, partition, offset, size)


def write_btree(items: Iterable[tuple[bytes, bytes]], out: IO[bytes], block_size: int = BLOCK_SIZE) -> None:
    """Writes the sorted ``(key, value)`` items to ``out`` as one prefixed B-tree. Keys may repeat; values are those of
    ``pack_pointer``.

    Raises ``DataFault`` with the item's key for an empty, unsorted or oversized key, and for a NUL in a key. Nothing
    is written then.
    """
    data_blocks, prefixes = _build_data_blocks(items, block_size)
    levels: list[list[list[_Entry]]] = []
    while not levels or prefixes:
        level, prefixes = _build_level(prefixes, block_size)
        levels.insert(0, level)
    out.write(HEADER.pack(block_size, sum(map(len, levels))))
    base = 0
    for level in levels:
        base += len(level)
        for entries in level:
            out.write(_pack_entries(entries, base).ljust(block_size, b"\0"))
    for block in data_blocks:
        out.write(block.ljust(block_size, b"\0"))


def separator(previous: bytes, following: bytes) -> bytes:
    """Returns the shortest prefix of ``following`` that differs from ``previous``; the whole key if both are equal."""
    common = 0
    while previous[common : common + 1] == following[common : common + 1] and common < len(following):
        common += 1
    return following[: common + 1]


def _build_data_blocks(
    items: Iterable[tuple[bytes, bytes]], block_size: int
) -> tuple[Sequence[bytes | bytearray], list[bytes]]:
    """Returns the blocks, and the separators before each of them but the first."""
    blocks, separators = [bytearray()], list[bytes]()
    previous = b""
    for number, (key, value) in enumerate(items, start=1):
        item = key + b"\0" + value
        if not key or b"\0" in key or key < previous or len(item) > block_size:
            reason = f"key {key!r} (item {number}) is empty, unsorted, too long, or has a NUL byte"
            raise DataFault(DataKind.MALFORMED, "url index", None, reason)
        if len(blocks[-1]) + len(item) > block_size:
            blocks.append(bytearray())
            separators.append(separator(previous, key))
        blocks[-1] += item
        previous = key
    return blocks, separators


def _build_level(prefixes: Sequence[bytes], block_size: int) -> tuple[list[list[_Entry]], list[bytes]]:
    """Returns the index blocks above children that ``prefixes`` separate, and the prefixes for the level above.

    A new block repeats the last pointer of the one before, and its first prefix is carried up.
    """
    blocks: list[list[_Entry]] = [[(b"", 0)]]
    carried = []
    size = BLOCK_NUMBER.size
    for number, prefix in enumerate(prefixes):
        size += len(prefix) + 1 + BLOCK_NUMBER.size
        if size > block_size:
            blocks.append([(b"", number)])
            carried.append(prefix)
            size = len(prefix) + 1 + 2 * BLOCK_NUMBER.size
        blocks[-1].append((prefix, number + 1))
    return blocks, carried


def _pack_entries(entries: Sequence[_Entry], base: int) -> bytes:
    return b"".join((prefix + b"\0" if prefix else b"") + BLOCK_NUMBER.pack(child + base) for prefix, child in entries)
