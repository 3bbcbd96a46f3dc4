"""``settings``: shows and changes settings."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Annotated

import typer

from cc_pipeline.api.choices import change_choices, change_home_source, read_choices
from cc_pipeline.cli import options
from cc_pipeline.cli.command import HOME, Command
from cc_pipeline.cli.output import row_format
from cc_pipeline.errors import UserInputError
from cc_pipeline.home import read_note
from cc_pipeline.settings import CHOICES, PREFIX, Settings, choices_of, environment_value
from cc_pipeline.settings.declaration import as_text
from cc_pipeline.settings.reading import process_values, values_by_declaration


def settings(
    settings: Settings,
    choice: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE…", help=f"A new choice: source, {', '.join(CHOICES)}.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    home: str | None = None,
) -> Iterable[Sequence[object]] | None:
    """Show the settings and where each comes from, or change one that belongs to the home.

    The source, and settings that rows depend on, belong to a home once they were used. A variable alone does not change
    them. A new source must have the same data at another address. A setting without a value is not shown.

    [bold]Examples[/]

      cc-pipeline settings

      cc-pipeline settings markdown=yes

      cc-pipeline settings source=s3://commoncrawl
    """
    if choice:
        texts = dict(_parse_choice(text) for text in choice)
        source = texts.pop("source", None)
        choices = read_choices(settings, texts)
        if choices:
            change_choices(settings, choices, yes=yes)
        if source is not None:
            change_home_source(settings, source)
        return None
    note = read_note(settings.home)
    home_choices = choices_of(note) if note is not None else {}
    rows = [
        (
            declaration.name,
            as_text(value),
            _find_origin(declaration.name, home_choices, is_home=note is not None, has_home_option=home is not None),
        )
        for declaration, value in (*values_by_declaration(settings), *process_values())
        if not declaration.facts.is_secret
    ]
    if row_format() == "table":
        # a setting without a value has nothing to show
        rows = [row for row in rows if row[1]]
    return rows


def _find_origin(name: str, home_choices: Container[str], *, is_home: bool, has_home_option: bool) -> str:
    """Returns where a setting comes from. ``is_home``: the home exists; ``has_home_option``: ``--home`` was given."""
    variable = PREFIX + name.upper()
    if name == "home" and has_home_option:
        return "--home"
    if name in home_choices:
        return "the home"
    if environment_value(name):
        return variable
    return "the home" if is_home and name == "source" else "default"


def _parse_choice(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UserInputError(f"{text!r} has no value; write NAME=VALUE, as in markdown=yes")
    if not value:
        raise UserInputError(f"the value of {name} is empty; write NAME=VALUE, as in markdown=yes")
    return name.strip().lower().removeprefix(PREFIX.lower()), value.strip()


COMMANDS = {"settings": Command(settings, HOME, 20, options.LOCAL, ("setting", "value", "from"))}
