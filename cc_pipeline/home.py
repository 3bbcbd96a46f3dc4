"""``home.json``, the note of a home: the source of its tables, their layout, and the settings that rows depend on. A
note with another layout than this version's is refused.

The path of a source inside the home is stored relative to the home, so that the home can be moved. A lake within the
home has a copy of the note, for the case that ``home.json`` is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cc_pipeline.addresses import redact_address
from cc_pipeline.atomic import written_whole
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.locks import locked

#: The layout of this version's tables. Every change of tables or columns raises it.
LAYOUT: Final = 9
NOTE: Final = "home.json"
#: The note of a lake, in its folder.
LAKE_NOTE: Final = "cc_pipeline.json"
_PRIVATE_MODE, _PUBLIC_MODE = 0o600, 0o644


@dataclass(frozen=True, slots=True)
class HomeNote:
    """The content of ``home.json``: the address or absolute folder of the home's source.

    ``choices`` are the settings that its rows were made with, by name; empty until pages were parsed; some may be of
    another version.
    """

    source: str
    choices: Mapping[str, str | bool] = field(default_factory=dict)


class NoteUnreadable(EnvironmentFault):
    """The note exists, but this user or the disk cannot read it."""


class UnknownLayout(EnvironmentFault):
    """The tables of a home or lake have another layout than those of this version."""


def read_note(home: Path, lake: Path | None = None) -> HomeNote | None:
    """Reads the note of ``home``; ``None`` for a new one. If ``home.json`` is lost or damaged, reads the copy of its
    lake.

    ``lake`` is the folder of the home's own lake (default: the usual one). Raises ``EnvironmentFault`` for tables of
    unknown source and for a damaged note; its subclasses ``NoteUnreadable`` for an unreadable one and ``UnknownLayout``
    for one of another layout.
    """
    place = home / "lake" if lake is None else lake
    note = _read_note_file(home / NOTE, home, LAYOUT)
    if note is not None and note is not _DAMAGED:
        return note
    copy = read_copy(place)
    if copy is not None:
        return copy
    if note is None and not (place / "tables").exists():
        return None
    raise EnvironmentFault(
        f"{home} has tables, but no {NOTE} that names the source of the tables"
        if note is None
        else f"{home / NOTE} is damaged, so the source of the tables in this home is not known",
        "Nothing was changed. Restore the file from a backup, or write the source of the tables into it: "
        '{"source": "https://data.commoncrawl.org"}, or the folder or address that was used. Its settings are lost '
        "then. With a wrong source, the next run would replace the rows.",
    )


def read_copy(lake: Path) -> HomeNote | None:
    """Reads the copy of the note in the folder of a lake; ``None`` if there is none that can be read. Raises
    ``UnknownLayout``."""
    note = _read_note_file(lake / LAKE_NOTE, lake)
    return None if note is _DAMAGED else note


def write_copy(lake: Path, home: Path, note: HomeNote) -> None:
    """Writes the copy of the note of ``home`` into its own lake. Raises ``EnvironmentFault``."""
    source = _relative(home, redact_address(note.source))
    inside = source if _is_address(source) else os.path.relpath(home / source, lake)
    _replace(lake / LAKE_NOTE, to_json(note, inside), _PUBLIC_MODE)


def is_note_readable(home: Path) -> bool:
    """Whether ``home.json`` itself exists and is valid."""
    return _read_note_file(home / NOTE, home, LAYOUT) not in (None, _DAMAGED)


#: Stands for an invalid note.
_DAMAGED: Final = HomeNote("")


def _read_note_file(path: Path, base_folder: Path, layout: int | None = None) -> HomeNote | None:
    """Reads the note in a file; its folders are relative to ``base_folder``. ``None`` without a file."""
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NoteUnreadable(
            f"{path} cannot be read: {error.strerror or error}", "Check the file's permissions, and the disk."
        ) from error
    try:
        return parse_note(text, str(base_folder), layout)
    except ValueError:
        return _DAMAGED


def parse_note(text: bytes, place: str, layout: int | None = None) -> HomeNote:
    """Parses the note of a home or lake; its folders are relative to ``place``. ``layout`` is the default of its
    layout.

    Raises ``ValueError`` for an invalid note; ``UnknownLayout`` for one of another layout.
    """
    try:
        document = json.loads(text)
        noted_settings = dict(document.get("settings") or {})
        choices = {name: value for name, value in noted_settings.items() if isinstance(value, str | bool)}
        note = HomeNote(resolve_place(Path(place), str(document["source"])), choices)
        note_layout = int(document["layout"] if layout is None else document.get("layout", layout))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no note of a home: {error!r}") from error
    if note_layout != LAYOUT:
        raise UnknownLayout(
            f"{place} has layout {note_layout}, and this version of cc_pipeline uses layout {LAYOUT}",
            "Use the version that made it, or make a new home: set CC_PIPELINE_HOME (and CC_PIPELINE_LAKE, if it is "
            "set) to another folder or address.",
        )
    return note


def write_note(home: Path, note: HomeNote) -> None:
    """Writes the note in one step, without credentials and for its owner alone.

    Raises ``EnvironmentFault`` when the folder cannot be written.
    """
    _replace(home / NOTE, to_json(note, _relative(home, redact_address(note.source))), _PRIVATE_MODE)


def to_json(note: HomeNote, source: str) -> dict[str, object]:
    """Returns the note as JSON, with ``source`` as it is to be written."""
    values: dict[str, object] = {"source": source, "layout": LAYOUT}
    if note.choices:
        values["settings"] = dict(note.choices)
    return values


def format_setting(value: object) -> str:
    """Returns the value of a setting as a person writes it."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def note_choices(home: Path, values: Mapping[str, str | bool], *, overwrite: bool = False) -> None:
    """Notes the settings that rows were made with. Noted ones are kept, unless they are chosen ``overwrite``.

    A home without a note is left alone. Raises ``EnvironmentFault`` when the folder cannot be written.
    """

    def change(note: HomeNote) -> HomeNote:
        return replace(note, choices={**note.choices, **values} if overwrite else {**values, **note.choices})

    change_note(home, change)


def change_note(home: Path, change: Callable[[HomeNote], HomeNote]) -> bool:
    """Changes the note of a home that has one; returns whether it changed.

    Raises ``EnvironmentFault`` when the folder cannot be written.
    """
    note = read_note(home)
    if note is None or change(note) == note:
        return False
    # another process may be adding something else
    with locked(home / "home.lock"):
        note = read_note(home) or note
        write_note(home, change(note))
    return True


def resolve_place(folder: Path, place: str) -> str:
    """Returns a place of a note as an address or an absolute folder; relative ones start at ``folder``."""
    return place if _is_address(place) else str((folder / place).resolve())


def _relative(home: Path, place: str) -> str:
    """Returns a folder inside the home relative to it, so that both can be moved."""
    if _is_address(place) and not place.startswith("/"):
        return place
    inside = os.path.relpath(place, home)
    return place if inside.startswith("..") else inside


def _is_address(source: str) -> bool:
    return "://" in source or source.startswith("/")


def _replace(path: Path, values: Mapping[str, object], mode: int) -> None:
    try:
        with written_whole(path, durable=True, mode=mode) as temporary_path:
            temporary_path.write_text(json.dumps(values, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written: {error.strerror or error}", "Check the disk and its permissions."
        ) from error
