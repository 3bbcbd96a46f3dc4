"""The bytes of captures.

Belongs here: the ``records`` asset. Not here: retries, verification, storage (transport, extraction).
"""

from collections.abc import Iterator

import dagster as dg

from cc_pipeline.defs.metadata import OWNERS, table_metadata
from cc_pipeline.defs.partitions import CRAWL_AND_DOMAIN
from cc_pipeline.defs.resources import Pipeline
from cc_pipeline.defs.slices import BACKFILL, materialize_slices
from cc_pipeline.extraction.record_schema import RECORD_SCHEMA
from cc_pipeline.extraction.stage_fetch import fetch_captures

_SHOWN = ["url", "outcome", "reason", "digest_check", "payload_length", "stored_file", "stored_offset"]


@dg.multi_asset(
    name="fetch",
    specs=[
        dg.AssetSpec(
            "records",
            description="One row per planned capture with exactly one outcome; fetched bytes are kept as WARC or ARC.",
            deps=["captures", "fetch_plan"],
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
def fetch(context: dg.AssetExecutionContext, pipeline: Pipeline) -> Iterator[dg.MaterializeResult[None]]:
    """Reads the planned ranges within the request budget, verifies and keeps every record."""
    yield from materialize_slices(context, pipeline, fetch_captures, {"records": _SHOWN})
