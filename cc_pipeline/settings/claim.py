"""Whose tables a home holds: the source it was first used with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cc_pipeline.addresses import shown
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.home import FIRST_LAYOUT, HomeNote, keep_private, read_note, refuse_newer, write_note
from cc_pipeline.settings.environment import PREFIX
from cc_pipeline.settings.values import Settings


def remembered_source(home: Path) -> str | None:
    """The source this home was first used with, without credentials, or ``None``."""
    noted = noted_source(home)
    return None if noted is None else shown(noted)


def noted_source(home: Path) -> str | None:
    return next(iter(noted_places(home)), None)


def noted_places(home: Path) -> tuple[str, ...]:
    """The source of a home and its mirrors as they are noted; none without a note."""
    # homes of before may hold the credentials they were first used with, and go on working with them
    note = read_note(home)
    return () if note is None else note.places


def is_home_of(settings: Settings) -> bool:
    """Whether the home holds tables of the settings' source, as its source or as one of its mirrors."""
    return settings.source in {shown(place) for place in noted_places(settings.home)}


def claim_home(settings: Settings) -> None:
    """Makes the home's folders and writes down its places; refuses a home of another source or a newer layout.

    A home may get further mirrors, and another order of its places: a list of several takes the place of the noted one.
    A single place that is in that list is used alone, and the list stays.

    Raises ``UserInputError`` for another source; ``EnvironmentFault`` for a newer layout, and when the folder cannot
    be written.
    """
    note = read_note(settings.home)
    known = remembered_source(settings.home)
    if known is not None and not is_home_of(settings):
        raise UserInputError(
            f"{settings.home} holds tables of {known}, not of {settings.source}. "
            f"Set {PREFIX}HOME to another folder, or unset {PREFIX}SOURCE to go on with the old one; a mirror is "
            "named behind it"
        )
    if note is not None:
        refuse_newer(settings.home, note)
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
        settings.dagster_home.mkdir(exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{settings.home} cannot be used as a home: {error.strerror or error}",
            f"Check the disk and its permissions, or set {PREFIX}HOME to another folder.",
        ) from error
    if note is None:
        write_note(settings.home, HomeNote(settings.source, FIRST_LAYOUT, mirrors=settings.mirrors))
    elif settings.mirrors and settings.sources != tuple(map(shown, note.places)):
        write_note(settings.home, replace(note, source=settings.source, mirrors=settings.mirrors))
    else:
        keep_private(settings.home)
