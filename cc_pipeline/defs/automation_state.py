"""Turns the sensors and schedules of a home on or off together, and reads the state of each.

A home notes whether its automation is on, and the code location gives its sensors and schedules that default. What a
person switches in the UI stays as it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from cc_pipeline.atomic import write_whole
from cc_pipeline.errors import disk_trouble
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings


@dataclass(frozen=True, slots=True)
class AutomationStatus:
    """The state of a sensor or schedule, and its last tick with its message."""

    name: str
    is_enabled: bool
    last: datetime | None = None
    message: str = ""


def is_enabled(settings: Settings) -> bool:
    """Whether the automation of a home is on."""
    return _path(settings).exists()


def switch(settings: Settings, *, enable: bool) -> bool:
    """Turns the automation of a home on or off; returns whether that changed it. A code location reads it when it is
    loaded. Raises ``PlaceFault``."""
    path = _path(settings)
    if path.exists() == enable:
        return False
    with disk_trouble(path):
        if enable:
            write_whole(path, "on\n", durable=True)
        else:
            path.unlink()
    return True


def read_statuses(instance: dg.DagsterInstance, definitions: dg.Definitions) -> list[AutomationStatus]:
    """Returns the current state of each sensor and schedule, by name."""
    states = {state.instigator_name: state for state in instance.all_instigator_state()}
    repository = definitions.get_repository_def()
    automations: list[Any] = [*repository.sensor_defs, *repository.schedule_defs]
    statuses = []
    for automation in sorted(automations, key=lambda automation: automation.name):
        state = states.get(automation.name)
        status = "DECLARED_IN_CODE" if state is None else state.status.value
        if status == "DECLARED_IN_CODE":
            status = automation.default_status.value
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1) if state is not None else []
        last = datetime.fromtimestamp(ticks[0].timestamp, UTC) if ticks else None
        statuses.append(AutomationStatus(automation.name, status == "RUNNING", last, _describe(ticks)))
    return statuses


def _describe(ticks: Sequence[object]) -> str:
    """Returns what the newest tick said: why it started nothing, its error, or how many runs it started."""
    if not ticks:
        return ""
    tick: Any = ticks[0]
    if tick.run_ids:
        return format_count(len(tick.run_ids), "run")
    return tick.skip_reason or (tick.error.message if tick.error is not None else tick.status.value.lower())


def _path(settings: Settings) -> Path:
    return settings.home / "automation"
