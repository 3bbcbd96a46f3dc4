"""The published DuckDB file for analysts."""

import dagster as dg

from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.publication import publication_metadata
from cc_pipeline.maintenance.maintain import merge_and_publish
from cc_pipeline.workspace.workspace import Workspace


def warehouse(
    context: dg.AssetExecutionContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.MaterializeResult[None]:
    """``cc.duckdb``: a view per table over the files of fixed versions. Each capture is there once.

    Open the file read-only at any time, also while it is published again.
    """
    publication = merge_and_publish(workspace)
    context.log.info(f"published {publication.path}")
    return dg.MaterializeResult(metadata=publication_metadata(publication))
