"""The command tree, and how errors are shown: one line says what is wrong, one says what to do.

A module in ``commands/`` declares its commands in ``COMMANDS``; an extension hands in its own, by name.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cc_pipeline import __version__, interruption, progress
from cc_pipeline.addresses import redact_addresses
from cc_pipeline.advice import Advice, describe_command, printing
from cc_pipeline.api.reporter import use_reporter
from cc_pipeline.children import isolate_descendants
from cc_pipeline.cli import commands
from cc_pipeline.cli.command import PANELS, Command, Group, Row, SharedOption
from cc_pipeline.cli.options import FORMAT
from cc_pipeline.cli.output import (
    ConsoleReporter,
    coloured,
    console,
    console_err,
    drop_output,
    prepare_streams,
    print_source,
    report_waiting,
    row_format_set,
    write_rows,
)
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, Incomplete, disk_is_full
from cc_pipeline.extension import extensions
from cc_pipeline.settings import load_settings

if TYPE_CHECKING:
    import click


@cache
def find_commands() -> Mapping[str, Row]:
    """The table of commands by name, core and extensions, in the order of the help."""
    table: dict[str, Row] = {}
    for module in pkgutil.iter_modules(commands.__path__):
        table |= getattr(import_module(f"{commands.__name__}.{module.name}"), "COMMANDS", {})
    for extension in extensions():
        table |= extension.commands()
    return dict(sorted(table.items(), key=lambda item: (PANELS.index(item[1].panel), item[1].position, item[0])))


def _build_command(name: str, table: Mapping[str, Row]) -> click.Command:
    """Builds a command, or a group with its commands, from the rows of the table."""
    row = table[name]
    built = typer.Typer(rich_markup_mode="rich", add_completion=False)
    if isinstance(row, Group):
        group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help=row.help)
        built.add_typer(group, name=name, rich_help_panel=row.panel)
        for full_name, command in table.items():
            if full_name.startswith(f"{name} ") and isinstance(command, Command):
                group.command(full_name.removeprefix(f"{name} "), help=_reflow_help(command.text))(_bind(command))
    else:
        built.command(name, help=_reflow_help(row.text), rich_help_panel=row.panel)(_bind(row))
    made = typer.main.get_command(built)
    return made.commands[name] if isinstance(made, TyperGroup) else made


def _bind(command: Command) -> Callable[..., None]:
    """Returns the function that Typer reads and calls: that of the command, with its shared options in place of
    ``settings`` and ``overrides``. It prints the source first, and the rows that the command returns."""
    signature = inspect.signature(command.call, eval_str=True)
    shared = {option.name: option for option in command.options}
    if command.columns:
        shared[FORMAT.name] = FORMAT
    parameters = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for name, parameter in signature.parameters.items()
        if name not in ("settings", "overrides", *shared)
    ]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.annotation)
        for name, option in shared.items()
    ]

    def call(**values: Any) -> None:
        with row_format_set(values.get(FORMAT.name, "table")):
            _call(command, shared.values(), values)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _call(command: Command, shared: Iterable[SharedOption], values: Mapping[str, Any]) -> None:
    """Calls a command's function with the values of its parameters, and writes the rows that it returns."""
    overrides = {key: text for option in shared for key, text in option.overrides(values[option.name]).items()}
    given = dict(values)
    if command.options:
        settings = load_settings(**overrides)
        print_source(settings, sends_requests="source" in values)
        given |= {"settings": settings, "overrides": overrides}
    names = inspect.signature(command.call).parameters
    # an address with a secret is not repeated
    places = {name: values[name] for name in ("source", "home") if values.get(name)}
    places = {name: place for name, place in places.items() if redact_addresses(place) == place}
    with printing(partial(_describe_command_here, places)):
        rows: Any = command.call(**{name: value for name, value in given.items() if name in names})
        if rows is not None:
            write_rows("", command.columns, rows)


def _describe_command_here(places: Mapping[str, str], advice: Advice) -> str:
    """Returns the call as it is typed, with the source and the home that the running command was given."""
    row = find_commands().get(advice.command)
    taken = {option.name for option in row.options} if isinstance(row, Command) else set()
    here = {name: place for name, place in places.items() if name in taken}
    return describe_command(replace(advice, options={**advice.options, **here}))


class _CommandsOnDemand(UserDict[str, Any]):
    """Commands by name, in the order of the help. Each is built when it is first asked for: to build all of them takes
    longer than some commands do."""

    def __init__(self, table: Mapping[str, Row]) -> None:
        super().__init__(dict.fromkeys(name for name in table if " " not in name))
        self._table = table

    def __getitem__(self, name: str) -> click.Command:
        if self.data[name] is None:
            self.data[name] = _build_command(name, self._table)
        built: click.Command = self.data[name]
        return built


def build_app() -> typer.Typer:
    """The command line, with all commands that :func:`find_commands` finds."""
    table = find_commands()

    class WholeGroup(TyperGroup):
        """The group of all commands, which builds only those that are asked for."""

        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = _CommandsOnDemand(table)

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
