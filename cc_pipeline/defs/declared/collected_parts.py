"""Collects the declarations of the core and the extensions: the assets and jobs, and the home that owns a run.

An extension is left out, with the reason in ``cc-pipeline extensions``, if its definitions raise, clash with others, or
name missing items. All other definitions are unaffected.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import dagster as dg

from cc_pipeline.checks import asset_checks
from cc_pipeline.checks.check import Check
from cc_pipeline.defs.declarations import Asset, AssetJob, HomeDefinitions, OpJob, Schedule, Sensor
from cc_pipeline.defs.declared.core import core_definitions
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extension import collect, extensions, refuse
from cc_pipeline.settings import Settings, load_settings


@dataclass(frozen=True, slots=True)
class Part:
    """The definitions of the core or of one extension. The core's ``origin`` is empty."""

    origin: str
    definitions: HomeDefinitions
    checks: tuple[Check, ...]

    @property
    def names(self) -> Counter[tuple[str, str]]:
        """Every name that no other part may have, with its kind. Dagster requires different names of ops and jobs."""
        definitions = self.definitions
        ticks: list[Sensor | Schedule] = [*definitions.sensors, *definitions.schedules]
        names = [("asset", asset.name) for asset in definitions.assets]
        names += [("asset", external.key.to_user_string()) for external in definitions.external]
        names += [("check", f"{check.asset}:{check.name}") for check in self.checks]
        names += [("step", step) for step in {check.step for check in self.checks}]
        names += [("step", step.function.rpartition(".")[2]) for step in definitions.steps if len(step.assets) > 1]
        names += [("step", job.op) for job in definitions.jobs if isinstance(job, OpJob)]
        names += [("job", job.name) for job in definitions.jobs]
        names += [("sensor or schedule", tick.name) for tick in ticks]
        return Counter(names)


def parts(namespace: HomeNamespace) -> list[Part]:
    """Returns the core's definitions of a home, then those of each usable extension."""
    own_checks = tuple(asset_checks.CHECKS)
    accepted = [Part("", core_definitions((), is_only_home=namespace.is_only_home), own_checks)]
    for part in _extension_parts(namespace):
        try:
            problem = _find_problem(part, accepted)
        except Exception as error:  # any error: it affects only this extension
            problem = f"{type(error).__name__}: {error}"
        if problem:
            leave_out(part.origin, problem)
        else:
            accepted.append(part)
    published = [asset.name for part in accepted[1:] for asset in part.definitions.assets if asset.is_published]
    return [Part("", core_definitions(published, is_only_home=namespace.is_only_home), own_checks), *accepted[1:]]


def _extension_parts(namespace: HomeNamespace) -> Iterator[Part]:
    checks, definitions = collect("checks", _settings(namespace)), collect("definitions", namespace)
    for name, home_definitions in definitions.items():
        extension_checks = tuple(checks.get(name, ()))
        if home_definitions is not None or extension_checks:
            yield Part(name, home_definitions or HomeDefinitions(), extension_checks)


def _settings(namespace: HomeNamespace) -> Settings:
    """Returns the settings of a home. If they are invalid, returns those of no home; the first run reports the
    error."""
    try:
        return namespace.load_settings()
    except CcPipelineError:
        return load_settings({})


def leave_out(name: str, problem: str) -> None:
    """Excludes an extension from now on, and warns."""
    refuse(name, f"definitions: {problem}")
    warnings.warn(f"the extension {name} is left out: {problem}", stacklevel=2)


def _find_problem(part: Part, accepted: list[Part]) -> str:
    """Returns why ``part`` cannot be used beside the ``accepted`` parts, of which the first is the core; empty if it
    can. Raises any error of values of wrong types."""
    if not isinstance(part.definitions, HomeDefinitions):
        return f"is {type(part.definitions).__name__}, and no cc_pipeline.defs.declarations.HomeDefinitions"
    for (kind, name), count in part.names.items():
        owner = next(
            (accepted_part.origin or "the core" for accepted_part in accepted if (kind, name) in accepted_part.names),
            "",
        )
        if owner or count > 1:
            return f"{owner or part.origin} has the {kind} {name!r} already"
    definition_pair = (accepted[0].definitions, part.definitions)
    partitions_by_asset = {
        asset.name: step.partitions
        for home_definitions in definition_pair
        for step in home_definitions.steps
        for asset in step.assets
    }
    recorded = {recorded_asset.asset.name for definitions in definition_pair for recorded_asset in definitions.recorded}
    for name in _referenced_assets(part):
        if name not in partitions_by_asset and name not in recorded:
            return f"it names the asset {name!r}, which neither the core nor the extension makes"
    for job in part.definitions.jobs:
        if isinstance(job, AssetJob) and recorded.intersection(job.assets):
            return f"the job {job.name!r} names assets that a job of one op records"
        if isinstance(job, AssetJob) and len({partitions_by_asset[name] for name in job.assets} - {None}) > 1:
            return f"the assets of the job {job.name!r} have different partitions"
    if CHECK_EVERYTHING in {job.name for job in part.definitions.jobs}:
        return f"the core has the job {CHECK_EVERYTHING!r} already"
    jobs = {job.name for home_definitions in definition_pair for job in home_definitions.jobs} | {CHECK_EVERYTHING}
    for recorded_asset in part.definitions.recorded:
        if recorded_asset.job not in jobs:
            return (
                f"the job {recorded_asset.job!r}, which records the asset {recorded_asset.asset.name!r}, is not there"
            )
    ticks: list[Sensor | Schedule] = [*part.definitions.sensors, *part.definitions.schedules]
    for tick in ticks:
        if tick.job is not None and tick.job not in jobs:
            return f"{tick.name!r} launches the job {tick.job!r}, which is not there"
        if tick.function is not None and not callable(tick.function):
            return f"the function of {tick.name!r} is none: declare it with @sensor or @schedule"
    return ""


def _referenced_assets(part: Part) -> Iterator[str]:
    """Yields the assets of the home that a part refers to."""
    for asset in part.definitions.assets:
        yield from asset.deps
    for job in part.definitions.jobs:
        if isinstance(job, AssetJob):
            yield from job.assets
    for check in part.checks:
        yield check.asset


#: The job of all checks.
CHECK_EVERYTHING = "check_everything"


@dataclass(frozen=True, slots=True)
class _CollectedNames:
    assets: frozenset[str]
    listed_ops: Mapping[str, str]
    published: tuple[Asset, ...]
    checks: tuple[Check, ...]


@lru_cache(maxsize=8)
def _collect_names(_installed: tuple[str, ...]) -> _CollectedNames:
    home_parts = parts(OWN_HOME)
    definitions = [part.definitions for part in home_parts]
    assets = [asset for home_definitions in definitions for asset in home_definitions.assets]
    return _CollectedNames(
        frozenset(asset.name for asset in assets),
        {
            job.name: job.op
            for home_definitions in definitions
            for job in home_definitions.jobs
            if isinstance(job, OpJob) and job.takes_partition_list
        },
        tuple(asset for asset in assets if asset.is_published),
        tuple(check for part in home_parts for check in part.checks),
    )


def _collect_current_names() -> _CollectedNames:
    return _collect_names(tuple(extension.name for extension in extensions()))


def asset_name(namespace: HomeNamespace, key: dg.AssetKey) -> str:
    """Returns the name of an asset of this home; empty for any other asset."""
    *prefix, name = key.path
    if tuple(prefix) != namespace.prefix:
        return ""
    # without a prefix, assets of others have keys of one part too
    names = _collect_current_names()
    return name if name in names.assets else ""


def owns(namespace: HomeNamespace, run: dg.DagsterRun) -> bool:
    """Whether a run belongs to this home: it is of one of its jobs or assets."""
    is_tagged = namespace.is_only_home or namespace.tags.items() <= run.tags.items()
    return is_tagged or any(asset_name(namespace, key) for key in run.asset_selection or ())


def listed_ops() -> Mapping[str, str]:
    """Returns the op of each job over listed partitions, which may be of several crawls in any order. Dagster takes one
    partition or a range, so the configuration of the op lists them; Dagster learns of each when it is made."""
    return _collect_current_names().listed_ops


def published_assets() -> tuple[Asset, ...]:
    """Returns the assets whose tables the published file shows."""
    return _collect_current_names().published


def checks_of(asset: str) -> list[Check]:
    """Returns the checks of an asset."""
    return [check for check in _collect_current_names().checks if check.asset == asset]
