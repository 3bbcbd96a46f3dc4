"""Writes files of stored records as segments with journals, and adopts those of killed runs."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cc_pipeline.archive.gzip_members import inflate_member
from cc_pipeline.atomic import sync
from cc_pipeline.errors import DataFault, disk_trouble
from cc_pipeline.processes import has_ended, this_process
from cc_pipeline.records.storage import COMMITTED, JOURNAL_SUFFIX, LARGEST_JOURNAL, RecordStorage
from cc_pipeline.transport.faults import FaultKind, RangeFault

_ARC_FIELDS = b"1 0 cc_pipeline\nURL IP-address Archive-date Content-type Archive-length\n\n"


def segment_head(kind: str, name: str, info: Mapping[str, str]) -> bytes:
    """Returns the first bytes of a new file of ``kind`` (``warc``, ``arc``, ``raw``) named ``name``.

    ``info`` goes into the warcinfo record: crawl, plan, software, source.
    """
    if kind == "warc":
        return _warcinfo(name, info)
    if kind == "arc":
        return file_description(name, info, datetime.now(UTC))
    return b""


def _warcinfo(name: str, info: Mapping[str, str]) -> bytes:
    from warcio.warcwriter import WARCWriter  # noqa: PLC0415 - it looks for file systems, a tenth of a second

    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True)
    writer.write_record(writer.create_warcinfo_record(name, dict(info)))
    return out.getvalue()


def file_description(name: str, info: Mapping[str, str], created_at: datetime) -> bytes:
    """Returns the first member of an ARC file (version 1): the description follows the field names, as free text."""
    text = _ARC_FIELDS[:-1] + "".join(f"{key}: {value}\n" for key, value in info.items()).encode() + b"\n"
    line = f"filedesc://{name} 0.0.0.0 {created_at:%Y%m%d%H%M%S} text/plain {len(text)}\n".encode()
    return gzip.compress(line + text + b"\n", mtime=0)


Row = dict[str, Any]
#: Suffix of the data file by its kind; ``raw`` are bytes that are no record, one after the other.
SUFFIXES = {"warc": ".warc.gz", "arc": ".arc.gz", "raw": ".quarantine"}
#: Bytes of a data file after which a new one begins.
DEFAULT_ROTATION = 512 << 20
#: Records of a data file after which a new one begins, so that its journal stays small.
MAX_RECORDS = 50_000
#: The suffix of a journal that is not adopted.
_RETIRED_SUFFIX = ".jsonl"
#: A writer renames its new journal at once. A journal that still has the first name after so many seconds has no
#: writer, if its name does not tell.
_BLINK = 3600.0
_CLOSED = -1
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class OpenSegment:
    """One data file and its journal, both open and under this process's lock."""

    def __init__(self, folder: Path, name: str, head: bytes) -> None:
        self.name = name
        self._path = folder / name
        self._journal_path = folder / (name + JOURNAL_SUFFIX)
        self._journal = self._data = _CLOSED
        self.size = self._journal_size = self.records = 0
        try:
            with disk_trouble(self._path):
                # locked before it gets its name, so that no other process takes its writer for dead
                new_path = folder / f".{name}.{this_process()}.new"
                self._journal = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.rename(new_path, self._journal_path)
                self._data = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                self._append(head)
        except BaseException:
            self._release()
            raise

    def add(self, data: bytes, row: Row, file: str) -> None:
        """Appends ``data``, adds its location to ``row``, and journals the row."""
        row["stored_file"], row["stored_offset"], row["stored_length"] = file, self.size, len(data)
        line = _line(row)
        with disk_trouble(self._path):
            self._append(data)
            _write_all(self._journal, line, self._journal_size)
        self._journal_size += len(line)
        self.records += 1

    def _append(self, data: bytes) -> None:
        _write_all(self._data, data, self.size)
        self.size += len(data)

    def close(self, storage: RecordStorage, folder: str) -> None:
        """Makes the segment durable and moves it to its place. If that fails, it stays, and a later run adopts it."""
        try:
            with disk_trouble(self._path):
                sync(self._data)
                data, self._data = self._data, _CLOSED
                os.close(data)  # some file systems say only here that the disk is full
                sync(self._journal)
            storage.publish(self._path, f"{folder}/{self.name}")
            storage.publish(self._journal_path, f"{folder}/{self.name}{JOURNAL_SUFFIX}")
        finally:
            self._release()

    def _release(self) -> None:
        """Closes both files, which releases the lock: nothing more is written, or everything is in its place."""
        for descriptor in (self._data, self._journal):
            if descriptor != _CLOSED:
                with suppress(OSError):
                    os.close(descriptor)
        self._data = self._journal = _CLOSED


@dataclass(slots=True)
class SegmentWriter:
    """Adds records to the open segment of their kind and begins a new one at ``rotation`` bytes, or ``MAX_RECORDS``.

    ``head`` makes the first bytes of a segment from its kind and name. ``files`` are the complete segments.
    """

    storage: RecordStorage
    crawl: str
    commit: str
    head: Callable[[str, str], bytes]
    rotation: int = DEFAULT_ROTATION
    files: list[str] = field(default_factory=list)
    _open: dict[str, OpenSegment] = field(default_factory=dict)
    _count: int = 0

    def add(self, kind: str, data: bytes, row: Row) -> None:
        """Stores ``data`` (``kind`` of ``SUFFIXES``) and its row, and fills in the row's location."""
        segment = self._open.get(kind)
        full = segment is not None and (segment.size + len(data) > self.rotation or segment.records >= MAX_RECORDS)
        if full:
            self._close(kind)
            segment = None
        folder = self.storage.folder(self.crawl)
        if segment is None:
            name = f"{self.crawl}-{self.commit}-{self._count:05d}{SUFFIXES[kind]}"
            self._count += 1
            segment = OpenSegment(self.storage.open_folder(self.crawl), name, self.head(kind, name))
            self._open[kind] = segment
        segment.add(data, row, f"{folder}/{segment.name}")

    def close(self) -> None:
        """Completes all open segments, also after one that fails; then raises the last error."""
        with ExitStack() as stack:
            for kind in tuple(self._open):
                stack.callback(self._close, kind)

    def _close(self, kind: str) -> None:
        segment = self._open.pop(kind)
        folder = self.storage.folder(self.crawl)
        segment.close(self.storage, folder)
        self.files.append(f"{folder}/{segment.name}")


def adopt(storage: RecordStorage, crawl: str) -> Iterator[Row]:
    """Yields rows of records that are stored but may not be in the table yet: those of killed runs."""
    _recover_open(storage, crawl)
    for key in storage.journals(crawl):
        data_key = key.removesuffix(JOURNAL_SUFFIX)
        try:
            stored_object = storage.transport.head(data_key)
            journal = storage.transport.read_all(key, limit=LARGEST_JOURNAL).data
        except RangeFault as fault:
            if fault.kind is FaultKind.NOT_FOUND:
                continue  # the run that wrote it has committed its rows in this moment
            raise
        for row in _rows(journal):
            end = row["stored_offset"] + row["stored_length"]
            if stored_object is not None and (stored_object.size is None or end <= stored_object.size):
                yield row


def journal_rows(storage: RecordStorage, file: str) -> Iterator[Row]:
    """Yields the journal rows of a complete stored file; none without a journal. Raises ``EnvironmentFault``."""
    try:
        yield from _rows(storage.transport.read_all(file + JOURNAL_SUFFIX, limit=LARGEST_JOURNAL).data)
    except RangeFault as fault:
        if fault.kind is not FaultKind.NOT_FOUND:
            raise


def retire_journals(storage: RecordStorage, files: Iterable[str]) -> None:
    """Retires the journals of these stored files, once all their rows are in the table.

    They stay for a week (:func:`delete_committed`): if the table's newest commit is lost after all,
    :func:`adopt_again` brings them back. Raises ``EnvironmentFault``.
    """
    for file in files:
        storage.move(file + JOURNAL_SUFFIX, _committed(file))


def adopt_again(storage: RecordStorage, crawl: str) -> int:
    """Makes the next fetch adopt all journals of ``crawl`` that are still there, also of committed rows; returns how
    many. Raises ``EnvironmentFault``."""
    folder = f"{storage.folder(crawl)}/"
    journal_keys = [
        journal.key
        for journal in storage.transport.listing(f"{folder}{COMMITTED}/")
        if journal.key.endswith(_RETIRED_SUFFIX)
    ]
    for key in journal_keys:
        storage.move(key, f"{folder}{key.rpartition('/')[2].removesuffix(_RETIRED_SUFFIX)}{JOURNAL_SUFFIX}")
    return len(journal_keys)


def delete_committed(storage: RecordStorage, crawl: str, committed_before: float = math.inf) -> int:
    """Deletes the journals whose rows were committed before a time (seconds since the epoch); gives how many. Raises
    ``EnvironmentFault``."""
    listing = storage.transport.listing(f"{storage.folder(crawl)}/{COMMITTED}/")
    old = [journal.key for journal in listing if journal.modified < committed_before]
    for key in old:
        storage.transport.delete(key)
    return len(old)


def delete_journals(storage: RecordStorage, files: Iterable[str]) -> None:
    """Deletes the journals of stored files that are not needed any more. Raises ``EnvironmentFault``."""
    for file in files:
        storage.transport.delete(file + JOURNAL_SUFFIX)
        storage.transport.delete(_committed(file))


def _committed(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"{folder}/{COMMITTED}/{name}{_RETIRED_SUFFIX}"


def _recover_open(storage: RecordStorage, crawl: str) -> None:
    folder = storage.folder(crawl)
    for new_path in storage.open_folder(crawl).glob(".*.new"):
        with disk_trouble(new_path), suppress(FileNotFoundError):
            # a running writer needs it only for a moment
            is_dead = has_ended(new_path.name.split(".")[-2])
            if is_dead or (is_dead is None and time.time() - new_path.stat().st_mtime > _BLINK):
                new_path.unlink()
    for journal_path in sorted(storage.open_folder(crawl).glob("*" + JOURNAL_SUFFIX)):
        with disk_trouble(journal_path):
            try:
                journal = os.open(journal_path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # between opening and locking, its writer may have moved it to its place
                if journal_path.exists() and os.path.samestat(os.fstat(journal), journal_path.stat()):
                    _recover(storage, folder, journal_path)
            except BlockingIOError:
                continue
            finally:
                os.close(journal)


def _recover(storage: RecordStorage, folder: str, journal_path: Path) -> None:
    """Completes a segment whose writer has ended. The caller holds its lock."""
    name = journal_path.name.removesuffix(JOURNAL_SUFFIX)
    data_path = journal_path.with_name(name)
    if data_path.exists():
        sizes = _sound_sizes(data_path, journal_path)
        if sizes is None:
            data_path.unlink()
            journal_path.unlink()
            return
        # only truncated, so that a process killed here leaves every sound row
        for path, size in zip((data_path, journal_path), sizes, strict=True):
            with open(path, "r+b") as file:
                file.truncate(size)
                sync(file.fileno())
        storage.publish(data_path, f"{folder}/{name}")
    elif not storage.holds(f"{folder}/{name}"):
        journal_path.unlink()
        return
    storage.publish(journal_path, f"{folder}/{name}{JOURNAL_SUFFIX}")


def _write_all(descriptor: int, data: bytes, size: int) -> None:
    """Appends to a file of ``size`` bytes; a write that fails half-way (a full disk) is undone."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _sound_sizes(data_path: Path, journal_path: Path) -> tuple[int, int] | None:
    """Returns the sizes of data and journal up to the first row whose bytes are incomplete (after a power cut:
    damaged), ``None`` if that is the first row."""
    sizes: tuple[int, int] | None = None
    with open(data_path, "rb") as data, open(journal_path, "rb") as journal:
        for line in journal:
            row = _row(line)
            if row is None:
                continue
            data.seek(row["stored_offset"])
            stored = data.read(row["stored_length"])
            if len(stored) != row["stored_length"]:
                break
            if row["outcome"] == "fetched":
                try:
                    inflate_member(stored, str(data_path), row["stored_offset"])
                except DataFault:
                    break
            sizes = row["stored_offset"] + row["stored_length"], journal.tell()
    return sizes


def _line(row: Row) -> bytes:
    return _encode(row).encode() + b"\n"


def _rows(journal: bytes) -> Iterator[Row]:
    # not all lines at once: a journal may have a million
    for line in io.BytesIO(journal):
        row = _row(line)
        if row is not None:
            yield row


def _row(line: bytes) -> Row | None:
    """Returns the row in a line; ``None`` for the incomplete line of a killed writer."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("stored_offset"), int) else None
