"""Stores raw footers on disk, so that no footer is fetched twice and decoding again needs no network.

A crawl has a folder of append-only segments. An entry is a fixed head, a little JSON, and the footer compressed with
zstd. It is written with one ``write``, so a killed process loses at most that entry. The index is read from the heads
when a crawl is opened; the next writer cuts off an incomplete entry.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa

from cc_pipeline.atomic import sync
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, UserInputError
from cc_pipeline.index.footers.decode import MAX_FOOTER_BYTES, TRAILER_BYTES
from cc_pipeline.locks import LockTimeout, locked

#: magic, length of the JSON, stored and plain length of the footer, CRC-32 of JSON and stored footer
_HEAD: Final = struct.Struct("<4sIIII")
_MAGIC: Final = b"CCF1"
#: A segment that would become larger is closed, and a new one is started.
_SEGMENT_BYTES: Final = 256 * 2**20
#: A head that claims more bytes of JSON than this is damaged.
_MAX_NOTE: Final = 1 << 16
_CODEC: Final = pa.Codec("zstd", compression_level=-3)


@dataclass(frozen=True, slots=True)
class FooterEntry:
    """The facts about one index file, known without reading its footer.

    ``footer_bytes`` is the length of the metadata, without the 8-byte trailer. ``reason`` says why there is no footer
    (then the other numbers may be ``None``), ``fault_offset`` is the position in the file at which reading failed.
    """

    path: str
    file_size: int | None
    etag: str | None
    footer_bytes: int
    harvested_at: datetime
    reason: str | None = None
    fault_offset: int | None = None

    @property
    def failed(self) -> bool:
        return self.reason is not None


def footer_digest(footer: bytes) -> str:
    """Returns the digest that identifies a file, together with its size."""
    return hashlib.sha256(footer).hexdigest()


@dataclass(frozen=True, slots=True)
class _Place:
    segment: int
    offset: int
    note: int
    stored: int


class FooterStore:
    """All crawls' footers under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, crawl: str) -> CrawlFooters:
        """Opens the footers of a crawl for reading; empty if there are none."""
        return CrawlFooters(self.crawl_folder(crawl))

    def write(self, crawl: str) -> FooterWriter:
        """Opens the footers of a crawl for one writer at a time. Raises ``EnvironmentFault`` if there is another."""
        return FooterWriter(self.crawl_folder(crawl))

    def crawl_folder(self, crawl: str) -> Path:
        """Returns the folder of a crawl's footers. Raises ``UserInputError`` for a name that leads out of the store."""
        if not crawl or crawl.startswith(".") or "/" in crawl or "\0" in crawl:
            raise UserInputError(f"{crawl!r} is not a valid name of a crawl")
        return self.folder / crawl

    def crawls(self) -> tuple[str, ...]:
        """Returns the crawls that have a folder."""
        if not self.folder.is_dir():
            return ()
        return tuple(sorted(child.name for child in self.folder.iterdir() if child.is_dir()))


class CrawlFooters:
    """The index of one crawl's footers: the last entry written for each path counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, FooterEntry] = {}
        self._places: dict[str, _Place] = {}
        self._ends: list[int] = []
        for number, segment in enumerate(_segments(folder)):
            self._ends.append(self._scan(number, segment))

    def __contains__(self, path: str) -> bool:
        entry = self.entries.get(path)
        return entry is not None and not entry.failed

    def footer(self, path: str) -> bytes:
        """Returns metadata and trailer of a harvested file. Raises ``KeyError`` for others, ``DataFault`` for damaged
        bytes."""
        entry = self.entries[path]
        if entry.failed:
            raise KeyError(path)
        footer: bytes = _CODEC.decompress(self._read_stored(path), entry.footer_bytes + TRAILER_BYTES, asbytes=True)
        return footer

    def is_damaged(self, path: str) -> bool:
        """Whether the stored bytes of a harvested file are not the written ones. Raises ``KeyError`` for other
        files."""
        try:
            self._read_stored(path)
        except DataFault:
            return True
        return False

    def _read_stored(self, path: str) -> bytes:
        """Returns the compressed footer of a file. Raises ``DataFault`` for damaged bytes."""
        place = self._places[path]
        segment = self.folder / _segment_name(place.segment)
        with segment.open("rb") as handle:
            handle.seek(place.offset)
            raw = handle.read(_HEAD.size + place.note + place.stored)
        if len(raw) != _HEAD.size + place.note + place.stored:
            reason = f"the stored copy of the footer of {path} is cut off; the next harvest fetches it again"
            raise DataFault(DataKind.TRUNCATED, str(segment), place.offset, reason)
        checksum = _HEAD.unpack_from(raw)[4]
        if zlib.crc32(raw[_HEAD.size :]) != checksum:
            reason = f"the stored copy of the footer of {path} is damaged; the next harvest fetches it again"
            raise DataFault(DataKind.MISMATCH, str(segment), place.offset, reason)
        return raw[_HEAD.size + place.note :]

    def _scan(self, number: int, segment: Path) -> int:
        """Reads the heads of a segment and returns the end of its last complete entry."""
        size = segment.stat().st_size
        offset = 0
        with segment.open("rb") as handle:
            while offset + _HEAD.size <= size:
                handle.seek(offset)
                magic, note, stored, plain, _ = _HEAD.unpack(handle.read(_HEAD.size))
                end = offset + _HEAD.size + note + stored
                if magic != _MAGIC or note > _MAX_NOTE or plain > MAX_FOOTER_BYTES + TRAILER_BYTES or end > size:
                    break
                entry = _entry(handle.read(note), plain)
                if entry is None:
                    break
                self._remember(entry, _Place(number, offset, note, stored))
                offset = end
        return offset

    def _remember(self, entry: FooterEntry, place: _Place) -> None:
        # the last one counts, also a failure after a success: the file has become bad. Times do not decide: a clock may
        # be wrong, and so may the damaged bytes of a time
        self.entries[entry.path] = entry
        self._places[entry.path] = place


class FooterWriter(CrawlFooters):
    """Adds footers; holds the crawl's lock until closed. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._lock_stack = ExitStack()
        try:
            self._lock_stack.enter_context(locked(folder / "writer.lock", timeout=0))
        except OSError as error:
            raise EnvironmentFault(
                f"{folder} cannot be written: {error}", "Check the home's disk and permissions."
            ) from error
        except LockTimeout as error:
            raise EnvironmentFault(
                f"another process is harvesting {folder.name}",
                "Wait until that process has finished, then run the command again.",
            ) from error
        with ExitStack() as cleanup:
            cleanup.push(self._lock_stack)
            super().__init__(folder)
            self._number, self._end = (len(self._ends) - 1, self._ends[-1]) if self._ends else (0, 0)
            self._file = os.open(folder / _segment_name(self._number), os.O_RDWR | os.O_CREAT, 0o644)
            cleanup.callback(os.close, self._file)
            os.ftruncate(self._file, self._end)
            cleanup.pop_all()

    def __enter__(self) -> FooterWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Makes everything durable and releases the lock, also if the disk refuses."""
        with self._lock_stack:
            try:
                self.sync()
            finally:
                os.close(self._file)

    def put(self, path: str, file_size: int, etag: str | None, footer: bytes) -> FooterEntry:
        """Stores the end of a file (metadata and trailer). Raises ``EnvironmentFault`` when the disk refuses."""
        entry = FooterEntry(path, file_size, etag, len(footer) - TRAILER_BYTES, datetime.now(UTC))
        self._append(entry, len(footer), _CODEC.compress(footer, asbytes=True))
        return entry

    def put_failure(
        self,
        path: str,
        reason: str,
        *,
        file_size: int | None = None,
        etag: str | None = None,
        offset: int | None = None,
    ) -> FooterEntry:
        """Records that a file has no usable footer, and why."""
        entry = FooterEntry(path, file_size, etag, 0, datetime.now(UTC), reason[:2000], offset)
        self._append(entry, 0, b"")
        return entry

    def sync(self) -> None:
        """Makes everything written so far survive a power cut."""
        sync(self._file)

    def _append(self, entry: FooterEntry, plain: int, stored: bytes) -> None:
        note = _note(entry)
        body = note + stored
        data = _HEAD.pack(_MAGIC, len(note), len(stored), plain, zlib.crc32(body)) + body
        if self._end and self._end + len(data) > _SEGMENT_BYTES:
            self._next_segment()
        try:
            written = os.pwrite(self._file, data, self._end)
            if written != len(data):
                raise OSError("the disk wrote only part of the footer")
        except OSError as error:
            os.ftruncate(self._file, self._end)
            raise EnvironmentFault(
                f"a footer could not be stored: {error}", "Check the home's disk, and that it has free space."
            ) from error
        self._remember(entry, _Place(self._number, self._end, len(note), len(stored)))
        self._end += len(data)

    def _next_segment(self) -> None:
        self.sync()
        name = _segment_name(self._number + 1)
        following = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.close(self._file)
        self._file, self._number, self._end = following, self._number + 1, 0


def _segments(folder: Path) -> list[Path]:
    paths: list[Path] = []
    while (folder / _segment_name(len(paths))).exists():
        paths.append(folder / _segment_name(len(paths)))
    return paths


def _segment_name(number: int) -> str:
    return f"segment-{number:05d}.footers"


def _note(entry: FooterEntry) -> bytes:
    microseconds = round(entry.harvested_at.timestamp() * 1_000_000)
    return json.dumps(
        [entry.path, entry.file_size, entry.etag, microseconds, entry.reason, entry.fault_offset]
    ).encode()


def _entry(note: bytes, plain: int) -> FooterEntry | None:
    try:
        path, size, etag, microseconds, reason, offset = json.loads(note)
        moment = datetime.fromtimestamp(microseconds / 1_000_000, UTC)
        return FooterEntry(str(path), size, etag, max(0, plain - TRAILER_BYTES), moment, reason, offset)
    except (ValueError, TypeError, OverflowError, OSError):
        return None
