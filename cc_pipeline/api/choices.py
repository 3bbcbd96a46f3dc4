"""Settings that belong to a home: reports the cost of another choice, and makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cc_pipeline.advice import option
from cc_pipeline.api.reporter import get_reporter
from cc_pipeline.errors import UserInputError, describe_unknown_name
from cc_pipeline.home import format_setting, read_note
from cc_pipeline.progress import format_count
from cc_pipeline.settings import CHOICES, PREFIX, Settings, environment_value, load_settings, normalise_root
from cc_pipeline.settings.reading import override_names


def confirm_choices(settings: Settings, *, yes: bool) -> Settings:
    """Returns the settings of a run. Asks first if the environment and the home differ in settings that decide rows.

    Raises ``UserInputError`` if nobody agrees.
    """
    environment_texts = {name: text for name in CHOICES if (text := environment_value(name)) is not None}
    note = read_note(settings.home)
    if note is None or not note.choices:
        return settings
    changed_choices = {
        name: value
        for name, value in read_choices(settings, environment_texts).items()
        if note.choices.get(name, value) != value
    }
    return change_choices(settings, changed_choices, yes=yes) if changed_choices else settings


def change_choices(settings: Settings, choices: Mapping[str, str | bool], *, yes: bool) -> Settings:
    """Changes settings that belong to the home and returns the new settings. Asks if pages would be parsed again."""
    from cc_pipeline.workspace.workspace import open_lake, open_workspace

    note = read_note(settings.home)
    if note is None:
        raise UserInputError(f"{settings.home} is no home yet; set {PREFIX}… for its first run, which stores it")
    changes = {name: value for name, value in choices.items() if getattr(settings, name) != value}
    pages = open_lake(settings).pin("page_metadata").rows if changes else 0
    differences = "; ".join(
        f"this home uses {name}={format_setting(getattr(settings, name))}, and you set {format_setting(value)}"
        for name, value in changes.items()
    )
    if pages and not yes:
        consequence = f"the next run of each target would parse its pages again ({format_count(pages, 'page')} in all)"
        if not get_reporter().agrees(f"{differences}: {consequence}. Change it?"):
            variables = [f"{PREFIX}{name.upper()}" for name in changes if environment_value(name) is not None]
            keep_hint = f", or unset {' and '.join(variables)} to keep the home's settings" if variables else ""
            raise UserInputError(f"{differences}: {consequence}. Confirm with {option(yes=True)}{keep_hint}")
    new_settings: Settings = replace(settings, **dict(choices))  # type: ignore[arg-type]  # names and kinds are those of CHOICES
    with open_workspace(new_settings) as workspace:
        workspace.choose(overwrite=True)
    for name, value in changes.items():
        get_reporter().answer(f"{name} is {format_setting(value)} in this home from now on")
    return new_settings


def change_home_source(settings: Settings, text: str) -> None:
    """Makes another address the source of the home and of its lake. It must have the same objects, so nothing is done
    again. Raises ``UserInputError`` if there is no home, and for an invalid address."""
    from cc_pipeline.workspace.claim import change_source
    from cc_pipeline.workspace.workspace import open_workspace

    if read_note(settings.home) is None:
        raise UserInputError(f"{settings.home} is no home yet; set {PREFIX}SOURCE for its first run, which stores it")
    source = normalise_root(text)
    with open_workspace(settings) as workspace:
        change_source(settings, source, workspace.place)
    get_reporter().answer(f"source is {source} in this home from now on")


def read_choices(settings: Settings, texts: Mapping[str, str]) -> dict[str, str | bool]:
    """Parses texts as values of settings. Raises ``UserInputError`` for a setting that does not belong to a home, and
    for a value that cannot be used."""
    unknown_names = [name for name in texts if name not in CHOICES]
    if unknown_names:
        name = unknown_names[0]
        if name not in override_names():
            raise UserInputError(describe_unknown_name("setting of a home", name, CHOICES))
        raise UserInputError(
            f"a home does not store the setting {name}; set the variable {PREFIX}{name.upper()} (see docs/settings.md)"
        )
    environ = {PREFIX + name.upper(): text for name, text in texts.items()}
    # parsed as for a home without choices
    fresh = load_settings(environ, home=str(settings.home / "nothing"), source=settings.source)
    return {name: getattr(fresh, name) for name in texts}
