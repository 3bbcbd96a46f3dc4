"""The published DuckDB file.

Belongs here: the ``warehouse`` asset, the only one that publishes. Not here: the SQL of the views (stages).
"""

from datetime import timedelta

import dagster as dg

from cc_pipeline.defs.automation.publication import publication_metadata
from cc_pipeline.defs.metadata import OWNERS
from cc_pipeline.stages.keeping.upkeep import merge_and_publish
from cc_pipeline.stages.workspace import Workspace


@dg.asset(
    group_name="analytics",
    owners=OWNERS,
    kinds={"duckdb"},
    code_version="1",
    deps=[
        "crawls",
        "row_groups",
        "host_facts",
        "captures",
        "records",
        "page_metadata",
        "page_text",
        "page_links",
        "feed_items",
        "source_metadata",
        "source_text",
        "source_links",
        "source_feed_items",
        "source_faults",
    ],
    pool="warehouse",
    # weekly_upkeep publishes each week, automation behind every change
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(days=30), warn_window=timedelta(days=8)),
)
def warehouse(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult[None]:
    """``cc.duckdb``: a view per table over the files of fixed versions. Each capture is there once.

    Open the file read-only at any time, also while it is published again.
    """
    publication = merge_and_publish(workspace)
    context.log.info(f"published {publication.path}")
    return dg.MaterializeResult(metadata=publication_metadata(publication))
