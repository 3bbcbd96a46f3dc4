"""Files of the user: their kinds, their partition keys, those registered in a home, and local copies of them."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from cc_pipeline import progress
from cc_pipeline.addresses import redact_address
from cc_pipeline.advice import advise
from cc_pipeline.commoncrawl.crawls import validate_crawl_id
from cc_pipeline.commoncrawl.paths import current_key
from cc_pipeline.errors import DataFault, EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.lake.keyed import Row, update_rows
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange
from cc_pipeline.workspace.workspace import Workspace

FileKind = Literal["sequencefile", "warc"]
#: The kind of WARC and ARC files: they are not read into tables; an index of them is built.
ARCHIVE: Final = "warc"
#: The kind of files that are read into tables.
SEQUENCEFILE: Final = "sequencefile"

FAULTS = "source_faults"
#: Maximum faults of a file that become rows; all are counted.
MAX_FAULT_ROWS = 1_000

_UNSAFE_CHARS = re.compile(r"[^a-z0-9.-]+|\.{2,}")
_MAX_NAME_CHARS = 80
_CRAWL_OF_2012 = "CC-MAIN-2012"
#: Bytes of one piece of a download: large enough to be few requests, small enough to try again.
_PIECE = 8 << 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the user, of one ``crawl``. ``location`` is an absolute path or a key of the source."""

    kind: FileKind
    location: str
    crawl: str

    @property
    def slug(self) -> str:
        """The partition key: kind, file name in safe characters, and 64 bits of a hash of kind, location and crawl."""
        safe_name = (
            _UNSAFE_CHARS.sub("-", self.location.rpartition("/")[2].lower()).strip(".-")[:_MAX_NAME_CHARS].rstrip(".-")
        )
        text = "\n".join((self.kind, self.location, self.crawl))
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return "_".join(part for part in (self.kind, safe_name, digest) if part)


def read_source_files(workspace: Workspace, slugs: Sequence[str] | None = None) -> dict[str, SourceFile]:
    """Returns the files of partition keys (default: all), without archive files.

    Raises ``UserInputError`` for a key that is not registered.
    """
    where = None if slugs is None else {"slug": list(slugs)}
    rows = workspace.lake.read("source_files", where).to_pylist() if slugs is None or slugs else []
    files = {
        row["slug"]: SourceFile(row["source_kind"], row["source_file"], row["crawl"])
        for row in rows
        if row["source_kind"] != ARCHIVE
    }
    unknown_slugs = [slug for slug in slugs or () if slug not in files]
    if unknown_slugs:
        raise UserInputError(
            f"this home has no file with the partition key {unknown_slugs[0]!r}; to add a file: "
            f"{advise('files add', 'FILE', kind='sequencefile')}"
        )
    return files


def register(workspace: Workspace, files: Iterable[SourceFile]) -> list[SourceFile]:
    """Registers ``files``, so that a partition key identifies a file afterwards; returns the new ones."""
    files_by_slug = {file.slug: file for file in files}
    new: list[SourceFile] = []

    def build(stored: list[Row]) -> list[Row]:
        registered = {row["slug"] for row in stored}
        new[:] = [file for slug, file in files_by_slug.items() if slug not in registered]
        return [
            {"slug": file.slug, "source_kind": file.kind, "source_file": file.location, "crawl": file.crawl}
            for file in new
        ]

    if files_by_slug:
        update_rows(workspace.lake, "source_files", {"slug": [*files_by_slug]}, build)
    return new


def identify(transport: Transport, path_or_key: str, crawl: str | None = None) -> SourceFile:
    """Identifies a SequenceFile by a local path or a key (or address) of the source of ``transport``. Without ``crawl``
    it counts as one of 2012. Raises ``UserInputError`` for a missing file and an invalid crawl."""
    return SourceFile(
        SEQUENCEFILE,
        _location(transport, path_or_key),
        validate_crawl_id(crawl) if crawl else _CRAWL_OF_2012,
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
    if _request_size(transport, key) is None:
        raise UserInputError(
            f"{redact_address(path_or_key)!r} is neither a file on this machine nor a key of {transport.source}"
        )
    return key


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A file on this disk, and the bytes and requests it took to download it."""

    path: Path
    bytes: int = 0
    requests: int = 0


@contextmanager
def local_copy(transport: Transport, location: str, scratch: Path) -> Iterator[LocalCopy]:
    """Provides the file on this disk: itself, or a copy in the folder ``scratch`` that is deleted afterwards.

    Raises ``EnvironmentFault`` if the file does not exist, cannot be read, or the disk is full.
    """
    if location.startswith("/"):  # keys of the source are never absolute
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
