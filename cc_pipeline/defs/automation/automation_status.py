"""Turns all sensors and schedules of a home on or off together, and reads the state of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from cc_pipeline.defs.declared.build import everything
from cc_pipeline.defs.internals import Instigator, is_running, read_last_tick, switch
from cc_pipeline.defs.partitions import SUMMARY_TAG
from cc_pipeline.progress import format_count


@dataclass(frozen=True, slots=True)
class AutomationStatus:
    """The state of a sensor or schedule, with the message of its last tick (``last_message``). ``next`` is
    the time of the next tick; ``None`` while it is off."""

    name: str
    is_enabled: bool
    last: datetime | None
    last_message: str
    next: datetime | None


def list_automations() -> list[Instigator]:
    """Returns all sensors and schedules, by name."""
    repository = everything().get_repository_def()
    automations: list[Instigator] = [*repository.sensor_defs, *repository.schedule_defs]
    return sorted(automations, key=lambda automation: automation.name)


def set_all_automations(instance: dg.DagsterInstance, *, is_enabled: bool) -> Sequence[str]:
    """Turns all sensors and schedules on or off. Returns the names of those that changed."""
    changed = [automation for automation in list_automations() if is_running(instance, automation) != is_enabled]
    for automation in changed:
        switch(instance, automation, enable=is_enabled)
    return [automation.name for automation in changed]


def read_automation_statuses(instance: dg.DagsterInstance) -> Iterable[AutomationStatus]:
    """Yields the current state of each sensor and schedule."""
    for automation in list_automations():
        is_enabled, tick = is_running(instance, automation), read_last_tick(instance, automation)
        last = datetime.fromtimestamp(tick.timestamp, UTC) if tick is not None else None
        message = ""
        if tick is not None:
            # a sensor of runs has no message of its own: Dagster's is about its cursor
            is_cursor_note = isinstance(automation, dg.RunStatusSensorDefinition) and tick.status == "SKIPPED"
            told = "" if is_cursor_note else tick.message
            message = told or _describe_requests(instance, tick.runs) or tick.status.lower()
        yield AutomationStatus(
            automation.name, is_enabled, last, message, _find_next_tick(automation, last) if is_enabled else None
        )


def _describe_requests(instance: dg.DagsterInstance, runs: Sequence[str]) -> str:
    """Describes the runs that a tick started, with the summary that the tick wrote into their tags, if it did."""
    if not runs:
        return ""
    run = instance.get_run_by_id(runs[0])
    words = run.tags.get(SUMMARY_TAG, "") if run is not None else ""
    count = format_count(len(runs), "run")
    return f"{count}: {words}" if words else count


def _find_next_tick(automation: Instigator, last: datetime | None) -> datetime:
    now = datetime.now(UTC)
    if isinstance(automation, dg.SensorDefinition):
        interval = timedelta(seconds=automation.minimum_interval_seconds or 30)
        return max(now, last + interval) if last is not None else now
    return _find_next_schedule_tick(automation)


def _find_next_schedule_tick(schedule: dg.ScheduleDefinition) -> datetime:
    """Returns the time of the next tick of a schedule that is on."""
    now = datetime.now(UTC)
    windows = dg.TimeWindowPartitionsDefinition(
        start=now, fmt="%Y", cron_schedule=str(schedule.cron_schedule), timezone=schedule.execution_timezone
    )
    window = windows.get_next_partition_window(now, respect_bounds=False)
    assert window is not None  # only bounds end the windows
    return window.start.astimezone(UTC)
