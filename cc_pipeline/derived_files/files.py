"""Source files that a user names by path or key: their kind, location, crawl and partition key, and a local copy."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from cc_pipeline import progress
from cc_pipeline.addresses import redact_address
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.archive.warc import iter_records
from cc_pipeline.commoncrawl.crawls import validate_crawl_id
from cc_pipeline.commoncrawl.paths import current_key
from cc_pipeline.derived_files.sequencefile import read_header
from cc_pipeline.errors import DataFault, EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange
from cc_pipeline.workspace.source_files import FileKind, SourceFile

#: Bytes that are read of a file's beginning: the first record of a WAT or WET file and the header of a SequenceFile are
#: far smaller.
_HEAD = 1 << 16
#: WAT files have some 150 to 400 MB: large enough pieces to be few requests, small enough to try again.
_PIECE = 8 << 20

#: Header metadata under which exported SequenceFiles name their crawl.
CRAWL_ENTRY = "cc_pipeline.crawl"
_CRAWL_OF_2012 = "CC-MAIN-2012"
_IN_KEY = re.compile(r"(?:\A|/)(?:crawl-data|projects/[^/]+)/([^/]+)/segments/")
_PART_OF = re.compile(rb"^isPartOf:[ \t]*(\S+)", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A file on this disk, and the bytes and requests it took to download it."""

    path: Path
    bytes: int = 0
    requests: int = 0


def is_local(location: str) -> bool:
    """Whether ``location`` is a local path; keys of the source are never absolute."""
    return location.startswith("/")


def size_and_tag(transport: Transport, location: str) -> tuple[int, str] | None:
    """Returns size in bytes and the ETag (of a local file: its modification time); ``None`` if there is no such file.

    ``transport`` connects to the source; local files do not use it. Raises ``EnvironmentFault`` if the source does not
    answer.
    """
    if is_local(location):
        try:
            file_status = Path(location).stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(location, error.strerror or str(error)) from error
        return file_status.st_size, f"{file_status.st_mtime_ns:x}"
    info = _request_size(transport, location)
    return None if info is None else (info[0], info[1] or str(info[0]))


def read_head(transport: Transport, location: str) -> bytes:
    """Returns the first bytes of a file. Raises ``EnvironmentFault`` if it cannot be read."""
    if is_local(location):
        try:
            with Path(location).open("rb") as file:
                return file.read(_HEAD)
        except OSError as error:
            raise _unreadable(location, error.strerror or str(error)) from error
    info = _request_size(transport, location)
    if info is None or not info[0]:
        return b""
    try:
        return transport.read(location, 0, min(_HEAD, info[0])).data
    except RangeFault as fault:
        raise _unreadable(location, str(fault)) from fault


@contextmanager
def local_copy(transport: Transport, location: str, scratch: Path) -> Iterator[LocalCopy]:
    """Provides the file on this disk: itself, or a copy in the folder ``scratch`` that is deleted afterwards.

    Raises ``EnvironmentFault`` if the file does not exist, cannot be read, or the disk is full.
    """
    if is_local(location):
        if not Path(location).is_file():
            raise _unreadable(location, "there is no such file")
        yield LocalCopy(Path(location))
        return
    path = scratch / f"source-{time.monotonic_ns()}"
    requests = transport.stats.requests
    try:
        size = _download(transport, location, path)
        yield LocalCopy(path, size, transport.stats.requests - requests)
    finally:
        path.unlink(missing_ok=True)


def _download(transport: Transport, key: str, path: Path) -> int:
    info = _request_size(transport, key)
    if info is None:
        raise _unreadable(key, "the source has no such file")
    size, tag = info
    pieces = (ByteRange(key, start, min(_PIECE, size - start), tag, total=size) for start in range(0, size, _PIECE))
    downloaded = 0
    with disk_trouble(path), path.open("wb") as file:
        for piece in transport.read_many(pieces):
            if isinstance(piece, RangeFault):
                raise _unreadable(key, str(piece)) from piece
            file.seek(piece.offset)
            file.write(piece.data)
            downloaded += len(piece.data)
            progress.report("download", downloaded, size)
    return size


def _request_size(transport: Transport, key: str) -> tuple[int, str | None] | None:
    try:
        info = transport.head(key)
    except RangeFault as fault:
        raise _unreadable(key, str(fault)) from fault
    if info is None:
        return None
    if info.size is None:
        raise _unreadable(key, "the source does not tell the size of the file")
    return info.size, info.etag


def _unreadable(location: str, reason: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{location} cannot be read: {reason}", "Check the file or the source, then run the command again."
    )


def identify(transport: Transport, path_or_key: str, kind: str, crawl: str | None = None) -> SourceFile:
    """Identifies a file by a local path or a key (or address) of the source of ``transport``.

    Without ``crawl`` the crawl comes from the key, the file's ``warcinfo`` (``isPartOf``) or the header of a
    SequenceFile. A SequenceFile without a crawl counts as one of 2012. Raises ``UserInputError`` for an unknown kind, a
    missing file, and a crawl that cannot be determined.
    """
    if kind not in get_args(FileKind):
        raise UserInputError(f"--kind is {kind!r}; choose one of {', '.join(get_args(FileKind))}")
    file_kind: FileKind = kind  # type: ignore[assignment]  # checked against the literal's values
    location = _location(transport, path_or_key)
    return SourceFile(
        file_kind, location, validate_crawl_id(crawl) if crawl else _crawl_of(transport, location, file_kind)
    )


def _location(transport: Transport, path_or_key: str) -> str:
    path = Path(path_or_key).expanduser()
    if path.is_file():
        return str(path.absolute())
    if path.is_absolute():
        raise UserInputError(f"{path_or_key} is not a file on this machine")
    try:
        key = current_key(path_or_key)
    except DataFault as fault:
        raise UserInputError(
            f"{redact_address(path_or_key)!r} is neither a file on this machine nor a key of the source: {fault.reason}"
        ) from None
    if size_and_tag(transport, key) is None:
        raise UserInputError(
            f"{redact_address(path_or_key)!r} is neither a file on this machine nor a key of {transport.source}"
        )
    return key


def _crawl_of(transport: Transport, location: str, kind: FileKind) -> str:
    match = _IN_KEY.search(location)
    if match:
        return validate_crawl_id(match.group(1))
    head = read_head(transport, location)
    if kind == "sequencefile":
        return _crawl_of_sequencefile(head, location)
    # the first record of a WAT or WET file may name its crawl
    first = next(iter_records(head, location), None)
    part_of = _PART_OF.search(first.payload) if isinstance(first, ArchivedRecord) else None
    if part_of is None:
        place = "path" if is_local(location) else "key"
        raise UserInputError(
            f"the crawl of {location} is not known: neither the {place} nor the first record names a crawl; name it "
            "with --crawl"
        )
    return validate_crawl_id(part_of.group(1).decode("latin-1"))


def _crawl_of_sequencefile(head: bytes, location: str) -> str:
    try:
        written = dict(read_header(head, location).metadata).get(CRAWL_ENTRY)
    except DataFault:
        # a damaged header is reported when the file is read
        written = None
    return validate_crawl_id(written) if written else _CRAWL_OF_2012
