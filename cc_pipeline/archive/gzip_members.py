"""Gzip members (RFC 1952): one at a time, or in a window that moves over a file; memory is bounded."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

from isal import igzip_lib, isal_zlib

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault

GZIP_MAGIC: Final = b"\x1f\x8b\x08"
#: The maximum inflated bytes of a single member. Common Crawl cuts payloads at 1 to 5 MiB.
DEFAULT_LIMIT: Final = 64 << 20

#: The error of igzip for bytes that are no deflate stream; its stubs declare the class as an instance.
DAMAGE: Final = cast("type[Exception]", igzip_lib.IsalError)

_GZIP_WINDOW: Final = 31


class InflatedMember(NamedTuple):
    """A complete, checked member: its offset, its compressed length, its content. Lengths are bytes."""

    offset: int
    consumed: int
    content: bytes


def inflate_member(data: bytes, source: str, offset: int, limit: int = DEFAULT_LIMIT) -> InflatedMember:
    """Inflates the first gzip member of ``data``, which is at ``offset`` of ``source``; bytes after it are ignored.

    Raises ``DataFault`` if ``data`` does not begin with a member, the member is cut off or damaged, or its content is
    larger than ``limit`` bytes.
    """
    if data[:3] != GZIP_MAGIC:
        kind, reason = describe_non_gzip(data)
        raise DataFault(kind, source, offset, reason)
    engine = isal_zlib.decompressobj(_GZIP_WINDOW)
    try:
        content = engine.decompress(data, limit + 1)
    except DAMAGE as error:
        raise DataFault(DataKind.GZIP_CORRUPT, source, offset, f"damaged gzip member ({damage_cause(error)})") from None
    if len(content) > limit:
        raise DataFault(DataKind.TOO_LARGE, source, offset, f"gzip member inflates beyond {limit} bytes")
    if not engine.eof:
        raise DataFault(DataKind.GZIP_TRUNCATED, source, offset, f"gzip member is cut off after {len(data)} bytes")
    return InflatedMember(offset, len(data) - len(engine.unused_data), content)


#: The first bytes of files in other compressions.
_OTHER_COMPRESSIONS: Final = (
    (b"\x04\x22\x4d\x18", "LZ4"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
)


def other_compression(data: bytes) -> str | None:
    """Returns the name of another compression than gzip by the first bytes of ``data``; ``None`` for none."""
    name = next((name for magic, name in _OTHER_COMPRESSIONS if data.startswith(magic)), None)
    # some bits of a frame's descriptor are fixed: if they differ, the bytes are damage that looks like LZ4
    return None if name == "LZ4" and (data[4:5] or b"\0")[0] & 0xC2 != 0x40 else name


def describe_non_gzip(data: bytes) -> tuple[DataKind, str]:
    """Returns the reason why ``data`` is no gzip member: the kind, and a text that distinguishes an error page from an
    empty answer."""
    if not data:
        return DataKind.GZIP_TRUNCATED, "no bytes where a gzip member should be"
    if data[:2] == GZIP_MAGIC[:2]:
        if len(data) > 2:
            return DataKind.GZIP_CORRUPT, "gzip header names an unknown compression method"
        return DataKind.GZIP_TRUNCATED, "gzip member is cut off"
    if name := other_compression(data):
        return DataKind.NOT_GZIP, f"compressed with {name}, which is not supported: only gzip is"
    if data.lstrip()[:1] == b"<":
        return DataKind.NOT_GZIP, f"markup instead of a gzip member: {data.lstrip()[:60].decode('latin-1')!r}"
    return DataKind.NOT_GZIP, f"not a gzip member: begins with {data[:4].hex(' ')}"


def damage_cause(error: Exception) -> str:
    """Returns igzip's message without its error number."""
    return str(error).removeprefix("Error ").lstrip("-0123456789 ").lower() or "cannot be inflated"


_CHUNK: Final = 1 << 18
_FIRST_PIECE: Final = 1 << 12
_PEEK: Final = 1 << 14
_PADDING: Final = b"\0\r\n"
_MAX_PADDING: Final = 1 << 24


class Readable(Protocol):
    """Any object with ``read(n)``: it may return fewer bytes than requested; no bytes mean the end."""

    def read(self, size: int, /) -> bytes: ...


#: The input of whole-file readers: a path, the bytes themselves, or an open binary stream.
ByteSource = Path | bytes | bytearray | memoryview | Readable


class Window:
    """Random access between the released offset and the last byte read. Offsets are bytes."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._ended = False
        seekable = getattr(stream, "seekable", None)
        self.seekable: bool = bool(seekable and seekable())
        self._base: int = stream.tell() if self.seekable else 0  # type: ignore[attr-defined]  # seekable streams tell

    @property
    def begin(self) -> int:
        """The lowest readable offset."""
        return self._base

    @property
    def seen(self) -> int:
        """The offset up to which the source was read."""
        return self._base + len(self._buffer)

    def slice(self, offset: int, length: int) -> bytes:
        """Returns ``length`` bytes from ``offset``; fewer only at the end of the source.

        Raises ``ValueError`` for a released offset.
        """
        if offset < self._base:
            raise ValueError(f"offset {offset} was released, the window begins at {self._base}")
        self._fill(offset + length)
        start = offset - self._base
        return bytes(memoryview(self._buffer)[start : start + length])

    def is_at_end(self, offset: int) -> bool:
        """Whether the source has no byte at ``offset``."""
        self._fill(offset + 1)
        return offset >= self.seen

    def ends_in_padding(self, offset: int) -> bool:
        """Whether there are only zero bytes and line ends, at least one, from ``offset`` to the end of the source:
        tapes and file systems fill blocks with them. More than ``_MAX_PADDING`` bytes do not count as padding."""
        size = 1
        while size <= _MAX_PADDING:
            piece = self.slice(offset, size)
            if not piece or piece.strip(_PADDING):
                return False
            if len(piece) < size:
                return True
            size *= 64
        return False

    def release(self, offset: int) -> None:
        """Frees the bytes before ``offset``."""
        count = min(offset, self.seen) - self._base
        if count >= _CHUNK:
            del self._buffer[:count]
            self._base += count

    def search(
        self, find: Callable[[bytes], Iterable[int]], offset: int, longest: int, max_distance: int | None = None
    ) -> int:
        """Returns the lowest offset, at or after ``offset``, that ``find`` reports; -1 if there is none.

        ``find`` gets pieces of the source, each but the first with one byte of the previous piece, and returns
        positions in them, ascending; it may need up to ``longest`` bytes after a position to recognize it. Searched
        bytes are released, but for the last ``longest``. Only ``max_distance`` bytes, if given, are searched and kept.
        """
        stop = None if max_distance is None else offset + max_distance
        size = _FIRST_PIECE
        while stop is None or offset < stop:
            piece = self.slice(offset, size + longest)
            last = self.is_at_end(offset + len(piece))
            for place in find(piece):
                if place >= size and not last:
                    break
                return offset + place if stop is None or offset + place < stop else -1
            if last:
                return -1
            offset += size - 1
            size = min(2 * size, _CHUNK)
            if stop is None:
                self.release(offset - longest)
        return -1

    def reaches(self, offset: int) -> bytes:
        """Returns the byte before ``offset`` and a few KiB from it, for seekable sources, without keeping the bytes
        between; empty if the source ends before."""
        if offset + _PEEK <= self.seen:
            return self.slice(offset - 1, _PEEK)
        stream: io.IOBase = self._stream  # type: ignore[assignment]  # callers check ``seekable``
        position = stream.tell()
        stream.seek(offset - 1)
        data: bytes = stream.read(_PEEK)
        stream.seek(position)
        return data

    def jump(self, offset: int) -> None:
        """Continues at ``offset`` and frees the bytes before it. Sources that cannot seek are read up to there."""
        if self.seekable and offset > self.seen:
            self._stream.seek(offset)  # type: ignore[attr-defined]  # seekable streams seek
            self._buffer.clear()
            self._base = offset
            return
        while self.seen < offset and not self._ended:
            self._base = self.seen
            self._buffer.clear()
            self._fill(self._base + min(_CHUNK, offset - self._base))
        self.release(offset)

    def _fill(self, stop: int) -> None:
        while self.seen < stop and not self._ended:
            data = self._stream.read(_CHUNK)
            if data:
                self._buffer += data
            else:
                self._ended = True


@contextmanager
def open_window(source: ByteSource) -> Iterator[Window]:
    """Opens a window over ``source``; a path is opened and closed here, the caller closes a stream."""
    if isinstance(source, Path):
        try:
            stream = source.open("rb", buffering=0)
        except OSError as error:
            raise EnvironmentFault(
                f"cannot open {source}: {error.strerror}", "check the path and its permissions"
            ) from error
        with stream:
            yield Window(stream)
    elif isinstance(source, bytes | bytearray | memoryview):
        yield Window(io.BytesIO(source))
    else:
        yield Window(source)


_PIECE: Final = 1 << 16
_SALVAGE_PIECE: Final = 512
_GZIP: Final = 31
_RAW: Final = -15
_FEXTRA, _FNAME, _FCOMMENT, _FHCRC = 4, 8, 16, 2


@dataclass(frozen=True, slots=True)
class BadMember:
    """A member that is damaged or cut off, with the reason and the number of compressed bytes that were read."""

    offset: int
    kind: DataKind
    reason: str
    examined: int


@dataclass(frozen=True, slots=True)
class LargeMember:
    """A member whose content or compressed form is larger than the limit."""

    offset: int
    examined: int


def inflate_at(window: Window, offset: int, limit: int) -> InflatedMember | BadMember | LargeMember:
    """Inflates the member at ``offset`` to at most ``limit`` bytes; reads no more of it than necessary."""
    piece = window.slice(offset, _PIECE)
    if piece[:3] != GZIP_MAGIC:
        return BadMember(offset, *describe_non_gzip(piece), len(piece))
    engine = isal_zlib.decompressobj(_GZIP)
    most_compressed = limit + (limit >> 3) + _PIECE
    parts: list[bytes] = []
    inflated = fed = 0
    while True:
        try:
            part = engine.decompress(piece, limit + 1 - inflated)
        except DAMAGE as error:
            reason = f"damaged gzip member ({damage_cause(error)})"
            return BadMember(offset, DataKind.GZIP_CORRUPT, reason, fed + len(piece))
        fed += len(piece)
        inflated += len(part)
        parts.append(part)
        if inflated > limit or (not engine.eof and fed > most_compressed):
            return LargeMember(offset, fed)
        if engine.eof:
            content = parts[0] if len(parts) == 1 else b"".join(parts)
            return InflatedMember(offset, fed - len(engine.unused_data), content)
        piece = window.slice(offset + fed, _PIECE)
        if not piece:
            return BadMember(offset, DataKind.GZIP_TRUNCATED, f"gzip member is cut off after {fed} bytes", fed)


def salvage(window: Window, offset: int, limit: int) -> bytes:
    """Inflates a bad member up to the damage, at most ``limit`` bytes. Checks no checksum."""
    position = offset + _header_length(window.slice(offset, 1 << 17))
    engine = isal_zlib.decompressobj(_RAW)
    parts: list[bytes] = []
    room = limit
    while room > 0 and not engine.eof:
        piece = window.slice(position, _SALVAGE_PIECE)
        if not piece:
            break
        try:
            part = engine.decompress(piece, room)
        except DAMAGE:
            break
        position += len(piece)
        room -= len(part)
        parts.append(part)
    return b"".join(parts)


class MemberReader:
    """``read(n)`` over the content of one member of any size. It ends at damage; ``fault`` is then kind and reason."""

    def __init__(self, window: Window, offset: int) -> None:
        self._window = window
        self._engine = isal_zlib.decompressobj(_GZIP)
        self._position = offset
        self._pending = b""
        self.fault: tuple[DataKind, str] | None = None
        self.inflated = 0

    @property
    def position(self) -> int:
        """The end of the compressed member, or the offset up to which it was read."""
        return self._position - len(self._engine.unused_data)

    @property
    def ended(self) -> bool:
        """Whether the member was read to its sound end."""
        return bool(self._engine.eof)

    def read(self, size: int, /) -> bytes:
        while not self._engine.eof and self.fault is None:
            piece = self._pending or self._window.slice(self._position, _PIECE)
            if not self._pending:
                self._position += len(piece)
                self._window.release(self._position - _PIECE)
                if not piece:
                    self.fault = (DataKind.GZIP_TRUNCATED, "gzip member is cut off")
                    break
            try:
                part = self._engine.decompress(piece, size)
            except DAMAGE as error:
                self.fault = (DataKind.GZIP_CORRUPT, f"damaged gzip member ({damage_cause(error)})")
                break
            self._pending = self._engine.unconsumed_tail
            if part:
                self.inflated += len(part)
                return part
        return b""


def _header_length(data: bytes) -> int:
    """Returns the bytes of the gzip header (RFC 1952 §2.3); the fixed ten if optional fields have no end."""
    options = data[3] if len(data) > 3 else 0
    position = 10
    if options & _FEXTRA:
        position += 2 + int.from_bytes(data[10:12], "little")
    for option in (_FNAME, _FCOMMENT):
        if options & option:
            end = data.find(b"\0", position)
            if end < 0:
                return 10
            position = end + 1
    return position + 2 if options & _FHCRC else position
