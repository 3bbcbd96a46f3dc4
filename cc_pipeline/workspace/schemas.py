"""The columns of tables, except those of the catalog, of records and of pages. Nothing heavy is loaded here."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import CRAWL, SUBSET, TIMESTAMP
from cc_pipeline.columns import Column, schema_of
from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES, NAMED_CAPTURES_COLUMNS

CRAWLS_COLUMNS: Final = (
    CRAWL,
    Column("name", pa.string(), "Common Crawl's name of the crawl"),
    Column("era", pa.string(), "columnar, or arc for the crawls of 2008 to 2012", nullable=False),
    Column("started", TIMESTAMP, "From collinfo.json; null if it has none"),
    Column("ended", TIMESTAMP, "From collinfo.json; null if it has none"),
    Column("cdx_api", pa.string(), "Address of the index server for this crawl"),
)
CRAWLS_SCHEMA: Final = schema_of(CRAWLS_COLUMNS)

INDEX_MANIFEST_COLUMNS: Final = (
    CRAWL,
    SUBSET,
    Column("part", pa.int32(), "Number of the file within its subset"),
    Column("path", pa.string(), "Key of the Parquet file in the source", nullable=False),
)
INDEX_MANIFEST_SCHEMA: Final = schema_of(INDEX_MANIFEST_COLUMNS)

TARGETS_COLUMNS: Final = (
    Column("slug", pa.string(), "Partition key: the value of the column target in other tables", nullable=False),
    Column("kind", pa.string(), "domain, host, url, prefix, tld, suffix, rev or set", nullable=False),
    Column(
        "definition",
        pa.string(),
        "The whole target (docs/targets.md); for a large set its beginning, or its file",
        nullable=False,
    ),
    Column(
        "version", pa.string(), "Changes with the definition; captures of an older version are stale", nullable=False
    ),
    Column(
        "ranges",
        pa.list_(pa.struct([pa.field("start", pa.binary()), pa.field("end", pa.binary())])),
        "SURT keys that its captures can have, by this and earlier definitions; empty for a divided set",
    ),
    Column(
        "parts",
        pa.int32(),
        "Number of parts into which the slices of a large set are divided; each part has its own row",
    ),
)
TARGETS_SCHEMA: Final = schema_of(TARGETS_COLUMNS)

BLOCKED_SCHEMA: Final = schema_of(
    (
        Column("definition", pa.string(), "The blocked site, as a target", nullable=False),
        Column("since", TIMESTAMP, "Time at which it was blocked", nullable=False),
        Column("why", pa.string(), "The reason, in a person's words", nullable=False),
    )
)

CAPTURES_COLUMNS: Final = NAMED_CAPTURES_COLUMNS
CAPTURES_SCHEMA: Final = NAMED_CAPTURES

#: The notes of lookups, in rows of ``slices``, with the cost of fetching all captures and the versions of the target's
#: definition and of the index. ``unlisted`` captures are no longer in the index that named them.
LOOKUPS_COLUMNS: Final = (
    CRAWL,
    Column("target", pa.string(), "Slug of the target", nullable=False),
    Column(
        "located_by",
        pa.string(),
        "Kind of index that listed it, as in --index; btree+zipnum if a lookup used both",
        nullable=False,
    ),
    Column("subsets", pa.list_(pa.string()), "Subsets that were looked up", nullable=False),
    Column("complete", pa.bool_(), "False if index files could not be read, and that was allowed", nullable=False),
    Column("index_files", pa.int64(), "Index files of these subsets; null if the lookup is complete"),
    Column("unread_files", pa.int64(), "Number of gaps: index files that could not be read", nullable=False),
    Column("unread", pa.list_(pa.string()), "Paths of at most 20 gaps", nullable=False),
    Column("captures", pa.int64(), "Captures found", nullable=False),
    Column("looked_up_at", TIMESTAMP, "Time of the lookup", nullable=False),
    Column(
        "members",
        pa.list_(pa.struct([pa.field("member", pa.string()), pa.field("captures", pa.int64())])),
        "Members of a set, with the number of captures of each",
    ),
    Column("definition", pa.string(), "Whole definition that was looked up", nullable=False),
    Column("index_version", pa.string(), "Version of the index that was searched", nullable=False),
    Column("record_bytes", pa.int64(), "Compressed bytes of all records", nullable=False),
    Column("fetch_bytes", pa.int64(), "Bytes to request for all records", nullable=False),
    Column("fetch_requests", pa.int64(), "Requests for all records", nullable=False),
    Column(
        "unlisted",
        pa.int64(),
        "Captures that the index listed earlier and lists no longer; run --accept-removals removes them",
        nullable=False,
    ),
)

_STORED_FILES: Final = pa.list_(pa.struct([pa.field("file", pa.string()), pa.field("bytes", pa.int64())]))

FETCHES_COLUMNS: Final = (
    CRAWL,
    Column("target", pa.string(), "Slug of the target", nullable=False),
    Column("planned", pa.int64(), "Planned captures: the sum of fetched, pending and lost", nullable=False),
    Column("fetched", pa.int64(), "Captures whose records are stored", nullable=False),
    Column("pending", pa.int64(), "Captures that are not fetched and will be requested again", nullable=False),
    Column("lost", pa.int64(), "Captures that did not come at three asks", nullable=False),
    Column("reason", pa.string(), "Most frequent reason of the pending captures"),
    Column("example", pa.string(), "A pending capture, with its reason in words"),
    Column("ask_pending", pa.int64(), "Pending captures whose reason counts towards a loss", nullable=False),
    Column("asks", pa.int32(), "Asks of these captures that counted; the smallest number", nullable=False),
    Column(
        "failed_runs",
        pa.int32(),
        "Latest consecutive fetches after which captures were pending for other reasons",
        nullable=False,
    ),
    Column("last_attempt_at", TIMESTAMP, "Time of the last fetch", nullable=False),
    Column("next_ask_at", TIMESTAMP, "Time from which schedules request pending captures; null if none are pending"),
    Column("stored_bytes", pa.int64(), "Bytes of the stored records", nullable=False),
    Column(
        "stored_files",
        _STORED_FILES,
        "Files of the stored records, with the bytes that these use in each",
        nullable=False,
    ),
    Column("lost_reason", pa.string(), "Most frequent reason of the lost captures"),
    Column(
        "mismatched",
        pa.int64(),
        "Fetched captures with another payload digest than in the index",
        nullable=False,
    ),
)
FETCHES_SCHEMA: Final = schema_of(FETCHES_COLUMNS)

#: ``source_file`` is an absolute path or a key of the source; ``slug`` is the partition key, and the ``target`` of its
#: rows. ``content_tag`` is for archive files only: their size and ETag when they were added.
SOURCE_FILES_COLUMNS: Final = (
    Column("slug", pa.string(), "Partition key, and target of the file's rows in lake", nullable=False),
    Column("source_kind", pa.string(), "sequencefile, or warc for an archive file", nullable=False),
    Column("source_file", pa.string(), "Path, address, or key in the source", nullable=False),
    Column("crawl", pa.string(), "The crawl it belongs to", nullable=False),
    Column("content_tag", pa.string(), "Size and ETag of an archive file when it was added"),
)
SOURCE_FILES_SCHEMA: Final = schema_of(SOURCE_FILES_COLUMNS)

#: ``byte_offset`` is where reading failed; null if the file as a whole is unreadable.
SOURCE_FAULTS_COLUMNS: Final = (
    CRAWL,
    Column("target", pa.string(), "Slug of the file", nullable=False),
    Column("source_kind", pa.string(), "sequencefile, or warc for an archive file", nullable=False),
    Column("source_file", pa.string(), "Path, address, or key in the source", nullable=False),
    Column("byte_offset", pa.int64(), "Byte at which reading failed; null: the whole record or file"),
    Column("reason", pa.string(), "Why it could not be read", nullable=False),
)
SOURCE_FAULTS_SCHEMA: Final = schema_of(SOURCE_FAULTS_COLUMNS)
