"""``settings``, and settings that belong to a home: what is so, why, and what another choice would cost."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from dataclasses import fields, replace
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, write_rows
from cc_pipeline.errors import UserInputError
from cc_pipeline.home import CHOICES, as_written, read_note
from cc_pipeline.settings import PREFIX, Settings, in_environment, load_settings

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
        choose_anew(found, _read(found, dict(_pair(text) for text in choice)), yes=yes)
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


def as_the_home_has_it(found: Settings, *, yes: bool) -> Settings:
    """The settings of a run, after asking where the environment and the home differ in what rows depend on.

    Raises ``UserInputError`` where nobody can be asked, and ``typer.Abort`` where the answer is no.
    """
    said = {name: text for name in CHOICES if (text := in_environment(name)) is not None}
    note = read_note(found.home)
    if note is None or not note.chosen:
        return found
    wanted = {name: value for name, value in _read(found, said).items() if note.chosen.get(name, value) != value}
    return choose_anew(found, wanted, yes=yes) if wanted else found


def choose_anew(found: Settings, wanted: Mapping[str, str | bool], *, yes: bool) -> Settings:
    """Changes what belongs to the home, and gives the settings with it. Asks where pages would be parsed again."""
    from cc_pipeline.workspace.workspace import open_lake, open_workspace

    note = read_note(found.home)
    if note is None:
        raise UserInputError(f"{found.home} is no home yet; set {PREFIX}… for its first run, which writes it down")
    changes = {name: value for name, value in wanted.items() if getattr(found, name) != value}
    pages = open_lake(found).pin("page_metadata").rows if changes else 0
    words = "; ".join(
        f"{name} is {as_written(getattr(found, name))} in this home, and {as_written(value)} is asked for"
        for name, value in changes.items()
    )
    if pages and not yes:
        again = f"{pages:,} pages would be parsed again, those of each target when it runs next"
        if "digest_policy" in changes:
            again = f"the records of {pages:,} pages would be judged again, and their pages parsed"
        if not sys.stdin.isatty():
            names = " and ".join(f"{PREFIX}{name.upper()}" for name in changes)
            raise UserInputError(f"{words}: {again}. Say --yes if that is meant, or unset {names} to go on as before")
        if not typer.confirm(f"{words}: {again}. Change it?"):
            raise typer.Abort
    chosen: Settings = replace(found, **dict(wanted))  # type: ignore[arg-type]  # names and kinds are those of CHOICES
    with open_workspace(chosen) as workspace:
        workspace.choose(anew=True)
    for name, value in changes.items():
        console.print(f"{name} is {as_written(value)} in this home from now on")
    return chosen


def _read(found: Settings, said: Mapping[str, str]) -> dict[str, str | bool]:
    """What was written, as values. Raises ``UserInputError`` for a setting that is no choice of a home, or a value."""
    odd = [name for name in said if name not in CHOICES]
    if odd:
        raise UserInputError(f"{odd[0]} does not belong to a home; set {PREFIX}{odd[0].upper()} (see docs/settings.md)")
    environ = {PREFIX + name.upper(): text for name, text in said.items()}
    # read as for a home that has chosen nothing
    fresh = load_settings(environ, home=str(found.home / "nothing"), source=found.source_text)
    return {name: getattr(fresh, name) for name in said}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise UserInputError(f"{text!r} is no choice; write it like extractor=quality")
    return name.strip().lower().removeprefix(PREFIX.lower()), value.strip()
