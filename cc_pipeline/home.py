"""The home's own note, ``home.json``: whose tables it holds, and in which layout.

A source inside the home is noted by its path within it, so that a home can be moved or restored elsewhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cc_pipeline.addresses import shown
from cc_pipeline.errors import EnvironmentFault

#: The layout of tables that this version writes. Each number above 1 has a migration (``stages/tables.py``);
#: a column that is only added needs none.
LAYOUT: Final = 2
NOTE: Final = "home.json"
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class HomeNote:
    """What a home says of itself: the address or absolute folder of its source, and its layout."""

    source: str
    layout: int


def read_note(home: Path) -> HomeNote | None:
    """The note of ``home``; ``None`` where it is no home yet, or its note cannot be read."""
    try:
        noted = json.loads((home / NOTE).read_text("utf-8"))
        source, layout = str(noted["source"]), int(noted.get("layout", 1))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return HomeNote(source if _is_address(source) else str(home / source), layout)


def write_note(home: Path, note: HomeNote) -> None:
    """Writes the note in one step, without credentials and for its owner alone.

    Raises ``EnvironmentFault`` when the folder cannot be written.
    """
    source = shown(note.source)
    if not _is_address(source) or source.startswith("/"):
        inside = os.path.relpath(source, home)
        source = source if inside.startswith("..") else inside
    _replace(home / NOTE, {"source": source, "layout": note.layout})


def keep_private(home: Path) -> None:
    """Takes the note of a home from everybody but its owner; versions of before let all read it."""
    with suppress(OSError):  # another's home, or a file system without modes
        if (home / NOTE).stat().st_mode & 0o077:
            (home / NOTE).chmod(_PRIVATE)


def refuse_newer(home: Path, note: HomeNote) -> None:
    """Raises ``EnvironmentFault`` for a home that a newer version of cc_pipeline has made or migrated."""
    if note.layout > LAYOUT:
        raise EnvironmentFault(
            f"{home} has layout {note.layout}; this version of cc_pipeline knows layouts up to {LAYOUT}",
            "Install the version that made the home or a newer one, or use another home. Nothing was changed.",
        )


def _is_address(source: str) -> bool:
    return "://" in source or source.startswith("/")


def _replace(path: Path, values: Mapping[str, object]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w", encoding="utf-8") as file:
            file.write(json.dumps(values, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written: {error.strerror or error}", "Check the disk and its permissions."
        ) from error
