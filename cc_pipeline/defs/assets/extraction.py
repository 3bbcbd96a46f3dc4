"""A target's captures in a crawl, their records, and what the records say.

Belongs here: the assets over crawl × domain. Not here: locators, fetching, parsers.
"""

from collections.abc import Iterator

import dagster as dg
import pyarrow as pa

from cc_pipeline.defs.metadata import OWNERS, table_metadata
from cc_pipeline.defs.partitions import CRAWL_AND_DOMAIN
from cc_pipeline.defs.slices import BACKFILL, materialize_slices
from cc_pipeline.documents.schemas import (
    FEED_ITEMS_SCHEMA,
    PAGE_LINKS_SCHEMA,
    PAGE_METADATA_SCHEMA,
    PAGE_TEXT_SCHEMA,
    PARSER_VERSION,
)
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.stages.fetch import fetch_captures
from cc_pipeline.stages.locate import locate_captures
from cc_pipeline.stages.parse import parse_records
from cc_pipeline.stages.tables import CAPTURES_SCHEMA
from cc_pipeline.stages.workspace import Workspace

_CAPTURE_PREVIEW = ["url", "fetch_time", "fetch_status", "content_mime_type", "warc_filename", "warc_record_offset"]


@dg.multi_asset(
    name="locate",
    specs=[
        dg.AssetSpec(
            "captures",
            description="One row per capture of the target in the crawl, with every column of the index.",
            deps=["row_groups"],
            group_name="extraction",
            owners=OWNERS,
            kinds={"deltalake"},
            code_version="1",
            metadata=table_metadata("captures", CAPTURES_SCHEMA),
        ),
    ],
    partitions_def=CRAWL_AND_DOMAIN,
    backfill_policy=BACKFILL,
)
def locate(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> Iterator[dg.MaterializeResult[None]]:
    """Looks the targets up in the cheapest index the crawl has, and prices the fetch of their captures."""
    yield from materialize_slices(context, workspace, locate_captures, {"captures": _CAPTURE_PREVIEW})


_RECORD_PREVIEW = ["url", "outcome", "reason", "digest_check", "payload_length", "stored_file", "stored_offset"]


@dg.multi_asset(
    name="fetch",
    specs=[
        dg.AssetSpec(
            "records",
            description="One row per planned capture with exactly one outcome; fetched bytes are kept as WARC or ARC.",
            deps=["captures"],
            group_name="extraction",
            owners=OWNERS,
            kinds={"deltalake", "warc"},
            code_version="1",
            metadata=table_metadata("records", RECORD_SCHEMA),
        )
    ],
    partitions_def=CRAWL_AND_DOMAIN,
    backfill_policy=BACKFILL,
)
def fetch(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> Iterator[dg.MaterializeResult[None]]:
    """Fetches records within the request budget (near ones in one request), verifies each, and stores it."""
    yield from materialize_slices(context, workspace, fetch_captures, {"records": _RECORD_PREVIEW})


def _page_spec(name: str, schema: pa.Schema, description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        name,
        description=description,
        deps=["records"],
        group_name="content",
        owners=OWNERS,
        kinds={"deltalake"},
        code_version=PARSER_VERSION,
        metadata=table_metadata(name, schema),
    )


@dg.multi_asset(
    name="parse",
    specs=[
        _page_spec("page_metadata", PAGE_METADATA_SCHEMA, "One row per record: the 2012 metadata schema, typed."),
        _page_spec("page_text", PAGE_TEXT_SCHEMA, "One row per page with text: full text, main content, language."),
        _page_spec("page_links", PAGE_LINKS_SCHEMA, "One row per link, with every attribute and its resolved address."),
        _page_spec("feed_items", FEED_ITEMS_SCHEMA, "One row per item of an RSS, Atom or JSON Feed."),
    ],
    partitions_def=CRAWL_AND_DOMAIN,
    backfill_policy=BACKFILL,
)
def parse(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> Iterator[dg.MaterializeResult[None]]:
    """Decodes and parses each stored record once and writes the four tables from that one pass."""
    shown = {
        "page_metadata": ["url", "http_result", "mime_type", "parsed_as", "charset_detected", "disposition"],
        "page_text": ["url", "title", "content_languages", "main_content"],
        "page_links": ["url", "type", "href", "text"],
        "feed_items": ["url", "title", "published", "link"],
    }
    yield from materialize_slices(context, workspace, parse_records, shown)
