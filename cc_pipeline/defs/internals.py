"""All uses of Dagster's private interface, so that an upgrade breaks one file.

Private modules are imported where the public names are not enough:

- ``_core.launcher``, ``_core.errors``, ``_grpc.client``: a launcher's answers and questions about a run's process;
- ``_core.execution.backfill``: the open backfills;
- ``_core.scheduler.instigation``, ``_core.remote_origin``: turning sensors and schedules on and off without a UI;
- ``_cli.dev``: ``dagster dev`` with another webserver, and that one with a guard before it (docs/upstream.md).

Anything that the public interface can do is elsewhere. ``test_internals`` reports names that an upgrade has moved.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import dagster as dg

#: The name under which ``workspace.yaml`` loads the definitions; the states of sensors and schedules are stored by it.
LOCATION = "cc_pipeline"
Instigator: TypeAlias = dg.SensorDefinition | dg.ScheduleDefinition

#: The records of a check that are searched: some are of running runs, or of runs that ended before it.
_EVALUATIONS = 25
_ANSWER_SECONDS = 10
#: A value of ``compute_logs`` in ``dagster.yaml`` that Dagster documents.
NO_OUTPUT = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}


def end_run(instance: dg.DagsterInstance, run: dg.DagsterRun, reason: str) -> None:
    """Marks a run whose process is dead as failed and frees its pool slots. Publicly, only the process can be asked."""
    instance.report_run_failed(run, reason)
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def read_last_evaluation(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, name: str
) -> Mapping[str, dg.MetadataValue] | None:
    """Returns the metadata of the last evaluation of a check that has ``name`` in it; ``None`` if there is none.

    The public interface has no history of checks, and the newest record is that of the calling run.
    """
    history = instance.event_log_storage.get_asset_check_execution_history(check, limit=_EVALUATIONS)
    for record in history:
        entry = record.event
        event = entry.dagster_event if entry is not None else None
        if event is None or event.event_type != dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            continue
        metadata = event.asset_check_evaluation_data.metadata
        if name in metadata:
            return metadata
    return None


@dataclass(frozen=True, slots=True)
class OpenBackfill:
    """A backfill that has runs to start, or that have not ended.

    For assets: ``remaining`` has, by asset, the partitions that were neither made nor failed at the daemon's last
    check, when the event log ended at ``event_cursor``. For a job: ``job``, and all its ``partitions``."""

    id: str
    remaining: Mapping[str, AbstractSet[str]]
    job: str = ""
    partitions: Sequence[str] = ()
    event_cursor: int | None = None


def open_backfills(instance: dg.DagsterInstance) -> list[OpenBackfill]:
    """Returns the open backfills of the UI and of the daemon. The public interface lists only runs."""
    backfills = import_module("dagster._core.execution.backfill")
    going_on = backfills.BulkActionsFilter(statuses=[backfills.BulkActionStatus.REQUESTED])
    open_ones = []
    for backfill in instance.get_backfills(filters=going_on):
        data = backfill.asset_backfill_data
        if data is not None:
            remaining = _subsets(data.target_subset)
            for subset in (data.materialized_subset, data.failed_and_downstream_subset):
                ended = _subsets(subset)
                remaining = {asset: keys - ended.get(asset, set()) for asset, keys in remaining.items()}
            open_ones.append(OpenBackfill(backfill.backfill_id, remaining, event_cursor=data.latest_storage_id))
        elif backfill.partition_names is not None and backfill.job_name is not None:
            open_ones.append(OpenBackfill(backfill.backfill_id, {}, backfill.job_name, tuple(backfill.partition_names)))
    return open_ones


def _subsets(subset: Any) -> dict[str, AbstractSet[str]]:
    """Returns the keys of each asset in an ``AssetGraphSubset``."""
    return {
        asset.to_user_string(): set(keys.get_partition_keys())
        for asset, keys in subset.partitions_subsets_by_asset_key.items()
    }


@dataclass(frozen=True, slots=True)
class LastTick:
    """The last tick of a sensor or schedule: seconds since the epoch, its status (Dagster's name), and its message: why
    it started nothing, or the error. ``runs`` are those that it started."""

    timestamp: float
    status: str
    message: str
    runs: tuple[str, ...]


def switch(instance: dg.DagsterInstance, automation: Instigator, *, enable: bool) -> None:
    """Turns a sensor or schedule on or off in the instance. A running daemon sees it at its next check.

    With the public interface only a running UI can do it.
    """
    instigation = import_module("dagster._core.scheduler.instigation")
    kinds, states = instigation.InstigatorType, instigation.InstigatorStatus
    status = states.RUNNING if enable else states.STOPPED
    origin, now = find_origin(automation.name), time.time()
    state: Any = instance.get_instigator_state(origin.get_id(), origin.get_selector().get_id())
    if state is not None and state.is_running == enable:
        return
    data: Any
    if isinstance(automation, dg.ScheduleDefinition):
        # ticks that were due while it was off are not repeated
        kind = kinds.SCHEDULE
        data = instigation.ScheduleInstigatorData(automation.cron_schedule, now if enable else None)
    elif state is not None and state.instigator_data is not None:
        # the cursor of the sensor is kept
        kind = kinds.SENSOR
        data = state.instigator_data.with_sensor_start_timestamp(now)
    else:
        kind = kinds.SENSOR
        data = instigation.SensorInstigatorData(
            min_interval=automation.minimum_interval_seconds,
            last_sensor_start_timestamp=now,
            sensor_type=automation.sensor_type,
        )
    if state is None:
        instance.add_instigator_state(instigation.InstigatorState(origin, kind, status, data))
    else:
        instance.update_instigator_state(state.with_status(status).with_data(data))


def is_running(instance: dg.DagsterInstance, automation: Instigator) -> bool:
    """Whether a sensor or schedule is turned on."""
    origin = find_origin(automation.name)
    state = instance.get_instigator_state(origin.get_id(), origin.get_selector().get_id())
    return state.is_running if state is not None else automation.default_status.value == "RUNNING"


def read_last_tick(instance: dg.DagsterInstance, automation: Instigator) -> LastTick | None:
    """Returns the newest tick of a sensor or schedule; ``None`` if it had none."""
    origin = find_origin(automation.name)
    for tick in instance.get_ticks(origin.get_id(), origin.get_selector().get_id(), limit=1):
        words = tick.skip_reason or (tick.error.message if tick.error is not None else "")
        return LastTick(tick.timestamp, tick.status.value, words, tuple(tick.run_ids))
    return None


def find_origin(name: str) -> Any:
    """Returns the key of a sensor or schedule in the storage, which is made of the names of its location and itself."""
    origins = import_module("dagster._core.remote_origin")
    location = origins.RegisteredCodeLocationOrigin(LOCATION)
    return origins.RemoteRepositoryOrigin(location, "__repository__").get_instigator_origin(name)


def open_backfill_ids(instance: dg.DagsterInstance) -> set[str]:
    """Returns the ids of the UI's backfills that are open or being ended."""
    backfills = import_module("dagster._core.execution.backfill")
    states = backfills.BulkActionStatus
    going_on = backfills.BulkActionsFilter(statuses=[states.REQUESTED, states.CANCELING, states.FAILING])
    return {backfill.backfill_id for backfill in instance.get_backfills(filters=going_on)}


def is_executing(server: Mapping[str, Any], run_id: str) -> bool:
    """Whether the code server at an address (``host``, ``port`` or ``socket``) has the process of a run.

    ``False`` if the server has not, or if nobody listens any more. Errors of any other kind are raised: the server may
    be busy. Dagster asks this before it cancels a run. Its monitoring does not, for runs that a code server started, so
    a killed server would leave them in progress for ever.
    """
    grpc = import_module("dagster._grpc.client")
    client = grpc.DagsterGrpcClient(
        host=server.get("host"),
        port=server.get("port"),
        socket=server.get("socket"),
        use_ssl=bool(server.get("use_ssl")),
    )
    request = grpc.CanCancelExecutionRequest(run_id=run_id)
    answer: Any = dg.deserialize_value(client.can_cancel_execution(request, timeout=_ANSWER_SECONDS))
    return bool(answer.can_cancel)


def make_health_answer(*, is_alive: bool) -> object:
    """Returns a launcher's answer to Dagster's monitoring about the process of a run."""
    launchers = import_module("dagster._core.launcher")
    states = launchers.WorkerStatus
    if is_alive:
        return launchers.CheckRunHealthResult(states.RUNNING)
    return launchers.CheckRunHealthResult(states.NOT_FOUND, "the process of the run, or its machine, was killed")


def find_dependent_assets(context: dg.AssetExecutionContext) -> set[dg.AssetKey]:
    """Returns the assets of a run that depend on those of its step. The public interface has the assets of a run only
    if somebody selected some of a job's."""
    layer: Any = context.job_def.asset_layer
    step_keys = {key for key in layer.selected_asset_keys if key in context.assets_def.keys}
    children = {child for key in step_keys for child in layer.get(key).child_keys}
    return (children & layer.selected_asset_keys) - step_keys


def run_webserver(guarded: Callable[[Any], Any]) -> None:
    """Runs ``dagster-webserver`` with the options of this process. ``guarded`` wraps its ASGI application. Does not
    return. Raises ``AttributeError`` if Dagster makes the application in another way: then nothing is served."""
    cli = import_module("dagster_webserver.cli")
    create_app = cli.create_app_from_workspace_process_context
    cli.create_app_from_workspace_process_context = lambda *args, **kwargs: guarded(create_app(*args, **kwargs))  # type: ignore[attr-defined]
    cli.main()


def run_dev(webserver: Sequence[str]) -> None:
    """Runs ``dagster dev`` with the options of this process, with ``webserver`` as the command in place of ``python -m
    dagster_webserver``. Does not return. Raises ``AttributeError`` if Dagster starts it in another way, and
    ``RuntimeError`` if it starts anything but that and its daemon."""
    dev = import_module("dagster._cli.dev")
    open_subprocess = dev.open_ipc_subprocess

    def started(parts: Sequence[str], **options: Any) -> Any:
        if "dagster_webserver" in parts:
            parts = [*webserver, *parts[parts.index("dagster_webserver") + 1 :]]
        elif "dagster._daemon" not in parts:
            raise RuntimeError(f"dagster dev starts its webserver in another way: {' '.join(parts)}")
        return open_subprocess(parts, **options)

    dev.open_ipc_subprocess = started  # type: ignore[attr-defined]
    dev.dev_command()
