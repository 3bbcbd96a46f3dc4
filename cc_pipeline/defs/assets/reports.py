"""A page about each target, for people.

Belongs here: the ``report`` asset. Not here: what the page says and how it looks (stages).
"""

import dagster as dg

from cc_pipeline.defs.metadata import OWNERS
from cc_pipeline.defs.partitions import DOMAIN
from cc_pipeline.defs.slices import BACKFILL
from cc_pipeline.stages.questions.report import report_path, write_report
from cc_pipeline.stages.workspace import Workspace


@dg.asset(
    group_name="analytics",
    owners=OWNERS,
    kinds={"html"},
    code_version="1",
    partitions_def=DOMAIN,
    backfill_policy=BACKFILL,
    deps=["warehouse"],
)
def report(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult[None]:
    """A page about a target, from what was published last: one HTML file in ``reports/`` of the home.

    It covers all crawls, so its partitions are targets alone.
    """
    settings, written = workspace.settings, []
    for slug in context.partition_keys:
        found = write_report(settings, slug)
        path = report_path(settings, slug)
        written.append(path)
        context.log.info(f"wrote {path}: {sum(row['captures'] for row in found.crawls):,} captures")
    return dg.MaterializeResult(
        metadata={
            "path": dg.MetadataValue.path(str(written[-1])),
            "bytes": dg.MetadataValue.int(sum(path.stat().st_size for path in written)),
            "reports": dg.MetadataValue.int(len(written)),
        }
    )
