"""Writes Hadoop SequenceFiles, which the product only reads."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from cc_pipeline.archive.sequencefile import (
    DEFAULT_CODEC,
    GZIP_CODEC,
    MAGIC,
    SYNC_ESCAPE,
    SYNC_LENGTH,
    TEXT,
    Compression,
)
from cc_pipeline.grouping import group_within

#: Bytes between two sync markers if records are not in blocks.
SYNC_INTERVAL: Final = 100 * (SYNC_LENGTH + 4)

Pairs: TypeAlias = Sequence[tuple[str, str]]

_CODECS: Final = {"default": DEFAULT_CODEC, "gzip": GZIP_CODEC}


def encode_vint(value: int) -> bytes:
    """Encodes a signed 64-bit number as one to nine bytes."""
    if -112 <= value <= 127:
        return (value & 0xFF).to_bytes(1)
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
    compression: Compression, codec: str | None, sync: bytes, *, key_class: str = TEXT, metadata: Pairs = ()
) -> bytes:
    """Returns a version 6 header."""
    parts = [MAGIC, b"\x06", encode_text(key_class), encode_text(TEXT)]
    parts += [bytes((compression != "none", compression == "block"))]
    if codec is not None:
        parts.append(encode_text(codec))
    parts.append(len(metadata).to_bytes(4))
    parts += [encode_text(text) for entry in metadata for text in entry]
    return b"".join((*parts, sync))


def write_sequencefile(
    pairs: Pairs, how: Compression = "block", codec: str = "gzip", *, seed: str = "tests", block_bytes: int = 1_000_000
) -> bytes:
    """Returns a file of ``pairs``. ``codec`` is ``default`` or ``gzip``; the sync marker follows from ``seed``."""
    sync = hashlib.sha256(seed.encode()).digest()[:SYNC_LENGTH]
    name = None if how == "none" else _CODECS[codec]
    parts = [write_header(how, name, sync)]
    encoded = [(encode_text(key), encode_text(value)) for key, value in pairs]
    if how == "block":
        parts += _write_blocks(encoded, _CODECS[codec], sync, block_bytes)
    since_sync = 0
    for key, value in () if how == "block" else encoded:
        data = value if name is None else compress(name, value)
        if since_sync >= SYNC_INTERVAL:
            parts.append(SYNC_ESCAPE + sync)
            since_sync = 0
        parts.append((len(key) + len(data)).to_bytes(4) + len(key).to_bytes(4) + key + data)
        since_sync += len(parts[-1])
    return b"".join(parts)


def _write_blocks(pairs: Iterable[tuple[bytes, bytes]], codec: str, sync: bytes, block_bytes: int) -> Iterator[bytes]:
    for block in group_within(pairs, (block_bytes,), lambda pair: (len(pair[0]) + len(pair[1]),)):
        yield SYNC_ESCAPE + sync + encode_vint(len(block))
        for items in zip(*block, strict=True):
            for data in (b"".join(encode_vint(len(item)) for item in items), b"".join(items)):
                packed = compress(codec, data)
                yield encode_vint(len(packed)) + packed
