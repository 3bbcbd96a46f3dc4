"""What analysts read: the published DuckDB file, and the report of a target."""

import dagster as dg

from cc_pipeline.defs.automation.publication import publication_metadata
from cc_pipeline.defs.placement import Placement
from cc_pipeline.defs.recording import wanted_keys
from cc_pipeline.publish.report import report_path, write_report
from cc_pipeline.upkeep.upkeep import merge_and_publish
from cc_pipeline.workspace.workspace import Workspace


def report(context: dg.AssetExecutionContext, workspace: Workspace, at: Placement) -> dg.MaterializeResult[None]:
    """A page about a target, from what was published last: one HTML file in ``reports/`` of the home.

    It covers all crawls, so its partitions are targets alone.
    """
    settings, written = workspace.settings, []
    for slug in wanted_keys(context):
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


def warehouse(context: dg.AssetExecutionContext, workspace: Workspace, at: Placement) -> dg.MaterializeResult[None]:
    """``cc.duckdb``: a view per table over the files of fixed versions. Each capture is there once.

    Open the file read-only at any time, also while it is published again.
    """
    publication = merge_and_publish(workspace)
    context.log.info(f"published {publication.path}")
    return dg.MaterializeResult(metadata=publication_metadata(publication))
