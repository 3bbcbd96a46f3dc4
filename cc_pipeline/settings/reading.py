"""Builds the checked settings from flags, the environment and the home, and the texts from which another process builds
the same."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cc_pipeline.addresses import split_access
from cc_pipeline.extension import extensions
from cc_pipeline.home import HomeNote, NoteUnreadable, read_note
from cc_pipeline.settings.access import add_credentials
from cc_pipeline.settings.all_settings import ProcessSettings, Settings
from cc_pipeline.settings.declaration import (
    Declaration,
    as_text,
    check_values,
    declarations,
    read_declared,
    read_extension,
)
from cc_pipeline.settings.environment import text_in
from cc_pipeline.settings.source_addresses import DEFAULT_COLLINFO, DEFAULT_SOURCE, normalise_root

#: The settings of the core that are read from variables by their type.
_BY_TYPE: Final = tuple(declaration for declaration in declarations(Settings) if not declaration.facts.has_own_reader)
#: Settings that decide rows, with the types of their values: if one changes, pages are parsed or records verified
#: again. They belong to a home once rows were made with them.
CHOICES: Final[Mapping[str, type]] = {
    declaration.name: declaration.kind for declaration in _BY_TYPE if declaration.facts.decides_rows
}


def settings_of_extensions() -> dict[str, type]:
    """Returns the dataclass of settings of each extension that has one, by the name of the extension."""
    return {extension.name: kind for extension in extensions() if (kind := extension.settings()) is not None}


def _declared_by_extensions() -> Iterator[Declaration]:
    for name, kind in settings_of_extensions().items():
        yield from declarations(kind, name)


def settable_names() -> tuple[str, ...]:
    """Returns the names of settings of the core (without its places) and of extensions."""
    return tuple(declaration.name for declaration in (*_BY_TYPE, *_declared_by_extensions()))


def override_names() -> tuple[str, ...]:
    """Returns the names of overrides of ``load_settings``: of the core, and of extensions."""
    return tuple(declaration.name for declaration in (*declarations(Settings), *_declared_by_extensions()))


def values_by_declaration(settings: Settings) -> Iterator[tuple[Declaration, object]]:
    """Yields each declared setting with its value, those of extensions last."""
    for declaration in declarations(Settings):
        yield declaration, getattr(settings, declaration.field)
    for extension, kind in settings_of_extensions().items():
        values: Any = settings.settings_of(kind)
        for declaration in declarations(kind, extension):
            yield declaration, getattr(values, declaration.field)


def process_values() -> Iterator[tuple[Declaration, object]]:
    """Yields the same for the settings of this process."""
    values = read_declared(ProcessSettings, os.environ)
    for declaration in declarations(ProcessSettings):
        yield declaration, getattr(values, declaration.field)


def as_texts(settings: Settings) -> dict[str, str]:
    """Returns the text of each variable (by its name without the prefix) from which ``load_settings`` reads the same.

    Values of this machine and credentials are left out: a process that needs them has its own environment or role. An
    unset value is an empty text, so that no other value replaces it.
    """
    return {
        declaration.name.upper(): as_text(value)
        for declaration, value in values_by_declaration(settings)
        if not declaration.facts.is_secret and not declaration.facts.is_of_this_machine
    }


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Builds the settings from the environment and ``overrides`` (``None`` values are ignored), which take precedence.

    Overrides of an extension's setting have its name as prefix (``name_setting``).

    Settings that rows depend on (``CHOICES``) belong to the home once they were used: the environment does not change
    them. Without an explicit source, that of the home is used, else Common Crawl's public address.
    Credentials come from the address, from ``CC_PIPELINE_SOURCE_USER``, ``_PASSWORD`` and ``_QUERY`` for their host, or
    from netrc, in this order. Raises ``UserInputError`` with the variable of an invalid value, ``EnvironmentFault`` for
    a netrc file that cannot be read, and for a home with tables of unknown source.
    """
    env = os.environ if environ is None else environ
    remaining_overrides = {key: value for key, value in overrides.items() if value is not None}
    home = Path(remaining_overrides.pop("home", None) or text_in(env, "HOME") or "data").expanduser().resolve()
    source_variable = text_in(env, "SOURCE")
    source_text = remaining_overrides.pop("source", None) or source_variable
    note = _note_of(home)
    noted_source = None if note is None else note.source
    source_text = str(source_text or noted_source or DEFAULT_SOURCE).strip()
    source, source_access = normalise_root(source_text), split_access(source_text)[1]
    lake = remaining_overrides.pop("lake", None) or text_in(env, "LAKE") or str(home / "lake")
    collinfo = remaining_overrides.pop("collinfo", None) or text_in(env, "COLLINFO")
    settings = Settings(source, home, normalise_root(str(lake)), "")
    read: dict[str, Any] = {declaration.name: declaration.read(env) for declaration in _BY_TYPE}
    read |= choices_of(note) if note is not None else {}
    settings = replace(settings, **{name: value for name, value in read.items() if value is not None})
    of_extensions = (
        read_extension(name, kind, env, remaining_overrides) for name, kind in settings_of_extensions().items()
    )
    settings = replace(settings, of_extensions=tuple(of_extensions))
    settings = check_values(replace(settings, **remaining_overrides))
    if settings.budget:
        settings = replace(settings, budget=str(Path(settings.budget).expanduser().resolve()))
    elif settings.is_public:
        settings = replace(settings, budget=_users_budget(env))
    collinfo = str(collinfo or (DEFAULT_COLLINFO if settings.is_public else f"{source}/collinfo.json"))
    address, list_access = split_access(collinfo)
    known_sources = [known_source for known_source in (noted_source, source_variable) if known_source]
    return add_credentials(replace(settings, collinfo=address), env, source_access, list_access, known_sources)


def _users_budget(environ: Mapping[str, str]) -> str | None:
    """Returns the file of the request budget that all homes of a user on this machine share, because Common Crawl
    counts requests by address; ``None`` if the user has no writable folder. Machines may share the disk of the user's
    home, so the file has the name of the machine."""
    state = Path(environ.get("XDG_STATE_HOME", ""))
    try:
        # a relative path must be ignored (XDG Base Directory Specification 0.8), and homes would not share it
        folder = (state if state.is_absolute() else Path.home() / ".local" / "state") / "cc_pipeline"
    except RuntimeError:
        return None
    machine = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())
    file = folder / f"budget-{machine}.sqlite"
    # HOME may be that of another user, and so may the file: then it cannot be read or written
    nearest = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    needed = [nearest, *([file] if os.path.exists(file) else [])]
    return str(file) if all(os.access(path, os.W_OK) for path in needed) else None


def _note_of(home: Path) -> HomeNote | None:
    """Reads the note of a home; ``None`` if it is private to another user, whose published tables can still be read."""
    try:
        return read_note(home)
    except NoteUnreadable:
        return None


def choices_of(note: HomeNote) -> dict[str, str | bool]:
    """Returns the settings of ``CHOICES`` in the note of a home or lake, by name."""
    return {name: value for name, value in note.choices.items() if isinstance(value, CHOICES.get(name, ()))}


def environment_value(name: str) -> str | None:
    """Returns the text of a setting's variable, whatever the home has chosen; ``None`` if it is unset."""
    return text_in(os.environ, name.upper())
