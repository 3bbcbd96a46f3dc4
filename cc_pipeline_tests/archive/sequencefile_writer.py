"""Writes Hadoop SequenceFiles, which the product only reads."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable
from typing import BinaryIO, Final, Self

from cc_pipeline.archive.sequencefile import (
    DEFAULT_CODEC,
    GZIP_CODEC,
    MAGIC,
    SYNC_ESCAPE,
    SYNC_LENGTH,
    TEXT,
    Compression,
)

#: Serialized bytes after which a block is written (``io.seqfile.compress.blocksize``).
BLOCK_BYTES: Final = 1_000_000
#: Bytes between two sync markers if records are not in blocks.
SYNC_INTERVAL: Final = 100 * (SYNC_LENGTH + 4)

_CODECS: Final = {"default": DEFAULT_CODEC, "gzip": GZIP_CODEC}


def encode_vint(value: int) -> bytes:
    """Encodes a signed 64-bit number as one to nine bytes. Raises ``OverflowError`` beyond 64 bits."""
    if -112 <= value <= 127:
        return (value & 0xFF).to_bytes(1)
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{value} does not fit 64 bits")
    first = -112
    if value < 0:
        value = ~value
        first = -120
    size = (value.bit_length() + 7) // 8
    return (first - size & 0xFF).to_bytes(1) + value.to_bytes(size)


def encode_text(value: str) -> bytes:
    """Encodes a ``Text``: its length in UTF-8 bytes, then these. Lone surrogates become ``?``, as in Hadoop."""
    data = value.encode("utf-8", "replace")
    return encode_vint(len(data)) + data


def compress(codec: str, data: bytes) -> bytes:
    """Deflates with ``DEFAULT_CODEC`` or ``GZIP_CODEC``. The same input always gives the same output."""
    return zlib.compress(data) if codec == DEFAULT_CODEC else gzip.compress(data, compresslevel=6, mtime=0)


def write_header(
    key_class: str,
    value_class: str,
    compression: Compression,
    codec: str | None,
    metadata: tuple[tuple[str, str], ...],
    sync: bytes,
) -> bytes:
    """Returns a version 6 header."""
    parts = [MAGIC, b"\x06", encode_text(key_class), encode_text(value_class)]
    parts += [bytes((compression != "none", compression == "block"))]
    if codec is not None:
        parts.append(encode_text(codec))
    parts.append(len(metadata).to_bytes(4))
    parts += [encode_text(text) for entry in metadata for text in entry]
    return b"".join((*parts, sync))


class SequenceFileWriter:
    """Appends (key, value) texts to a binary stream; a context manager that finishes only its own blocks.

    ``compression`` is ``none``, ``record`` or ``block``; ``codec`` is ``default`` (zlib) or ``gzip``. With a
    ``seed`` the sync marker depends on it and the same records give the same bytes; else it is random.
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
        """Adds one record."""
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
        """Writes the current block."""
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()
