"""What the records say.

Belongs here: the four tables of parsed pages, made in one pass over the records. Not here: parsers (documents).
"""

from collections.abc import Iterator

import dagster as dg
import pyarrow as pa

from cc_pipeline.defs.metadata import OWNERS, table_metadata
from cc_pipeline.defs.partitions import CRAWL_AND_DOMAIN
from cc_pipeline.defs.resources import Pipeline
from cc_pipeline.defs.slices import BACKFILL, materialize_slices
from cc_pipeline.documents.page import PARSER_VERSION
from cc_pipeline.documents.schemas import (
    FEED_ITEMS_SCHEMA,
    PAGE_LINKS_SCHEMA,
    PAGE_METADATA_SCHEMA,
    PAGE_TEXT_SCHEMA,
)
from cc_pipeline.extraction.stage_parse import parse_records


def _spec(name: str, schema: pa.Schema, description: str) -> dg.AssetSpec:
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
        _spec("page_metadata", PAGE_METADATA_SCHEMA, "One row per record: the 2012 metadata schema, typed."),
        _spec("page_text", PAGE_TEXT_SCHEMA, "One row per page with text: full text, main content, language."),
        _spec("page_links", PAGE_LINKS_SCHEMA, "One row per link, with every attribute and its resolved address."),
        _spec("feed_items", FEED_ITEMS_SCHEMA, "One row per item of an RSS or Atom feed."),
    ],
    partitions_def=CRAWL_AND_DOMAIN,
    backfill_policy=BACKFILL,
)
def parse(context: dg.AssetExecutionContext, pipeline: Pipeline) -> Iterator[dg.MaterializeResult[None]]:
    """Decodes and parses each stored record once and writes the four tables from that one pass."""
    shown = {
        "page_metadata": ["url", "http_result", "mime_type", "parsed_as", "charset_detected", "disposition"],
        "page_text": ["url", "title", "content_languages", "main_content"],
        "page_links": ["url", "type", "href", "text"],
        "feed_items": ["url", "title", "published", "link"],
    }
    yield from materialize_slices(context, pipeline, parse_records, shown)
