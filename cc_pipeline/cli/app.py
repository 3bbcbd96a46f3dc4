"""The command tree, and how errors are shown: one line says what is wrong, one says what to do.

A module in ``commands/`` declares its commands in ``COMMANDS``; an extension hands in its own, by name.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cc_pipeline import __version__, interruption, progress
from cc_pipeline.api.reporter import use_reporter
from cc_pipeline.children import isolate_descendants
from cc_pipeline.cli import commands
from cc_pipeline.cli.command import PANELS, Command
from cc_pipeline.cli.output import (
    ConsoleReporter,
    GuardedCommand,
    coloured,
    console,
    console_err,
    drop_output,
    prepare_streams,
    report_waiting,
)
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, Incomplete, disk_is_full
from cc_pipeline.extension import extensions

if TYPE_CHECKING:
    import click


def find_commands() -> dict[str, Command]:
    """The commands of the core and of extensions by name, in the order of the help."""
    tree: dict[str, Command] = {}
    for module in pkgutil.iter_modules(commands.__path__):
        tree |= getattr(import_module(f"{commands.__name__}.{module.name}"), "COMMANDS", {})
    for extension in extensions():
        tree |= extension.commands()
    return dict(sorted(tree.items(), key=lambda item: (PANELS.index(item[1].panel), item[1].position, item[0])))


def _add_command(built: typer.Typer, name: str, command: Command) -> None:
    if isinstance(command.call, typer.Typer):
        built.add_typer(command.call, name=name, rich_help_panel=command.panel)
    else:
        built.command(name, help=command.help, rich_help_panel=command.panel)(command.call)


def _build_command(name: str, command: Command) -> click.Command:
    built = typer.Typer(rich_markup_mode="rich", add_completion=False)
    _add_command(built, name, command)
    for group in (built, *(group.typer_instance for group in built.registered_groups)):
        assert group is not None
        for registered in group.registered_commands:
            registered.cls = GuardedCommand
            registered.help = _reflow_help(registered.help or inspect.getdoc(registered.callback) or "")
    made = typer.main.get_command(built)
    return made.commands[name] if isinstance(made, TyperGroup) else made


class _CommandsOnDemand(UserDict[str, Any]):
    """Commands by name, in the order of the help. Each is built from its ``Command`` when it is first asked for: to
    build all of them takes longer than some commands do."""

    def __getitem__(self, name: str) -> click.Command:
        if isinstance(self.data[name], Command):
            self.data[name] = _build_command(name, self.data[name])
        built: click.Command = self.data[name]
        return built


def build_app() -> typer.Typer:
    """The command line, with all commands that :func:`find_commands` finds."""
    tree = find_commands()

    class WholeGroup(TyperGroup):
        """The group of all commands, which builds only those that are asked for."""

        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = _CommandsOnDemand(tree)

        def list_commands(self, ctx: click.Context) -> list[str]:
            return [*self.commands]

    return typer.Typer(
        name="cc-pipeline",
        cls=WholeGroup,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        help="Get every page of a site out of Common Crawl, 2008 to today: find, fetch, parse, and query it in "
        "DuckDB.\n\nA TARGET is a domain (example.com), or host:, url:, prefix:, tld:, suffix:, rev: or set: with a "
        "value; @FILE has one a line, - is standard input.\n\nSettings are CC_PIPELINE_* variables (docs/settings.md) "
        "and the flags --source and --home.",
        callback=_begin_command,
    )


def _print_version(is_requested: bool) -> None:
    if is_requested:
        console.print(f"cc-pipeline {__version__}")
        raise typer.Exit


def _begin_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version
    context.with_resource(use_reporter(ConsoleReporter()))


def _reflow_help(text: str) -> str:
    """Returns help text with unwrapped paragraphs, so that lines break at the width of the terminal. Indented text,
    such as examples, is kept."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith(" ") else " ".join(paragraph.split()) for paragraph in paragraphs
    )


app = build_app()

_EXIT_INCOMPLETE = 3
_DISK_FULL_ADVICE = "Free some space. Then run the command again: committed work is kept."


def main() -> None:
    """Runs the command line.

    Exit status 1 for explained errors, 2 for wrong usage, 3 if the source did not return everything that was planned,
    130 for Ctrl-C and 143 for SIGTERM.
    """
    isolate_descendants()
    prepare_streams()
    progress.set_fallback_sink(report_waiting)
    with interruption.catch_signals():
        try:
            try:
                app()
            except CcPipelineError:
                # the error matters more than a closed pipe
                _flush_output()
                raise
            finally:
                if interruption.received_signal() is not None:
                    _flush_output()
                sys.stdout.flush()  # here a failed write can still be reported
        except CcPipelineError as error:
            _end_if_stopped()
            _print_error(error)
            sys.exit(_EXIT_INCOMPLETE if isinstance(error, Incomplete) else 1)
        except BaseException as error:
            _end_if_stopped()
            if isinstance(error, Exception) and disk_is_full(error):
                _print_error(
                    EnvironmentFault(f"the disk is full: {str(error).partition(chr(10))[0]}", _DISK_FULL_ADVICE)
                )
            elif not isinstance(error, BrokenPipeError):
                raise
            drop_output()
            sys.exit(1)


def _flush_output() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        drop_output()


def _end_if_stopped() -> None:
    # a library may have turned the signal into another error
    number = interruption.received_signal()
    if number is not None:
        console_err.print("stopped. Committed work is kept; run the same command again to continue")
        sys.exit(interruption.SIGNAL_STATUS_BASE + number)


def _print_error(error: CcPipelineError) -> None:
    if not isinstance(error, EnvironmentFault):
        console_err.print(coloured(("error:", "bold red"), f" {error}"))
        return
    console_err.print(coloured(("error:", "bold red"), f" {error.problem}"))
    if error.advice:
        console_err.print(coloured(("what to do:", "bold"), f" {error.advice}"))
