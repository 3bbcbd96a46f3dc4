"""A target's captures in a crawl, their records, and what the records say."""

import dagster as dg

from cc_pipeline.defs.declared.assets import ExtractConfig
from cc_pipeline.defs.partition_runs import Yielded, extract_partitions
from cc_pipeline.defs.placement import Placement
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


def extract(context: dg.AssetExecutionContext, workspace: Workspace, at: Placement, config: ExtractConfig) -> Yielded:
    """Looks targets up in the cheapest index their crawl has, fetches and verifies their records, and parses each once.

    Every partition is recorded when it is done, and fails by itself. The four page tables come from one pass: where
    some of them are selected, all are written, and these are recorded.
    """
    workspace.accepted_losses.update(config.accept_losses)
    yield from extract_partitions(context, workspace, at, _SHOWN)
