"""What a home has in Dagster without any extension."""

from collections.abc import Iterable

from cc_pipeline.defs.automation import schedules, sensors
from cc_pipeline.defs.declarations import HomeDefinitions, Schedule, Sensor
from cc_pipeline.defs.declared import assets
from cc_pipeline.defs.declared.jobs import JOBS, TRIM_HISTORY


def core_definitions(published: Iterable[str], *, alone: bool) -> HomeDefinitions:
    """The definitions of the core. ``published`` are the assets of extensions that the published file shows. A home
    that has an instance ``alone`` also deletes old runs there."""
    steps = [
        *assets.catalog(),
        *assets.extraction(),
        *assets.exports(),
        *assets.sources(),
    ]
    shown = [asset.name for step in steps for asset in step.assets if asset.is_published]
    ticking = [one for one in vars(schedules).values() if isinstance(one, Schedule)]
    return HomeDefinitions(
        external=assets.common_crawl(),
        steps=[*steps, *assets.analytics([*shown, *published])],
        recorded=assets.on_request(),
        jobs=[*JOBS, TRIM_HISTORY] if alone else JOBS,
        sensors=[one for one in vars(sensors).values() if isinstance(one, Sensor)],
        schedules=[one for one in ticking if alone or one.job != TRIM_HISTORY.name],
    )
