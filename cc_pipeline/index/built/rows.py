"""Rows of the columnar index from an archive file that is read from begin to end.

The columns are those of Common Crawl's own index. Three of them stay null, since they say what its crawler found out in
ways of its own: ``content_mime_detected``, ``content_charset`` and ``content_languages``.
"""

from __future__ import annotations

import marshal
import struct
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urljoin

import pyarrow as pa

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.http import first_values
from cc_pipeline.archive.members import ByteSource
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.commoncrawl.domains import HOST_COLUMNS, host_columns
from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMNS, LATER_COLUMNS
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.built.names import is_arc

#: The columns of an index built here, as captures have them: offsets of 64 bits.
BUILT_SCHEMA: Final = pa.schema([*INDEX_COLUMNS, *LATER_COLUMNS])
Row = tuple[Any, ...]

#: Types of records that hold a page. A revisit has none of its own, a request and metadata are about others.
_HOLDING: Final = frozenset({"response", "resource", "arc"})
_BATCH_ROWS: Final = 1_024
_BATCH_BYTES: Final = 8 << 20
#: Characters of a URL that fits an index. Servers take some 8,000; a record's header may have a million.
_MOST_CHARACTERS: Final = 1 << 14
_SHA1_CHARACTERS: Final = 32
_PREFIX: Final = "<urn:uuid:"
_KEY, _TIME, _OFFSET = (BUILT_SCHEMA.get_field_index(n) for n in ("url_surtkey", "fetch_time", "warc_record_offset"))
#: What stands behind the key of a packed row: its time and offset, so that they sort, then the row, then how long the
#: part is that sorts.
_BEHIND = struct.Struct(">QQ")
_LENGTH = struct.Struct("<I")
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
#: Makes times before 1970 sort before others.
_EPOCH: Final = 1 << 62


@dataclass(slots=True)
class Tally:
    """What a file held: ``records`` by type, ``rows`` that were made of them, and stretches that could not be read."""

    records: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    faults: int = 0


def index_rows(stream: ByteSource, filename: str, segment: str | None, tally: Tally) -> Iterator[Row | DataFault]:
    """The rows of an archive file (values of ``BUILT_SCHEMA``, times as milliseconds) in the order of its records, and
    a ``DataFault`` for each stretch that is none or cannot be asked for by its place.

    ``filename`` is where records are fetched from. Raises nothing but ``EnvironmentFault``, for a file that cannot be
    read.
    """
    read = arc.iter_located if is_arc(filename) else warc.iter_located
    for found in read(stream, filename):
        if isinstance(found, DataFault):
            tally.faults += 1
            yield found
            continue
        tally.records[found.record.record_type] += 1
        if found.record.record_type not in _HOLDING:
            continue
        wrong = _unfit(found, filename)
        if wrong is None:
            tally.rows += 1
            yield _row(found, filename, segment)
        else:
            tally.faults += 1
            yield wrong


def packed(row: Row) -> bytes:
    """A row as bytes that sort as rows of an index lie: by key, then by time and offset."""
    moment = row[_TIME]
    head = row[_KEY].encode("utf-8", "surrogatepass") + b"\0"
    head += _BEHIND.pack(0 if moment is None else moment + _EPOCH, row[_OFFSET])
    return b"".join((head, marshal.dumps(row), _LENGTH.pack(len(head))))


def batches_of(items: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Packed rows as batches of ``BUILT_SCHEMA``, in their order."""
    rows: list[Row] = []
    size = 0
    for item in items:
        [length] = _LENGTH.unpack_from(item, len(item) - _LENGTH.size)
        rows.append(marshal.loads(memoryview(item)[length : -_LENGTH.size]))
        size += len(item)
        if len(rows) == _BATCH_ROWS or size > _BATCH_BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _unfit(found: StoredRecord, filename: str) -> DataFault | None:
    """Why a record cannot be in an index: nothing finds it, or it cannot be asked for alone."""
    if found.length is None or found.inner_offset:
        reason = "the record shares a gzip member with others: only files compressed by record can be read by place"
        return DataFault(DataKind.UNSUPPORTED, filename, found.offset, reason)
    if not found.record.url:
        return DataFault(DataKind.MALFORMED, filename, found.offset, "the record has no URL")
    if len(found.record.url) > _MOST_CHARACTERS:
        reason = f"the record's URL has {len(found.record.url):,} characters, more than {_MOST_CHARACTERS:,}"
        return DataFault(DataKind.TOO_LARGE, filename, found.offset, reason)
    return None


def _row(found: StoredRecord, filename: str, segment: str | None) -> Row:
    record = found.record
    url = record.url
    hosts = host_columns(url)
    status = record.http_status
    declared = record.declared_digest
    # what the record itself claims is what a fetch is checked against, as with an index that is published
    digest = declared if declared is not None and len(declared) == _SHA1_CHARACTERS else record.payload_digest
    return (
        surt_key(url),
        url,
        *[hosts[name] for name in HOST_COLUMNS],
        None if record.fetch_time is None else (record.fetch_time - _BEGIN) // _MILLISECOND,
        status,
        _redirect(record, status),
        digest,
        record.declared_mime or "unk",
        None,
        None,
        None,
        record.truncated,
        filename,
        found.offset,
        found.length,
        segment,
        _record_id(record),
    )


def _redirect(record: ArchivedRecord, status: int | None) -> str | None:
    """Where a redirect leads, as an absolute URL where it is one."""
    if status is None or not 300 <= status < 400:
        return None
    location = first_values(record.http_headers).get("location")
    if not location:
        return None
    try:
        return urljoin(record.url, location)
    except ValueError:
        return location


def _record_id(record: ArchivedRecord) -> bytes | None:
    said = next((value for name, value in record.record_headers if name.lower() == "warc-record-id"), "")
    if not said.startswith(_PREFIX):
        return None
    try:
        return uuid.UUID(said[len(_PREFIX) :].rstrip(">")).bytes
    except ValueError:
        return None


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [_array(values, kind.type) for values, kind in zip(columns, BUILT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=BUILT_SCHEMA)


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        # half of a surrogate pair, out of a URL that was no text: it is written as bytes of the archive are elsewhere
        return pa.array([None if v is None else v.encode("utf-8", "backslashreplace").decode() for v in values], kind)
