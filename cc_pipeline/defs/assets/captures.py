"""Which captures a target has in a crawl, and how they will be fetched.

Belongs here: ``captures`` and ``fetch_plan``, committed together. Not here: how an index is read.
"""

from collections.abc import Iterator

import dagster as dg

from cc_pipeline.defs.metadata import OWNERS, table_metadata
from cc_pipeline.defs.partitions import CRAWL_AND_DOMAIN
from cc_pipeline.defs.resources import Pipeline
from cc_pipeline.defs.slices import BACKFILL, materialize_slices
from cc_pipeline.extraction.fetch_plan import FETCH_PLAN_SCHEMA
from cc_pipeline.extraction.stage_locate import locate_captures
from cc_pipeline.extraction.tables import CAPTURES_SCHEMA

_SHOWN = ["url", "fetch_time", "fetch_status", "content_mime_type", "warc_filename", "warc_record_offset"]


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
        dg.AssetSpec(
            "fetch_plan",
            description="The ranges to read for the captures, near ones joined, with their price.",
            deps=["captures"],
            group_name="extraction",
            owners=OWNERS,
            kinds={"deltalake"},
            code_version="1",
            metadata=table_metadata("fetch_plan", FETCH_PLAN_SCHEMA),
        ),
    ],
    partitions_def=CRAWL_AND_DOMAIN,
    backfill_policy=BACKFILL,
)
def locate(context: dg.AssetExecutionContext, pipeline: Pipeline) -> Iterator[dg.MaterializeResult[None]]:
    """Looks the targets up by the cheapest index that serves the crawl and plans their fetch."""
    yield from materialize_slices(context, pipeline, locate_captures, {"captures": _SHOWN, "fetch_plan": []})
