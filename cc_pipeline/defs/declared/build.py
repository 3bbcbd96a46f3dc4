"""All definitions of a home together."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from cc_pipeline.defs.declared.assets import assets
from cc_pipeline.defs.declared.automation import history, schedules, sensors
from cc_pipeline.defs.declared.bodies import later
from cc_pipeline.defs.declared.checks import checks
from cc_pipeline.defs.declared.jobs import jobs, trim_history
from cc_pipeline.defs.placement import OURS, Placement
from cc_pipeline.errors import CcPipelineError, UserInputError, no_such
from cc_pipeline.settings import PREFIX
from cc_pipeline.settings.reading import FROM_ENVIRONMENT

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
    """Our own code location: one home, the executor (one process a run, parallel work inside the stages), and what
    deletes old runs, since all of the instance is of this home."""
    trim = trim_history(OURS)
    own = dg.Definitions(jobs=[trim], schedules=[history(OURS, trim)], executor=dg.in_process_executor)
    return dg.Definitions.merge(definitions(OURS), own)


def placement(
    prefix: tuple[str, ...],
    group: str,
    automation: bool,
    targets: Sequence[str],
    places: Mapping[str, object],
    settings: Mapping[str, object],
) -> Placement:
    """A home beside others, as ``cc_pipeline.dagster.build_defs`` describes it. Raises as that does."""
    known = [one.name for one in FROM_ENVIRONMENT]
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
        later("commoncrawl.target_text.parse_target")(text)
    # what is wrong is said where it was written, and not in the first run
    at.load_settings()
    return at


def _text(value: object) -> str:
    """A value as its variable says it."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def definitions(at: Placement) -> dg.Definitions:
    """A home's assets, checks, jobs, sensors, schedules and its resource, without an executor."""
    with warnings.catch_warnings():
        # what Dagster may change is tested
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _definitions(at)


def _definitions(at: Placement) -> dg.Definitions:
    added = _added(at)
    made, checked = assets(at, added), checks(at, added)
    made_jobs = jobs(at, [key for one in checked for key in one.check_keys])
    keys = [key for one in made for key in (one.keys if isinstance(one, dg.AssetsDefinition) else [one.key])]
    return dg.Definitions(
        assets=made,
        asset_checks=checked,
        jobs=list(made_jobs.values()),
        sensors=sensors(at, made_jobs, dg.AssetSelection.assets(*keys)),
        schedules=schedules(at, made_jobs),
        resources={at.resource: resource(at)},
    )


def resource(at: Placement) -> dg.ResourceDefinition:
    """The open workspace of a run, or of a tick."""

    def opened(context: dg.InitResourceContext) -> Iterator[Any]:
        yield from later("defs.resources.workspace_of_run")(context, at)

    return dg.ResourceDefinition(
        opened, config_schema=_CONFIG, description="The source and the home, open for one run."
    )


def _added(at: Placement) -> dict[str, Any]:
    """The datasets that a person added to the home. A file that is wrong must not take all assets along: the check of
    its asset, and ``cc-pipeline facts datasets``, say what is wrong."""
    try:
        settings = at.load_settings()
        if not settings.datasets_path.is_dir():
            return {}
        known = later("hostfacts.known.known_datasets")(settings)
    except CcPipelineError:
        return {}
    return {name: one for name, one in known.items() if one.file is not None}
