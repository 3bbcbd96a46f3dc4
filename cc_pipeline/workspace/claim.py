"""Claims a home and a lake for a source: the source that they were first used with.

The note of a home is ``home.json``; a lake within the home has a copy of it. A lake outside the home has a note of its
own. Several homes with the same source may use it: the first writes the note with a conditional put, the others read
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cc_pipeline.addresses import redact_address
from cc_pipeline.advice import advise
from cc_pipeline.errors import EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.home import (
    LAKE_NOTE,
    HomeNote,
    change_note,
    format_setting,
    is_note_readable,
    parse_note,
    read_copy,
    read_note,
    to_json,
    write_copy,
    write_note,
)
from cc_pipeline.locks import locked
from cc_pipeline.settings.all_settings import Settings
from cc_pipeline.settings.environment import PREFIX
from cc_pipeline.transport.faults import FaultKind, RangeFault

if TYPE_CHECKING:
    from cc_pipeline.transport.client import Transport

#: Maximum bytes of the note of a lake.
_MAX_NOTE_BYTES: Final = 64 * 1024


def remembered_source(home: Path) -> str | None:
    """Returns the source that this home was first used with, without credentials; ``None`` for a new home."""
    note = read_note(home)
    return None if note is None else redact_address(note.source)


def is_home_of(settings: Settings) -> bool:
    """Whether the home has tables of the settings' source."""
    return remembered_source(settings.home) == settings.source


def has_lake(settings: Settings) -> bool:
    """Whether there may be tables: the lake lies outside the home, or the home is not new. Makes no home. Raises as
    :func:`~cc_pipeline.home.read_note`."""
    return settings.has_separate_lake or read_note(settings.home, Path(settings.lake)) is not None


def claim_existing_home(settings: Settings) -> bool:
    """Claims the home if it exists; returns whether it does. A command calls this while it may still refuse its
    arguments, so that a refused command makes no home. Raises as :func:`claim_home`."""
    if read_note(settings.home) is None:
        return False
    claim_home(settings)
    return True


def claim_home(settings: Settings) -> None:
    """Makes the folders of the home and notes its source; refuses a home of another source or layout. The home's own
    lake gets a copy of the note, from which a lost ``home.json`` is restored.

    Raises ``UserInputError`` for another source; ``UnknownLayout`` for another layout; ``EnvironmentFault`` for tables
    of unknown source, and if the folder cannot be written.
    """
    home, lake = settings.home, None if settings.has_separate_lake else Path(settings.lake)
    home_note, copy = read_note(home, lake), None if lake is None else read_copy(lake)
    _refuse_other_source(settings, home_note, copy)
    note = home_note or HomeNote(settings.source)
    try:
        home.mkdir(parents=True, exist_ok=True)
        if lake is not None:
            lake.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{home} cannot be used as a home: {error.strerror or error}",
            f"Check the disk and its permissions, or set {PREFIX}HOME to another folder.",
        ) from error
    if note != home_note or not is_note_readable(home):
        # another process may be noting a setting
        with disk_trouble(home), locked(home / "home.lock"):
            note = read_note(home, lake) or note
            write_note(home, note)
    bare = replace(note, source=redact_address(note.source))
    if lake is not None and copy != bare:
        with suppress(EnvironmentFault):  # a home that cannot be written can still be read
            write_copy(lake, home, bare)


def _refuse_other_source(settings: Settings, home_note: HomeNote | None, copy: HomeNote | None) -> None:
    """Raises ``UserInputError`` if the home, or the copy of its note in its own lake, names another source."""
    home = settings.home
    if home_note is not None and settings.source != redact_address(home_note.source):
        raise UserInputError(
            f"{home} holds tables of {redact_address(home_note.source)}, not of {settings.source}. "
            f"Set {PREFIX}HOME to another folder, or unset {PREFIX}SOURCE. If the same data has moved: "
            f"{advise('settings', f'source={settings.source}')}"
        )
    if copy is not None and settings.source != copy.source:
        raise UserInputError(
            f"{settings.lake} holds tables of {copy.source}, but {home} is a home of {settings.source}. Use another "
            f"home; or, if both addresses are the same source, delete {settings.lake}/{LAKE_NOTE}"
        )


def change_source(settings: Settings, source: str, lake: Transport) -> None:
    """Notes another source in the home, its own lake and a ``lake`` outside it: another address of the same objects.

    Raises ``EnvironmentFault`` if one of the notes cannot be read or written.
    """
    change_note(settings.home, lambda note: replace(note, source=source))
    note = read_note(settings.home)
    assert note is not None
    if not settings.has_separate_lake:
        write_copy(Path(settings.lake), settings.home, note)
    elif (lake_note := _read_lake(lake)) is not None:
        _write_lake(lake, replace(lake_note, source=source))


def claim_lake(lake: Transport, source: str) -> None:
    """Writes the note of the lake if it has none.

    Raises ``UserInputError`` for a lake of another source; ``UnknownLayout`` for a lake of another layout;
    ``EnvironmentFault`` for an invalid note, and if the lake cannot be read or written.
    """
    bare_source = redact_address(source)
    lake_note = _read_lake(lake)
    if lake_note is None:
        first = HomeNote(bare_source)
        _write_lake(lake, first, only_if_absent=True)
        # another home may have been first, even at a server without conditional puts
        lake_note = _read_lake(lake) or first
    if lake_note.source != bare_source:
        raise UserInputError(
            f"the lake {lake.source} holds tables of {lake_note.source}, not of {bare_source}. Set "
            f"CC_PIPELINE_LAKE to another folder or bucket, or CC_PIPELINE_HOME to a home of {lake_note.source}"
        )


def agree_on_choices(lake: Transport, values: Mapping[str, str | bool], *, overwrite: bool = False) -> None:
    """Notes the settings that the rows of the lake are made with (of ``settings.CHOICES``): those of the first home,
    or, with ``overwrite``, these.

    Raises ``UserInputError`` if others are noted: homes with different settings would parse each other's pages again
    and again. A lake without a note is left alone.
    """
    lake_note = _read_lake(lake)
    if lake_note is None:
        return
    conflicts = {name: value for name, value in lake_note.choices.items() if values.get(name, value) != value}
    if conflicts and not overwrite:
        lake_choices = " ".join(f"{name}={format_setting(value)}" for name, value in conflicts.items())
        raise UserInputError(
            f"the lake {lake.source} has rows made with {lake_choices}, and all its homes must use the same values. "
            f"Use them here: {advise('settings', *lake_choices.split(', '))}; or change them in this home, and then in "
            "all others"
        )
    if overwrite or not values.keys() <= lake_note.choices.keys():
        _write_lake(lake, replace(lake_note, choices={**lake_note.choices, **values}))


def _read_lake(lake: Transport) -> HomeNote | None:
    try:
        data = lake.read_all(LAKE_NOTE, _MAX_NOTE_BYTES).data
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return None
        raise _lake_fault(lake, "read", fault) from fault
    try:
        return parse_note(data, lake.source)
    except ValueError as error:
        raise EnvironmentFault(
            f"{lake.source}/{LAKE_NOTE} cannot be read: it should say which source the lake's tables come from",
            "Check the file: cc_pipeline did not write its content. If the lake is yours, delete the file, then run "
            "the command again.",
        ) from error


def _write_lake(lake: Transport, note: HomeNote, *, only_if_absent: bool = False) -> None:
    text = json.dumps(to_json(note, redact_address(note.source)), indent=1) + "\n"
    try:
        with disk_trouble(Path(lake.source) / LAKE_NOTE):
            lake.put(LAKE_NOTE, text.encode(), only_if_absent=only_if_absent)
    except RangeFault as fault:
        raise _lake_fault(lake, "written", fault) from fault


#: Advice on a lake that the server refuses.
_REFUSED_ADVICE: Final = (
    "Check CC_PIPELINE_LAKE, CC_PIPELINE_LAKE_ENDPOINT and the AWS credentials: they do not allow this."
)
_UNREACHED_ADVICE: Final = (
    "Check CC_PIPELINE_LAKE, CC_PIPELINE_LAKE_ENDPOINT and the network, then run the command again."
)


def _lake_fault(lake: Transport, action: str, fault: RangeFault) -> EnvironmentFault:
    return EnvironmentFault(
        f"the lake {lake.source} cannot be {action}: {fault}",
        _REFUSED_ADVICE if fault.kind in (FaultKind.FORBIDDEN, FaultKind.UNAUTHORIZED) else _UNREACHED_ADVICE,
    )
