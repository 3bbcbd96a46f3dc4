"""Fetches many small ranges of many files in few requests, and caches page indexes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cc_pipeline.errors import DataFault
from cc_pipeline.index.answer_cache import AnswerCache
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeDataFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: Unneeded bytes that are read to save a request. Common Crawl's own host gets at most ten requests a second
#: (``transport/budget.py``), so a request costs 100 ms. A link of 42 Mbit/s brings this many bytes in that time.
GAP = 512 << 10
#: Common Crawl's front serves some objects whole despite a range: one index file in ten of CC-MAIN-2026-30. A piece in
#: the first bytes of such a file is taken out of it. Beyond these another index costs less: a file has 700 MB.
MAX_WHOLE_OBJECT = 32 << 20
#: Maximum bytes of a request, so that one lost connection costs little.
SPAN = 16 << 20


class Piece(NamedTuple):
    """Requested bytes: ``length`` bytes from ``offset`` of ``key``."""

    key: str
    offset: int
    length: int


@dataclass(slots=True)
class Cost:
    """Requests and bytes, counted by the requester."""

    requests: int = 0
    bytes: int = 0


def fetch_pieces(
    reader: Transport,
    pieces: Iterable[Piece],
    etags: Mapping[str, str | None],
    cost: Cost,
    sizes: Mapping[str, int] | None = None,
    *,
    max_object_bytes: int = 0,
    missing_pieces: dict[Piece, DataFault] | None = None,
) -> dict[Piece, bytes]:
    """Returns the bytes of every piece; neighbours are read together. Raises the first fault, so there is no partial
    answer. With ``missing_pieces``, pieces that are missing or corrupt at the source, also when read alone, are put
    there with their faults instead.

    ``etags`` and ``sizes`` are those of the files for which the pieces were planned. A file of another size is
    not read, since its pieces lie elsewhere. ``max_object_bytes`` is as in ``ByteRange``.
    """
    sizes = sizes or {}
    ranges = [
        ByteRange(
            run[0].key,
            run[0].offset,
            run_end(run) - run[0].offset,
            etags.get(run[0].key),
            run,
            total=sizes.get(run[0].key),
            max_object_bytes=max_object_bytes,
        )
        for run in coalesce(pieces)
    ]
    data_by_piece: dict[Piece, bytes] = {}
    retry_pieces: list[Piece] = []
    for answer in reader.read_many(ranges):
        if not isinstance(answer, RangeBytes):
            # an object that comes whole may be a property of the source
            is_of_object = isinstance(answer, RangeDataFault) and answer.kind is not FaultKind.WHOLE_OBJECT
            if missing_pieces is None or not is_of_object:
                raise answer
            run = answer.tag
            assert isinstance(run, list)
            if len(run) == 1 or answer.kind is FaultKind.NOT_FOUND:
                missing_pieces.update(dict.fromkeys(run, answer))
            else:
                retry_pieces += run
            continue
        cost.requests += 1
        cost.bytes += len(answer.data)
        run = answer.tag
        assert isinstance(run, list)
        if len(run) == 1:
            data_by_piece[run[0]] = answer.data
            continue
        view = memoryview(answer.data)
        for piece in run:
            start = piece.offset - answer.offset
            data_by_piece[piece] = bytes(view[start : start + piece.length])
    for piece in retry_pieces:
        data_by_piece |= fetch_pieces(
            reader, [piece], etags, cost, sizes, max_object_bytes=max_object_bytes, missing_pieces=missing_pieces
        )
    return data_by_piece


def coalesce(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Groups pieces into runs for one request each: at most ``GAP`` bytes apart, and at most ``SPAN`` bytes long unless
    a single piece is longer."""
    runs: list[list[Piece]] = []
    end = 0
    for piece in sorted(set(pieces)):
        last = runs[-1] if runs else None
        piece_end = piece.offset + piece.length
        if (
            last is not None
            and last[0].key == piece.key
            and piece.offset - end <= GAP
            and max(end, piece_end) - last[0].offset <= SPAN
        ):
            last.append(piece)
            end = max(end, piece_end)
        else:
            runs.append([piece])
            end = piece_end
    return runs


def run_end(run: list[Piece]) -> int:
    """Returns the byte after the last one of a run."""
    return max(piece.offset + piece.length for piece in run)


#: Bytes of page indexes held in memory.
_MEMORY = 64 << 20


class PageIndexes:
    """A cache of page indexes, in memory and in ``folder``. A second lookup in a row group need not request them.

    ``folder`` is that of an ``AnswerCache``. Page indexes of a file without an ETag are not stored on disk, because a
    replaced file could not be detected.
    """

    def __init__(self, folder: Path | None = None, memory: int = _MEMORY) -> None:
        self._stored = None if folder is None else AnswerCache(folder)
        self._memory = memory
        self._pieces: dict[tuple[Piece, str | None], bytes] = {}
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def cached_pieces(self, pieces: Iterable[Piece], etags: Mapping[str, str | None]) -> dict[Piece, bytes]:
        """Returns the cached ones of ``pieces``."""
        data_by_piece = {}
        for piece in pieces:
            etag = etags.get(piece.key)
            data = self._pieces.get((piece, etag))
            if data is None and self._stored is not None and etag is not None:
                data = self._stored.find_bytes(_name(piece, etag))
            if data is not None:
                data_by_piece[piece] = data
                self._hold(piece, etag, data)
        return data_by_piece

    def keep(self, data_by_piece: Mapping[Piece, bytes], etags: Mapping[str, str | None]) -> None:
        """Caches pieces that were read."""
        for piece, data in data_by_piece.items():
            etag = etags.get(piece.key)
            self._hold(piece, etag, data)
            if self._stored is not None and etag is not None:
                self._stored.keep_bytes(_name(piece, etag), data)

    def _hold(self, piece: Piece, etag: str | None, data: bytes) -> None:
        with self._lock:
            if (piece, etag) not in self._pieces:
                self._pieces[piece, etag] = data
                self._cached_bytes += len(data)
            while self._cached_bytes > self._memory:
                self._cached_bytes -= len(self._pieces.pop(next(iter(self._pieces))))


def _name(piece: Piece, etag: str) -> str:
    return f"{piece.key}\n{etag}\n{piece.offset}\n{piece.length}"
