"""Whose tables a home holds: the source it was first used with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cc_pipeline.addresses import shown
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.home import (
    LAKE_NOTE,
    LAYOUT,
    HomeNote,
    is_whole,
    read_copy,
    read_note,
    refuse_unknown_layout,
    write_copy,
    write_note,
)
from cc_pipeline.settings.environment import PREFIX
from cc_pipeline.settings.values import Settings


def remembered_source(home: Path) -> str | None:
    """The source this home was first used with, without credentials, or ``None``."""
    note = read_note(home)
    return None if note is None else shown(note.source)


def is_home_of(settings: Settings) -> bool:
    """Whether the home holds tables of the settings' source, as its source or as one of its mirrors."""
    note = read_note(settings.home)
    return note is not None and settings.source in map(shown, note.places)


def claim_home(settings: Settings) -> None:
    """Makes the home's folders and writes down its places; refuses a home of another source or layout.

    A home may get further mirrors, and another order of its places: a list of several takes the place of the noted one.
    A single place that is in that list is used alone, and the list stays. The home's own lake gets a copy of the note,
    from which ``home.json`` is written again where it was lost.

    Raises ``UserInputError`` for another source; ``UnknownLayout`` for another layout; ``EnvironmentFault`` for tables
    of which nothing says whose they are, and when the folder cannot be written.
    """
    home, lake = settings.home, None if settings.lake_is_apart else Path(settings.lake)
    noted, copy = read_note(home, lake), None if lake is None else read_copy(lake)
    if noted is not None and settings.source not in map(shown, noted.places):
        raise UserInputError(
            f"{home} holds tables of {shown(noted.source)}, not of {settings.source}. "
            f"Set {PREFIX}HOME to another folder, or unset {PREFIX}SOURCE to go on with the old one; a mirror is "
            "named behind it"
        )
    if copy is not None and {settings.source, *map(shown, noted.places if noted else ())}.isdisjoint(copy.places):
        raise UserInputError(
            f"{lake} holds tables of {copy.source}, and {home} says that it is a home of {settings.source}. Use "
            f"another home; or, if both are the same source, which has moved, delete {lake}/{LAKE_NOTE}"
        )
    note = noted or HomeNote(settings.source, LAYOUT, mirrors=settings.mirrors)
    refuse_unknown_layout(str(home), note)
    try:
        home.mkdir(parents=True, exist_ok=True)
        settings.dagster_home.mkdir(exist_ok=True)
        if lake is not None:
            lake.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{home} cannot be used as a home: {error.strerror or error}",
            f"Check the disk and its permissions, or set {PREFIX}HOME to another folder.",
        ) from error
    if settings.mirrors and settings.sources != tuple(map(shown, note.places)):
        note = replace(note, source=settings.source, mirrors=settings.mirrors)
    if note != noted or not is_whole(home):
        write_note(home, note)
    bare = replace(note, source=shown(note.source), mirrors=tuple(map(shown, note.mirrors)))
    if lake is not None and copy != bare:
        with suppress(EnvironmentFault):  # a home that cannot be written, or not now, is read all the same
            write_copy(lake, home, bare)
