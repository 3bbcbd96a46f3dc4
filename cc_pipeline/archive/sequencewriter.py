"""Writing Hadoop SequenceFiles of ``Text`` keys and ``Text`` values, as Common Crawl did in 2012."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from types import TracebackType
from typing import BinaryIO, Final, Self

from cc_pipeline.archive.hadoopcodecs import DEFAULT_CODEC, GZIP_CODEC, compress
from cc_pipeline.archive.sequencefile import SYNC_ESCAPE, SYNC_LENGTH, Compression, write_header
from cc_pipeline.archive.writables import TEXT, encode_text, encode_vint
from cc_pipeline.errors import UserInputError

#: Serialized bytes after which a block is written (``io.seqfile.compress.blocksize``).
BLOCK_BYTES: Final = 1_000_000
#: Bytes between two sync markers where records are not in blocks.
SYNC_INTERVAL: Final = 100 * (SYNC_LENGTH + 4)

_CODECS: Final = {"default": DEFAULT_CODEC, "gzip": GZIP_CODEC}


class SequenceFileWriter:
    """Appends (key, value) texts to a binary stream; a context manager that closes nothing but its own blocks.

    ``compression`` is ``none``, ``record`` or ``block``; ``codec`` is ``default`` (zlib) or ``gzip``. With a
    ``seed`` the sync marker follows from it and the same records give the same bytes; else it is random.
    Raises ``UserInputError`` for another compression or codec.
    """

    def __init__(
        self,
        stream: BinaryIO,
        compression: Compression = "block",
        codec: str = "gzip",
        seed: str | None = None,
        metadata: Iterable[tuple[str, str]] = (),
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        if compression not in ("none", "record", "block"):
            raise UserInputError(f"unknown compression {compression!r} (none, record or block)")
        if codec not in _CODECS:
            raise UserInputError(f"unknown codec {codec!r} (default or gzip)")
        self._stream = stream
        self._compression = compression
        self._codec = None if compression == "none" else _CODECS[codec]
        sync = os.urandom(SYNC_LENGTH) if seed is None else hashlib.sha256(seed.encode()).digest()[:SYNC_LENGTH]
        self._marker = SYNC_ESCAPE + sync
        self._block_bytes = block_bytes
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._buffered = 0
        header = write_header(TEXT, TEXT, compression, self._codec, tuple(metadata), sync)
        stream.write(header)
        self._since_sync = 0
        #: Records appended so far.
        self.count = 0

    def append(self, key: str, value: str) -> None:
        """Add one record."""
        key_bytes, value_bytes = encode_text(key), encode_text(value)
        self.count += 1
        if self._compression == "block":
            self._keys.append(key_bytes)
            self._values.append(value_bytes)
            self._buffered += len(key_bytes) + len(value_bytes)
            if self._buffered >= self._block_bytes:
                self.flush()
            return
        if self._codec is not None:
            value_bytes = compress(self._codec, value_bytes)
        if self._since_sync >= SYNC_INTERVAL:
            self._stream.write(self._marker)
            self._since_sync = 0
        length = len(key_bytes) + len(value_bytes)
        self._stream.write(length.to_bytes(4) + len(key_bytes).to_bytes(4) + key_bytes + value_bytes)
        self._since_sync += 8 + length

    def flush(self) -> None:
        """Write the block begun so far."""
        if not self._keys or self._codec is None:
            return
        parts = [self._marker, encode_vint(len(self._keys))]
        for items in (self._keys, self._values):
            for data in (b"".join(encode_vint(len(item)) for item in items), b"".join(items)):
                packed = compress(self._codec, data)
                parts += (encode_vint(len(packed)), packed)
        self._stream.write(b"".join(parts))
        self._keys, self._values, self._buffered = [], [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
