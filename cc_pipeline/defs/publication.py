"""Publishes while runs go on and when they end, so that ``cc.duckdb`` is never far behind, whoever launched the runs.

A run of the UI publishes by itself, with automation on or off: between two partitions if the last publication is older
than ``CC_PIPELINE_PUBLISH_EVERY``, and at its end unless other runs go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import dagster as dg

from cc_pipeline.defs.checks.check_runs import CheckContext, check_publication
from cc_pipeline.defs.declared.assets import WAREHOUSE_VERSION
from cc_pipeline.defs.declared.collected_parts import published_assets
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.instance import is_command_run
from cc_pipeline.defs.metadata import as_table
from cc_pipeline.defs.partitions import MADE_TAG, StepContext
from cc_pipeline.defs.partitions_in_flight import find_in_flight
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline.maintenance.maintain import merge_and_publish, run_maintenance
from cc_pipeline.publish.publish import PublicationLag, find_publication_lag
from cc_pipeline.workspace.workspace import Workspace

#: Seconds between two checks of the publication's age.
_CHECK_INTERVAL = 30.0

#: Dagster's version of an input that was never made, and of one that was made without a version.
_MISSING_INPUT: Final = "NULL"
_UNVERSIONED_INPUT: Final = "INITIAL"


class RunPublisher:
    """The publications of one run, which may have none. They are recorded for ``warehouse``, outside of the run."""

    def __init__(self, context: StepContext, workspace: Workspace, namespace: HomeNamespace) -> None:
        self._context, self._workspace, self._namespace = context, workspace, namespace
        self._checked_at = time.monotonic()
        self._last_publication: Publication | None = None

    def publish_if_due(self) -> None:
        """Publishes if the last publication is too old. Costs nothing most of the time."""
        if time.monotonic() - self._checked_at >= _CHECK_INTERVAL:
            self._keep_up()
            self._checked_at = time.monotonic()

    def publish_at_end(self, failed: Mapping[str, str]) -> None:
        """Publishes the result of the run, unless other runs go on and the last publication is recent. The command line
        publishes once for all its runs. ``failed`` has the reasons of the partitions that the run could not make, by
        key."""
        if not is_command_run(self._context.run):
            # tagged before reading the others' state: of runs that end together, the last one sees no other
            run_id = self._context.run.run_id
            self._context.instance.add_run_tags(run_id, {MADE_TAG: run_id})
        self._keep_up(failed)

    def _keep_up(self, failed: Mapping[str, str] | None = None) -> None:
        """Publishes if it is due. ``failed`` is given at the end of the run only."""
        at_end = failed is not None
        if at_end and is_command_run(self._context.run) and self._last_publication is None:
            return
        # results of the run stay, whatever happens here: the next publication shows them
        try:
            lag = find_publication_lag(self._workspace)
            if lag is not None and self._is_due(lag, at_end=at_end):
                input_tags = find_inputs(self._context.instance, self._namespace)
                self._last_publication = merge_and_publish(self._workspace)
                self._record(self._last_publication, input_tags, failed)
            elif lag is None and at_end and self._last_publication is not None:
                # it was recorded before some partitions that it shows, so it would count as older than these
                input_tags = find_inputs(self._context.instance, self._namespace)
                self._record(self._last_publication, input_tags, failed)
        except CcPipelineError as fault:
            self._context.log.warning(f"cc.duckdb was not published and still shows the earlier rows: {fault}")

    def _is_due(self, lag: PublicationLag, *, at_end: bool) -> bool:
        if at_end and is_command_run(self._context.run):
            return False
        is_old = lag.longer_than(self._workspace.settings.publish_every)
        return is_old or (
            at_end and not find_in_flight(self._context.instance, self._namespace, exclude_made=True).is_busy
        )

    def _record(
        self, publication: Publication, input_tags: Mapping[str, str], failed: Mapping[str, str] | None
    ) -> None:
        if failed is None:
            # the checks run once per run, since one lists the files of the lake
            record_publication(self._context.instance, publication, self._namespace, input_tags)
        else:
            check_context = CheckContext(self._context.instance, self._context.log, self._context.run)
            record_checked_publication(check_context, self._workspace, publication, self._namespace, input_tags, failed)


def record_checked_publication(
    check_context: CheckContext,
    workspace: Workspace,
    publication: Publication,
    namespace: HomeNamespace,
    input_tags: Mapping[str, str],
    failed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Records a publication as :func:`record_publication` does, and evaluates the checks of ``warehouse``. ``failed``
    has the reasons of the partitions that the run could not make, by key. An error in a check is only logged."""
    record_publication(check_context.instance, publication, namespace, input_tags)
    try:
        check_publication(check_context, workspace, namespace, failed)
    except Exception as error:
        check_context.log.warning(f"the checks of warehouse were not evaluated: {error!r}")


def record_publication(
    instance: dg.DagsterInstance, publication: Publication, namespace: HomeNamespace, input_tags: Mapping[str, str]
) -> None:
    """Records a publication that no run of ``warehouse`` made. ``input_tags`` are those of :func:`find_inputs`, read
    before the publication."""
    metadata = publication_metadata(publication)
    instance.report_runless_asset_event(
        dg.AssetMaterialization(namespace.key("warehouse"), metadata=metadata, tags=dict(input_tags))
    )


def find_inputs(instance: dg.DagsterInstance, namespace: HomeNamespace) -> dict[str, str]:
    """Returns the tags in which Dagster stores the inputs of ``warehouse``, as for a run that makes it. Without them
    Dagster takes each input for a new one, and shows the asset as unsynced from the start.

    Call it before publishing: records after this call count as newer than the publication, since other runs go on
    meanwhile.
    """
    tags = {"dagster/code_version": WAREHOUSE_VERSION}
    keys = [namespace.key(asset.name) for asset in published_assets()]
    entries = [record.asset_entry for record in instance.get_asset_records(keys)]
    newest_records = {entry.asset_key: entry.last_materialization_record for entry in entries}
    for key in keys:
        newest, asset = newest_records.get(key), key.to_user_string()
        materialization = newest.asset_materialization if newest else None
        tags[f"dagster/input_event_pointer/{asset}"] = str(newest.storage_id) if newest else _MISSING_INPUT
        tags[f"dagster/input_data_version/{asset}"] = (
            (materialization.tags or {}).get("dagster/data_version", _UNVERSIONED_INPUT)
            if materialization
            else _MISSING_INPUT
        )
    return tags


def publication_metadata(publication: Publication) -> dict[str, dg.MetadataValue]:
    """Returns the metadata of a publication for the UI."""
    return {
        "path": dg.MetadataValue.path(str(publication.path)),
        "bytes": dg.MetadataValue.int(publication.bytes),
        "dagster/row_count": dg.MetadataValue.int(publication.rows.get("captures", 0)),
        "tables": as_table(["table", "rows"], publication.rows.items()),
    }


def tidy_tables(context: dg.OpExecutionContext, workspace: Workspace, namespace: HomeNamespace) -> None:
    """Merges small files, publishes the merged tables, and deletes files that were superseded a week ago or before."""
    report = run_maintenance(workspace)
    context.add_output_metadata(
        {
            "files merged": sum(report.merged.values()),
            "files deleted": sum(report.deleted.values()),
            "left by killed processes, deleted": report.leftovers,
        }
    )
