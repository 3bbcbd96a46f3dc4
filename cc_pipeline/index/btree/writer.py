"""Writes a prefixed B-tree from sorted items, byte for byte as the 2012 writer did, in bounded memory.

One difference: without items that writer made only a root. Here an empty data block follows it, so that a file which
lost its end does not look like an empty one.

The file starts with the index, whose size is known only at the end: data blocks and index levels are spilled
to temporary files and put together when the last item has been seen.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

from cc_pipeline.errors import DataKind, UserInputError
from cc_pipeline.index.btree.format import BLOCK_NUMBER, BLOCK_SIZE, HEADER, UnfitItem, separator

#: Bytes a spill may keep in memory before it moves to a file.
SPILL_MEMORY = 4 << 20


@dataclass(frozen=True, slots=True)
class BTreeSummary:
    """The number of items of a written file, and its size in bytes."""

    items: int
    size: int


class _Spill:
    """Blocks of one kind in writing order, each padded to the block size."""

    def __init__(self, block_size: int, folder: str | None) -> None:
        self.count = 0
        self.block_size = block_size
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(SPILL_MEMORY, dir=folder)  # noqa: SIM115 - closed in close()

    def add(self, block: bytes | bytearray) -> None:
        self.file.write(block)
        self.file.write(bytes(self.block_size - len(block)))
        self.count += 1

    def close(self) -> None:
        self.file.close()


class _Level:
    """One level of the index; pointers are numbers within the level below until the tree is put together."""

    def __init__(self, block_size: int, folder: str | None) -> None:
        self.spill = _Spill(block_size, folder)
        self.block = bytearray(BLOCK_NUMBER.pack(0))
        self.last = 0

    def add(self, prefix: bytes) -> bool:
        """Adds the next child, which starts with ``prefix``; returns whether that opened a new block here."""
        entry = prefix + b"\0" + BLOCK_NUMBER.pack(self.last + 1)
        opened = len(self.block) + len(entry) > self.spill.block_size
        if opened:
            self.spill.add(self.block)
            self.block = bytearray(BLOCK_NUMBER.pack(self.last))
        self.block += entry
        self.last += 1
        return opened


class _Tree:
    def __init__(self, block_size: int, folder: str | None) -> None:
        self.block_size = block_size
        self.folder = folder
        self.data = _Spill(block_size, folder)
        self.levels = [_Level(block_size, folder)]  # the level above the data first, the root last

    def separate(self, prefix: bytes) -> None:
        """Adds a data block that starts with ``prefix``; an overflow carries the same prefix one level up."""
        depth = 0
        while self.levels[depth].add(prefix):
            depth += 1
            if depth == len(self.levels):
                self.levels.append(_Level(self.block_size, self.folder))

    def write(self, out: IO[bytes], items: int) -> BTreeSummary:
        for level in self.levels:
            level.spill.add(level.block)
        index_blocks = sum(level.spill.count for level in self.levels)
        out.write(HEADER.pack(self.block_size, index_blocks))
        base = 0
        for level in reversed(self.levels):
            base += level.spill.count
            level.spill.file.seek(0)
            for _ in range(level.spill.count):
                out.write(_shifted(level.spill.file.read(self.block_size), base))
        self.data.file.seek(0)
        shutil.copyfileobj(self.data.file, out, 1 << 20)
        size = HEADER.size + self.block_size * (index_blocks + self.data.count)
        return BTreeSummary(items, size)

    def close(self) -> None:
        self.data.close()
        for level in self.levels:
            level.spill.close()


def _shifted(block: bytes, base: int) -> bytes:
    """Returns the index block with ``base`` added to each of its pointers."""
    moved = bytearray(block)
    position = 0
    while True:
        (number,) = BLOCK_NUMBER.unpack_from(moved, position)
        BLOCK_NUMBER.pack_into(moved, position, number + base)
        position += BLOCK_NUMBER.size
        end = moved.find(0, position)
        if end in (position, -1):
            return bytes(moved)
        position = end + 1


def write_btree(
    items: Iterable[tuple[bytes, bytes]],
    out: IO[bytes],
    block_size: int = BLOCK_SIZE,
    *,
    name: str = "url index",
    scratch: str | None = None,
) -> BTreeSummary:
    """Writes the sorted ``(key, value)`` items to ``out`` as one prefixed B-tree.

    Keys may repeat; values are 32 bytes in a URL index (``pack_pointer``), any one length is possible. ``name``
    is what errors call the file, ``scratch`` the folder for spilled blocks (system default). ``out`` is written
    from front to back, once the items have ended. Raises ``UnfitItem`` (a ``DataFault``) with the item's key for an
    empty, unsorted or oversized key, a NUL in a key, or a value of another length; nothing is written then.
    """
    if not BLOCK_NUMBER.size < block_size <= 0xFFFFFFFF:
        raise UserInputError(f"block size {block_size} is not between 5 bytes and 4 GiB")
    tree = _Tree(block_size, scratch)
    try:
        return tree.write(out, _fill(tree, items, name))
    finally:
        tree.close()


def _fill(tree: _Tree, items: Iterable[tuple[bytes, bytes]], name: str) -> int:
    block_size = tree.block_size
    previous = b""
    value_size = -1
    parts: list[bytes] = []
    used_bytes = number = 0
    for number, (key, value) in enumerate(items, start=1):
        if key <= previous and (key < previous or not key):
            problem = "is empty" if not key else f"sorts before {_quote_key(previous)}"
            raise UnfitItem(DataKind.MALFORMED, name, None, f"key {_quote_key(key)} (item {number}) {problem}")
        if len(value) != value_size:
            if value_size >= 0:
                reason = f"key {_quote_key(key)} (item {number}) has {len(value)} bytes, not {value_size}"
                raise UnfitItem(DataKind.MALFORMED, name, None, reason)
            value_size = len(value)
        if b"\0" in key:
            raise UnfitItem(DataKind.MALFORMED, name, None, f"key {_quote_key(key)} (item {number}) has a NUL byte")
        size = len(key) + 1 + value_size
        if used_bytes + size > block_size:
            _check_size(key, size, block_size, number, name)
            if used_bytes:
                tree.data.add(b"".join(parts))
                prefix = separator(previous, key)
                _check_size(prefix, 2 * BLOCK_NUMBER.size + 1 + len(prefix), block_size, number, name)
                tree.separate(prefix)
                parts, used_bytes = [], 0
        parts += (key, b"\0", value)
        used_bytes += size
        previous = key
    tree.data.add(b"".join(parts))
    return number


def _quote_key(key: bytes) -> str:
    """Returns a key for a message: text in quotes, with other bytes escaped."""
    return repr(key.decode("utf-8", "backslashreplace"))


def _check_size(key: bytes, size: int, block_size: int, number: int, name: str) -> None:
    if size > block_size:
        reason = f"key {_quote_key(key)} (item {number}) needs {size} bytes, a block has {block_size}"
        raise UnfitItem(DataKind.TOO_LARGE, name, None, reason)
