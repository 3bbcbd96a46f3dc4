"""The manifest of a place: its files of records with their SHA-256, and what each copy lacks."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from cc_pipeline import SOFTWARE
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.transport.client import Transport

#: The name of the manifest in its place.
MANIFEST: Final = "manifest.json"
#: Increases when older code cannot read a manifest.
VERSION: Final = 1
#: Undelivered captures of a crawl that the manifest lists at most.
MAX_UNDELIVERED: Final = 1_000

_FORMAT: Final = "cc_pipeline delivery"
_FILE_NAME: Final = re.compile(r"[\w-]+/[\w.-]+\Z", re.ASCII)
#: Maximum bytes of a manifest: about 200,000 files of records.
_MAX_BYTES: Final = 128 << 20
#: Bytes of one read of a file in the place.
_BLOCK: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file: its key in the place, size in bytes and SHA-256. A file with the same ``etag`` has not changed."""

    name: str
    size: int
    sha256: str
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of ``records`` captures of one crawl, and the Parquet list with the offset of each capture in it."""

    crawl: str
    records: int
    file: FileEntry
    list: FileEntry


@dataclass(frozen=True, slots=True)
class CrawlCopy:
    """The last copy of a request (crawl, targets and subsets): what was requested, and what was not copied.

    ``complete`` is false during a copy and after an interrupted one. ``counts`` has planned, delivered, pending,
    lost and left_out captures. ``undelivered`` lists the first undelivered captures. ``unread_index_files`` is
    how many index files the user allowed to be unread: their captures are not known. ``provenance`` is that of an
    export.
    """

    crawl: str
    targets: tuple[str, ...]
    subsets: tuple[str, ...]
    complete: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    undelivered: tuple[Mapping[str, Any], ...] = ()
    unread_index_files: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def request(self) -> tuple[str, frozenset[str], frozenset[str]]:
        """Crawl, targets and subsets: the identity of a request."""
        return self.crawl, frozenset(self.targets), frozenset(self.subsets)

    @property
    def lost(self) -> dict[str, int]:
        """Planned captures that are not in the place, by outcome."""
        return {name: self.counts[name] for name in ("pending", "lost", "left_out") if self.counts.get(name)}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a place: its files, and the last copy of each request, since a copy of other targets says nothing
    of what an earlier one lacks. With ``convert`` no file is an ARC file."""

    convert: bool
    files: tuple[RecordFile, ...] = ()
    copies: tuple[CrawlCopy, ...] = ()

    def files_of(self, crawl: str) -> tuple[RecordFile, ...]:
        """The files of one crawl."""
        return tuple(file for file in self.files if file.crawl == crawl)

    def with_copy(self, files: Sequence[RecordFile], copy: CrawlCopy) -> Manifest:
        """The manifest with other files of the crawl of ``copy``, and the copy."""
        other_files = [file for file in self.files if file.crawl != copy.crawl]
        other_copies = [other for other in self.copies if other.request != copy.request]
        return replace(self, files=(*other_files, *files), copies=(*other_copies, copy))

    @property
    def entries(self) -> Iterator[FileEntry]:
        """All files: those of records, and their lists."""
        for file in self.files:
            yield file.file
            yield file.list


def write_manifest(place: Transport, manifest: Manifest) -> None:
    """Replaces the manifest of ``place``. Raises ``EnvironmentFault`` (also as ``RangeFault``) if the place refuses."""
    created_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    document = {"format": _FORMAT, "version": VERSION, "software": SOFTWARE, "created": created_at, **asdict(manifest)}
    place.put(MANIFEST, json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n")


def read_manifest(place: Transport) -> Manifest | None:
    """Reads the manifest of ``place``; ``None`` if there is none.

    Raises ``EnvironmentFault`` if the place does not answer, or if the manifest is damaged or of a newer version.
    """
    if not place.exists(MANIFEST):
        return None
    try:
        return parse_manifest(place.read_all(MANIFEST, limit=_MAX_BYTES).data)
    except DataFault as fault:
        raise EnvironmentFault(
            f"the manifest in {place.source} cannot be read: {fault}",
            "Install the version of cc_pipeline that wrote it. If it is damaged, copy to an empty place.",
        ) from fault


def parse_manifest(data: bytes) -> Manifest:
    """Parses a manifest. Raises ``DataFault`` for other content and for a newer format."""
    try:
        document = json.loads(data)
        if (document["format"], document["version"]) != (_FORMAT, VERSION):
            raise DataFault(DataKind.UNSUPPORTED, MANIFEST, None, "no manifest of a delivery, or a newer one")
        files = tuple(_parse_record_file(file) for file in document["files"])
        return Manifest(bool(document["convert"]), files, tuple(map(_parse_copy, document["copies"])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataFault(DataKind.MALFORMED, MANIFEST, None, f"no manifest of a delivery ({error!r:.200})") from None


def _parse_record_file(document: Mapping[str, Any]) -> RecordFile:
    file, captures = _parse_entry(document["file"]), _parse_entry(document["list"])
    return RecordFile(str(document["crawl"]), int(document["records"]), file, captures)


def _parse_entry(document: Mapping[str, Any]) -> FileEntry:
    if not _FILE_NAME.match(document["name"]):
        raise ValueError(f"the file name {document['name']!r}")
    etag = document["etag"]
    return FileEntry(
        document["name"], int(document["size"]), str(document["sha256"]), None if etag is None else str(etag)
    )


def _parse_copy(document: Mapping[str, Any]) -> CrawlCopy:
    return CrawlCopy(
        crawl=str(document["crawl"]),
        targets=tuple(map(str, document["targets"])),
        subsets=tuple(map(str, document["subsets"])),
        complete=bool(document["complete"]),
        counts={str(name): int(count) for name, count in document["counts"].items()},
        undelivered=tuple(map(dict, document["undelivered"])),
        unread_index_files=int(document["unread_index_files"]),
        provenance=dict(document["provenance"]),
    )


def sha256_of(place: Transport, key: str, size: int) -> str:
    """The SHA-256 of a file of ``size`` bytes. Raises ``DataFault`` if it has fewer bytes, and ``EnvironmentFault``."""
    digest = hashlib.sha256()
    for offset in range(0, size, _BLOCK):
        digest.update(place.read(key, offset, min(_BLOCK, size - offset)).data)
    return digest.hexdigest()
