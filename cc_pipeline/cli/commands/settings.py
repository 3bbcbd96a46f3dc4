"""``settings``, and settings that belong to a home: what is so, why, and what another choice would cost."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import fields
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import write_rows
from cc_pipeline.errors import UserInputError
from cc_pipeline.home import CHOICES, as_written, read_note
from cc_pipeline.python.choices import choose_anew, read_choices
from cc_pipeline.settings import PREFIX, in_environment, load_settings

#: Settings that hold credentials, or an address that is a secret itself: they never show.
_HIDDEN = ("source_access", "collinfo_access", "mirror_access", "webhook")


def settings(
    choice: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE…", help=f"A new choice: {', '.join(CHOICES)}.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: options.Home = None,
) -> None:
    """Show the settings and where each comes from, or change one that belongs to the home.

    What rows depend on belongs to a home once pages were parsed with it: a variable does not change it by itself.

    [bold]Examples[/]

      cc-pipeline settings

      cc-pipeline settings extractor=quality
    """
    found = load_settings(home=home)
    if choice:
        choose_anew(found, read_choices(found, dict(_pair(text) for text in choice)), yes=yes)
        return
    note = read_note(found.home)
    chosen = note.chosen if note is not None else {}
    rows = []
    for name in (field.name for field in fields(found) if field.name not in _HIDDEN):
        value = getattr(found, name)
        shown = " ".join(value) if isinstance(value, tuple) else "" if value is None else as_written(value)
        rows.append((name, shown, _origin(name, chosen, noted=note is not None, told=home is not None)))
    write_rows(f"settings of {found.home}", ["setting", "value", "from"], rows)


def _origin(name: str, chosen: Container[str], *, noted: bool, told: bool) -> str:
    """Where the value of a setting comes from, of a home that is ``noted`` and was ``told`` on the command line."""
    said = "source" if name == "mirrors" else name
    variable = PREFIX + said.upper()
    if name == "home" and told:
        return "--home"
    if name in chosen:
        return "the home"
    if in_environment(said):
        return variable
    return "the home" if noted and said == "source" else f"default ({variable})"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise UserInputError(f"{text!r} is no choice; write it like extractor=quality")
    return name.strip().lower().removeprefix(PREFIX.lower()), value.strip()
