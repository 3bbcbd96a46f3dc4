"""The definitions of a home in Dagster without any extension."""

from collections.abc import Iterable

from cc_pipeline.defs.automation import schedules, sensors
from cc_pipeline.defs.declarations import HomeDefinitions, Schedule, Sensor
from cc_pipeline.defs.declared import assets
from cc_pipeline.defs.declared.jobs import JOBS, TRIM_HISTORY


def core_definitions(published: Iterable[str], *, is_only_home: bool) -> HomeDefinitions:
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
