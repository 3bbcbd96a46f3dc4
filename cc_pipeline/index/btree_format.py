"""The prefixed B-tree of the 2012 URL index, byte by byte: header, blocks, items and the 32-byte pointer.

Format: docs/url-index-format.md (source: the 2012 index's own README and the file it describes).
All numbers are little-endian and unpadded.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cc_pipeline.errors import DataFault

#: Block size of the published index, in bytes.
BLOCK_SIZE = 65536
#: Block size and number of index blocks.
HEADER = struct.Struct("<II")
#: A block number inside an index block.
BLOCK_NUMBER = struct.Struct("<I")
#: Segment id, ARC file date in milliseconds, ARC file partition, offset, compressed size.
POINTER = struct.Struct("<QQIQI")


class Pointer(NamedTuple):
    """Where a record lies: the five numbers of the 2012 index. ``offset`` and ``size`` are bytes, ``date`` is ms."""

    segment: int
    date: int
    partition: int
    offset: int
    size: int


class UnfitItem(DataFault):
    """An item the format cannot hold: unsorted, empty, too large, or with a NUL in its key."""


def pack_pointer(segment: int, date: int, partition: int, offset: int, size: int) -> bytes:
    """The 32 bytes that stand behind a key. Raises ``UnfitItem`` where a number does not fit its field."""
    try:
        return POINTER.pack(segment, date, partition, offset, size)
    except struct.error as error:
        numbers = f"{segment}, {date}, {partition}, {offset}, {size}"
        raise UnfitItem("pointer", None, f"numbers {numbers} do not fit <QQIQI ({error})") from error


def unpack_pointer(value: bytes) -> Pointer:
    """The five numbers of a 32-byte value. Raises ``DataFault`` for any other length."""
    if len(value) != POINTER.size:
        raise DataFault("pointer", None, f"{len(value)} bytes where {POINTER.size} were expected")
    return Pointer(*POINTER.unpack(value))


def separator(previous: bytes, following: bytes) -> bytes:
    """The shortest prefix of ``following`` that differs from ``previous``; the whole key where both are equal."""
    length = min(len(previous), len(following))
    if previous[:length] == following[:length]:
        return following[: length + 1]
    low, high = 0, length
    while low < high:  # the longest common prefix, by halving: slices compare at memcmp speed
        middle = (low + high + 1) // 2
        if previous[:middle] == following[:middle]:
            low = middle
        else:
            high = middle - 1
    return following[: low + 1]
