"""Every table of the lake, in the order a value travels, and what its columns mean."""

from __future__ import annotations

import pyarrow as pa

from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.documents.schemas import FEED_ITEMS_SCHEMA, PAGE_LINKS_SCHEMA, PAGE_METADATA_SCHEMA, PAGE_TEXT_SCHEMA
from cc_pipeline.index.catalog.schemas import (
    COLUMN_CHUNKS_SCHEMA,
    COVERAGE_SCHEMA,
    INDEX_FILES_SCHEMA,
    ROW_GROUPS_SCHEMA,
)
from cc_pipeline.keys import CAPTURE_ORDER, SLICE, TIMESTAMP
from cc_pipeline.lake.evolution import Migration
from cc_pipeline.lake.keeping import retire
from cc_pipeline.lake.lake import TableSpec
from cc_pipeline.lake.merging import bytes_too_large, split_large
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.stages.shortfall import FETCHES_SCHEMA
from cc_pipeline.wholefiles.files import SOURCE_FAULTS_SCHEMA, SOURCE_FILES_SCHEMA

BY_CRAWL = ("crawl",)

CRAWLS_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("era", pa.string(), nullable=False),
        pa.field("started", TIMESTAMP),
        pa.field("ended", TIMESTAMP),
        pa.field("cdx_api", pa.string()),
    ]
)

INDEX_MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("subset", pa.string(), nullable=False),
        pa.field("part", pa.int32()),
        pa.field("path", pa.string(), nullable=False),
    ]
)

TARGETS_SCHEMA = pa.schema(
    [
        pa.field("slug", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("definition", pa.string(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("ranges", pa.list_(pa.struct([pa.field("start", pa.binary()), pa.field("end", pa.binary())]))),
        pa.field("parts", pa.int32()),
    ]
)

CAPTURES_SCHEMA = pa.schema([pa.field("target", pa.string(), nullable=False), *CAPTURE_SCHEMA])

#: ``made_from`` is the digest of the captures that the look-up gave: a row counts while they still have it.
LOOKUPS_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("located_by", pa.string(), nullable=False),
        pa.field("subsets", pa.list_(pa.string()), nullable=False),
        pa.field("complete", pa.bool_(), nullable=False),
        pa.field("index_files", pa.int64()),
        pa.field("unread_files", pa.int64(), nullable=False),
        pa.field("unread", pa.list_(pa.string()), nullable=False),
        pa.field("captures", pa.int64(), nullable=False),
        pa.field("looked_up_at", TIMESTAMP, nullable=False),
        pa.field("made_from", pa.string(), nullable=False),
        pa.field("members", pa.list_(pa.struct([pa.field("member", pa.string()), pa.field("captures", pa.int64())]))),
    ]
)

#: Columns that say how a row came to be, which two rows that say the same may differ in.
_FOUND_BY = ("located_by", "index_file", "index_position")
_STORED = ("detail", "stored_file", "stored_offset", "stored_length", "attempts", "fetched_at", "parser", "rounds")
_PARSED_BY = ("parser", "parser_version", "source_file")

TABLES: tuple[TableSpec, ...] = (
    TableSpec("crawls", CRAWLS_SCHEMA, (), ("crawl",)),
    TableSpec("targets", TARGETS_SCHEMA, ("slug",), ("slug",)),
    TableSpec("index_manifest", INDEX_MANIFEST_SCHEMA, BY_CRAWL, ("subset", "path")),
    TableSpec("index_files", INDEX_FILES_SCHEMA, BY_CRAWL, ()),
    TableSpec("row_groups", ROW_GROUPS_SCHEMA, BY_CRAWL, ()),
    TableSpec("coverage", COVERAGE_SCHEMA, BY_CRAWL, ()),
    TableSpec("column_chunks", COLUMN_CHUNKS_SCHEMA, BY_CRAWL, ()),
    TableSpec("lookups", LOOKUPS_SCHEMA, SLICE, ("target",)),
    TableSpec("captures", CAPTURES_SCHEMA, SLICE, CAPTURE_ORDER, apart=_FOUND_BY),
    TableSpec("records", RECORD_SCHEMA, SLICE, CAPTURE_ORDER, apart=_STORED),
    TableSpec("fetches", FETCHES_SCHEMA, SLICE, ("target",)),
    TableSpec("page_metadata", PAGE_METADATA_SCHEMA, SLICE, (), apart=_PARSED_BY),
    TableSpec("page_text", PAGE_TEXT_SCHEMA, SLICE, (), apart=_PARSED_BY),
    TableSpec("page_links", PAGE_LINKS_SCHEMA, SLICE, (), apart=_PARSED_BY),
    TableSpec("feed_items", FEED_ITEMS_SCHEMA, SLICE, (), apart=_PARSED_BY),
    TableSpec("source_files", SOURCE_FILES_SCHEMA, ("slug",), ("slug",)),
    TableSpec("source_faults", SOURCE_FAULTS_SCHEMA, SLICE, (), apart=("source_file",)),
)

#: Tables of earlier layouts. They are empty; upkeep deletes what is left of their files.
RETIRED: tuple[str, ...] = ("fetch_plan",)

#: One per layout above 1. A column that is only added needs none; renaming, retyping and ending a table do.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(2, "the fetch plan is no longer stored", lambda lake: retire(lake, "fetch_plan")),
    Migration(3, "large files of many slices become sorted ones of 16 MB", split_large, rewrites_of=bytes_too_large),
)


COLUMN_NOTES: dict[str, str] = {
    "crawl": "Crawl id, e.g. CC-MAIN-2024-22",
    "subset": "warc (successful fetches), crawldiagnostics (redirects, 404s …) or robotstxt",
    "target": "Slug of the target that asked for the row; its meaning is in `targets`",
    "url": "URL as captured",
    "url_surtkey": "Sort-friendly key of the URL: host reversed, www and port 80/443 dropped, query sorted",
    "fetch_time": "When it was fetched, UTC; of ARC captures the record's own time",
    "fetch_status": "HTTP status; of ARC captures the record's own",
    "fetch_redirect": "Where a redirect leads (since CC-MAIN-2019-47)",
    "content_digest": "SHA-1 of the payload as stored, base32; of ARC captures computed",
    "content_mime_type": "Content-Type as declared",
    "content_mime_detected": "Media type found by looking at the bytes",
    "content_languages": "Up to three ISO-639-3 codes, CLD2",
    "content_truncated": "Why the payload is cut (length, time, disconnect, unspecified); null for a whole one",
    "warc_filename": "Key of the WARC or ARC file in the source",
    "warc_record_offset": "Byte at which the record's gzip member begins",
    "warc_record_length": "Compressed bytes of the record",
    "warc_segment": "Segment of the crawl the file belongs to",
    "domain": "Registered domain; the host itself for IPs and hosts without a public suffix",
    "archive_format": "warc or arc",
    "located_by": "Which index named the capture: parquet, btree or zipnum",
    "index_file": "The index file the row came from",
    "index_position": "Row group (parquet), block (btree) or member offset (zipnum) within it",
    "extra_columns": "Columns of the index this version does not know, as text",
    "outcome": "fetched, quarantined or missing: exactly one per planned capture",
    "reason": "Why the outcome is not fetched; a closed list (docs/faults.md)",
    "detail": "The reason in words, with figures",
    "digest_check": "match, mismatch, absent or unchecked: payload against the promised digest",
    "settled": "Whether asking again cannot change the outcome; null for fetched captures",
    "rounds": "Runs that asked for it in vain while the source gave other captures",
    "stored_file": "Where the bytes are kept, below the lake's root",
    "stored_offset": "Byte at which the kept gzip member begins",
    "stored_length": "Bytes of the kept gzip member",
    "attempts": "Requests it took",
    "ranges": "SURT keys that a capture of the target can have, of this definition and of those before it",
    "parts": "Of a set of many members, into how many parts its slices are divided; each part has a row of its own",
    "members": "Of a set, its members and how many captures each has",
    "url_surtkey_min": "Lowest key of the row group; null means unknown, and unknown is never pruned",
    "url_surtkey_max": "Highest key of the row group; null means unknown",
    "url_surtkey_source": "Where the bounds came from: statistics, deprecated_statistics or repaired",
    "disposition": "SUCCESS or FAILURE, as the 2012 metadata has it (docs/metadata-mapping.md)",
    "failure_reason": "Why it is a FAILURE, in the 2012 vocabulary",
    "attempt_time": "When the crawl of the page was attempted",
    "charset_detector": "0 header, 1 meta tag, 2 and 3 detectors, 10 undetermined (docs/documents.md)",
    "text_simhash": "64-bit simhash of the text by the 2012 algorithm, signed",
    "parsed_as": "html or feed",
    "content": "What the page says: title, meta tags, links; or the feed's own fields",
    "feed": "What a feed says of itself beyond the 2012 document; null for other pages",
    "published_precision": "moment, local (no zone: the clock time as if UTC), day, week, month or year",
    "updated_precision": "As published_precision",
    "published": "When the page, feed or item says it was published",
    "published_from": "Which reader found the date; htmldate and htmldate-text are guesses (docs/documents.md)",
    "modified_from": "Which reader found the date (docs/documents.md)",
    "author_from": "Which reader found the names (docs/documents.md)",
    "robots_directives": "What every robot is asked, by meta tag or header: noindex, noai …",
    "tdm_reservation": "Whether text and data mining is reserved (TDMRep)",
    "structured": "JSON-LD, microdata and RDFa, each item as JSON",
    "archiveInfo": "The archive pointer in the 2012 form, its spelling included",
    "main_content": "Text without navigation and other boilerplate",
    "parser_version": "Rows of an older version are stale and parsed again without refetching",
    "source_kind": "records, sequencefile, wat or wet",
    "era": "columnar, or arc for the crawls of 2008 to 2012",
}
