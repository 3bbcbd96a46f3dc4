"""The columnar URL index as published, and the one shape a capture has inside cc_pipeline.

Source: ``cc-index-schema-flat.json`` of commoncrawl/cc-index-table and its history (see docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import CAPTURE, TIMESTAMP

#: The 30 stored columns in published order. Offsets and lengths are widened to int64: other archives hold
#: records of 20 GB. ``fetch_status`` is a Spark short (-1 when missing).
INDEX_COLUMNS: tuple[pa.Field, ...] = (
    pa.field("url_surtkey", pa.string()),
    pa.field("url", pa.string()),
    pa.field("url_host_name", pa.string()),
    pa.field("url_host_tld", pa.string()),
    pa.field("url_host_2nd_last_part", pa.string()),
    pa.field("url_host_3rd_last_part", pa.string()),
    pa.field("url_host_4th_last_part", pa.string()),
    pa.field("url_host_5th_last_part", pa.string()),
    pa.field("url_host_registry_suffix", pa.string()),
    pa.field("url_host_registered_domain", pa.string()),
    pa.field("url_host_private_suffix", pa.string()),
    pa.field("url_host_private_domain", pa.string()),
    pa.field("url_host_name_reversed", pa.string()),
    pa.field("url_protocol", pa.string()),
    pa.field("url_port", pa.int32()),
    pa.field("url_path", pa.string()),
    pa.field("url_query", pa.string()),
    pa.field("fetch_time", TIMESTAMP),
    pa.field("fetch_status", pa.int16()),
    pa.field("fetch_redirect", pa.string()),
    pa.field("content_digest", pa.string()),
    pa.field("content_mime_type", pa.string()),
    pa.field("content_mime_detected", pa.string()),
    pa.field("content_charset", pa.string()),
    pa.field("content_languages", pa.string()),
    pa.field("content_truncated", pa.string()),
    pa.field("warc_filename", pa.string()),
    pa.field("warc_record_offset", pa.int64()),
    pa.field("warc_record_length", pa.int64()),
    pa.field("warc_segment", pa.string()),
)

INDEX_COLUMN_NAMES: tuple[str, ...] = tuple(field.name for field in INDEX_COLUMNS)

#: Columns added by Common Crawl after the first 30; unknown ones land in ``extra_columns``. ``warc_record_id`` is seen
#: in index files of CC-MAIN-2026-30, and not in those of 2026-21, which the schema file names as its first crawl.
LATER_COLUMNS: tuple[pa.Field, ...] = (pa.field("warc_record_id", pa.binary()),)

#: What every locator returns: one row per capture. ``domain`` is the registered domain (host for IPs and
#: hosts without a public suffix). ``archive_format`` is ``warc`` or ``arc``. ``located_by`` names the
#: locator, ``index_file`` and ``index_position`` the index bytes the row came from (row group number for
#: Parquet, block number for the B-tree, member offset for ZipNum). ``extra_columns`` holds columns or CDXJ
#: keys this version does not know, as text. ``meant`` says of captures of a target with a condition whether the index
#: says that they are (``yes``) or does not tell (``unknown``).
CAPTURE_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("subset", pa.string(), nullable=False),
        *INDEX_COLUMNS,
        *LATER_COLUMNS,
        pa.field("domain", pa.string()),
        pa.field("archive_format", pa.string(), nullable=False),
        pa.field("located_by", pa.string(), nullable=False),
        pa.field("index_file", pa.string()),
        pa.field("index_position", pa.int64()),
        pa.field("extra_columns", pa.map_(pa.string(), pa.string())),
        pa.field("meant", pa.string()),
    ]
)
#: Captures with the slug of the target that they were asked for.
NAMED_CAPTURES = pa.schema([pa.field("target", pa.string(), nullable=False), *CAPTURE_SCHEMA])

#: The columns of a condition, and those of a capture that each is made of.
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
    """The first row of each capture (crawl, file, offset) of a table of captures or records, in their order."""
    numbered = captures.select([*CAPTURE]).append_column("row", pa.array(range(captures.num_rows), pa.int64()))
    first = numbered.group_by([*CAPTURE]).aggregate([("row", "min")])
    return captures.take(first["row_min"].combine_chunks().sort())
