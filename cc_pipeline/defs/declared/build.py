"""Builds all definitions of a home as Dagster's objects."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from cc_pipeline.checks.evaluate import find_checks
from cc_pipeline.defs.checks.steps import check_steps
from cc_pipeline.defs.declarations import (
    Asset,
    AssetJob,
    ExternalAsset,
    OpJob,
    RecordedAsset,
    Schedule,
    Sensor,
    Step,
)
from cc_pipeline.defs.declared.collected_parts import CHECK_EVERYTHING, collect_definitions
from cc_pipeline.defs.declared.late_loading import body, load_later, schema_of
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.internals import LOCATION
from cc_pipeline.defs.lineage import checked_owners, table_metadata
from cc_pipeline.defs.partitions import CHECK_SCOPE_TAG, EVERYTHING
from cc_pipeline.errors import UserInputError, describe_unknown_name
from cc_pipeline.index.locators import refuse_unknown_kind
from cc_pipeline.settings import PREFIX, owners
from cc_pipeline.settings.reading import settable_names

_CONFIG: Final = {
    "source": dg.Field(
        str,
        default_value="",
        description="Root of a Common Crawl bucket: a folder, https:// or s3://; several are separated by a "
        "comma and a space.",
    ),
    "home": dg.Field(str, default_value="", description="Folder of all local state."),
    "engine": dg.Field(
        str,
        default_value="",
        description="Engine that fetches records and parses pages: local, or one of an extension.",
    ),
}


def everything() -> dg.Definitions:
    """Returns the definitions of our own code location: one home, and the executor (one process per run, parallel work
    inside the stages)."""
    return _load_definitions(OWN_HOME, executor=dg.in_process_executor)


def listed_job(name: str) -> dg.JobDefinition:
    """Returns a job of our own code location over listed partitions (``listed_ops``). It resolves no other definitions,
    which would take half a second."""
    jobs = [job for definitions in collect_definitions(is_only_home=True) for job in definitions.jobs]
    [declared_job] = [job for job in jobs if isinstance(job, OpJob) and job.takes_partition_list and job.name == name]
    job_definitions = dg.Definitions(
        jobs=[_op_job(OWN_HOME, declared_job)],
        resources={OWN_HOME.resource: resource(OWN_HOME)},
        executor=dg.in_process_executor,
    )
    return job_definitions.resolve_job_def(name)


def build_namespace(
    prefix: tuple[str, ...],
    group: str,
    automation: bool,
    targets: Sequence[str],
    places: Mapping[str, object],
    settings: Mapping[str, object],
) -> HomeNamespace:
    """Returns the namespace of a home beside others, as ``cc_pipeline.dagster.build_defs`` describes it. Raises as that
    does."""
    setting_names = settable_names()
    for name in settings:
        if name.lower() not in (*setting_names, "lake", "collinfo"):
            raise UserInputError(describe_unknown_name("setting", name, setting_names))
    namespace = HomeNamespace(
        prefix,
        group,
        is_only_home=False,
        automation=automation,
        targets=tuple(targets),
        places={name: str(place) for name, place in places.items() if place},
        settings={PREFIX + name.upper(): _to_text(value) for name, value in settings.items()},
    )
    for text in targets:
        load_later("cc_pipeline.commoncrawl.target_text.parse_target")(text)
    # wrong settings are reported where they were written, not in the first run
    refuse_unknown_kind(namespace.load_settings().index)
    return namespace


def _to_text(value: object) -> str:
    """Returns a value as text for its variable."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def definitions(namespace: HomeNamespace) -> dg.Definitions:
    """Returns a home's assets, checks, jobs, sensors, schedules and its resource, without an executor."""
    return _load_definitions(namespace)


def _load_definitions(namespace: HomeNamespace, **definition_options: Any) -> dg.Definitions:
    with warnings.catch_warnings():
        # tests cover the parts that Dagster may change
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _merge(namespace, **definition_options)


def _merge(namespace: HomeNamespace, **definition_options: Any) -> dg.Definitions:
    part_definitions = collect_definitions(is_only_home=namespace.is_only_home)
    asset_owners = checked_owners(owners())
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [
        *(
            _external_spec(namespace, external, asset_owners)
            for definitions in part_definitions
            for external in definitions.external
        ),
        *(
            _step_definition(namespace, step, asset_owners)
            for definitions in part_definitions
            for step in definitions.steps
        ),
        *(
            _recorded_spec(namespace, recorded, asset_owners)
            for definitions in part_definitions
            for recorded in definitions.recorded
        ),
    ]
    checks = check_steps(namespace, find_checks())
    keys = [key for asset in assets for key in (asset.keys if isinstance(asset, dg.AssetsDefinition) else [asset.key])]
    jobs: dict[str, Any] = {
        job.name: _asset_job(namespace, job) if isinstance(job, AssetJob) else _op_job(namespace, job)
        for definitions in part_definitions
        for job in definitions.jobs
    }
    jobs[CHECK_EVERYTHING] = _check_everything(
        namespace, [key for check_step in checks for key in check_step.check_keys]
    )
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=list(jobs.values()),
        sensors=[
            *(_sensor(namespace, sensor, jobs) for definitions in part_definitions for sensor in definitions.sensors),
            _conditions(namespace, dg.AssetSelection.assets(*keys)),
        ],
        schedules=[
            _schedule(namespace, schedule, jobs[schedule.job])
            for definitions in part_definitions
            for schedule in definitions.schedules
        ],
        resources={namespace.resource: resource(namespace)},
        **definition_options,
    )


def resource(namespace: HomeNamespace) -> dg.ResourceDefinition:
    """Returns the resource of the open workspace of a run or a tick."""

    def opened(context: dg.InitResourceContext) -> Iterator[Any]:
        yield from load_later("cc_pipeline.defs.resources.workspace_of_run")(context, namespace)

    return dg.ResourceDefinition(
        opened, config_schema=_CONFIG, description="The source and the home, open for one run."
    )


def _external_spec(namespace: HomeNamespace, asset: ExternalAsset, asset_owners: Sequence[str]) -> dg.AssetSpec:
    metadata: dict[str, Any] = {"about": dg.MetadataValue.url(asset.page_url)}
    if asset.columns:
        columns = [dg.TableColumn(name, kind) for name, kind in asset.columns]
        metadata["dagster/column_schema"] = dg.TableSchema(columns)
    publisher = asset.key.path[0]
    return dg.AssetSpec(
        namespace.key(*asset.key.path),
        description=asset.description,
        group_name=namespace.group_of(publisher),
        owners=asset_owners,
        kinds=set(asset.kinds),
        deps=[namespace.key(*dep.path) for dep in asset.deps],
        tags={"source": publisher, "era": asset.era},
        metadata=metadata,
    )


def _asset_arguments(namespace: HomeNamespace, asset: Asset, asset_owners: Sequence[str]) -> dict[str, Any]:
    """Returns the arguments that ``dg.asset`` and ``dg.AssetSpec`` have in common."""
    return {
        "key": namespace.key(asset.name),
        "deps": [*map(namespace.key, asset.deps), *(namespace.key(*key.path) for key in asset.external)],
        "group_name": namespace.group_of(asset.group),
        "owners": asset_owners,
        "kinds": set(asset.kinds),
        "description": asset.description,
        "code_version": asset.code_version,
        "metadata": table_metadata(asset, namespace) if asset.columns else None,
    }


def _step_definition(namespace: HomeNamespace, step: Step, asset_owners: Sequence[str]) -> dg.AssetsDefinition:
    shared: dict[str, Any] = {
        "required_resource_keys": {namespace.resource},
        "config_schema": schema_of(step.config),
        "partitions_def": getattr(namespace, step.partitions) if step.partitions is not None else None,
        "backfill_policy": step.backfill,
        "pool": namespace.qualify(step.pool) if step.pool is not None else None,
        **step.options,
    }
    compute = body(namespace, step.function, step.config)
    if len(step.assets) == 1:
        single_asset: dg.AssetsDefinition = dg.asset(
            **_asset_arguments(namespace, step.assets[0], asset_owners), **shared
        )(compute)
        return single_asset
    return dg.multi_asset(
        name=namespace.qualify(step.function.rpartition(".")[2]),
        # a run may make a subset, and partitions are recorded without outputs
        specs=[
            dg.AssetSpec(**_asset_arguments(namespace, asset, asset_owners), skippable=True) for asset in step.assets
        ],
        description=step.description,
        **shared,
    )(compute)


def _recorded_spec(namespace: HomeNamespace, recorded: RecordedAsset, asset_owners: Sequence[str]) -> dg.AssetSpec:
    """Returns an asset that no run plans: for Dagster it is external, and the UI shows what the job logs about it."""
    described = _asset_arguments(namespace, recorded.asset, asset_owners)
    metadata: dict[str, Any] = dict(described["metadata"] or {})
    if namespace.is_only_home:
        metadata["made by the job"] = dg.MetadataValue.job(namespace.qualify(recorded.job), LOCATION)
    description = (
        f"{described['description']}\n\nNo selection includes it: launch the job {namespace.qualify(recorded.job)}."
    )
    return dg.AssetSpec(
        **described | {"description": description, "metadata": metadata},
        partitions_def=getattr(namespace, recorded.partitions),
        tags={"asked": "on-request"},
    )


def _asset_job(namespace: HomeNamespace, job: AssetJob) -> Any:
    selection = dg.AssetSelection.assets(*map(namespace.key, job.assets))
    return dg.define_asset_job(namespace.qualify(job.name), selection, tags=namespace.tags, description=job.description)


def _check_everything(namespace: HomeNamespace, keys: Sequence[dg.AssetCheckKey]) -> Any:
    return dg.define_asset_job(
        namespace.qualify(CHECK_EVERYTHING),
        dg.AssetSelection.checks(*keys),
        tags={CHECK_SCOPE_TAG: EVERYTHING, **namespace.tags},
        description="Runs every check over the whole lake. Automatic checks examine only recent changes. For the "
        "schedule weekly_checks.",
    )


def _op_job(namespace: HomeNamespace, job: OpJob) -> dg.JobDefinition:
    """Returns a job of one op: its steps have a fixed order, or it makes any partitions."""
    op = dg.op(
        name=namespace.qualify(job.op),
        out={} if job.takes_partition_list or job.partitions is not None else None,
        pool=namespace.qualify(job.pool) if job.pool is not None else None,
        required_resource_keys={namespace.resource},
        config_schema=schema_of(job.config),
    )(body(namespace, job.function, job.config))

    partitions = getattr(namespace, job.partitions) if job.partitions is not None else None

    @dg.job(
        name=namespace.qualify(job.name), tags=namespace.tags, description=job.description, partitions_def=partitions
    )
    def run_op() -> None:
        op()

    return run_op


def _sensor(namespace: HomeNamespace, sensor: Sensor, jobs: Mapping[str, Any]) -> dg.SensorDefinition:
    call = sensor.function
    shared: dict[str, Any] = {
        "name": namespace.qualify(sensor.name),
        "minimum_interval_seconds": sensor.seconds,
        "default_status": _status(namespace, dg.DefaultSensorStatus),
        "description": sensor.description,
        "required_resource_keys": {namespace.resource},
    }
    if sensor.is_of_failed_runs:

        def failed(context: dg.RunStatusSensorContext, **_: object) -> None:
            # a test passes the context that Dagster's own decorator would make
            failure_context = (
                context.for_run_failure() if not isinstance(context, dg.RunFailureSensorContext) else context
            )
            call(failure_context, namespace.workspace(context), namespace)

        return dg.RunStatusSensorDefinition(
            run_status=dg.DagsterRunStatus.FAILURE, run_status_sensor_fn=failed, **shared
        )
    job = jobs[sensor.job] if sensor.job is not None else None
    # a direct call of a sensor or a schedule passes the resources a second time
    sensor_definition: dg.SensorDefinition = dg.sensor(job=job, **shared)(
        lambda context, **_: call(context, namespace.workspace(context), namespace)
    )
    return sensor_definition


def _conditions(namespace: HomeNamespace, assets: dg.AssetSelection) -> dg.AutomationConditionSensorDefinition:
    """Returns the sensor of assets without partitions that have a condition (``crawls``). For crawl × target such
    conditions would cost seconds per tick, and ask for nothing or for everything at once; the schedule replaces
    them."""
    return dg.AutomationConditionSensorDefinition(
        # Dagster's own sensor of this name covers all assets without a sensor; with the same name ours replaces it
        "default_automation_condition_sensor" if namespace.is_only_home else namespace.qualify("conditions"),
        target=assets,
        default_status=_status(namespace, dg.DefaultSensorStatus),
        minimum_interval_seconds=300,
    )


def _schedule(namespace: HomeNamespace, schedule: Schedule, job: Any) -> dg.ScheduleDefinition:
    shared: dict[str, Any] = {
        "name": namespace.qualify(schedule.name),
        "job": job,
        "cron_schedule": schedule.cron,
        "default_status": _status(namespace, dg.DefaultScheduleStatus),
        "description": schedule.description,
    }
    if schedule.function is None:
        return dg.ScheduleDefinition(**shared)
    call = schedule.function
    schedule_definition: dg.ScheduleDefinition = dg.schedule(required_resource_keys={namespace.resource}, **shared)(
        lambda context, **_: call(context, namespace.workspace(context), namespace)
    )
    return schedule_definition


def _status(namespace: HomeNamespace, status_class: Any) -> Any:
    return status_class.RUNNING if namespace.automation else status_class.STOPPED
