"""Inflating members found in a window: bounded, telling apart the ways in which a member can be bad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from isal import isal_zlib

from cc_pipeline.archive.members import DAMAGE, GZIP_MAGIC, InflatedMember, damage_cause, describe_non_gzip
from cc_pipeline.archive.windows import Window

_PIECE: Final = 1 << 16
_SALVAGE_PIECE: Final = 512
_GZIP: Final = 31
_RAW: Final = -15
_FEXTRA, _FNAME, _FCOMMENT, _FHCRC = 4, 8, 16, 2


@dataclass(frozen=True, slots=True)
class BadMember:
    """A member that is damaged or cut off, why, and how many compressed bytes were looked at."""

    offset: int
    reason: str
    examined: int


@dataclass(frozen=True, slots=True)
class LargeMember:
    """A member whose content or compressed form is larger than the bound."""

    offset: int
    examined: int


def inflate_at(window: Window, offset: int, limit: int) -> InflatedMember | BadMember | LargeMember:
    """Inflate the member at ``offset`` to at most ``limit`` bytes, reading no more of it than that needs."""
    piece = window.slice(offset, _PIECE)
    if piece[:3] != GZIP_MAGIC:
        return BadMember(offset, describe_non_gzip(piece), len(piece))
    engine = isal_zlib.decompressobj(_GZIP)
    most_compressed = limit + (limit >> 3) + _PIECE
    parts: list[bytes] = []
    inflated = fed = 0
    while True:
        try:
            part = engine.decompress(piece, limit + 1 - inflated)
        except DAMAGE as error:
            return BadMember(offset, f"damaged gzip member ({damage_cause(error)})", fed + len(piece))
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
            return BadMember(offset, f"gzip member is cut off after {fed} bytes", fed)


def salvage(window: Window, offset: int, limit: int) -> bytes:
    """What of a bad member can be inflated before the damage, without its checksum. Up to ``limit`` bytes."""
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
    """``read(n)`` over the content of one member of any size. At damage it ends; ``fault`` then says why."""

    def __init__(self, window: Window, offset: int) -> None:
        self._window = window
        self._engine = isal_zlib.decompressobj(_GZIP)
        self._position = offset
        self._pending = b""
        self.fault: str | None = None
        self.inflated = 0

    @property
    def position(self) -> int:
        """Where the compressed member ends, or how far it was read."""
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
                    self.fault = "gzip member is cut off"
                    break
            try:
                part = self._engine.decompress(piece, size)
            except DAMAGE as error:
                self.fault = f"damaged gzip member ({damage_cause(error)})"
                break
            self._pending = self._engine.unconsumed_tail
            if part:
                self.inflated += len(part)
                return part
        return b""


def _header_length(data: bytes) -> int:
    """Bytes of the gzip header (RFC 1952 §2.3); the fixed ten where optional fields do not end."""
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
