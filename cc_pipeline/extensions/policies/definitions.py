"""The Dagster definitions of this extension."""

from __future__ import annotations

from cc_pipeline.defs.declarations import Asset, HomeDefinitions, OpJob, Step
from cc_pipeline.defs.declared.jobs import PartitionsConfig
from cc_pipeline.defs.partitions import BACKFILL
from cc_pipeline.extensions.policies.schemas import SITE_POLICIES_COLUMNS, VERSION

#: The job over partitions that its configuration names.
LISTED_JOB = "read_policies_of_targets"


def define() -> HomeDefinitions:
    """The asset ``site_policies``, and the job that makes it."""
    asset = Asset(
        name="site_policies",
        group="content",
        kinds=["deltalake"],
        description="One row per robots.txt capture of the target's hosts in the crawl, with rules and "
        "signals. Only made on request.",
        deps=["records"],
        code_version=VERSION,
        columns=SITE_POLICIES_COLUMNS,
        is_published=True,
    )
    return HomeDefinitions(
        steps=[
            Step(
                function="cc_pipeline.extensions.policies.assets.site_policies",
                assets=[asset],
                partitions="pairs",
                backfill=BACKFILL,
                options={"output_required": False},
            )
        ],
        jobs=[
            OpJob(
                name=LISTED_JOB,
                description="Reads the stored robots.txt captures of any targets in any crawls into a table. For "
                "cc-pipeline policies.",
                function="cc_pipeline.extensions.policies.assets.read_policies_listed",
                config=PartitionsConfig,
                takes_partition_list=True,
            ),
        ],
    )
