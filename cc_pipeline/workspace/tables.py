"""Every table of the lake, in the order a value travels, and what its columns mean."""

from __future__ import annotations

from cc_pipeline.capture_columns import CAPTURE_ORDER, SLICE
from cc_pipeline.documents.schemas import FEED_ITEMS_SCHEMA, PAGE_LINKS_SCHEMA, PAGE_METADATA_SCHEMA, PAGE_TEXT_SCHEMA
from cc_pipeline.index.catalog.schemas import CATALOG_ROW_GROUP, CATALOG_SCHEMA
from cc_pipeline.lake.evolution import Migration
from cc_pipeline.lake.lake import TableSpec
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.workspace.schemas import (
    CAPTURES_SCHEMA,
    CRAWLS_SCHEMA,
    FETCHES_SCHEMA,
    HOST_FACTS_SCHEMA,
    INDEX_MANIFEST_SCHEMA,
    LOOKUPS_SCHEMA,
    SITE_POLICIES_SCHEMA,
    SOURCE_FAULTS_SCHEMA,
    SOURCE_FILES_SCHEMA,
    TARGETS_SCHEMA,
)

BY_CRAWL = ("crawl",)
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
    TableSpec("row_groups", CATALOG_SCHEMA, BY_CRAWL, (), row_group_rows=CATALOG_ROW_GROUP),
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

#: One for each layout above ``home.OLDEST_LAYOUT``. A column that is only added needs none; renaming, retyping and
#: ending a table do.
MIGRATIONS: tuple[Migration, ...] = ()
