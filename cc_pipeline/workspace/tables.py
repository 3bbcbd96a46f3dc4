"""Every table of the lake, in the order a value travels, and what its columns mean."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import CAPTURE_ORDER, SLICE, TIMESTAMP
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.documents.schemas import FEED_ITEMS_SCHEMA, PAGE_LINKS_SCHEMA, PAGE_METADATA_SCHEMA, PAGE_TEXT_SCHEMA
from cc_pipeline.index.catalog.schemas import (
    COLUMN_CHUNKS_SCHEMA,
    COVERAGE_SCHEMA,
    INDEX_FILES_SCHEMA,
    ROW_GROUPS_SCHEMA,
)
from cc_pipeline.lake.evolution import Migration
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.merging import bytes_too_large, split_large
from cc_pipeline.lake.vacuum import retire
from cc_pipeline.records.schema import RECORD_SCHEMA

_ANSWERS: Final = ("3xx", "4xx", "5xx", "gone", "notModified", "other", "redirPerm", "redirTemp")
_DATABASE: Final = ("fetched", "gone", "notModified", "redirPerm", "redirTemp", "unfetched")

_HOST_INDEX: Final[dict[str, pa.DataType]] = {
    "url_host_registered_domain": pa.string(),
    "url_host_tld": pa.string(),
    **dict.fromkeys(("hcrank", "prank", "hcrank10", "prank10"), pa.float64()),
    **dict.fromkeys(("warc_record_length_av", "warc_record_length_median"), pa.int64()),
    **dict.fromkeys(("fetch_200", "fetch_200_lote", "fetch_200_lote_pct"), pa.int64()),
    **dict.fromkeys((f"fetch_{kind}" for kind in _ANSWERS), pa.int64()),
    **dict.fromkeys((f"robots_{kind}" for kind in ("200", *_ANSWERS)), pa.int64()),
    **dict.fromkeys((f"nutch_{kind}" for kind in (*_DATABASE, "numRecords")), pa.int64()),
    **dict.fromkeys((f"nutch_{kind}_pct" for kind in _DATABASE), pa.int64()),
}
_DEGREES: Final[dict[str, pa.DataType]] = {"webgraph_outdegree": pa.int64(), "webgraph_indegree": pa.int64()}
_GNEISSWEB: Final[dict[str, pa.DataType]] = {
    **{f"gneissweb_{topic}": pa.float64() for topic in ("technology", "science", "education", "medical")},
    "in_gneissweb": pa.bool_(),
}

#: What is said of a host, by the datasets that come with this program.
FACT_COLUMNS: Final[dict[str, pa.DataType]] = {**_HOST_INDEX, **_DEGREES, **_GNEISSWEB}

#: ``facts_from`` are the datasets that were asked, ``other_facts`` columns of datasets that this version does not know.
HOST_FACTS_SCHEMA: Final = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("surt_host_name", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("domain", pa.string()),
        *(pa.field(name, kind) for name, kind in FACT_COLUMNS.items()),
        pa.field("other_facts", CAPTURE_SCHEMA.field("extra_columns").type),
        pa.field("facts_from", pa.list_(pa.string())),
    ]
)

#: A row for each robots.txt capture, which ``robots`` names. ``fetch_time`` and ``fetch_status`` are those of the
#: origin's own answer, the place and ``content_digest`` those of the capture that was read, behind its redirects.
#: ``lines`` stand at the first row of a slice with that digest.
SITE_POLICIES_SCHEMA: Final = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("robots", pa.string(), nullable=False),
        pa.field("scheme", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("port", pa.int32(), nullable=False),
        pa.field("segment", pa.string(), nullable=False),
        pa.field("fetch_time", TIMESTAMP),
        pa.field("fetch_status", pa.int16()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("content_digest", pa.string()),
        pa.field("url", pa.string()),
        pa.field("domain", pa.string()),
        pa.field("read_from", pa.string()),
        pa.field("warc_filename", pa.string(), nullable=False),
        pa.field("warc_record_offset", pa.int64(), nullable=False),
        pa.field("warc_record_length", pa.int64(), nullable=False),
        pa.field(
            "lines",
            pa.list_(
                pa.struct(
                    [
                        pa.field("number", pa.int32()),
                        pa.field("agents", pa.list_(pa.string())),
                        pa.field("signal", pa.string()),
                        pa.field("path", pa.string()),
                        pa.field("value", pa.string()),
                        pa.field("uses", pa.list_(pa.string())),
                        pa.field("says", pa.string()),
                    ]
                )
            ),
        ),
    ]
)

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

#: ``made_from`` is the digest of the captures that the look-up gave: a row counts while they still have it. What
#: fetching all of them costs is there too, and the versions of the target's definition and of the index asked.
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
        pa.field("definition", pa.string()),
        pa.field("index_version", pa.string()),
        pa.field("record_bytes", pa.int64()),
        pa.field("fetch_bytes", pa.int64()),
        pa.field("fetch_requests", pa.int64()),
    ]
)

FETCHES_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("planned", pa.int64(), nullable=False),
        pa.field("fetched", pa.int64(), nullable=False),
        pa.field("quarantined", pa.int64(), nullable=False),
        pa.field("missing", pa.int64(), nullable=False),
        pa.field("unsettled", pa.int64(), nullable=False),
        pa.field("given_up", pa.int64(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("example", pa.string()),
        pa.field("rounds", pa.int32(), nullable=False),
        pa.field("silent_runs", pa.int32(), nullable=False),
        pa.field("asked_at", TIMESTAMP, nullable=False),
        pa.field("made_from", pa.string(), nullable=False),
        pa.field("stored_bytes", pa.int64()),
        pa.field("stored_files", pa.list_(pa.struct([pa.field("file", pa.string()), pa.field("bytes", pa.int64())]))),
        pa.field("lost_reason", pa.string()),
        pa.field("lost_file", pa.string()),
        pa.field("lost_in_one", pa.int64()),
        pa.field("losses", pa.string()),
        pa.field("losses_accepted", pa.string()),
        pa.field("losses_doubted", pa.bool_()),
        pa.field("mismatched", pa.int64()),
        pa.field("mismatches", pa.string()),
        pa.field("mismatches_confirmed", pa.string()),
        pa.field("mismatches_doubted", pa.bool_()),
        pa.field("second_looks", pa.int32()),
    ]
)

#: ``location`` is an absolute path or a key of the source; ``slug`` the partition key, and the ``target`` of its rows.
#: ``content_tag`` is there for archive files only: their size and ETag when they were added.
SOURCE_FILES_SCHEMA = pa.schema(
    [
        pa.field("slug", pa.string(), nullable=False),
        pa.field("source_kind", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("content_tag", pa.string()),
    ]
)

#: ``byte_offset`` is where in the file reading failed; null when the whole file is meant.
SOURCE_FAULTS_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("source_kind", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("byte_offset", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
    ]
)

#: Columns that say how a row came to be, which two rows that say the same may differ in.
_FOUND_BY = ("located_by", "index_file", "index_position", "meant")
_STORED = (
    "meant", "detail", "stored_file", "stored_offset", "stored_length", "attempts", "fetched_at", "parser", "rounds",
    "served_by",
)  # fmt: skip
_PARSED_BY = ("parser", "parser_version", "source_file")

TABLES: tuple[TableSpec, ...] = (
    TableSpec("crawls", CRAWLS_SCHEMA, (), ("crawl",)),
    TableSpec("targets", TARGETS_SCHEMA, ("slug",), ("slug",)),
    TableSpec("index_manifest", INDEX_MANIFEST_SCHEMA, BY_CRAWL, ("subset", "path")),
    TableSpec("index_files", INDEX_FILES_SCHEMA, BY_CRAWL, ()),
    TableSpec("row_groups", ROW_GROUPS_SCHEMA, BY_CRAWL, ()),
    TableSpec("coverage", COVERAGE_SCHEMA, BY_CRAWL, ()),
    TableSpec("column_chunks", COLUMN_CHUNKS_SCHEMA, BY_CRAWL, ()),
    TableSpec("given_captures", CAPTURES_SCHEMA, SLICE, CAPTURE_ORDER, apart=_FOUND_BY),
    TableSpec("lookups", LOOKUPS_SCHEMA, SLICE, ("target",)),
    TableSpec("captures", CAPTURES_SCHEMA, SLICE, CAPTURE_ORDER, apart=_FOUND_BY),
    TableSpec("records", RECORD_SCHEMA, SLICE, CAPTURE_ORDER, apart=_STORED),
    TableSpec("fetches", FETCHES_SCHEMA, SLICE, ("target",)),
    TableSpec("page_metadata", PAGE_METADATA_SCHEMA, SLICE, (), apart=_PARSED_BY),
    TableSpec("page_text", PAGE_TEXT_SCHEMA, SLICE, (), apart=_PARSED_BY),
    TableSpec("page_links", PAGE_LINKS_SCHEMA, SLICE, (), apart=_PARSED_BY),
    TableSpec("feed_items", FEED_ITEMS_SCHEMA, SLICE, (), apart=_PARSED_BY),
    TableSpec("host_facts", HOST_FACTS_SCHEMA, SLICE, ("target", "surt_host_name"), apart=("facts_from",)),
    TableSpec("site_policies", SITE_POLICIES_SCHEMA, SLICE, ()),
    TableSpec("source_files", SOURCE_FILES_SCHEMA, ("slug",), ("slug",)),
    TableSpec("source_faults", SOURCE_FAULTS_SCHEMA, SLICE, (), apart=("source_file",)),
)

#: Tables of earlier layouts. They are empty; upkeep deletes what is left of their files.
RETIRED: tuple[str, ...] = ("fetch_plan",)


def _to_layout_4(lake: Lake) -> None:
    # it is about what is made of these tables, and only homes of before need it
    from cc_pipeline.extraction.layout4 import to_layout_4  # noqa: PLC0415

    to_layout_4(lake)


def _bytes_to_split(lake: Lake) -> int:
    from cc_pipeline.extraction.layout4 import bytes_to_split  # noqa: PLC0415

    return bytes_to_split(lake)


#: One per layout above 1. A column that is only added needs none; renaming, retyping and ending a table do.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(2, "the fetch plan is no longer stored", lambda lake: retire(lake, "fetch_plan")),
    Migration(3, "large files of many slices become sorted ones of 16 MB", split_large, rewrites_of=bytes_too_large),
    Migration(4, "each subset of a crawl is a slice of its own", _to_layout_4, rewrites_of=_bytes_to_split),
    # for programs of before, which would take what was folded for never made
    Migration(5, "digests of slices may be folded out of the logs", lambda _: None),
)
