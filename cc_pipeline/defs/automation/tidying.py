"""What the job ``upkeep`` does."""

import dagster as dg

from cc_pipeline.defs.placement import Placement
from cc_pipeline.hostfacts.known import sweep_datasets
from cc_pipeline.upkeep.upkeep import keep_up
from cc_pipeline.workspace.workspace import Workspace


def tidy_tables(context: dg.OpExecutionContext, workspace: Workspace, at: Placement) -> None:
    """Merges small files, publishes the merged tables, and deletes files that were superseded a week ago or before."""
    left = sweep_datasets(workspace.settings)
    report = keep_up(workspace)
    context.add_output_metadata(
        {
            "files merged": sum(report.merged.values()),
            "files deleted": sum(report.deleted.values()),
            "left by killed processes, deleted": report.debris + left,
        }
    )
