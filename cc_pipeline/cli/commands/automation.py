"""``automation``: the sensors and schedules that keep a home up to date by themselves, and what Dagster needs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from cc_pipeline.api.running import all_runs, step
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.commands.settings import init
from cc_pipeline.cli.commands.targets import clean_home
from cc_pipeline.cli.output import console, progress_bars, show_table, warn
from cc_pipeline.home import read_note
from cc_pipeline.settings import Settings, load_settings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Dagster: sensors and schedules, so that new crawls go to watched targets by themselves; upkeep; and the "
    "files that its programs read (docs/dagster.md).",
)
_Yes = Annotated[bool | None, typer.Option("--yes/--no", help="Have them parsed again, or leave them.")]


@app.command()
def on(home: options.Home = None) -> None:
    """Turn all sensors and schedules on. They work while a UI or a daemon runs on this home (cc-pipeline ui)."""
    _turn(load_settings(home=home), on=True)


@app.command()
def off(home: options.Home = None) -> None:
    """Turn all sensors and schedules off; runs that go on or wait are left to end."""
    settings = load_settings(home=home)
    if _is_home(settings):
        _turn(settings, on=False)


@app.command()
def status(home: options.Home = None) -> None:
    """Show each sensor and schedule: whether it is on, its last tick and what that said, and when it is due."""
    from cc_pipeline.defs.automation.switches import standings
    from cc_pipeline.defs.instance import open_instance, silent_servers

    settings = load_settings(home=home)
    if not _is_home(settings):
        return
    with open_instance(settings) as instance:
        found = list(standings(instance))
        silent = silent_servers(instance)
    rows = [
        (one.name, one.kind, "on" if one.on else "off", _when(one.last), one.said, _when(one.next)) for one in found
    ]
    show_table("automation", ["name", "kind", "", "last tick", "said", "next"], rows)
    if not any(one.on for one in found):
        console.print("all are off; turn them on with: cc-pipeline automation on")
    for server, runs in silent.items():
        warn(
            f"the code server {server} does not answer, and {runs} of its runs hold their partitions. They go on, or "
            "are ended, when it is back. If it never comes back, take it out of run_launcher in dagster.yaml: the next "
            "tick of backfill_missing or the next command ends them"
        )


@app.command()
def reparse(yes: _Yes = None, home: options.Home = None) -> None:
    """Say what parsing again would cost after the parser got a new version, and say yes to it.

    Without --yes the schedule leaves pages of an older parser as they are; runs of your own always parse what they
    touch with the parser of now. Nothing is fetched again.

    [bold]Examples[/]

      cc-pipeline automation reparse            (how many pages, how long)

      cc-pipeline automation reparse --yes
    """
    from cc_pipeline.automation.reparse import agree, is_agreed, outdated_of_all, price_in_words
    from cc_pipeline.extraction.plan import options_of
    from cc_pipeline.workspace.workspace import open_workspace

    settings = load_settings(home=home)
    if not _is_home(settings):
        return
    if yes is not None:
        agree(settings, yes=yes)
    with open_workspace(settings) as workspace:
        older = outdated_of_all(workspace)
    if not older:
        parser = options_of(settings).parser
        console.print(f"all pages were made by the parser of now (version {parser})")
        return
    console.print(price_in_words(settings, older))
    then = "The schedule backfill_missing does it, an hour of work at a time." if is_agreed(settings) else ""
    console.print(then or "They stay as they are. Have them parsed again: cc-pipeline automation reparse --yes")


@app.command()
def upkeep(home: options.Home = None) -> None:
    """Keep a home small: what the schedules weekly_upkeep and history do, for a home where nothing runs by itself.

    Merges small files, publishes, and deletes files that were superseded a week ago; then deletes Dagster's runs that
    are older than CC_PIPELINE_HISTORY_DAYS. What was extracted stays, and so does what Dagster knows of it.
    """
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.workspace.workspace import open_workspace

    settings = load_settings(home=home)
    if not _is_home(settings):
        return
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher, progress_bars():
        step("upkeep", lambda: all_runs(launcher.keep_up()))


@app.command()
def clean(yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, home: options.Home = None) -> None:
    """Take away partition keys that mean nothing: typed into the UI, with no definition and nothing made of them.

    Crawls that the source does not list, and of which nothing is here, go too. What goes is shown first.
    """
    clean_home(load_settings(home=home), yes=yes)


app.command("init")(init)


def _is_home(settings: Settings) -> bool:
    """Whether it is a home; says so where it is none. A question must not make a folder a home of some source."""
    # a home that was only set up may have sensors that are on
    if read_note(settings.home) is not None or (settings.dagster_home / "dagster.yaml").exists():
        return True
    console.print(f"{settings.home} is no home yet: its first run makes it one. Nothing runs by itself")
    return False


def _turn(settings: Settings, *, on: bool) -> None:
    from cc_pipeline.defs.automation.switches import turn
    from cc_pipeline.defs.instance import open_instance

    with open_instance(settings) as instance:
        changed = turn(instance, on=on)
    word = "on" if on else "off"
    for name in changed:
        console.print(f"{word}: {name}")
    if not changed:
        console.print(f"all sensors and schedules are {word} already")
    elif on:
        console.print("They tick while a UI or a daemon runs on this home: cc-pipeline ui")


def _when(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment is not None else ""


COMMANDS = {"automation": Command(app, FEATURES, 80)}
