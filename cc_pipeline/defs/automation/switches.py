"""Turns all sensors and schedules of a home on or off together, and reads the state of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from cc_pipeline.defs.declared.build import everything
from cc_pipeline.defs.internals import Instigator, is_on, last_tick, switch
from cc_pipeline.defs.partitions import LEFT_TAG


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a sensor or schedule (``kind``), with the message of its last tick (``said``). ``next`` is the time
    of the next tick; ``None`` while it is off."""

    name: str
    kind: str
    on: bool
    last: datetime | None
    said: str
    next: datetime | None


def hands_off() -> list[Instigator]:
    """Returns all sensors and schedules, by name."""
    repository = everything().get_repository_def()
    automations: list[Instigator] = [*repository.sensor_defs, *repository.schedule_defs]
    return sorted(automations, key=lambda automation: automation.name)


def turn(instance: dg.DagsterInstance, *, on: bool) -> Sequence[str]:
    """Turns all sensors and schedules on or off. Returns the names of those that changed."""
    changed = [automation for automation in hands_off() if is_on(instance, automation) != on]
    for automation in changed:
        switch(instance, automation, on=on)
    return [automation.name for automation in changed]


def standings(instance: dg.DagsterInstance) -> Iterable[Standing]:
    """Yields the current state of each sensor and schedule."""
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
    """Describes the runs that a tick started, with the summary that the tick wrote into their tags, if it did."""
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
    """Returns the time of the next tick of a schedule that is on."""
    now = datetime.now(UTC)
    windows = dg.TimeWindowPartitionsDefinition(
        start=now, fmt="%Y", cron_schedule=str(schedule.cron_schedule), timezone=schedule.execution_timezone
    )
    window = windows.get_next_partition_window(now, respect_bounds=False)
    assert window is not None  # only bounds end the windows
    return window.start.astimezone(UTC)
