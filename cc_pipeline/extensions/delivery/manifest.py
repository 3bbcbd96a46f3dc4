"""The manifest of a delivery (one JSON file), the names of the files that it lists, and the verification of a part.

All files of a delivery lie in one folder of the place, which has the name of the crawl. The names of parts and ledgers
contain the SHA-256 of their bytes, so a name never stands for other bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline import SOFTWARE
from cc_pipeline.archive.gzip_members import DEFAULT_LIMIT
from cc_pipeline.archive.writing import URI_SAFE
from cc_pipeline.atomic import parse_leftover_name
from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.export.provenance import Provenance
from cc_pipeline.records.verification import ExpectedRecord, verify_record
from cc_pipeline.stores.answer import ListedObject
from cc_pipeline.transport.client import Transport

#: Increases when older code cannot read a manifest.
VERSION: Final = 1
#: Undelivered captures that the manifest itself lists at most. The ledger lists all of them.
MAX_UNDELIVERED: Final = 1_000
#: Maximum bytes of a manifest: about 200,000 parts.
MAX_MANIFEST_BYTES: Final = 128 << 20

_FORMAT: Final = "cc_pipeline delivery"
_MANIFEST: Final = re.compile(r"manifest-([0-9a-f]{12})\.json\Z")
_LEDGER: Final = re.compile(r"ledger-([0-9a-f]{12})-[0-9a-f]{16}\.parquet\Z")
_PART: Final = re.compile(r"[A-Za-z0-9._-]+?-([0-9a-f]{12})-[0-9a-f]{16}\.(warc|arc)\.gz\Z")
_LIST_SUFFIX: Final = ".captures.parquet"

#: Bytes of one read of a file in the place.
_BLOCK = 8 << 20
#: Maximum compressed bytes of one record: it inflates to at most ``DEFAULT_LIMIT`` and is hardly larger than that.
_MAX_MEMBER_BYTES = DEFAULT_LIMIT + (1 << 20)
#: Maximum bytes of a list or ledger.
MAX_TABLE_BYTES = 4 << 30
#: Maximum reasons that are reported for one part.
_MAX_REASONS = 5
_LIST_COLUMNS = (
    *CAPTURE,
    "warc_record_length",
    "url",
    "url_surtkey",
    "content_digest",
    "archive_format",
    "offset",
    "length",
)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A sent file: its name within the folder, size in bytes, SHA-256, and the ETag of the place.

    ``etag`` is ``None`` in a local folder, where an ETag would not survive a move.
    """

    name: str
    size: int
    sha256: str
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class PartEntry:
    """A file of records (``kind`` is warc or arc), and the Parquet list with the offset of each capture in it."""

    file: FileEntry
    kind: str
    records: int
    list: FileEntry


@dataclass(frozen=True, slots=True)
class Manifest:
    """One delivery: its request, its files, and the captures that are missing with the reasons.

    ``counts`` has planned, delivered, missing, quarantined and left_out captures, ``subsets`` the same for each subset.
    ``not_there`` lists the first undelivered captures. ``borrowed`` are parts of other deliveries in the folder with
    captures of this one. ``superseded`` are replaced files, which are deleted next. ``complete`` is false during a copy
    and after an interrupted one. ``unread_index_files`` is how many index files the user allowed to be unread: their
    captures are not known. ``provenance`` describes the inputs and the outcome of each target
    (:func:`stable_provenance`); it may be empty.
    """

    delivery: str
    crawl: str
    targets: tuple[str, ...]
    wanted_subsets: tuple[str, ...]
    convert: bool = False
    complete: bool = False
    indexes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    subsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ledger: FileEntry | None = None
    parts: tuple[PartEntry, ...] = ()
    borrowed: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    not_there: tuple[Mapping[str, Any], ...] = ()
    unread_index_files: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)
    software: str = field(default=SOFTWARE, compare=False)
    created: str = field(default="", compare=False)

    @property
    def files(self) -> Iterator[FileEntry]:
        """All files that the manifest vouches for."""
        for part in self.parts:
            yield part.file
            yield part.list
        if self.ledger is not None:
            yield self.ledger


def delivery_id(crawl: str, targets: Sequence[str], subsets: Sequence[str]) -> str:
    """The name of a request: a crawl, target definitions and subsets, in any order."""
    text = json.dumps([crawl, sorted(targets), sorted(subsets)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def key_in(folder: str, name: str) -> str:
    """The key of a file in a folder of the place. An empty folder is the place itself."""
    return f"{folder}/{name}" if folder else name


def manifest_name(delivery: str) -> str:
    """The file name of a delivery's manifest."""
    return f"manifest-{delivery}.json"


def part_name(crawl: str, delivery: str, sha256: str, kind: str) -> str:
    """The name of a file of records with this SHA-256."""
    return f"{crawl}-{delivery}-{sha256[:16]}.{kind}.gz"


def ledger_name(delivery: str, sha256: str) -> str:
    """The name of the Parquet file of all planned captures."""
    return f"ledger-{delivery}-{sha256[:16]}.parquet"


def list_name(part: str) -> str:
    """The name of the Parquet list of a part."""
    return part + _LIST_SUFFIX


def parse_manifest_name(name: str) -> str | None:
    """The delivery of a manifest, by its file name; ``None`` for another file."""
    match = _MANIFEST.match(name)
    return match[1] if match else None


def parse_part_name(name: str) -> tuple[str, str] | None:
    """The delivery and the kind of a part, by its file name; ``None`` for another file."""
    match = _PART.match(name)
    return (match[1], match[2]) if match else None


def parse_delivery(name: str) -> str | None:
    """The delivery of a part, a list, a ledger or an unfinished file, by its file name; ``None`` for another file."""
    unfinished_name = parse_leftover_name(name)
    if unfinished_name is not None:
        return parse_delivery(unfinished_name[0]) or parse_manifest_name(unfinished_name[0])
    ledger = _LEDGER.match(name)
    part = parse_part_name(name.removesuffix(_LIST_SUFFIX))
    return ledger[1] if ledger is not None else part[0] if part is not None else None


def to_json(manifest: Manifest) -> bytes:
    """The bytes of the manifest's file."""
    document = {"format": _FORMAT, "version": VERSION, **asdict(manifest)}
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def from_json(data: bytes, source: str) -> Manifest:
    """Parses the manifest in a file named ``source``. Raises ``DataFault`` for other content and for a newer format."""
    try:
        document = json.loads(data)
        if document["format"] != _FORMAT:
            raise DataFault(DataKind.MALFORMED, source, None, "not a manifest of a delivery")
        if document["version"] != VERSION:
            raise DataFault(DataKind.UNSUPPORTED, source, None, "the manifest was written by a newer cc_pipeline")
        return _parse_manifest(document, source)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataFault(DataKind.MALFORMED, source, None, f"not a manifest of a delivery ({error!r:.200})") from None


def _parse_manifest(document: dict[str, Any], source: str) -> Manifest:
    parts = tuple(
        PartEntry(
            _parse_file_entry(part["file"]), str(part["kind"]), int(part["records"]), _parse_file_entry(part["list"])
        )
        for part in document["parts"]
    )
    for part in parts:
        part_name = parse_part_name(part.file.name)
        if part_name is None or part_name[1] != part.kind or part.list.name != list_name(part.file.name):
            raise DataFault(
                DataKind.MALFORMED,
                source,
                None,
                f"it names the file {part.file.name!r}, which is no name of a delivered file",
            )
    ledger = None if document["ledger"] is None else _parse_file_entry(document["ledger"])
    if ledger is not None and not _LEDGER.match(ledger.name):
        raise DataFault(
            DataKind.MALFORMED, source, None, f"it names the ledger file {ledger.name!r}, which is no name of a ledger"
        )
    return Manifest(
        delivery=str(document["delivery"]),
        crawl=str(document["crawl"]),
        targets=tuple(map(str, document["targets"])),
        wanted_subsets=tuple(map(str, document["wanted_subsets"])),
        convert=bool(document["convert"]),
        complete=bool(document["complete"]),
        indexes=tuple(map(str, document["indexes"])),
        counts={str(key): int(count) for key, count in document["counts"].items()},
        subsets={
            str(subset): {str(key): int(n) for key, n in counts.items()}
            for subset, counts in document["subsets"].items()
        },
        ledger=ledger,
        parts=parts,
        borrowed=tuple(map(str, document["borrowed"])),
        superseded=tuple(map(str, document["superseded"])),
        not_there=tuple(map(dict, document["not_there"])),
        unread_index_files=int(document.get("unread_index_files", 0)),
        provenance=dict(document.get("provenance", {})),
        software=str(document["software"]),
        created=str(document["created"]),
    )


def _parse_file_entry(entry: dict[str, Any]) -> FileEntry:
    etag = entry["etag"]
    return FileEntry(str(entry["name"]), int(entry["size"]), str(entry["sha256"]), None if etag is None else str(etag))


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of reading a whole part. ``reasons`` are empty if it is sound; ``omitted_reasons`` is the number of
    omitted reasons."""

    sha256: str
    captures: pa.Table
    reasons: tuple[str, ...]
    omitted_reasons: int = 0


def verify_file(
    place: Transport, folder: str, entry: FileEntry, stored_object: ListedObject | None
) -> FileEntry | None:
    """Verifies a file: returns its entry with the current ETag of the place, or ``None`` if it is missing or if size or
    SHA-256 differ.

    A file with an unchanged ETag is not read. Raises ``EnvironmentFault`` if the place does not answer.
    """
    if stored_object is None or stored_object.size != entry.size:
        return None
    if entry.etag is not None and stored_object.etag == entry.etag:
        return entry
    try:
        if sha256_of(place, key_in(folder, entry.name), entry.size) != entry.sha256:
            return None
    except DataFault:
        return None  # another program replaced it during the read
    return entry if entry.etag is None else replace(entry, etag=stored_object.etag)


def sha256_of(place: Transport, key: str, size: int) -> str:
    """The SHA-256 of a file of ``size`` bytes. Raises ``DataFault`` if it has fewer bytes, and ``EnvironmentFault``."""
    digest = hashlib.sha256()
    for offset in range(0, size, _BLOCK):
        digest.update(place.read(key, offset, min(_BLOCK, size - offset)).data)
    return digest.hexdigest()


def read_table(place: Transport, key: str, size: int, columns: tuple[str, ...] | None = None) -> tuple[pa.Table, str]:
    """Reads a Parquet file of the place. Returns the table and the SHA-256 of the file. Raises ``DataFault`` for other
    bytes.
    """
    if size > MAX_TABLE_BYTES:
        raise DataFault(DataKind.TOO_LARGE, key, None, f"{size} bytes are more than a table of a delivery has")
    data = b"".join(place.read(key, offset, min(_BLOCK, size - offset)).data for offset in range(0, size, _BLOCK))
    try:
        return pq.read_table(pa.BufferReader(data), columns=None if columns is None else list(columns)), hashlib.sha256(
            data
        ).hexdigest()
    except (pa.ArrowException, OSError) as error:
        raise DataFault(DataKind.MALFORMED, key, None, f"no Parquet file ({error!r:.200})") from error


def prove_part(place: Transport, folder: str, name: str, kind: str, size: int, list_size: int) -> Proof:
    """Reads a part and its list, and checks that each listed record is at its offset, is complete and has its URL, and
    that the part has no other bytes.

    Raises ``EnvironmentFault`` if the place does not answer, ``DataFault`` if the list or the part cannot be read.
    """
    list_table, _ = read_table(place, key_in(folder, list_name(name)), list_size)
    missing_columns = [column for column in _LIST_COLUMNS if column not in list_table.schema.names]
    if missing_columns:
        raise DataFault(
            DataKind.MALFORMED, key_in(folder, list_name(name)), None, f"has no column {', '.join(missing_columns)}"
        )
    captures = list_table.select(_LIST_COLUMNS).sort_by("offset")
    stream = _Stream(place, key_in(folder, name), size)
    reasons: list[str] = []
    problem_count = 0
    for offset, reason in _find_part_problems(stream, captures, kind):
        problem_count += 1
        if len(reasons) < _MAX_REASONS:
            reasons.append(f"at byte {offset}: {reason}")
    digest = stream.finish()
    return Proof(digest, captures, tuple(reasons), problem_count - len(reasons))


def proven_entry(name: str, kind: str, size: int, proof: Proof, list_entry: FileEntry, etag: str | None) -> PartEntry:
    """The manifest's entry of a verified part."""
    return PartEntry(FileEntry(name, size, proof.sha256, etag), kind, proof.captures.num_rows, list_entry)


def _find_part_problems(stream: _Stream, captures: pa.Table, kind: str) -> Iterator[tuple[int, str]]:
    position: int | None = None
    for batch in captures.to_batches(max_chunksize=1_000):
        for row in batch.to_pylist():
            offset, length = row["offset"], row["length"]
            if offset is None or length is None or not 0 < length <= _MAX_MEMBER_BYTES or offset + length > stream.size:
                yield offset or 0, f"the list names {length} bytes, which cannot be a record"
                return
            if position is None:
                stream.skip(offset)  # the head of the file
            elif offset != position:
                yield position, "the list leaves bytes out or names some twice"
                return
            position = offset + length
            reason = _member_problem(stream.take(length), row, kind)
            if reason is not None:
                yield offset, f"{row['url']}: {reason}"
    if position is not None and position != stream.size:
        yield position, f"{stream.size - position} bytes that no capture has"


def _member_problem(member: bytes, row: dict[str, object], kind: str) -> str | None:
    url = row["url"]
    expected = ExpectedRecord(
        str(row["crawl"]), kind, str(row["warc_filename"]), int(str(row["warc_record_offset"])), len(member),
        None if url is None else str(url), None if row["url_surtkey"] is None else str(row["url_surtkey"]), None,
    )  # fmt: skip
    verdict = verify_record(member, expected)
    if verdict.reason == "wrong_target" and kind != row["archive_format"] and verdict.record is not None:
        # The URL of an ARC record is escaped when it is converted to WARC.
        is_same_url = verdict.record.url == quote(expected.url or "", safe=URI_SAFE)
        return None if is_same_url else verdict.detail
    if verdict.reason is None and len(verdict.member) != len(member):
        return "more than one gzip member"
    return verdict.detail or verdict.reason if verdict.reason is not None else None


class _Stream:
    """Reads a file of the place once, from start to end, in blocks, and computes its digest."""

    def __init__(self, place: Transport, key: str, size: int) -> None:
        self._place, self._key, self.size = place, key, size
        self._digest = hashlib.sha256()
        self._read = 0
        self._buffer = bytearray()

    def take(self, length: int) -> bytes:
        while len(self._buffer) < length:
            self._fill()
        block = bytes(self._buffer[:length])
        del self._buffer[:length]
        return block

    def skip(self, length: int) -> None:
        while length > len(self._buffer):
            length -= len(self._buffer)
            self._buffer.clear()
            self._fill()
        del self._buffer[:length]

    def finish(self) -> str:
        self._buffer.clear()
        while self._read < self.size:
            self._fill()
            self._buffer.clear()
        return self._digest.hexdigest()

    def _fill(self) -> None:
        data = self._place.read(self._key, self._read, min(_BLOCK, self.size - self._read)).data
        self._digest.update(data)
        self._read += len(data)
        self._buffer += data


def stable_provenance(provenance: Provenance) -> dict[str, Any]:
    """The provenance that a manifest stores, with the outcome of each target. It omits values that change while the
    delivery stays the same, so that a second copy writes the same manifest.
    """
    document = provenance.as_json()
    for name in ("made_at", "published_at", "tables"):
        del document[name]
    return document | {"resolved": [asdict(target) for target in provenance.targets]}
