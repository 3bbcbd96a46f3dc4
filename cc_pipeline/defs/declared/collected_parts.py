"""Collects the declarations of the core and the extensions: the assets and jobs, and the home that owns a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

import dagster as dg

from cc_pipeline.checks.check import Check
from cc_pipeline.checks.evaluate import find_checks
from cc_pipeline.defs.automation import schedules, sensors
from cc_pipeline.defs.declarations import Asset, HomeDefinitions, OpJob, Schedule, Sensor
from cc_pipeline.defs.declared import assets
from cc_pipeline.defs.declared.jobs import JOBS, TRIM_HISTORY
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.extension import extensions

#: The job of all checks.
CHECK_EVERYTHING = "check_everything"


@cache
def collect_definitions(*, is_only_home: bool) -> Sequence[HomeDefinitions]:
    """Returns the definitions of the core, then those of the extensions. The only home of an instance also deletes old
    runs there."""
    added = [definitions for extension in extensions() if (definitions := extension.definitions()) is not None]
    published = [asset.name for definitions in added for asset in definitions.assets if asset.is_published]
    return (_core_definitions(published, is_only_home=is_only_home), *added)


def _core_definitions(published: Iterable[str], *, is_only_home: bool) -> HomeDefinitions:
    """Returns the definitions of the core. ``published`` are the published assets of extensions. The only home of an
    instance also deletes old runs there."""
    steps = [
        *assets.catalog(),
        *assets.extraction(),
        *assets.sources(),
    ]
    published_names = [asset.name for step in steps for asset in step.assets if asset.is_published]
    declared_schedules = [declaration for declaration in vars(schedules).values() if isinstance(declaration, Schedule)]
    return HomeDefinitions(
        external=assets.common_crawl(),
        steps=[*steps, *assets.analytics([*published_names, *published])],
        recorded=assets.on_request(),
        jobs=[*JOBS, TRIM_HISTORY] if is_only_home else JOBS,
        sensors=[declaration for declaration in vars(sensors).values() if isinstance(declaration, Sensor)],
        schedules=[schedule for schedule in declared_schedules if is_only_home or schedule.job != TRIM_HISTORY.name],
    )


def _assets() -> list[Asset]:
    return [asset for definitions in collect_definitions(is_only_home=True) for asset in definitions.assets]


@cache
def _asset_names() -> Collection[str]:
    return frozenset(asset.name for asset in _assets())


def asset_name(namespace: HomeNamespace, key: dg.AssetKey) -> str:
    """Returns the name of an asset of this home; empty for any other asset."""
    *prefix, name = key.path
    # without a prefix, assets of others have keys of one part too
    return name if tuple(prefix) == namespace.prefix and name in _asset_names() else ""


def owns(namespace: HomeNamespace, run: dg.DagsterRun) -> bool:
    """Whether a run belongs to this home: it is of one of its jobs or assets."""
    is_tagged = namespace.is_only_home or namespace.tags.items() <= run.tags.items()
    return is_tagged or any(asset_name(namespace, key) for key in run.asset_selection or ())


@cache
def listed_ops() -> Mapping[str, str]:
    """Returns the op of each job over listed partitions, which may be of several crawls in any order. Dagster takes one
    partition or a range, so the configuration of the op lists them; Dagster learns of each when it is made."""
    jobs = [job for definitions in collect_definitions(is_only_home=True) for job in definitions.jobs]
    return {job.name: job.op for job in jobs if isinstance(job, OpJob) and job.takes_partition_list}


def published_assets() -> tuple[Asset, ...]:
    """Returns the assets whose tables the published file shows."""
    return tuple(asset for asset in _assets() if asset.is_published)


def checks_of(asset: str) -> list[Check]:
    """Returns the checks of an asset."""
    return [check for check in find_checks() if check.asset == asset]
