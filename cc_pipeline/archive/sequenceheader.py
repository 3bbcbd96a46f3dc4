"""The header of a Hadoop SequenceFile, versions 4 to 6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cc_pipeline.archive.hadoopcodecs import DEFAULT_CODEC
from cc_pipeline.archive.vint import decode_vint, encode_vint
from cc_pipeline.errors import DataFault

Compression = Literal["none", "record", "block"]

MAGIC: Final = b"SEQ"
SYNC_LENGTH: Final = 16
#: A record length of -1 announces a sync marker.
SYNC_ESCAPE: Final = b"\xff\xff\xff\xff"
#: Bytes a header may have; metadata is the only part of any size.
MAX_HEADER: Final = 1 << 20

_CUSTOM_CODEC: Final = 5
_WITH_METADATA: Final = 6


@dataclass(frozen=True, slots=True)
class SequenceHeader:
    """What a SequenceFile says of itself; ``length`` is the header's own length in bytes."""

    version: int
    key_class: str
    value_class: str
    compression: Compression
    codec: str | None
    metadata: tuple[tuple[str, str], ...]
    sync: bytes
    length: int


def parse_header(data: bytes, source: str) -> SequenceHeader:
    """Read the header at the begin of ``data``, a whole file or at least ``MAX_HEADER`` bytes of it.

    Raises ``DataFault``.
    """
    if data[:3] != MAGIC:
        raise DataFault(source, 0, f"no SequenceFile: begins with {data[:4].hex(' ')}" if data else "no bytes")
    version = data[3] if len(data) > 3 else -1
    if version not in (4, 5, 6):
        raise DataFault(source, 3, f"SequenceFile version {version}, known are 4 to 6")
    try:
        return _parse(data, version)
    except ValueError as error:
        raise DataFault(source, 0, f"SequenceFile header: {error}") from None


def _parse(data: bytes, version: int) -> SequenceHeader:
    key_class, position = _text(data, 4)
    value_class, position = _text(data, position)
    compressed, position = _boolean(data, position)
    by_block, position = _boolean(data, position)
    codec = None
    if compressed:
        codec, position = _text(data, position) if version >= _CUSTOM_CODEC else (DEFAULT_CODEC, position)
    metadata: list[tuple[str, str]] = []
    if version >= _WITH_METADATA:
        count = int.from_bytes(data[position : position + 4], signed=True)
        position += 4
        if not 0 <= count <= len(data) // 2:
            raise ValueError(f"{count} metadata entries")
        for _ in range(count):
            name, position = _text(data, position)
            value, position = _text(data, position)
            metadata.append((name, value))
    sync = data[position : position + SYNC_LENGTH]
    if len(sync) < SYNC_LENGTH:
        raise ValueError("cut off")
    compression: Compression = "none" if not compressed else ("block" if by_block else "record")
    length = position + SYNC_LENGTH
    return SequenceHeader(version, key_class, value_class, compression, codec, tuple(metadata), sync, length)


def write_header(
    key_class: str,
    value_class: str,
    compression: Compression,
    codec: str | None,
    metadata: tuple[tuple[str, str], ...],
    sync: bytes,
) -> bytes:
    """A version 6 header."""
    parts = [MAGIC, b"\x06", _string(key_class), _string(value_class)]
    parts += [bytes((compression != "none", compression == "block"))]
    if codec is not None:
        parts.append(_string(codec))
    parts.append(len(metadata).to_bytes(4))
    parts += [_string(text) for entry in metadata for text in entry]
    return b"".join((*parts, sync))


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return encode_vint(len(data)) + data


def _text(data: bytes, position: int) -> tuple[str, int]:
    length, start = decode_vint(data, position)
    if not 0 <= length <= len(data) - start:
        raise ValueError(f"a text of {length} bytes at byte {position}")
    return data[start : start + length].decode("utf-8", "replace"), start + length


def _boolean(data: bytes, position: int) -> tuple[bool, int]:
    if position >= len(data) or data[position] > 1:
        raise ValueError(f"no truth value at byte {position}")
    return data[position] == 1, position + 1
