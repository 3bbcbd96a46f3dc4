"""Publishes ``cc.duckdb`` when a run ends, whoever launched it."""

from __future__ import annotations

import dagster as dg

from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.metadata import as_table
from cc_pipeline.defs.partitions import StepContext
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline.maintenance.maintain import merge_and_publish
from cc_pipeline.publish.publish import find_publication_lag
from cc_pipeline.workspace.workspace import Workspace

#: Runs that have not begun: they will publish.
_WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING)


def publish_after_run(context: StepContext, workspace: Workspace, namespace: HomeNamespace) -> None:
    """Publishes the result of a run and records that for ``warehouse``, outside of the run; not if other runs wait and
    the last publication is recent. An error is logged: the next publication shows the rows."""
    waiting = context.instance.get_runs(dg.RunsFilter(statuses=list(_WAITING)))
    is_last = not any(map(namespace.owns, waiting))
    try:
        lag = find_publication_lag(workspace)
        if lag is not None and (is_last or lag.longer_than(workspace.settings.publish_every)):
            record_publication(context.instance, merge_and_publish(workspace), namespace)
    except CcPipelineError as fault:
        context.log.warning(f"cc.duckdb was not published and still shows the earlier rows: {fault}")


def record_publication(instance: dg.DagsterInstance, publication: Publication, namespace: HomeNamespace) -> None:
    """Records a publication that no run of ``warehouse`` made. Such a record is never deleted, so it has few words."""
    metadata = {"dagster/row_count": publication.rows.get("captures", 0), "bytes": publication.bytes}
    instance.report_runless_asset_event(dg.AssetMaterialization(namespace.key("warehouse"), metadata=metadata))


def publication_metadata(publication: Publication) -> dict[str, dg.MetadataValue]:
    """Returns the metadata of a publication for the UI."""
    return {
        "path": dg.MetadataValue.path(str(publication.path)),
        "bytes": dg.MetadataValue.int(publication.bytes),
        "dagster/row_count": dg.MetadataValue.int(publication.rows.get("captures", 0)),
        "tables": as_table(["table", "rows"], publication.rows.items()),
    }
