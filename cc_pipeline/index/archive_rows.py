"""Makes rows of the columnar index from an archive file, which is read from start to end, and writes them as its shard.
This is for crawls without a published index.

The columns are those of Common Crawl's own index. Three of them stay null, since only its crawler detects their values:
``content_mime_detected``, ``content_charset`` and ``content_languages``.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.gzip_members import ByteSource
from cc_pipeline.archive.http import first_values
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.columns import schema_of
from cc_pipeline.commoncrawl.domains import HOST_COLUMNS, host_columns
from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMNS, LATER_COLUMNS
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.documents.html.urls import resolve_header
from cc_pipeline.errors import DataFault, DataKind, disk_trouble
from cc_pipeline.grouping import group_within
from cc_pipeline.index.shards import is_arc

#: The columns of an index built here, as captures have them: offsets of 64 bits.
BUILT_SCHEMA: Final = schema_of((*INDEX_COLUMNS, *LATER_COLUMNS))
Row = tuple[Any, ...]

#: Types of records that hold a page, or a part of one. A revisit has no payload, a request and metadata describe other
#: records.
_HOLDING: Final = frozenset({"response", "resource", "arc", "continuation"})
#: Maximum characters of a URL in an index. Servers accept some 8,000; a record's header may have a million.
_MAX_URL_CHARACTERS: Final = 1 << 14
_PREFIX: Final = "<urn:uuid:"
#: The columns by which an index is sorted.
ORDER: Final = ("url_surtkey", "fetch_time", "warc_record_offset")
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

#: The key of the metadata in a file's footer: what the file was made from.
METADATA_KEY: Final = b"cc_pipeline.built"
#: Columns without a dictionary: nearly all values differ.
_PLAIN: Final = frozenset({"url_surtkey", "url", "content_digest", "warc_record_offset", "warc_record_id", "url_path"})
#: An archive file of 1 GB holds some 40,000 pages: one row group or two, of whose pages a lookup reads two or three.
_GROUP_ROWS: Final = 32_768
#: Bytes of rows in a row group, where that is fewer of them.
_GROUP_BYTES: Final = 16 << 20
_PAGE_ROWS: Final = 1_000


@dataclass(slots=True)
class Tally:
    """Counts of an archive file: ``records`` by type, ``rows`` made from them, and parts that could not be read."""

    records: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    faults: int = 0


def index_rows(stream: ByteSource, filename: str, segment: str | None, tally: Tally) -> Iterator[Row | DataFault]:
    """Yields the rows of an archive file (values of ``BUILT_SCHEMA``, times as milliseconds) in the order of its
    records, and a ``DataFault`` for each part that is no record or cannot be requested by its location.

    Records are fetched from ``filename``. Raises only ``EnvironmentFault``, for a file that cannot be read.
    """
    read = arc.iter_located if is_arc(filename) else warc.iter_located
    for stored, is_shared in _with_sharing(read(stream, filename)):
        if isinstance(stored, DataFault):
            tally.faults += 1
            yield stored
            continue
        tally.records[stored.record.record_type] += 1
        if stored.record.record_type not in _HOLDING:
            continue
        wrong = _unfit(stored, filename, is_shared)
        if wrong is None:
            tally.rows += 1
            yield _row(stored, filename, segment)
        else:
            tally.faults += 1
            yield wrong


def _with_sharing(records: Iterable[StoredRecord | DataFault]) -> Iterator[tuple[StoredRecord | DataFault, bool]]:
    """Yields each record or fault, and whether the next record lies in the same gzip member."""
    previous: StoredRecord | DataFault | None = None
    for record in records:
        if previous is not None:
            yield (
                previous,
                isinstance(record, StoredRecord) and record.inner_offset > 0 and record.offset == previous.offset,
            )
        previous = record
    if previous is not None:
        yield previous, False


def row_batch(rows: list[Row]) -> pa.RecordBatch:
    """Returns rows as a batch of ``BUILT_SCHEMA``."""
    columns = zip(*rows, strict=True)
    arrays = [_to_arrow(values, kind.type) for values, kind in zip(columns, BUILT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=BUILT_SCHEMA)


def _unfit(stored: StoredRecord, filename: str, is_shared: bool) -> DataFault | None:
    """Returns why a record cannot be in an index, as a fault: it has no usable URL, or cannot be requested alone."""
    if stored.record.record_type == "continuation":
        reason = "a continuation record: only the first segment of a segmented record is read"
        return DataFault(DataKind.UNSUPPORTED, filename, stored.offset, reason)
    if stored.length is None or stored.inner_offset or is_shared:
        reason = "the record shares a gzip member with others: only files compressed by record can be indexed"
        return DataFault(DataKind.UNSUPPORTED, filename, stored.offset, reason)
    if not stored.record.url:
        return DataFault(DataKind.MALFORMED, filename, stored.offset, "the record has no URL")
    if len(stored.record.url) > _MAX_URL_CHARACTERS:
        reason = f"the record's URL has {len(stored.record.url):,} characters, more than {_MAX_URL_CHARACTERS:,}"
        return DataFault(DataKind.TOO_LARGE, filename, stored.offset, reason)
    return None


def _row(stored: StoredRecord, filename: str, segment: str | None) -> Row:
    record = stored.record
    url = record.url
    hosts = host_columns(url)
    status = record.http_status
    return (
        surt_key(url),
        url,
        *[hosts[name] for name in HOST_COLUMNS],
        None if record.fetch_time is None else (record.fetch_time - _BEGIN) // _MILLISECOND,
        status,
        _redirect(record, status),
        record.payload_digest,
        record.declared_mime or "unk",
        None,
        None,
        None,
        record.truncated,
        filename,
        stored.offset,
        stored.length,
        segment,
        _record_id(record),
    )


def _redirect(record: ArchivedRecord, status: int | None) -> str | None:
    """Returns the target of a redirect, as an absolute URL if possible."""
    if status is None or not 300 <= status < 400:
        return None
    location = first_values(record.http_headers).get("location")
    if not location:
        return None
    return resolve_header(record.url, location) or location


def _record_id(record: ArchivedRecord) -> bytes | None:
    header_value = next((value for name, value in record.record_headers if name.lower() == "warc-record-id"), "")
    if not header_value.startswith(_PREFIX):
        return None
    try:
        return uuid.UUID(header_value[len(_PREFIX) :].rstrip(">")).bytes
    except ValueError:
        return None


def _to_arrow(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        # half of a surrogate pair, from a URL that was no text: escaped like other undecodable bytes of the archive
        return pa.array(
            [None if text is None else text.encode("utf-8", "backslashreplace").decode() for text in values], kind
        )


def write_shard(batches: Iterable[pa.RecordBatch], metadata: Mapping[str, Any], path: Path) -> None:
    """Writes sorted rows to a new Parquet file with a page index, a row group at a time.

    ``metadata`` are JSON-like values for its footer. Raises ``EnvironmentFault`` when the disk refuses.
    """
    schema = BUILT_SCHEMA.with_metadata({METADATA_KEY: json.dumps(dict(metadata), sort_keys=True).encode()})
    with (
        disk_trouble(path),
        pq.ParquetWriter(
            str(path),
            schema,
            compression="zstd",
            compression_level=6,
            use_dictionary=[name for name in schema.names if name not in _PLAIN],
            write_statistics=True,
            write_page_index=True,
            max_rows_per_page=_PAGE_ROWS,
            write_batch_size=_PAGE_ROWS,
            store_schema=False,
        ) as writer,
    ):
        # a file without rows has no row group, since readers reject empty ones
        for group in group_within(batches, (_GROUP_ROWS, _GROUP_BYTES), lambda batch: (batch.num_rows, batch.nbytes)):
            writer.write_table(pa.Table.from_batches(group), row_group_size=_GROUP_ROWS)
