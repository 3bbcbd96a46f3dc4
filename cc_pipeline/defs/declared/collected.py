"""What the core and the extensions declare, together: which assets and jobs there are, and whose a run is.

An extension whose definitions raise, clash with others, or name what is not there, is left out, and says why
(``cc-pipeline extensions``). All others are as they would be without it.
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
from cc_pipeline.defs.placement import OURS, Placement
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extension import collect, extensions, refuse
from cc_pipeline.settings import Settings, load_settings


@dataclass(frozen=True, slots=True)
class Part:
    """What the core, or one extension, has in a home. The core's ``origin`` is empty."""

    origin: str
    definitions: HomeDefinitions
    checks: tuple[Check, ...]

    @property
    def names(self) -> Counter[tuple[str, str]]:
        """Every name that no other part may have, with its kind. Dagster wants names of ops and jobs to differ."""
        own = self.definitions
        ticks: list[Sensor | Schedule] = [*own.sensors, *own.schedules]
        found = [("asset", asset.name) for asset in own.assets]
        found += [("asset", external.key.to_user_string()) for external in own.external]
        found += [("check", f"{check.asset}:{check.name}") for check in self.checks]
        found += [("step", step) for step in {check.step for check in self.checks}]
        found += [("step", step.function.rpartition(".")[2]) for step in own.steps if len(step.assets) > 1]
        found += [("step", job.op) for job in own.jobs if isinstance(job, OpJob)]
        found += [("job", job.name) for job in own.jobs]
        found += [("sensor or schedule", tick.name) for tick in ticks]
        return Counter(found)


def parts(at: Placement) -> list[Part]:
    """The core's definitions of a home, then those of each extension that can be used."""
    own_checks = tuple(asset_checks.CHECKS)
    kept = [Part("", core_definitions((), alone=at.alone), own_checks)]
    for part in _of_extensions(at):
        try:
            problem = _problem(part, kept)
        except Exception as error:  # whatever it is: it costs only this extension
            problem = f"{type(error).__name__}: {error}"
        if problem:
            leave_out(part.origin, problem)
        else:
            kept.append(part)
    published = [asset.name for part in kept[1:] for asset in part.definitions.assets if asset.is_published]
    return [Part("", core_definitions(published, alone=at.alone), own_checks), *kept[1:]]


def _of_extensions(at: Placement) -> Iterator[Part]:
    checks, definitions = collect("checks", _settings(at)), collect("definitions", at)
    for name, own in definitions.items():
        looks = tuple(checks.get(name, ()))
        if own is not None or looks:
            yield Part(name, own or HomeDefinitions(), looks)


def _settings(at: Placement) -> Settings:
    """The settings of a home; those of no home where they are wrong, which the first run says."""
    try:
        return at.load_settings()
    except CcPipelineError:
        return load_settings({})


def leave_out(name: str, problem: str) -> None:
    """Leaves an extension out from now on, and warns."""
    refuse(name, f"definitions: {problem}")
    warnings.warn(f"the extension {name} is left out: {problem}", stacklevel=2)


def _problem(part: Part, others: list[Part]) -> str:
    """Why ``part`` cannot be used beside the ``others``, of which the first is the core; empty if it can. Raises
    whatever values of other types raise."""
    if not isinstance(part.definitions, HomeDefinitions):
        return f"is {type(part.definitions).__name__}, and no cc_pipeline.defs.declarations.HomeDefinitions"
    for (kind, name), count in part.names.items():
        owner = next((other.origin or "the core" for other in others if (kind, name) in other.names), "")
        if owner or count > 1:
            return f"{owner or part.origin} has the {kind} {name!r} already"
    own = (others[0].definitions, part.definitions)
    known = {asset.name: step.partitions for one in own for step in one.steps for asset in step.assets}
    recorded = {one.asset.name for definitions in own for one in definitions.recorded}
    for name in _named(part):
        if name not in known and name not in recorded:
            return f"it names the asset {name!r}, which neither the core nor the extension makes"
    for job in part.definitions.jobs:
        if isinstance(job, AssetJob) and recorded.intersection(job.assets):
            return f"the job {job.name!r} names assets that a job of one op records"
        if isinstance(job, AssetJob) and len({known[name] for name in job.assets} - {None}) > 1:
            return f"the assets of the job {job.name!r} have different partitions"
    if CHECK_EVERYTHING in {job.name for job in part.definitions.jobs}:
        return f"the core has the job {CHECK_EVERYTHING!r} already"
    jobs = {job.name for one in own for job in one.jobs} | {CHECK_EVERYTHING}
    for one in part.definitions.recorded:
        if one.job not in jobs:
            return f"the job {one.job!r}, which records the asset {one.asset.name!r}, is not there"
    ticks: list[Sensor | Schedule] = [*part.definitions.sensors, *part.definitions.schedules]
    for tick in ticks:
        if tick.job is not None and tick.job not in jobs:
            return f"{tick.name!r} launches the job {tick.job!r}, which is not there"
        if tick.function is not None and not callable(tick.function):
            return f"the function of {tick.name!r} is none: declare it with @sensor or @schedule"
    return ""


def _named(part: Part) -> Iterator[str]:
    """The assets of the home that a part refers to."""
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
class _Names:
    assets: frozenset[str]
    families: tuple[str, ...]
    listed_ops: Mapping[str, str]
    published: tuple[Asset, ...]
    checks: tuple[Check, ...]


@lru_cache(maxsize=8)
def _names(_installed: tuple[str, ...]) -> _Names:
    found = parts(OURS)
    every = [part.definitions for part in found]
    assets = [asset for one in every for asset in one.assets]
    return _Names(
        frozenset(asset.name for asset in assets),
        tuple(family for one in every for family in one.families),
        {job.name: job.op for one in every for job in one.jobs if isinstance(job, OpJob) and job.is_listed},
        tuple(asset for asset in assets if asset.is_published),
        tuple(check for part in found for check in part.checks),
    )


def _names_now() -> _Names:
    return _names(tuple(one.name for one in extensions()))


def asset_name(at: Placement, key: dg.AssetKey) -> str:
    """The name of an asset of this home; empty for any other asset."""
    *before, name = key.path
    if tuple(before) != at.prefix:
        return ""
    # without a prefix, others have keys of one part too
    names = _names_now()
    return name if name in names.assets or name.startswith(names.families) else ""


def owns(at: Placement, run: dg.DagsterRun) -> bool:
    """Whether a run is of this home: of one of its jobs, or of one of its assets."""
    ours = at.alone or at.tags.items() <= run.tags.items()
    return ours or any(asset_name(at, key) for key in run.asset_selection or ())


def listed_ops() -> Mapping[str, str]:
    """The op of each job over listed partitions: any of them, of several crawls, in whatever order. Dagster takes one
    partition or a range, so the configuration of the op names them; Dagster knows of none that is not made."""
    return _names_now().listed_ops


def published_assets() -> tuple[Asset, ...]:
    """The assets whose tables the published file shows."""
    return _names_now().published


def checks_of(asset: str) -> list[Check]:
    """The checks of an asset."""
    return [check for check in _names_now().checks if check.asset == asset]
