"""The block source of a B-tree: any reader of ranges, behind a cache of decoded blocks."""

from __future__ import annotations

import threading
from collections import OrderedDict

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.btree.format import (
    BLOCK_SIZE,
    HEADER,
    DataBlock,
    IndexBlock,
    Layout,
    parse_data_block,
    parse_index_block,
    read_header,
)
from cc_pipeline.transport.client import Transport

#: Blocks in the first read: the root and a second level of up to three blocks.
FIRST_BLOCKS = 4
#: Most data blocks one read takes while scanning onward.
MAX_AHEAD_BLOCKS = 16
#: Data blocks in memory.
_MAX_CACHED_BLOCKS = 1024


class BlockSource:
    """Decoded blocks of one B-tree file, fetched as seldom as possible; safe to share between threads.

    ``reads`` and ``bytes_read`` count the reads of the reader and their bytes. Index blocks stay in memory. Beyond
    ``_MAX_CACHED_BLOCKS`` data blocks, the one that was used longest ago is dropped.
    """

    def __init__(self, reader: Transport, key: str) -> None:
        self.key = key
        self.reads = 0
        self.bytes_read = 0
        self._reader = reader
        self._lock = threading.RLock()
        self._index: dict[int, IndexBlock | bytes] = {}
        self._data: OrderedDict[int, DataBlock | bytes] = OrderedDict()
        self._layout: Layout | None = None
        self._block_locks: dict[int, threading.Lock] = {}

    def layout(self) -> Layout:
        """Returns the file's layout; the first call reads it together with the top of the tree."""
        with self._lock:
            if self._layout is None:
                self._layout = self._open()
            return self._layout

    def index_block(self, number: int) -> IndexBlock:
        """Returns an index block. Raises ``DataFault`` for a malformed one."""
        layout = self.layout()
        with self._block_lock(number):
            block = self._index.get(number)
            if not isinstance(block, IndexBlock):
                block = parse_index_block(block or self._blocks(number, 1)[0], number, layout, self.key)
                self._index[number] = block
            return block

    def data_block(self, number: int, block_count: int = 1) -> DataBlock:
        """The data block, reading ``block_count`` blocks at once where it is not cached.

        A block is decoded only when it is asked for, so damage in a neighbour that was read along raises nothing.
        """
        layout = self.layout()
        if not layout.index_blocks <= number < layout.blocks:
            raise DataFault(
                DataKind.MALFORMED,
                self.key,
                None,
                f"block {number} is not among the {layout.blocks} blocks' data blocks",
            )
        with self._block_lock(number):
            with self._lock:
                block = self._data.get(number)
            if block is None:
                count = min(block_count, MAX_AHEAD_BLOCKS, layout.blocks - number)
                raw = self._blocks(number, count)
                for place in reversed(range(1, count)):
                    self._keep(number + place, raw[place])
                block = raw[0]
            if not isinstance(block, DataBlock):
                block = parse_data_block(block, number, layout, self.key)
            self._keep(number, block)
            return block

    def _block_lock(self, number: int) -> threading.Lock:
        """Returns the lock of a block: threads that need the same block wait for one read of it."""
        with self._lock:
            return self._block_locks.setdefault(number, threading.Lock())

    def _keep(self, number: int, block: DataBlock | bytes) -> None:
        with self._lock:
            self._data[number] = block
            self._data.move_to_end(number)
            while len(self._data) > _MAX_CACHED_BLOCKS:
                self._block_locks.pop(self._data.popitem(last=False)[0], None)

    def _open(self) -> Layout:
        data, total = self._read_top(HEADER.size + FIRST_BLOCKS * BLOCK_SIZE)
        if total is None:
            raise EnvironmentFault(
                f"the size of {self.key} is not known", "Use a source whose responses give the size of a file"
            )
        layout = read_header(data, total, self.key)
        complete_blocks = min(layout.blocks, (len(data) - HEADER.size) // layout.block_size)
        for number in range(complete_blocks):
            start = layout.offset(number)
            block = data[start : start + layout.block_size]
            if number < layout.index_blocks:
                self._index[number] = block
            elif len(self._data) < _MAX_CACHED_BLOCKS:
                self._keep(number, block)
        return layout

    def _read_top(self, length: int) -> tuple[bytes, int | None]:
        try:
            return self._read(0, length)
        except DataFault:  # a verified range that goes beyond the end of a small file is refused
            header, total = self._read(0, HEADER.size)
            if total is None or not len(header) < total < length:
                raise
            return self._read(0, total)

    def _blocks(self, number: int, count: int) -> list[bytes]:
        layout = self.layout()
        offset, size = layout.offset(number), layout.block_size
        data, total = self._read(offset, count * size)
        if total is not None and total != layout.offset(layout.blocks):
            raise DataFault(
                DataKind.MISMATCH, self.key, None, f"size changed from {layout.offset(layout.blocks)} to {total} bytes"
            )
        if len(data) != count * size:
            raise DataFault(
                DataKind.LENGTH_MISMATCH,
                self.key,
                offset,
                f"the answer has {len(data)} bytes instead of {count * size}",
            )
        return [data[start : start + size] for start in range(0, len(data), size)]

    def _read(self, offset: int, length: int) -> tuple[bytes, int | None]:
        answer = self._reader.read(self.key, offset, length)
        with self._lock:
            self.reads += 1
            self.bytes_read += len(answer.data)
        return answer.data, answer.total
