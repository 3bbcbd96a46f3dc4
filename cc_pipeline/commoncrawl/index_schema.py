"""The columnar URL index as published, and the schema of captures inside cc_pipeline.

Source: ``cc-index-schema-flat.json`` of commoncrawl/cc-index-table and its history (see docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import (
    ARCHIVE_FORMAT,
    CAPTURE,
    CONTENT_DIGEST,
    CONTENT_MIME_TYPE,
    CRAWL,
    DOMAIN,
    FETCH_STATUS,
    FETCH_TIME,
    MEANT,
    SUBSET,
    TARGET,
    URL,
    URL_SURTKEY,
    WARC_FILENAME,
    WARC_RECORD_LENGTH,
    WARC_RECORD_OFFSET,
)
from cc_pipeline.columns import Column, schema_of

#: The 30 stored columns in published order. Offsets and lengths are widened to int64: other archives hold
#: records of 20 GB. ``fetch_status`` is a Spark short (-1 when missing).
INDEX_COLUMNS: Final = (
    URL_SURTKEY,
    URL,
    Column("url_host_name", pa.string(), "Host of the URL"),
    Column("url_host_tld", pa.string(), "Last part of the host"),
    Column("url_host_2nd_last_part", pa.string(), "Second part of the host, from the last"),
    Column("url_host_3rd_last_part", pa.string(), "Third part of the host, from the last"),
    Column("url_host_4th_last_part", pa.string(), "Fourth part of the host, from the last"),
    Column("url_host_5th_last_part", pa.string(), "Fifth part of the host, from the last"),
    Column("url_host_registry_suffix", pa.string(), "Suffix by the ICANN part of the public suffix list"),
    Column("url_host_registered_domain", pa.string(), "Registered domain by the ICANN part of the public suffix list"),
    Column("url_host_private_suffix", pa.string(), "Suffix by the whole public suffix list, where github.io is one"),
    Column("url_host_private_domain", pa.string(), "Registered domain by the whole public suffix list"),
    Column("url_host_name_reversed", pa.string(), "Host from the last part on: com.example.www"),
    Column("url_protocol", pa.string(), "http or https"),
    Column("url_port", pa.int32(), "Port in the URL; null if it has none"),
    Column("url_path", pa.string(), "Path of the URL"),
    Column("url_query", pa.string(), "Query of the URL, without the question mark"),
    FETCH_TIME,
    FETCH_STATUS,
    Column("fetch_redirect", pa.string(), "Target of a redirect (since CC-MAIN-2019-47)"),
    CONTENT_DIGEST,
    CONTENT_MIME_TYPE,
    Column("content_mime_detected", pa.string(), "Media type detected from the bytes"),
    Column("content_charset", pa.string(), "Encoding that the crawler detected"),
    Column(
        "content_languages",
        pa.string(),
        "Up to three ISO-639-3 codes, best first (CLD2); comma-separated text in the lake",
    ),
    Column(
        "content_truncated",
        pa.string(),
        "Why the payload is cut (length, time, disconnect, unspecified); null for a complete one",
    ),
    WARC_FILENAME,
    WARC_RECORD_OFFSET,
    WARC_RECORD_LENGTH,
    Column("warc_segment", pa.string(), "Segment of the crawl that has the file"),
)

INDEX_COLUMN_NAMES: tuple[str, ...] = tuple(column.name for column in INDEX_COLUMNS)

#: Columns added by Common Crawl after the first 30; unknown ones are put into ``extra_columns``. ``warc_record_id`` is
#: in index files of CC-MAIN-2026-30, but not in those of 2026-21, its first crawl by the schema file.
LATER_COLUMNS: Final = (Column("warc_record_id", pa.binary(), "Id of the record, in newer indexes"),)

#: The result of every locator: one row per capture. ``domain`` is the registered domain (host for IPs and hosts without
#: a public suffix). ``archive_format`` is ``warc`` or ``arc``. ``located_by`` names the locator, ``index_file`` and
#: ``index_position`` the source of the row in the index (row group number for Parquet, block number for the B-tree,
#: member offset for ZipNum). ``extra_columns`` holds columns or CDXJ keys unknown to this version, as text.
#: ``condition_match``, for a target with a condition: the index decides that the capture matches (``yes``), or cannot
#: decide (``unknown``).
CAPTURE_COLUMNS: Final = (
    CRAWL,
    SUBSET,
    *INDEX_COLUMNS,
    *LATER_COLUMNS,
    DOMAIN,
    ARCHIVE_FORMAT,
    Column(
        "located_by",
        pa.string(),
        "Kind of index that listed it, as in --index; btree+zipnum if a lookup used both",
        nullable=False,
    ),
    Column("index_file", pa.string(), "Index file of the row"),
    Column("index_position", pa.int64(), "Row group (parquet), block (btree) or member offset (zipnum) in that file"),
    Column(
        "extra_columns",
        pa.map_(pa.string(), pa.string()),
        "Columns of the index that this version does not know, as text",
    ),
    MEANT,
)
CAPTURE_SCHEMA: Final = schema_of(CAPTURE_COLUMNS)
#: Captures with the slug of the target that requested them.
NAMED_CAPTURES_COLUMNS: Final = (TARGET, *CAPTURE_COLUMNS)
NAMED_CAPTURES: Final = schema_of(NAMED_CAPTURES_COLUMNS)

#: The columns of a condition, with the columns of a capture from which each is computed.
CONDITION_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "mime": ("content_mime_detected", "content_mime_type"),
    "mime_claimed": ("content_mime_type",),
    "lang": ("content_languages", "content_mime_detected"),
    "charset": ("content_charset",),
    "status": ("fetch_status",),
    "time": ("fetch_time",),
    "url": ("url",),
    "protocol": ("url_protocol",),
    "host": ("url_host_name",),
    "domain": ("domain",),
    "tld": ("url_host_tld",),
    "path": ("url_path",),
    "query": ("url_query",),
    "subset": ("subset",),
    "length": ("warc_record_length",),
    "digest": ("content_digest",),
}


def distinct_captures(captures: pa.Table) -> pa.Table:
    """Returns the first row of each capture (crawl, file, offset) of a table of captures or records, in their order."""
    numbered = captures.select([*CAPTURE]).append_column("row", pa.array(range(captures.num_rows), pa.int64()))
    first = numbered.group_by([*CAPTURE]).aggregate([("row", "min")])
    return captures.take(first["row_min"].combine_chunks().sort())
