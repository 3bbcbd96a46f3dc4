"""The command tree, and how errors are shown: one line says what is wrong, one says what to do.

A command or group is in the module of its name in ``commands/``, but for: ``crawls`` (sql), ``demo`` (run), ``ui``
(doctor), ``report`` and ``export`` (dataset), ``index`` (url_index and harvest).
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from cc_pipeline import interruption, progress
from cc_pipeline.children import isolate_descendants
from cc_pipeline.cli.commands import (
    automation,
    catalog,
    dataset,
    delivery,
    doctor,
    facts,
    files,
    get,
    lookup,
    plan,
    policies,
    run,
    sql,
    targets,
    url_index,
)
from cc_pipeline.cli.commands import settings as choices
from cc_pipeline.cli.output import (
    GuardedCommand,
    Spoken,
    coloured,
    console_err,
    drop_output,
    tell_of_waiting,
    usable_streams,
)
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, Incomplete, disk_is_full
from cc_pipeline.python.voice import told_to

if TYPE_CHECKING:
    import click


class _InOrder(TyperGroup):
    """Commands and groups in the order of the tree, not commands first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in _TREE.values() for name in commands]


app = typer.Typer(
    name="cc-pipeline",
    cls=_InOrder,
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Get every page of a site out of Common Crawl, 2008 to today: find, fetch, parse, and query it in DuckDB.\n\n"
    "Settings are CC_PIPELINE_* variables (docs/settings.md) and the flags --source and --home.",
)


@app.callback()
def _tell_the_person(context: typer.Context) -> None:
    context.with_resource(told_to(Spoken()))


_EVERYDAY, _MORE, _FEATURES = "Everyday", "Home and source", "Features"
_TREE: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    _EVERYDAY: {
        "run": run.run,
        "plan": plan.plan,
        "lookup": lookup.lookup,
        "get": get.get,
        "sql": sql.sql,
        "export": dataset.export,
        "report": dataset.report,
        "targets": targets.app,
        "doctor": doctor.doctor,
        "ui": doctor.ui,
        "demo": run.demo,
    },
    _MORE: {
        "crawls": sql.crawls,
        "settings": choices.settings,
    },
    _FEATURES: {
        "index": url_index.app,
        "catalog": catalog.app,
        "facts": facts.app,
        "policies": policies.policies,
        "dataset": dataset.dataset,
        "delivery": delivery.app,
        "files": files.app,
        "automation": automation.app,
    },
}
for _panel, _commands in _TREE.items():
    for _name, _made in _commands.items():
        if isinstance(_made, typer.Typer):
            app.add_typer(_made, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(_made)

_INCOMPLETE = 3
#: Objects made before Python looks for cycles: loading a library makes a million of them, and none in cycles.
_GC_EVERY = 50_000
_FREE_SPACE = "Free some space. Then run it again: what was committed before stays."


def _flowing(text: str) -> str:
    """Help whose paragraphs flow: lines are broken where the terminal ends, not where the source code did. What is
    indented, examples among it, stays as it is."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(one if one.startswith(" ") else " ".join(one.split()) for one in paragraphs)


for _each in (app, *(group.typer_instance for group in app.registered_groups)):
    assert _each is not None
    for _command in _each.registered_commands:
        _command.cls = GuardedCommand
        _command.help = _flowing(_command.help or inspect.getdoc(_command.callback) or "")


def main() -> None:
    """Runs the command line.

    Exit status 1 for errors that are ours to explain, 2 for wrong usage, 3 where the source did not give all that was
    planned, 130 for Ctrl-C and 143 for SIGTERM.
    """
    gc.set_threshold(_GC_EVERY)
    isolate_descendants()
    usable_streams()
    progress.to_nobody_else(tell_of_waiting)
    with interruption.watched():
        try:
            try:
                app()
            except CcPipelineError:
                # there is more to tell than that nobody reads
                _flush_what_can_be()
                raise
            finally:
                if interruption.received() is not None:
                    _flush_what_can_be()
                sys.stdout.flush()  # here what cannot be written can still be told
        except CcPipelineError as error:
            _end_if_stopped()
            _say(error)
            sys.exit(_INCOMPLETE if isinstance(error, Incomplete) else 1)
        except BaseException as error:
            _end_if_stopped()
            if isinstance(error, Exception) and disk_is_full(error):
                _say(EnvironmentFault(f"the disk is full: {str(error).partition(chr(10))[0]}", _FREE_SPACE))
            elif not isinstance(error, BrokenPipeError):
                raise
            drop_output()
            sys.exit(1)


def _flush_what_can_be() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        drop_output()


def _end_if_stopped() -> None:
    # whatever a library made of the signal, it is why the command ends
    number = interruption.received()
    if number is not None:
        console_err.print("stopped. What was committed stays; run the same command again to go on")
        sys.exit(interruption.BY_SIGNAL + number)


def _say(error: CcPipelineError) -> None:
    if not isinstance(error, EnvironmentFault):
        console_err.print(coloured(("error:", "bold red"), f" {error}"))
        return
    console_err.print(coloured(("error:", "bold red"), f" {error.what}"))
    if error.advice:
        console_err.print(coloured(("what to do:", "bold"), f" {error.advice}"))
