"""A target's captures in a crawl, their records, and what the records say."""

import dagster as dg
import pyarrow as pa
from pydantic import Field

from cc_pipeline.defs.lineage import upstream
from cc_pipeline.defs.metadata import OWNERS, table_metadata
from cc_pipeline.defs.partition_runs import BACKFILL, Yielded, extract_partitions
from cc_pipeline.defs.partitions import CRAWL_AND_DOMAIN
from cc_pipeline.documents.schemas import (
    FEED_ITEMS_SCHEMA,
    PAGE_LINKS_SCHEMA,
    PAGE_METADATA_SCHEMA,
    PAGE_TEXT_SCHEMA,
    PARSER_VERSION,
)
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.workspace.tables import CAPTURES_SCHEMA
from cc_pipeline.workspace.workspace import Workspace

#: The columns of each table's preview.
_SHOWN = {
    "captures": ["url", "fetch_time", "fetch_status", "content_mime_type", "warc_filename", "warc_record_offset"],
    "records": ["url", "outcome", "reason", "digest_check", "payload_length", "stored_file", "stored_offset"],
    "page_metadata": ["url", "http_result", "mime_type", "parsed_as", "charset_detected", "disposition"],
    "page_text": ["url", "title", "content_languages", "main_content"],
    "page_links": ["url", "type", "href", "text"],
    "feed_items": ["url", "title", "published", "link"],
}


def _spec(
    name: str, schema: pa.Schema, description: str, *, group: str, dep: str, version: str, kinds: set[str]
) -> dg.AssetSpec:
    return dg.AssetSpec(
        name,
        description=description,
        deps=[dep, *upstream(name)],
        group_name=group,
        owners=OWNERS,
        kinds={"deltalake", *kinds},
        code_version=version,
        metadata=table_metadata(name, schema),
        # a subset is made, and partitions are recorded apart from outputs
        skippable=True,
    )


def _page_spec(name: str, schema: pa.Schema, description: str) -> dg.AssetSpec:
    return _spec(name, schema, description, group="content", dep="records", version=PARSER_VERSION, kinds=set())


class ExtractConfig(dg.Config):
    """What a person agrees to."""

    accept_losses: list[str] = Field(
        default_factory=list,
        description="Numbers of losses, as a run that doubted them said: these captures are gone for good.",
    )


@dg.multi_asset(
    name="extract",
    specs=[
        _spec(
            "captures",
            CAPTURES_SCHEMA,
            "One row per capture of the target in the crawl, with every column of the index.",
            group="extraction",
            dep="row_groups",
            version="1",
            kinds=set(),
        ),
        _spec(
            "records",
            RECORD_SCHEMA,
            "One row per planned capture with exactly one outcome; fetched bytes are kept as WARC or ARC.",
            group="extraction",
            dep="captures",
            version="1",
            kinds={"warc"},
        ),
        _page_spec("page_metadata", PAGE_METADATA_SCHEMA, "One row per record: the 2012 metadata schema, typed."),
        _page_spec("page_text", PAGE_TEXT_SCHEMA, "One row per page with text: full text, main content, language."),
        _page_spec("page_links", PAGE_LINKS_SCHEMA, "One row per link, with every attribute and its resolved address."),
        _page_spec("feed_items", FEED_ITEMS_SCHEMA, "One row per item of an RSS, Atom or JSON Feed."),
    ],
    partitions_def=CRAWL_AND_DOMAIN,
    backfill_policy=BACKFILL,
    can_subset=True,
)
def extract(
    context: dg.AssetExecutionContext, config: ExtractConfig, workspace: dg.ResourceParam[Workspace]
) -> Yielded:
    """Looks targets up in the cheapest index their crawl has, fetches and verifies their records, and parses each once.

    Every partition is recorded when it is done, and fails by itself. The four page tables come from one pass: where
    some of them are selected, all are written, and these are recorded.
    """
    workspace.accepted_losses.update(config.accept_losses)
    yield from extract_partitions(context, workspace, _SHOWN)
