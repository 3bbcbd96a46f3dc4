"""A cache of answers on disk, named by their input, so that the same question needs no second request."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from cc_pipeline.atomic import write_whole

#: Larger answers are not cached: they belong to runs, which store their rows in the lake.
_MAX_ANSWER_BYTES: Final = 64 << 20
#: Maximum bytes of all answers; the least recently used are deleted first.
_MAX_FOLDER_BYTES: Final = 1 << 30
_DIGEST: Final = 32


class AnswerCache:
    """Tables and bytes by name in a folder, which may be deleted at any time. An entry that cannot be written or read
    is missing.

    A name must cover all inputs of its entry: nothing here becomes stale. The folder has about ``max_bytes`` bytes at
    most.
    """

    def __init__(self, folder: Path, max_bytes: int = _MAX_FOLDER_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def find(self, name: str) -> pa.Table | None:
        """Returns the table stored under ``name``; ``None`` also if its file was changed."""
        data = self.find_bytes(name)
        return None if data is None else pa.ipc.open_stream(pa.py_buffer(data)).read_all()

    def find_bytes(self, name: str) -> bytes | None:
        """Returns the bytes stored under ``name``."""
        path = self._path(name)
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        with suppress(OSError):
            # marks it as used: others are deleted first
            os.utime(path)
        data = raw[_DIGEST:]
        return data if hashlib.sha256(data).digest() == raw[:_DIGEST] else None

    def keep(self, name: str, table: pa.Table) -> None:
        """Stores a table that is not too large."""
        if table.nbytes > _MAX_ANSWER_BYTES:
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        self.keep_bytes(name, sink.getvalue().to_pybytes())

    def keep_bytes(self, name: str, data: bytes) -> None:
        """Stores bytes."""
        path = self._path(name)
        with suppress(OSError):
            write_whole(path, hashlib.sha256(data).digest() + data)
            # reading the whole folder takes a while, so only one small answer in 256 does it
            if path.parent.name == "00" or len(data) * 256 > self._max_bytes:
                self._make_room()

    def _make_room(self) -> None:
        files = []
        for path in self._folder.rglob("*"):
            if path.is_file():
                file_stat = path.stat()
                files.append((file_stat.st_mtime_ns, file_stat.st_size, path))
        folder_bytes = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if folder_bytes <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            folder_bytes -= size

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self._folder / digest[:2] / digest[2:42]
