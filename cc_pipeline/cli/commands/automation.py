"""``automation``: sensors and schedules that keep a home up to date, and the files that Dagster needs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cc_pipeline.advice import advise
from cc_pipeline.api.run_steps import run_step
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.commands.settings import init
from cc_pipeline.cli.commands.targets import clean_home
from cc_pipeline.cli.output import console, progress_bars, write_rows
from cc_pipeline.home import read_note
from cc_pipeline.settings import Settings, load_settings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Sensors and schedules that run watched targets on new crawls; maintenance; files for "
    "Dagster (docs/dagster.md).",
)
_Yes = Annotated[bool | None, typer.Option("--yes/--no", help="Parse these pages again, or keep them.")]


@app.command("on")
def enable(home: options.Home = None) -> None:
    """Turn all sensors and schedules on. They work while a UI or a daemon runs on this home (cc-pipeline ui)."""
    from cc_pipeline.defs.instance import prepare_instance

    settings = load_settings(home=home)
    prepare_instance(settings)
    _switch_all(settings, enable=True)


@app.command("off")
def disable(home: options.Home = None) -> None:
    """Turn all sensors and schedules off. Queued and running runs continue."""
    settings = load_settings(home=home)
    if _is_home(settings):
        _switch_all(settings, enable=False)


@app.command()
def status(home: options.Home = None) -> None:
    """Show each sensor and schedule: whether it is on, its last tick (in UTC) and what it said."""
    from cc_pipeline.definitions import defs
    from cc_pipeline.defs.automation_state import read_statuses
    from cc_pipeline.defs.instance import open_instance

    settings = load_settings(home=home)
    if not _is_home(settings):
        return
    with open_instance(settings) as instance:
        automations = read_statuses(instance, defs())
    rows = [
        (automation.name, "on" if automation.is_enabled else "off", _format_time(automation.last), automation.message)
        for automation in automations
    ]
    write_rows("automation", ["name", "", "last", "said"], rows)
    if not any(automation.is_enabled for automation in automations):
        console.print(f"all sensors and schedules are off; to turn them on: {advise('automation on')}")


@app.command()
def reparse(yes: _Yes = None, home: options.Home = None) -> None:
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

    settings = load_settings(home=home)
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


@app.command()
def maintenance(home: options.Home = None) -> None:
    """Clean a home: the work of the schedules weekly_maintenance and history, for a home without a daemon.

    Merges small files, publishes, and deletes files that were superseded a week ago. Then it deletes Dagster's runs
    that are older than CC_PIPELINE_HISTORY_DAYS. Extracted rows and the states of their partitions are kept.
    """
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.workspace.workspace import open_workspace

    settings = load_settings(home=home)
    if not _is_home(settings):
        return
    with open_workspace(settings) as workspace, StageRunner(workspace) as runner, progress_bars():
        run_step("maintenance", runner.run_maintenance)


@app.command()
def clean(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False, home: options.Home = None
) -> None:
    """Delete unknown partition keys: typed into the UI, without a definition and without rows.

    Crawls that the source does not list, and that have no rows, are deleted too. The keys are shown first.
    """
    clean_home(load_settings(home=home), yes=yes)


app.command("init")(init)


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


COMMANDS = {"automation": Command(app, FEATURES, 80)}
