"""``home.json``: the source whose tables a home holds, their layout, and settings that rows depend on; and locks.

The path of a source inside the home is stored relative to the home, so that the home can be moved.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cc_pipeline.addresses import shown
from cc_pipeline.errors import EnvironmentFault

#: What a home has before any migration. A note begins with it, also of a new home, whose migrations find no tables;
#: so a home whose note was lost is migrated like an old one.
FIRST_LAYOUT: Final = 1

#: The layout of tables that this version writes. Each number above 1 has a migration (``stages/tables.py``);
#: a column that is only added needs none.
LAYOUT: Final = 4
NOTE: Final = "home.json"
#: Settings that decide rows, and the kind of their values: with another one, pages are parsed or records judged again.
#: They belong to a home once rows were made with them.
CHOICES: Final[Mapping[str, type]] = {"extractor": str, "markdown": bool, "digest_policy": str}
_PRIVATE = 0o600
#: Seconds between two looks at a lock.
_LOOK_AGAIN = 0.1


@dataclass(frozen=True, slots=True)
class HomeNote:
    """The content of ``home.json``: the address or absolute folder of the home's source, and the home's layout.

    ``mirrors`` are further places with the same objects, in the order in which they are asked. ``chosen`` are the
    settings of ``CHOICES`` that its rows were made with, by name; empty until pages were parsed.
    """

    source: str
    layout: int
    chosen: Mapping[str, str | bool] = field(default_factory=dict)
    mirrors: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The source and its mirrors."""
        return (self.source, *self.mirrors)


def read_note(home: Path) -> HomeNote | None:
    """The note of ``home``; ``None`` where there is no note yet, or it cannot be read."""
    try:
        noted = json.loads((home / NOTE).read_text("utf-8"))
        source, layout = str(noted["source"]), int(noted.get("layout", FIRST_LAYOUT))
        mirrors = tuple(_absolute(home, str(mirror)) for mirror in noted.get("mirrors") or ())
        found = dict(noted.get("settings") or {})
        chosen = {name: found[name] for name, kind in CHOICES.items() if isinstance(found.get(name), kind)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return HomeNote(_absolute(home, source), layout, chosen, mirrors)


def write_note(home: Path, note: HomeNote) -> None:
    """Writes the note in one step, without credentials and for its owner alone.

    Raises ``EnvironmentFault`` when the folder cannot be written.
    """
    source, *mirrors = (_relative(home, shown(place)) for place in note.places)
    further = {"mirrors": mirrors} if mirrors else {}
    chosen = {"settings": dict(note.chosen)} if note.chosen else {}
    _replace(home / NOTE, {"source": source, "layout": note.layout} | further | chosen)


def as_written(value: object) -> str:
    """A setting as a person writes it."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def choose(home: Path, values: Mapping[str, str | bool], *, anew: bool = False) -> None:
    """Notes settings that rows were made with; those noted before stay, unless they are chosen ``anew``.

    A home without a note is left alone. Raises ``EnvironmentFault`` when the folder cannot be written.
    """
    note = read_note(home)
    if note is not None:
        chosen = {**note.chosen, **values} if anew else {**values, **note.chosen}
        if chosen != note.chosen:
            write_note(home, replace(note, chosen=chosen))


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


def _absolute(home: Path, place: str) -> str:
    return place if _is_address(place) else str((home / place).resolve())


def _relative(home: Path, place: str) -> str:
    """A folder inside the home as seen from there, so that both can be moved."""
    if _is_address(place) and not place.startswith("/"):
        return place
    inside = os.path.relpath(place, home)
    return place if inside.startswith("..") else inside


def _is_address(source: str) -> bool:
    return "://" in source or source.startswith("/")


def _replace(path: Path, values: Mapping[str, object]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w", encoding="utf-8") as file:
            file.write(json.dumps(values, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written: {error.strerror or error}", "Check the disk and its permissions."
        ) from error


class LockHeld(EnvironmentFault):
    """Another process of this host holds a lock, and this one did not wait for it any longer."""


@contextmanager
def locked(path: Path, patience: float | None = None) -> Iterator[None]:
    """Holds a lock of this host on ``path`` while the block runs; waits for it, at most ``patience`` seconds.

    Raises ``LockHeld``, an ``EnvironmentFault``, when another process still has it then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    until = None if patience is None else time.monotonic() + patience
    with path.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if until is not None else 0))
                break
            except BlockingIOError:
                if until is not None and time.monotonic() > until:
                    raise LockHeld(
                        f"another process has held {path} for more than {patience:.0f} seconds",
                        "Wait until it is done, then run this again.",
                    ) from None
                time.sleep(_LOOK_AGAIN)
        yield
