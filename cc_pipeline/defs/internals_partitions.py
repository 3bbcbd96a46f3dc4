"""What reaches behind Dagster's public interface so that a run records partitions one by one.

Belongs here: the same as in internals, for runs over partitions. ``test_internals`` says which name has moved.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

import dagster as dg

from cc_pipeline.defs.internals import LOCATION

#: Metadata with which an output of an asset is no event of it.
_NO_EVENT = "__source_asset_observation__"


def without_record(asset: str) -> dg.MaterializeResult[None]:
    """The output of ``asset`` whose partitions were recorded one by one.

    An output usually records every partition of the run again, or, in a run whose partitions Dagster does not know,
    one without a partition. Without an output, what depends on the step (its checks) is skipped.
    """
    return dg.MaterializeResult(asset_key=asset, metadata={_NO_EVENT: True})


@cache
def allow_lists_of_partitions() -> None:
    """Lets a run without a partition of Dagster's own materialize partitioned assets that depend on partitioned ones.

    Before a step, Dagster reads which version of its inputs' partitions is there. It does not ask first whether the run
    has partitions, and fails.
    """
    context: Any = import_module("dagster._core.execution.context.system").StepExecutionContext
    has = context.has_asset_partitions_for_input

    def has_partitions(step: Any, name: str) -> bool:
        return bool(step.has_partitions and has(step, name))

    context.has_asset_partitions_for_input = has_partitions


def plan_partition(context: dg.AssetExecutionContext, asset: str, key: str) -> None:
    """Has Dagster show a partition as failed when the run ends, unless it is recorded after all.

    Where Dagster knows the partitions of a run, it plans each when the run begins.
    """
    events = import_module("dagster._core.events")
    planned = events.AssetMaterializationPlannedData(dg.AssetKey(asset), partition=key)
    event = events.DagsterEvent.build_asset_materialization_planned_event(
        context.job_name, str(context.op_execution_context.op_handle), planned
    )
    context.instance.report_dagster_event(event, context.run.run_id)


def recorded_by(instance: dg.DagsterInstance, runs: Iterable[str], asset: str) -> set[str]:
    """Partitions of ``asset`` that any of ``runs`` recorded.

    The public way to ask for materializations cannot ask by run, and one asset may have 90,000 of them.
    """
    return {
        str(event.dagster_event.step_materialization_data.materialization.partition)
        for run in runs
        for event in instance.all_logs(run, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        if event.dagster_event is not None and event.dagster_event.asset_key == dg.AssetKey(asset)
    }


#: The tag in which Dagster keeps the data version of a record.
_VERSION_TAG = "dagster/data_version"
#: Above so many partitions all of an asset's are read, which is one simple question.
_ASKED_BY_NAME = 2_000


def recorded_versions(instance: dg.DagsterInstance, asset: str, keys: Collection[str]) -> dict[str, str]:
    """The data versions with which partitions of ``asset`` were recorded last, for those of ``keys`` that have one;
    others may be among them.

    The public way reads the whole record of each, with its metadata.
    """
    storage: Any = instance.event_log_storage
    found = storage.get_latest_tags_by_partition(
        dg.AssetKey(asset),
        dg.DagsterEventType.ASSET_MATERIALIZATION,
        [_VERSION_TAG],
        asset_partitions=list(keys) if len(keys) <= _ASKED_BY_NAME else None,
    )
    return {key: tags[_VERSION_TAG] for key, tags in found.items()}


@contextmanager
def shown_as_ours(instance: dg.DagsterInstance, job: str) -> Iterator[None]:
    """Inside the block runs of ``job`` that this process executes are created as those of the code location.

    Without the origin that the UI's runs have, Dagster keeps them out of the Timeline and out of the job's own list.
    """
    origins = import_module("dagster._core.remote_origin")
    loadable = import_module("dagster._core.types.loadable_target_origin").LoadableTargetOrigin(
        module_name="cc_pipeline.definitions"
    )
    location = origins.ManagedGrpcPythonEnvCodeLocationOrigin(loadable, LOCATION)
    origin = origins.RemoteJobOrigin(origins.RemoteRepositoryOrigin(location, "__repository__"), job)
    within: Any = instance
    within.create_run_for_job = partial(instance.create_run_for_job, remote_job_origin=origin)
    try:
        yield
    finally:
        del within.create_run_for_job
