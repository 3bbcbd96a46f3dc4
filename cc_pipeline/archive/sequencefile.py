"""Reads the SequenceFiles of the 2012 crawl's texts and metadata: Hadoop's format, with keys and values of its class
``Text``."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from cc_pipeline.archive.gzip_members import DEFAULT_LIMIT, ByteSource, Window, open_window
from cc_pipeline.errors import DataFault, DataKind

Compression = Literal["none", "record", "block"]

TEXT: Final = "org.apache.hadoop.io.Text"
DEFAULT_CODEC: Final = "org.apache.hadoop.io.compress.DefaultCodec"
GZIP_CODEC: Final = "org.apache.hadoop.io.compress.GzipCodec"
#: The window bits of zlib for each codec.
_CODECS: Final = {DEFAULT_CODEC: 15, GZIP_CODEC: 31}

MAGIC: Final = b"SEQ"
SYNC_LENGTH: Final = 16
#: A record length of -1 announces a sync marker.
SYNC_ESCAPE: Final = b"\xff\xff\xff\xff"
#: The maximum bytes of a header; only its metadata can be large.
MAX_HEADER: Final = 1 << 20

_CUSTOM_CODEC: Final = 5
_WITH_METADATA: Final = 6

#: The maximum records of a block; Hadoop's blocks are a megabyte by default.
MAX_BLOCK_RECORDS: Final = 1 << 22

_MAX_VINT: Final = 9
#: Bytes of bad records that may be examined in one file before the rest is skipped.
_VAIN_WORK: Final = 16 << 30


class _Damage(ValueError):
    """Bytes that violate their format, with the ``kind`` of fault. Any other ``ValueError`` counts as ``malformed``."""

    def __init__(self, kind: DataKind, reason: str) -> None:
        self.kind = kind
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class SequenceHeader:
    """The header of a SequenceFile; ``length`` is the header's own length in bytes."""

    compression: Compression
    codec: str | None
    sync: bytes
    length: int


def parse_header(data: bytes, source: str) -> SequenceHeader:
    """Parses the header at the beginning of ``data``, a complete file or at least ``MAX_HEADER`` bytes of it.

    Raises ``DataFault``, also for other classes than ``Text``, and for other codecs than Default (zlib) and Gzip.
    """
    if data[:3] != MAGIC:
        raise DataFault(
            DataKind.MALFORMED, source, 0, f"no SequenceFile: begins with {data[:4].hex(' ')}" if data else "no bytes"
        )
    version = data[3] if len(data) > 3 else -1
    if version not in (4, 5, 6):
        raise DataFault(DataKind.UNSUPPORTED, source, 3, f"SequenceFile version {version}, known are 4 to 6")
    try:
        return _parse(data, version)
    except ValueError as error:
        raise _damage_fault(error, source, 0, "SequenceFile header: ") from None


def _parse(data: bytes, version: int) -> SequenceHeader:
    key_class, position = _take_text(data, 4)
    value_class, position = _take_text(data, position)
    if (key_class, value_class) != (TEXT, TEXT):
        raise _Damage(DataKind.UNSUPPORTED, f"pairs of {key_class[:80]} and {value_class[:80]}, only {TEXT} is read")
    compressed, position = _boolean(data, position)
    by_block, position = _boolean(data, position)
    codec = None
    if compressed:
        codec, position = _take_text(data, position) if version >= _CUSTOM_CODEC else (DEFAULT_CODEC, position)
        if codec not in _CODECS:
            raise _Damage(DataKind.UNSUPPORTED, f"unknown codec {codec[:80]}")
    if version >= _WITH_METADATA:
        count = int.from_bytes(data[position : position + 4], signed=True)
        position += 4
        if not 0 <= count <= len(data) // 2:
            raise ValueError(f"{count} metadata entries")
        for _ in range(2 * count):
            _, position = _take_text(data, position)
    sync = data[position : position + SYNC_LENGTH]
    if len(sync) < SYNC_LENGTH:
        raise _Damage(DataKind.TRUNCATED, "cut off")
    compression: Compression = "none" if not compressed else ("block" if by_block else "record")
    return SequenceHeader(compression, codec, sync, position + SYNC_LENGTH)


def _take_text(data: bytes, position: int) -> tuple[str, int]:
    length, start = decode_vint(data, position)
    if not 0 <= length <= len(data) - start:
        raise ValueError(f"a text of {length} bytes at byte {position}")
    return data[start : start + length].decode("utf-8", "replace"), start + length


def _boolean(data: bytes, position: int) -> tuple[bool, int]:
    if position >= len(data) or data[position] > 1:
        raise ValueError(f"no truth value at byte {position}")
    return data[position] == 1, position + 1


@dataclass(frozen=True, slots=True)
class SequencePair:
    """A record: the offset (bytes) of it or of its block, its key and its value."""

    offset: int
    key: str
    value: str


def iter_pairs(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[SequencePair | DataFault]:
    """Yields every record in order, and a ``DataFault`` for each unreadable range of bytes.

    After damage it continues at the next sync marker. ``limit`` bounds the memory of a record or a block. A file
    without a readable header gives one fault. Raises only ``EnvironmentFault``.
    """
    with open_window(stream) as window:
        begin = window.begin
        try:
            header = parse_header(window.slice(begin, MAX_HEADER), source)
        except DataFault as fault:
            yield fault
            return
        walk = _Walk(window, header, source, limit)
        yield from (
            walk.blocks(begin + header.length) if header.compression == "block" else walk.records(begin + header.length)
        )


class _Walk:
    def __init__(self, window: Window, header: SequenceHeader, source: str, limit: int) -> None:
        self._window = window
        self._header = header
        self._source = source
        self._limit = limit
        self._marker = SYNC_ESCAPE + header.sync
        self._vain = 0

    def records(self, position: int) -> Iterator[SequencePair | DataFault]:
        window = self._window
        while position >= 0 and not window.is_at_end(position):
            window.release(position)
            head = window.slice(position, len(self._marker))
            if head == self._marker:
                position += len(head)
                continue
            try:
                end = self._record_end(head, position)
                pair = self._pair(position, end, int.from_bytes(head[4:8]))
            except ValueError as error:
                yield _damage_fault(error, self._source, position)
                position = self._next_marker(position + 1, int.from_bytes(head[:4]))
                continue
            yield pair
            position = end

    def _record_end(self, head: bytes, position: int) -> int:
        if len(head) < 8:
            raise _Damage(DataKind.TRUNCATED, "the last record is cut off")
        if head[:4] == SYNC_ESCAPE:
            raise ValueError("a sync marker that is not this file's")
        length = int.from_bytes(head[:4], signed=True)
        key_length = int.from_bytes(head[4:8], signed=True)
        if not 0 <= key_length <= length:
            raise ValueError(f"record of {length} bytes with a key of {key_length}")
        if length > self._limit:
            raise _Damage(DataKind.TOO_LARGE, f"record of {length} bytes, more than the bound of {self._limit}")
        end = position + 8 + length
        if self._window.is_at_end(end - 1) and length:
            raise _Damage(
                DataKind.LENGTH_MISMATCH, f"record of {length} bytes, {self._window.seen - position - 8} are there"
            )
        return end

    def _pair(self, position: int, end: int, key_length: int) -> SequencePair:
        data = self._window.slice(position + 8, end - position - 8)
        value = data[key_length:]
        if self._header.codec is not None:
            value = _inflate(self._header.codec, value, self._limit)
        return SequencePair(position, _decode_text(data[:key_length]), _decode_text(value))

    def blocks(self, position: int) -> Iterator[SequencePair | DataFault]:
        window = self._window
        while position >= 0 and not window.is_at_end(position):
            window.release(position)
            try:
                if window.slice(position, len(self._marker)) != self._marker:
                    raise ValueError("no sync marker where a block should begin")
                pairs, end = self._block(position)
            except ValueError as error:
                yield _damage_fault(error, self._source, position)
                position = self._next_marker(position + 1, window.seen - position)
                continue
            yield from pairs
            position = end

    def _block(self, begin: int) -> tuple[Iterator[SequencePair | DataFault], int]:
        count, position = self._vint(begin + len(self._marker))
        if not 0 <= count <= MAX_BLOCK_RECORDS:
            raise ValueError(f"a block of {count} records")
        buffers: list[bytes] = []
        room = self._limit
        for name in ("key lengths", "keys", "value lengths", "values"):
            length, position = self._vint(position)
            if not 0 <= length <= self._limit:
                raise ValueError(f"a block's {name} of {length} bytes")
            data = self._window.slice(position, length)
            if len(data) < length:
                raise _Damage(DataKind.LENGTH_MISMATCH, f"a block's {name} of {length} bytes, {len(data)} are there")
            buffers.append(_inflate(self._header.codec or DEFAULT_CODEC, data, room))
            room -= len(buffers[-1])
            position += length
        keys = _lengths(buffers[0], count, len(buffers[1]), "keys")
        values = _lengths(buffers[2], count, len(buffers[3]), "values")
        return self._cut(begin, keys, buffers[1], values, buffers[3]), position

    def _cut(
        self, begin: int, key_lengths: array[int], keys: bytes, value_lengths: array[int], values: bytes
    ) -> Iterator[SequencePair | DataFault]:
        key_start = value_start = 0
        for key_length, value_length in zip(key_lengths, value_lengths, strict=True):
            key = keys[key_start : key_start + key_length]
            value = values[value_start : value_start + value_length]
            key_start += key_length
            value_start += value_length
            try:
                yield SequencePair(begin, _decode_text(key), _decode_text(value))
            except ValueError as error:
                yield _damage_fault(error, self._source, begin, "a record of the block: ")

    def _vint(self, position: int) -> tuple[int, int]:
        number, size = decode_vint(self._window.slice(position, _MAX_VINT), 0)
        return number, position + size

    def _next_marker(self, position: int, examined: int) -> int:
        """Returns the next sync marker; -1 if there is none, or too many bytes were ``examined`` in vain."""
        self._vain += min(examined, self._limit)
        if self._vain > _VAIN_WORK:
            return -1

        def find(piece: bytes) -> Iterator[int]:
            place = piece.find(self._marker)
            if place >= 0:
                yield place

        return self._window.search(find, position, len(self._marker))


def _lengths(encoded: bytes, count: int, total: int, name: str) -> array[int]:
    """Decodes the ``count`` lengths in ``encoded``; they must add up to ``total`` bytes."""
    lengths = array("q")
    place = missing = 0
    for _ in range(count):
        length, place = decode_vint(encoded, place)
        if length < 0:
            raise ValueError(f"a block's {name} have a negative length")
        lengths.append(length)
        missing += length
    if missing != total or place != len(encoded):
        raise ValueError(f"a block's {name} do not fit their lengths")
    return lengths


def _damage_fault(error: ValueError, source: str, offset: int, where: str = "") -> DataFault:
    """Returns the fault for ``error`` at ``offset`` (bytes) of ``source``; ``where`` is put before its text."""
    kind = error.kind if isinstance(error, _Damage) else DataKind.MALFORMED
    return DataFault(kind, source, offset, f"{where}{error}")


def decode_vint(data: bytes, position: int) -> tuple[int, int]:
    """Returns the number at ``position`` and the position after it. Raises ``ValueError`` if ``data`` ends before."""
    if position >= len(data):
        raise _Damage(DataKind.TRUNCATED, "a variable-length number is missing")
    first = data[position]
    if first <= 0x7F or first >= 0x90:
        return (first if first <= 0x7F else first - 256), position + 1
    size = 0x90 - first if first >= 0x88 else 0x88 - first
    end = position + 1 + size
    if end > len(data):
        raise _Damage(DataKind.TRUNCATED, "a variable-length number is cut off")
    value = int.from_bytes(data[position + 1 : end])
    return (value if first >= 0x88 else ~value), end


def _decode_text(data: bytes) -> str:
    """Returns the ``Text`` of a record. Bytes that are not UTF-8 become replacement characters, as in Hadoop."""
    length, start = decode_vint(data, 0)
    if length != len(data) - start:
        raise ValueError(f"Text of {length} bytes in {len(data) - start}")
    return data[start:].decode("utf-8", "replace")


def _inflate(codec: str, data: bytes, limit: int) -> bytes:
    """Inflates ``data``, one or several consecutive streams, to at most ``limit`` bytes. Raises ``ValueError``."""
    parts: list[bytes] = []
    while True:
        engine = zlib.decompressobj(_CODECS[codec])
        try:
            parts.append(engine.decompress(data, limit + 1))
        except zlib.error as error:
            raise ValueError(f"{codec.rpartition('.')[2]}: {str(error)[:80]}") from None
        limit -= len(parts[-1])
        if limit < 0:
            raise _Damage(DataKind.TOO_LARGE, "inflates beyond the bound")
        if not engine.eof:
            raise _Damage(DataKind.TRUNCATED, "compressed bytes are cut off")
        if not (data := engine.unused_data):
            return b"".join(parts)
