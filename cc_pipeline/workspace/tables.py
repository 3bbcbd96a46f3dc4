"""The tables of the lake: those of the core in the order of the pipeline, then those of extensions."""

from __future__ import annotations

from typing import Final

from cc_pipeline.capture_columns import CAPTURE_ORDER, SLICE
from cc_pipeline.documents.schemas import FEED_ITEMS_SCHEMA, PAGE_LINKS_SCHEMA, PAGE_METADATA_SCHEMA, PAGE_TEXT_SCHEMA
from cc_pipeline.extension import extensions
from cc_pipeline.index.catalog.schemas import CATALOG_ROW_GROUP, CATALOG_SCHEMA
from cc_pipeline.lake.lake import TableSpec
from cc_pipeline.lake.slice import (
    BUILT,
    FETCH,
    HARVEST,
    LOCATE,
    MANIFEST,
    NAMED_CAPTURES,
    PARSE,
)
from cc_pipeline.lake.slices import EPOCH, SLICES
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.workspace.schemas import (
    BLOCKED_SCHEMA,
    CAPTURES_SCHEMA,
    CRAWLS_SCHEMA,
    INDEX_MANIFEST_SCHEMA,
    SOURCE_FAULTS_SCHEMA,
    SOURCE_FILES_SCHEMA,
    TARGETS_SCHEMA,
)

BY_CRAWL = ("crawl",)
#: Columns about the origin of a row. Two equal captures may differ in them.
_LOOKUP_COLUMNS = ("located_by", "index_file", "index_position", "condition_match")
_STORED = (
    "condition_match", "stored_file", "stored_offset", "stored_length", "attempts", "fetched_at", "parser",
    # of a capture that is not fetched, whose page does not say why
    "outcome", "reason", "detail", "asks", "last_ask_at",
)  # fmt: skip
_PARSED_BY = ("parser", "parser_version", "source_file")

#: The tables of the core.
CORE_TABLES: Final[tuple[TableSpec, ...]] = (
    TableSpec("crawls", CRAWLS_SCHEMA, key=("crawl",), sort_by=("crawl",)),
    TableSpec("targets", TARGETS_SCHEMA, key=("slug",), sort_by=("slug",), hidden=(EPOCH,)),
    TableSpec("blocked", BLOCKED_SCHEMA, key=("definition",), sort_by=("definition",)),
    SLICES,
    TableSpec("index_manifest", INDEX_MANIFEST_SCHEMA, BY_CRAWL, ("subset", "path"),
    stage=MANIFEST, is_published=False),
    TableSpec("row_groups", CATALOG_SCHEMA, BY_CRAWL, (), row_group_rows=CATALOG_ROW_GROUP, stage=HARVEST),
    TableSpec("named_captures", CAPTURES_SCHEMA, SLICE, CAPTURE_ORDER, _LOOKUP_COLUMNS, stage=NAMED_CAPTURES),
    TableSpec("captures", CAPTURES_SCHEMA, SLICE, CAPTURE_ORDER, _LOOKUP_COLUMNS, stage=LOCATE),
    TableSpec("records", RECORD_SCHEMA, SLICE, CAPTURE_ORDER, _STORED, stage=FETCH),
    TableSpec("page_metadata", PAGE_METADATA_SCHEMA, SLICE, (), _PARSED_BY, stage=PARSE),
    TableSpec("page_text", PAGE_TEXT_SCHEMA, SLICE, (), _PARSED_BY, stage=PARSE),
    TableSpec("page_links", PAGE_LINKS_SCHEMA, SLICE, (), _PARSED_BY, stage=PARSE),
    TableSpec("feed_items", FEED_ITEMS_SCHEMA, SLICE, (), _PARSED_BY, stage=PARSE),
    TableSpec("source_files", SOURCE_FILES_SCHEMA, key=("slug",), sort_by=("slug",)),
    TableSpec("source_faults", SOURCE_FAULTS_SCHEMA, SLICE, (), ("source_file",), stage=BUILT, is_of_files=True),
)  # fmt: skip


def all_tables() -> tuple[TableSpec, ...]:
    """Returns the tables of the core, then those of the extensions."""
    return (*CORE_TABLES, *(spec for extension in extensions() for spec in extension.tables()))
