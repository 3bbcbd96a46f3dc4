"""Every table of the lake, in the order a value travels."""

from __future__ import annotations

import pyarrow as pa

from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA, TIMESTAMP
from cc_pipeline.documents.schemas import (
    FEED_ITEMS_SCHEMA,
    PAGE_LINKS_SCHEMA,
    PAGE_METADATA_SCHEMA,
    PAGE_TEXT_SCHEMA,
)
from cc_pipeline.extraction.fetch_plan import FETCH_PLAN_SCHEMA
from cc_pipeline.extraction.record_schema import RECORD_SCHEMA
from cc_pipeline.extraction.source_schema import SOURCE_FAULTS_SCHEMA, SOURCE_FILES_SCHEMA
from cc_pipeline.index.catalog_tables import (
    COLUMN_CHUNKS_SCHEMA,
    COVERAGE_SCHEMA,
    INDEX_FILES_SCHEMA,
    ROW_GROUPS_SCHEMA,
)
from cc_pipeline.lake.lake import TableSpec

BY_CRAWL = ("crawl",)
BY_CRAWL_AND_TARGET = ("crawl", "target")
_CAPTURE_ORDER = ("target", "warc_filename", "warc_record_offset")

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
    ]
)

CAPTURES_SCHEMA = pa.schema([pa.field("target", pa.string(), nullable=False), *CAPTURE_SCHEMA])

TABLES: tuple[TableSpec, ...] = (
    TableSpec("crawls", CRAWLS_SCHEMA, (), ("crawl",)),
    TableSpec("targets", TARGETS_SCHEMA, ("slug",), ("slug",)),
    TableSpec("index_manifest", INDEX_MANIFEST_SCHEMA, BY_CRAWL, ("subset", "path")),
    TableSpec("index_files", INDEX_FILES_SCHEMA, BY_CRAWL, ()),
    TableSpec("row_groups", ROW_GROUPS_SCHEMA, BY_CRAWL, ()),
    TableSpec("coverage", COVERAGE_SCHEMA, BY_CRAWL, ()),
    TableSpec("column_chunks", COLUMN_CHUNKS_SCHEMA, BY_CRAWL, ()),
    TableSpec("captures", CAPTURES_SCHEMA, BY_CRAWL_AND_TARGET, _CAPTURE_ORDER),
    TableSpec("fetch_plan", FETCH_PLAN_SCHEMA, BY_CRAWL_AND_TARGET, ()),
    TableSpec("records", RECORD_SCHEMA, BY_CRAWL_AND_TARGET, _CAPTURE_ORDER),
    TableSpec("page_metadata", PAGE_METADATA_SCHEMA, BY_CRAWL_AND_TARGET, ()),
    TableSpec("page_text", PAGE_TEXT_SCHEMA, BY_CRAWL_AND_TARGET, ()),
    TableSpec("page_links", PAGE_LINKS_SCHEMA, BY_CRAWL_AND_TARGET, ()),
    TableSpec("feed_items", FEED_ITEMS_SCHEMA, BY_CRAWL_AND_TARGET, ()),
    TableSpec("source_files", SOURCE_FILES_SCHEMA, ("slug",), ("slug",)),
    TableSpec("source_faults", SOURCE_FAULTS_SCHEMA, BY_CRAWL_AND_TARGET, ()),
)
