"""All sensors and schedules of a home: turned on and off together, and how each of them stands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from cc_pipeline.defs.declared.build import everything
from cc_pipeline.defs.internals import Instigator, is_on, last_tick, switch
from cc_pipeline.defs.partitions import LEFT_TAG


@dataclass(frozen=True, slots=True)
class Standing:
    """How a sensor or schedule stands: ``kind`` says which it is, ``said`` what its last tick said. ``next`` is when it
    is due; ``None`` while it is off."""

    name: str
    kind: str
    on: bool
    last: datetime | None
    said: str
    next: datetime | None


def hands_off() -> list[Instigator]:
    """All sensors and schedules, by name."""
    repository = everything().get_repository_def()
    automations: list[Instigator] = [*repository.sensor_defs, *repository.schedule_defs]
    return sorted(automations, key=lambda automation: automation.name)


def turn(instance: dg.DagsterInstance, *, on: bool) -> Sequence[str]:
    """Turns all of them on or off; gives the names of those that were not."""
    changed = [automation for automation in hands_off() if is_on(instance, automation) != on]
    for automation in changed:
        switch(instance, automation, on=on)
    return [automation.name for automation in changed]


def standings(instance: dg.DagsterInstance) -> Iterable[Standing]:
    """How each of them stands now."""
    for automation in hands_off():
        is_enabled, tick = is_on(instance, automation), last_tick(instance, automation)
        last = datetime.fromtimestamp(tick.at, UTC) if tick is not None else None
        kind = "sensor" if isinstance(automation, dg.SensorDefinition) else "schedule"
        message = ""
        if tick is not None:
            message = tick.said or _asked(instance, tick.runs) or tick.status.lower()
        yield Standing(
            automation.name, kind, is_enabled, last, message, _next(automation, last) if is_enabled else None
        )


def _asked(instance: dg.DagsterInstance, runs: Sequence[str]) -> str:
    """What a tick asked for: in its own words where it left some with its runs."""
    if not runs:
        return ""
    run = instance.get_run_by_id(runs[0])
    words = run.tags.get(LEFT_TAG, "") if run is not None else ""
    return f"{len(runs)} runs: {words}" if words else f"{len(runs)} runs"


def _next(automation: Instigator, last: datetime | None) -> datetime:
    now = datetime.now(UTC)
    if isinstance(automation, dg.SensorDefinition):
        interval = timedelta(seconds=automation.minimum_interval_seconds or 30)
        return max(now, last + interval) if last is not None else now
    return _next_tick(automation)


def _next_tick(schedule: dg.ScheduleDefinition) -> datetime:
    """When a schedule that is on ticks next."""
    now = datetime.now(UTC)
    windows = dg.TimeWindowPartitionsDefinition(
        start=now, fmt="%Y", cron_schedule=str(schedule.cron_schedule), timezone=schedule.execution_timezone
    )
    window = windows.get_next_partition_window(now, respect_bounds=False)
    assert window is not None  # only bounds end the windows
    return window.start.astimezone(UTC)
