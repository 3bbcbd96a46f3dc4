"""A file of gzip members, and where each member lies."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import Self


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
