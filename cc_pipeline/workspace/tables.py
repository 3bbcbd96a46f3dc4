"""Every table of the lake, in the order a value travels, and what its columns mean."""

from __future__ import annotations

from cc_pipeline.capture_columns import CAPTURE_ORDER, SLICE
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
