"""Answers kept on disk under the name of what they were made from, so that the same question costs no request again."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Final

import pyarrow as pa

#: An answer above this is not kept: it is asked for by a run, which keeps its rows in the lake.
_MOST_BYTES: Final = 64 << 20
_DIGEST: Final = 32


class KeptAnswers:
    """Tables by name in a folder, which may be deleted at any time. What cannot be written or read is not there.

    A name must say all that its table depends on: nothing here grows old.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, name: str) -> pa.Table | None:
        """The table kept under ``name``; ``None`` also where its file has changed since."""
        try:
            raw = self._path(name).read_bytes()
        except OSError:
            return None
        data = memoryview(raw)[_DIGEST:]
        if hashlib.sha256(data).digest() != raw[:_DIGEST]:
            return None
        return pa.ipc.open_stream(pa.py_buffer(data)).read_all()

    def keep(self, name: str, table: pa.Table) -> None:
        """Keeps a table that is not too large."""
        if table.nbytes > _MOST_BYTES:
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
        path = self._path(name)
        beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(hashlib.sha256(data).digest() + data)
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self._folder / digest[:2] / digest[2:42]
