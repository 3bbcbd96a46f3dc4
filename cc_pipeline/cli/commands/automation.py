"""``automation``: sensors and schedules that keep a home up to date."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from cc_pipeline.advice import advise
from cc_pipeline.api.run_steps import run_step
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command, Group
from cc_pipeline.cli.output import console, notice, progress_bars
from cc_pipeline.home import read_note
from cc_pipeline.settings import Settings

_Yes = Annotated[bool | None, typer.Option("--yes/--no", help="Parse these pages again, or keep them.")]


def enable(settings: Settings) -> None:
    """Turn all sensors and schedules on. They work while a UI or a daemon runs on this home (cc-pipeline ui)."""
    from cc_pipeline.defs.instance import prepare_instance

    prepare_instance(settings)
    _switch_all(settings, enable=True)


def disable(settings: Settings) -> None:
    """Turn all sensors and schedules off. Queued and running runs continue."""
    if _is_home(settings):
        _switch_all(settings, enable=False)


def status(settings: Settings) -> Iterator[Sequence[object]]:
    """Show each sensor and schedule: whether it is on, its last tick (in UTC) and what it said."""
    from cc_pipeline.definitions import defs
    from cc_pipeline.defs.automation_state import read_statuses
    from cc_pipeline.defs.instance import open_instance

    if not _is_home(settings):
        return
    with open_instance(settings) as instance:
        automations = read_statuses(instance, defs())
    for automation in automations:
        state = "on" if automation.is_enabled else "off"
        yield automation.name, state, _format_time(automation.last), automation.message
    if not any(automation.is_enabled for automation in automations):
        notice(f"all sensors and schedules are off; to turn them on: {advise('automation on')}")


def reparse(settings: Settings, yes: _Yes = None) -> None:
    """Show what parsing again with a new version of the parser would cost, and agree to it.

    Without --yes the schedule keeps pages of an older parser. Your own runs always use the current parser. Nothing is
    fetched again.

    [bold]Examples[/]

      cc-pipeline automation reparse            (how many pages, how long)

      cc-pipeline automation reparse --yes
    """
    from cc_pipeline.automation.reparse import describe_cost, find_all_outdated, is_agreed, write_agreement
    from cc_pipeline.extraction.plan import options_of
    from cc_pipeline.workspace.workspace import open_workspace

    if not _is_home(settings):
        return
    if yes is not None:
        write_agreement(settings, yes=yes)
    with open_workspace(settings) as workspace:
        older = find_all_outdated(workspace)
    if not older:
        parser = options_of(settings).parser
        console.print(f"all pages are up to date (parser version {parser})")
        return
    console.print(describe_cost(settings, older))
    next_step = (
        "The sensor backfill_missing parses those of watched targets again, some at a time, while "
        "automation is on. A run of the other targets parses theirs."
        if is_agreed(settings)
        else ""
    )
    console.print(
        next_step or f"Schedules keep these pages. To have them parsed again: {advise('automation reparse', yes=True)}"
    )


def clean(settings: Settings) -> None:
    """Clean a home: the work of the schedules weekly_maintenance and history, for a home without a daemon.

    Merges small files, publishes, and deletes files that were superseded a week ago. Then it deletes Dagster's runs
    that are older than CC_PIPELINE_HISTORY_DAYS. Extracted rows and the states of their partitions are kept.
    """
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.workspace.workspace import open_workspace

    if not _is_home(settings):
        return
    with open_workspace(settings) as workspace, StageRunner(workspace) as runner, progress_bars():
        run_step("maintenance", runner.run_maintenance)


def _is_home(settings: Settings) -> bool:
    """Whether the home exists; prints a note if not. A query must not make a folder the home of a source."""
    # a home that was only set up may have sensors that are on
    if read_note(settings.home) is not None or (settings.dagster_home / "dagster.yaml").exists():
        return True
    console.print(f"{settings.home} is no home yet (the first run creates it), so no sensors or schedules are on")
    return False


def _switch_all(settings: Settings, *, enable: bool) -> None:
    from cc_pipeline.defs.automation_state import switch

    word = "on" if enable else "off"
    if not switch(settings, enable=enable):
        console.print(f"automation is {word} already")
        return
    console.print(f"automation is {word}. A UI that runs reads it when it reloads its definitions")
    if enable:
        console.print(f"Sensors and schedules work only while the UI or a Dagster daemon runs: {advise('ui')}")


def _format_time(moment: datetime | None) -> str:
    """Formats a moment as a time of day in UTC, with the day if that is not today."""
    if moment is None:
        return ""
    return f"{moment:%H:%M}" if moment.date() == datetime.now(UTC).date() else f"{moment:%Y-%m-%d %H:%M}"


COMMANDS = {
    "automation": Group(
        "Sensors and schedules that run watched targets on new crawls; maintenance (docs/dagster.md).",
        FEATURES,
        80,
    ),
    "automation on": Command(enable, options=options.LOCAL),
    "automation off": Command(disable, options=options.LOCAL),
    "automation status": Command(status, options=options.LOCAL, columns=("name", "state", "last", "message")),
    "automation reparse": Command(reparse, options=options.LOCAL),
    "automation clean": Command(clean, options=options.LOCAL),
}
