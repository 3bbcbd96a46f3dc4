"""Page indexes that were read once: kept in memory, and in a folder if there is one, under the file's ETag."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from cc_pipeline.index.parquet_fetch import Piece

#: Bytes of page indexes held in memory.
_MEMORY = 64 << 20


class PageIndexes:
    """A second look-up in the same row group needs no request for its index.

    ``folder`` may be deleted at any time, and whoever cannot write to it goes without. Entries are checksummed;
    without an ETag nothing is put there, because nothing would tell that the file was replaced.
    """

    def __init__(self, folder: Path | None = None, memory: int = _MEMORY) -> None:
        self._folder = folder
        self._memory = memory
        self._pieces: dict[tuple[Piece, str | None], bytes] = {}
        self._held = 0
        self._lock = threading.Lock()

    def known(self, pieces: Iterable[Piece], etags: Mapping[str, str | None]) -> dict[Piece, bytes]:
        """Those of ``pieces`` that are here."""
        found: dict[Piece, bytes] = {}
        for piece in pieces:
            etag = etags.get(piece.key)
            data = self._pieces.get((piece, etag)) or self._stored(piece, etag)
            if data is not None:
                found[piece] = data
                self._hold(piece, etag, data)
        return found

    def keep(self, found: Mapping[Piece, bytes], etags: Mapping[str, str | None]) -> None:
        """Remembers what was read."""
        for piece, data in found.items():
            etag = etags.get(piece.key)
            self._hold(piece, etag, data)
            self._store(piece, etag, data)

    def _hold(self, piece: Piece, etag: str | None, data: bytes) -> None:
        with self._lock:
            if (piece, etag) not in self._pieces:
                self._pieces[piece, etag] = data
                self._held += len(data)
            while self._held > self._memory:
                self._held -= len(self._pieces.pop(next(iter(self._pieces))))

    def _path(self, piece: Piece, etag: str | None) -> Path | None:
        if self._folder is None or etag is None:
            return None
        name = hashlib.sha256(f"{piece.key}\n{etag}\n{piece.offset}\n{piece.length}".encode()).hexdigest()
        return self._folder / name[:2] / name[2:40]

    def _stored(self, piece: Piece, etag: str | None) -> bytes | None:
        path = self._path(piece, etag)
        try:
            raw = path.read_bytes() if path is not None else b""
        except OSError:
            return None
        data = raw[32:]
        return data if len(data) == piece.length and hashlib.sha256(data).digest() == raw[:32] else None

    def _store(self, piece: Piece, etag: str | None, data: bytes) -> None:
        path = self._path(piece, etag)
        if path is None:
            return
        beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(hashlib.sha256(data).digest() + data)
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
