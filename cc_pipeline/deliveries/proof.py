"""Whether the files of a delivery are what its manifest says: sizes, SHA-256, and each record at its place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.archive.members import DEFAULT_LIMIT
from cc_pipeline.archive.writing import URI_SAFE
from cc_pipeline.deliveries.manifest import FileEntry, PartEntry, key_in, list_name
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.keys import CAPTURE
from cc_pipeline.records.check import Promise, examine
from cc_pipeline.stores.answer import Listed
from cc_pipeline.transport.client import Transport

#: Bytes that are read at once of a file in the place.
_BLOCK = 8 << 20
#: Compressed bytes of one record: it never inflates beyond ``DEFAULT_LIMIT``, and is hardly larger than that.
_LARGEST_MEMBER = DEFAULT_LIMIT + (1 << 20)
#: Bytes of a list or ledger that are read at most.
LARGEST_TABLE = 4 << 30
#: Reasons that are told of one part.
_MOST_REASONS = 5
_LISTED = (*CAPTURE, "warc_record_length", "url", "url_surtkey", "content_digest", "archive_format", "offset", "length")


@dataclass(frozen=True, slots=True)
class Proof:
    """What reading a whole part has shown. ``reasons`` are empty when it is sound; ``more`` were left out of them."""

    sha256: str
    captures: pa.Table
    reasons: tuple[str, ...]
    more: int = 0


def holds(place: Transport, folder: str, entry: FileEntry, listed: Listed | None) -> FileEntry | None:
    """The entry with the place's ETag of today, when the file is there with its size and SHA-256; else ``None``.

    A file whose ETag is the one that the place gave it is not read. Raises ``EnvironmentFault`` when the place does not
    answer.
    """
    if listed is None or listed.size != entry.size:
        return None
    if entry.etag is not None and listed.etag == entry.etag:
        return entry
    try:
        if sha256_of(place, key_in(folder, entry.name), entry.size) != entry.sha256:
            return None
    except DataFault:
        return None  # it was replaced while it was read
    return entry if entry.etag is None else replace(entry, etag=listed.etag)


def sha256_of(place: Transport, key: str, size: int) -> str:
    """Of a file of ``size`` bytes. Raises ``DataFault`` when it has fewer, ``EnvironmentFault``."""
    digest = hashlib.sha256()
    for offset in range(0, size, _BLOCK):
        digest.update(place.read(key, offset, min(_BLOCK, size - offset)).data)
    return digest.hexdigest()


def read_table(place: Transport, key: str, size: int, columns: tuple[str, ...] | None = None) -> tuple[pa.Table, str]:
    """A Parquet file of the place and the SHA-256 of its bytes. Raises ``DataFault`` for bytes that are none."""
    if size > LARGEST_TABLE:
        raise DataFault(DataKind.TOO_LARGE, key, None, f"{size} bytes are more than a table of a delivery has")
    data = b"".join(place.read(key, offset, min(_BLOCK, size - offset)).data for offset in range(0, size, _BLOCK))
    try:
        return pq.read_table(pa.BufferReader(data), columns=None if columns is None else list(columns)), hashlib.sha256(
            data
        ).hexdigest()
    except (pa.ArrowException, OSError) as error:
        raise DataFault(DataKind.MALFORMED, key, None, f"no Parquet file ({error!r:.200})") from error


def prove_part(place: Transport, folder: str, name: str, kind: str, size: int, list_size: int) -> Proof:
    """Reads a part and its list: every record listed is at its offset, whole, and of its URL; nothing else is there.

    Raises ``EnvironmentFault`` when the place does not answer, ``DataFault`` when the list or the part cannot be read.
    """
    listed, _ = read_table(place, key_in(folder, list_name(name)), list_size)
    absent = [column for column in _LISTED if column not in listed.schema.names]
    if absent:
        raise DataFault(DataKind.MALFORMED, key_in(folder, list_name(name)), None, f"has no column {', '.join(absent)}")
    captures = listed.select(_LISTED).sort_by("offset")
    stream = _Stream(place, key_in(folder, name), size)
    reasons: list[str] = []
    bad = 0
    for at, reason in _wrong(stream, captures, kind):
        bad += 1
        if len(reasons) < _MOST_REASONS:
            reasons.append(f"at byte {at}: {reason}")
    digest = stream.finish()
    return Proof(digest, captures, tuple(reasons), bad - len(reasons))


def as_entry(name: str, kind: str, size: int, proof: Proof, listed: FileEntry, etag: str | None) -> PartEntry:
    """The manifest's entry of a part that was proved."""
    return PartEntry(FileEntry(name, size, proof.sha256, etag), kind, proof.captures.num_rows, listed)


def _wrong(stream: _Stream, captures: pa.Table, kind: str) -> Iterator[tuple[int, str]]:
    at: int | None = None
    for batch in captures.to_batches(max_chunksize=1_000):
        for row in batch.to_pylist():
            offset, length = row["offset"], row["length"]
            if offset is None or length is None or not 0 < length <= _LARGEST_MEMBER or offset + length > stream.size:
                yield offset or 0, f"the list names {length} bytes, which cannot be a record"
                return
            if at is None:
                stream.skip(offset)  # the head of the file
            elif offset != at:
                yield at, "the list leaves bytes out or names some twice"
                return
            at = offset + length
            reason = _verdict(stream.take(length), row, kind)
            if reason is not None:
                yield offset, f"{row['url']}: {reason}"
    if at is not None and at != stream.size:
        yield at, f"{stream.size - at} bytes that no capture has"


def _verdict(member: bytes, row: dict[str, object], kind: str) -> str | None:
    url = row["url"]
    promise = Promise(
        str(row["crawl"]), kind, str(row["warc_filename"]), int(str(row["warc_record_offset"])), len(member),
        None if url is None else str(url), None if row["url_surtkey"] is None else str(row["url_surtkey"]), None,
    )  # fmt: skip
    verdict = examine(member, promise)
    if verdict.reason == "wrong_target" and kind != row["archive_format"] and verdict.record is not None:
        # an ARC record as WARC has its URL escaped
        same = verdict.record.url == quote(promise.url or "", safe=URI_SAFE)
        return None if same else verdict.detail
    if verdict.reason is None and len(verdict.member) != len(member):
        return "more than one gzip member"
    return verdict.detail or verdict.reason if verdict.reason is not None else None


class _Stream:
    """Reads a file of the place once, from begin to end, in blocks, and digests it."""

    def __init__(self, place: Transport, key: str, size: int) -> None:
        self._place, self._key, self.size = place, key, size
        self._digest = hashlib.sha256()
        self._read = 0
        self._buffer = bytearray()

    def take(self, length: int) -> bytes:
        while len(self._buffer) < length:
            self._fill()
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken

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
