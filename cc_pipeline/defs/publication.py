"""Publishes ``cc.duckdb`` when a run ends and between its partitions, so that it is never far behind, whoever launched
the run."""

from __future__ import annotations

import time

import dagster as dg

from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.metadata import as_table
from cc_pipeline.defs.partitions import StepContext
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline.maintenance.maintain import merge_and_publish
from cc_pipeline.publish.publish import find_publication_lag
from cc_pipeline.workspace.workspace import Workspace

#: Seconds between two checks of the publication's age.
_CHECK_INTERVAL = 30.0
#: Runs that have not begun: they will publish.
_WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING)


class RunPublisher:
    """The publications of one run. They are recorded for ``warehouse``, outside of the run."""

    def __init__(self, context: StepContext, workspace: Workspace, namespace: HomeNamespace) -> None:
        self._context, self._workspace, self._namespace = context, workspace, namespace
        self._checked_at = time.monotonic()

    def publish_if_old(self) -> None:
        """Publishes if the last publication is too old. Costs nothing most of the time."""
        if time.monotonic() - self._checked_at >= _CHECK_INTERVAL:
            self._publish(is_last=False)
            self._checked_at = time.monotonic()

    def publish_at_end(self) -> None:
        """Publishes the result of the run, unless other runs wait and the last publication is recent."""
        waiting = self._context.instance.get_runs(dg.RunsFilter(statuses=list(_WAITING)))
        self._publish(is_last=not any(map(self._namespace.owns, waiting)))

    def _publish(self, *, is_last: bool) -> None:
        workspace, log = self._workspace, self._context.log
        # results of the run stay, whatever happens here: the next publication shows them
        try:
            lag = find_publication_lag(workspace)
            if lag is not None and (is_last or lag.longer_than(workspace.settings.publish_every)):
                record_publication(self._context.instance, merge_and_publish(workspace), self._namespace)
        except CcPipelineError as fault:
            log.warning(f"cc.duckdb was not published and still shows the earlier rows: {fault}")


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
