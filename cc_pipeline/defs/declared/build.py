"""All definitions of a home together, as Dagster has them."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import dagster as dg

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
from cc_pipeline.defs.declared.bodies import body, later, schema_of
from cc_pipeline.defs.declared.collected import CHECK_EVERYTHING, Part, leave_out, parts
from cc_pipeline.defs.internals import LOCATION
from cc_pipeline.defs.lineage import checked_owners, table_metadata
from cc_pipeline.defs.partitions import EVERYTHING, LOOK_TAG
from cc_pipeline.defs.placement import OURS, Placement
from cc_pipeline.errors import UserInputError, no_such
from cc_pipeline.index.locators import refuse_unknown_kind
from cc_pipeline.settings import PREFIX, owners
from cc_pipeline.settings.reading import settable_names

_CONFIG: Final = {
    "source": dg.Field(
        str,
        default_value="",
        description="Root of a Common Crawl bucket: folder, https:// or s3://; several with a comma and a space.",
    ),
    "home": dg.Field(str, default_value="", description="Folder of all local state."),
    "engine": dg.Field(
        str,
        default_value="",
        description="Where records are fetched and pages parsed: local, or the engine of an extension.",
    ),
}


def everything() -> dg.Definitions:
    """Our own code location: one home, and the executor (one process a run, parallel work inside the stages)."""
    return _loadable(OURS, executor=dg.in_process_executor)


def listed_job(name: str) -> dg.JobDefinition:
    """A job of our own code location over listed partitions (``listed_ops``), without all else that is defined: that
    takes half a second."""
    jobs = [job for part in parts(OURS) for job in part.definitions.jobs if isinstance(job, OpJob)]
    [found] = [job for job in jobs if job.is_listed and job.name == name]
    alone = dg.Definitions(
        jobs=[_op_job(OURS, found)], resources={OURS.resource: resource(OURS)}, executor=dg.in_process_executor
    )
    return alone.resolve_job_def(name)


def placement(
    prefix: tuple[str, ...],
    group: str,
    automation: bool,
    targets: Sequence[str],
    places: Mapping[str, object],
    settings: Mapping[str, object],
) -> Placement:
    """A home beside others, as ``cc_pipeline.dagster.build_defs`` describes it. Raises as that does."""
    known = settable_names()
    for name in settings:
        if name.lower() not in (*known, "lake", "collinfo"):
            raise UserInputError(no_such("setting", name, known))
    at = Placement(
        prefix,
        group,
        alone=False,
        automation=automation,
        targets=tuple(targets),
        places={name: str(place) for name, place in places.items() if place},
        settings={PREFIX + name.upper(): _text(value) for name, value in settings.items()},
    )
    for text in targets:
        later("cc_pipeline.commoncrawl.target_text.parse_target")(text)
    # what is wrong is said where it was written, and not in the first run
    refuse_unknown_kind(at.load_settings().via)
    return at


def _text(value: object) -> str:
    """A value as its variable says it."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def definitions(at: Placement) -> dg.Definitions:
    """A home's assets, checks, jobs, sensors, schedules and its resource, without an executor."""
    return _loadable(at)


def _loadable(at: Placement, **more: Any) -> dg.Definitions:
    """The definitions of the core and of the extensions that Dagster takes beside it; the others are left out."""
    with warnings.catch_warnings():
        # what Dagster may change is tested
        warnings.simplefilter("ignore", dg.BetaWarning)
        core, *others = parts(at)
        try:
            return _resolved(at, [core, *others], **more)
        except Exception:
            if not others:
                raise
        chosen = [core]
        for part in others:
            try:
                _resolved(at, [*chosen, part], **more)
            except Exception as error:  # whatever it is: it costs only this extension
                leave_out(part.origin, f"{type(error).__name__}: {error}")
            else:
                chosen.append(part)
        return _resolved(at, parts(at), **more)


def _resolved(at: Placement, chosen: Sequence[Part], **more: Any) -> dg.Definitions:
    """Raises what Dagster raises for definitions that do not fit together. It keeps what it resolves, so nothing is
    done twice."""
    found = _merged(at, chosen, **more)
    found.get_repository_def()
    return found


def _merged(at: Placement, chosen: Sequence[Part], **more: Any) -> dg.Definitions:
    own = [part.definitions for part in chosen]
    named = checked_owners(owners())
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [
        *(_external(at, one, named) for definitions in own for one in definitions.external),
        *(_step(at, step, named) for definitions in own for step in definitions.steps),
        *(_recorded(at, one, named) for definitions in own for one in definitions.recorded),
    ]
    checks = check_steps(at, (check for part in chosen for check in part.checks))
    keys = [key for one in assets for key in (one.keys if isinstance(one, dg.AssetsDefinition) else [one.key])]
    jobs: dict[str, Any] = {
        job.name: _asset_job(at, job) if isinstance(job, AssetJob) else _op_job(at, job)
        for definitions in own
        for job in definitions.jobs
    }
    jobs[CHECK_EVERYTHING] = _check_everything(at, [key for one in checks for key in one.check_keys])
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=list(jobs.values()),
        sensors=[
            *(_sensor(at, one, jobs) for definitions in own for one in definitions.sensors),
            _conditions(at, dg.AssetSelection.assets(*keys)),
        ],
        schedules=[_schedule(at, one, jobs[one.job]) for definitions in own for one in definitions.schedules],
        resources={at.resource: resource(at)},
        **more,
    )


def resource(at: Placement) -> dg.ResourceDefinition:
    """The open workspace of a run, or of a tick."""

    def opened(context: dg.InitResourceContext) -> Iterator[Any]:
        yield from later("cc_pipeline.defs.resources.workspace_of_run")(context, at)

    return dg.ResourceDefinition(
        opened, config_schema=_CONFIG, description="The source and the home, open for one run."
    )


def _external(at: Placement, asset: ExternalAsset, owned_by: Sequence[str]) -> dg.AssetSpec:
    metadata: dict[str, Any] = {"about": dg.MetadataValue.url(asset.about)}
    if asset.columns:
        columns = [dg.TableColumn(name, kind) for name, kind in asset.columns]
        metadata["dagster/column_schema"] = dg.TableSchema(columns)
    publisher = asset.key.path[0]
    return dg.AssetSpec(
        at.key(*asset.key.path),
        description=asset.description,
        group_name=at.group_of(publisher),
        owners=owned_by,
        kinds=set(asset.kinds),
        deps=[at.key(*dep.path) for dep in asset.deps],
        tags={"source": publisher, "era": asset.era},
        metadata=metadata,
    )


def _described(at: Placement, asset: Asset, owned_by: Sequence[str]) -> dict[str, Any]:
    """What ``dg.asset`` and ``dg.AssetSpec`` take alike."""
    return {
        "key": at.key(asset.name),
        "deps": [*map(at.key, asset.deps), *(at.key(*key.path) for key in asset.external)],
        "group_name": at.group_of(asset.group),
        "owners": owned_by,
        "kinds": set(asset.kinds),
        "description": asset.description,
        "code_version": asset.code_version,
        "metadata": table_metadata(asset, at) if asset.columns else None,
    }


def _step(at: Placement, step: Step, owned_by: Sequence[str]) -> dg.AssetsDefinition:
    shared: dict[str, Any] = {
        "required_resource_keys": {at.resource},
        "config_schema": schema_of(step.config),
        "partitions_def": getattr(at, step.partitions) if step.partitions is not None else None,
        "backfill_policy": step.backfill,
        "pool": at.of(step.pool) if step.pool is not None else None,
        **step.options,
    }
    made = body(at, step.function, step.config)
    if len(step.assets) == 1:
        alone: dg.AssetsDefinition = dg.asset(**_described(at, step.assets[0], owned_by), **shared)(made)
        return alone
    return dg.multi_asset(
        name=at.of(step.function.rpartition(".")[2]),
        # a subset is made, and partitions are recorded apart from outputs
        specs=[dg.AssetSpec(**_described(at, asset, owned_by), skippable=True) for asset in step.assets],
        description=step.description,
        **shared,
    )(made)


def _recorded(at: Placement, recorded: RecordedAsset, owned_by: Sequence[str]) -> dg.AssetSpec:
    """An asset that no run plans: Dagster takes it for data of others, and shows what the job logs of it."""
    described = _described(at, recorded.asset, owned_by)
    metadata: dict[str, Any] = dict(described["metadata"] or {})
    if at.alone:
        metadata["made by the job"] = dg.MetadataValue.job(at.of(recorded.job), LOCATION)
    told = f"{described['description']}\n\nNo selection includes it: launch the job {at.of(recorded.job)}."
    return dg.AssetSpec(
        **described | {"description": told, "metadata": metadata},
        partitions_def=getattr(at, recorded.partitions),
        tags={"asked": "on-request"},
    )


def _asset_job(at: Placement, job: AssetJob) -> Any:
    selection = dg.AssetSelection.assets(*map(at.key, job.assets))
    return dg.define_asset_job(at.of(job.name), selection, tags=at.tags, description=job.description)


def _check_everything(at: Placement, keys: Sequence[dg.AssetCheckKey]) -> Any:
    return dg.define_asset_job(
        at.of(CHECK_EVERYTHING),
        dg.AssetSelection.checks(*keys),
        tags={LOOK_TAG: EVERYTHING, **at.tags},
        description="Runs every check over the whole lake. Alone, a check looks at what changed since it last did.",
    )


def _op_job(at: Placement, job: OpJob) -> dg.JobDefinition:
    """A job of one op: the order of what it does matters, or it makes any partitions."""
    op = dg.op(
        name=at.of(job.op),
        out={} if job.is_listed or job.partitions is not None else None,
        pool=at.of(job.pool) if job.pool is not None else None,
        required_resource_keys={at.resource},
        config_schema=schema_of(job.config),
    )(body(at, job.function, job.config))

    partitions = getattr(at, job.partitions) if job.partitions is not None else None

    @dg.job(name=at.of(job.name), tags=at.tags, description=job.description, partitions_def=partitions)
    def of_one_op() -> None:
        op()

    return of_one_op


def _sensor(at: Placement, sensor: Sensor, jobs: Mapping[str, Any]) -> dg.SensorDefinition:
    call = sensor.function
    shared: dict[str, Any] = {
        "name": at.of(sensor.name),
        "minimum_interval_seconds": sensor.seconds,
        "default_status": _status(at, dg.DefaultSensorStatus),
        "description": sensor.description,
        "required_resource_keys": {at.resource},
    }
    if sensor.is_of_failed_runs:

        def failed(context: dg.RunStatusSensorContext, **_: object) -> None:
            # a test gives what Dagster's own decorator would make of it
            found = context.for_run_failure() if not isinstance(context, dg.RunFailureSensorContext) else context
            call(found, at.workspace(context), at)

        return dg.RunStatusSensorDefinition(
            run_status=dg.DagsterRunStatus.FAILURE, run_status_sensor_fn=failed, **shared
        )
    job = jobs[sensor.job] if sensor.job is not None else None
    # who calls a sensor or a schedule by itself gives it its resources a second time
    made: dg.SensorDefinition = dg.sensor(job=job, **shared)(
        lambda context, **_: call(context, at.workspace(context), at)
    )
    return made


def _conditions(at: Placement, assets: dg.AssetSelection) -> dg.AutomationConditionSensorDefinition:
    """For assets without partitions, which say themselves when they are due (``crawls``). Over crawl × target such
    conditions cost seconds a tick, and ask for nothing or for all at once: there the schedule does it."""
    return dg.AutomationConditionSensorDefinition(
        # Dagster's own name is that of a sensor for all assets that no other has, which ours would replace
        "default_automation_condition_sensor" if at.alone else at.of("conditions"),
        target=assets,
        default_status=_status(at, dg.DefaultSensorStatus),
        minimum_interval_seconds=300,
    )


def _schedule(at: Placement, schedule: Schedule, job: Any) -> dg.ScheduleDefinition:
    shared: dict[str, Any] = {
        "name": at.of(schedule.name),
        "job": job,
        "cron_schedule": schedule.cron,
        "default_status": _status(at, dg.DefaultScheduleStatus),
        "description": schedule.description,
    }
    if schedule.function is None:
        return dg.ScheduleDefinition(**shared)
    call = schedule.function
    made: dg.ScheduleDefinition = dg.schedule(required_resource_keys={at.resource}, **shared)(
        lambda context, **_: call(context, at.workspace(context), at)
    )
    return made


def _status(at: Placement, of: Any) -> Any:
    return of.RUNNING if at.automation else of.STOPPED
