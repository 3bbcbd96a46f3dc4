"""Random numbers, UUIDs, digests and gzip members that depend on the seed and a label, and on nothing else."""

from __future__ import annotations

import base64
import hashlib
import uuid
import zlib
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self


def _derived(seed: int, labels: tuple[object, ...], size: int) -> bytes:
    text = "\x1f".join((str(seed), *(str(label) for label in labels)))
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def number(seed: int, *labels: object) -> int:
    """A whole number from 0 to 2**64 - 1 for these labels (numbers and text only: their ``str`` is hashed)."""
    return int.from_bytes(_derived(seed, labels, 8), "big")


def generator(seed: int, *labels: object) -> Random:
    """A fresh random generator for these labels."""
    return Random(number(seed, *labels))


def identifier(seed: int, *labels: object) -> uuid.UUID:
    """A version 4 UUID for these labels."""
    return uuid.UUID(bytes=_derived(seed, labels, 16), version=4)


def ordered_identifier(milliseconds: int, seed: int, *labels: object) -> uuid.UUID:
    """A version 7 UUID: ``milliseconds`` since 1970 in front, the labels' bytes behind."""
    raw = bytearray(milliseconds.to_bytes(6, "big") + _derived(seed, labels, 10))
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return uuid.UUID(bytes=bytes(raw))


def sha1_base32(data: bytes) -> str:
    """The digest as WARC headers and indexes write it, without a prefix (32 characters)."""
    return base64.b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()


def gzip_member(data: bytes, level: int = 6) -> bytes:
    """One complete gzip member; no file name and no time in it, so the same data gives the same bytes."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


class MemberFile:
    """Appends gzip members to a new file; a context manager."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb")
        self.size = 0

    def append(self, data: bytes) -> tuple[int, int]:
        """Writes ``data`` as one member; gives its offset and its length in the file, in bytes."""
        member = gzip_member(data)
        self._file.write(member)
        start = self.size
        self.size += len(member)
        return start, len(member)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
