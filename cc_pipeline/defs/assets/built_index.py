"""The index of a crawl that nobody publishes one of.

Belongs here: the asset ``built_index`` and the yes to its price. Not here: how an archive file becomes an index.
"""

import dagster as dg
from pydantic import Field

from cc_pipeline.defs.lineage import upstream
from cc_pipeline.defs.metadata import OWNERS, crawl_links, figures, stage_metadata
from cc_pipeline.defs.partitions import CRAWL
from cc_pipeline.defs.slices import logged_progress
from cc_pipeline.stages.indexing.build import build_index
from cc_pipeline.stages.workspace import Workspace


class BuildConfig(dg.Config):
    """Whether somebody agreed to the price, and how much is built."""

    yes: bool = Field(default=False, description="I have seen the price (the run without this says it), and agree.")
    most_files: int = Field(default=0, description="Archive files to index now; 0: all that are left.")


@dg.asset(
    group_name="catalog",
    owners=OWNERS,
    kinds={"parquet"},
    code_version="1",
    deps=upstream("built_index"),
    tags={"asked": "on-request", "reads": "gigabytes"},
    partitions_def=CRAWL,
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=1),
)
def built_index(
    context: dg.AssetExecutionContext, config: BuildConfig, workspace: dg.ResourceParam[Workspace]
) -> dg.MaterializeResult[None]:
    """The columnar index of a month of CC-NEWS, or of WARC files that a person named: a Parquet file for each of them.

    Reads every archive file once (some 350 GB a month), so it says the price first, and wants a yes in the run's
    configuration. Only the job build_index includes this asset. A stopped build goes on where it stopped.
    """
    with logged_progress(context.log):
        for crawl in context.partition_keys:
            report = build_index(workspace, crawl, agreed=config.yes, most=config.most_files or None)
            about = figures(report.per_target[crawl]) | crawl_links(workspace, crawl)
            context.add_asset_metadata(stage_metadata(report) | about, partition_key=crawl)
    return dg.MaterializeResult()
