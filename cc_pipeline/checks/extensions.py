"""Lists the installed extensions with what they add, reports broken ones, and collects their own findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from cc_pipeline.checks.finding import Finding
from cc_pipeline.extension import (
    COLLECTED,
    JOINTS,
    LEFT_OUT_VARIABLE,
    OWN_ORIGIN,
    Extension,
    InstalledExtension,
    collect,
    extensions,
    find_extensions,
)
from cc_pipeline.index.locators import index_kinds
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

#: Returns the Dagster definitions of an extension (``HomeDefinitions``).
DefinitionsOf = Callable[[Extension], Any]
#: The most names of a joint that are listed; of more, only the number is shown.
_MAX_NAMES: Final = 4
_TOPIC: Final = "extension"


@dataclass(frozen=True, slots=True)
class ListedExtension:
    """An installed extension as a person sees it.

    ``state`` is ``in use``, ``lacks libraries``, ``left out`` or ``broken``; ``origin`` is ``this project`` or a
    distribution; ``adds`` has one text for each joint that it uses; ``advice`` says what to do, if anything.
    """

    name: str
    state: str
    origin: str
    summary: str
    adds: tuple[str, ...]
    problem: str
    advice: str


def list_extensions(settings: Settings, definitions_of: DefinitionsOf | None = None) -> list[ListedExtension]:
    """Returns all installed extensions, those of this project first. ``definitions_of`` returns the Dagster definitions
    of an extension; without it the list only tells that there are some. An extension that raises is listed as
    broken."""
    # excludes extensions whose index kinds have names that are taken
    index_kinds()
    added = {joint: collect(joint) for joint in COLLECTED}
    problems: dict[str, str] = {}
    added["checks"] = _call_all(lambda extension: tuple(extension.checks(settings)), problems)
    if definitions_of is not None:
        for joint, definitions in _group_by_kind(_call_all(definitions_of, problems)).items():
            added[joint] = definitions
    installed = find_extensions()
    return [
        _describe(
            replace(installed_extension, value=None, problem=problems[installed_extension.name])
            if installed_extension.value and installed_extension.name in problems
            else installed_extension,
            added,
        )
        for installed_extension in installed
    ]


def _call_all(call: Callable[[Extension], Any], problems: dict[str, str]) -> dict[str, Any]:
    """Calls ``call`` with each extension and returns the results by name. Errors are added to ``problems``: they may be
    specific to this home."""
    answers = {}
    for extension in extensions():
        try:
            answers[extension.name] = call(extension)
        except Exception as error:  # any error: it affects only this extension
            problems[extension.name] = f"{type(error).__name__}: {error}"
    return answers


def _group_by_kind(definitions: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        kind: {
            name: getattr(home_definitions, kind)
            for name, home_definitions in definitions.items()
            if home_definitions is not None
        }
        for kind in ("assets", "jobs", "schedules", "sensors")
    }


def _describe(installed: InstalledExtension, added: Mapping[str, Mapping[str, Any]]) -> ListedExtension:
    origin = "this project" if installed.origin == OWN_ORIGIN else installed.origin
    if installed.value is None:
        if installed.is_left_out:
            return ListedExtension(
                installed.name,
                "left out",
                origin,
                "",
                (),
                installed.problem,
                f"To use the extension, remove its name from {LEFT_OUT_VARIABLE}.",
            )
        return ListedExtension(installed.name, "broken", origin, "", (), installed.problem, _broken_advice(installed))
    joints = dict.fromkeys((*JOINTS, *added))
    if "assets" in added:
        del joints["definitions"]
    adds = tuple(text for joint in joints if (text := _describe_addition(joint, installed.value, added)))
    missing = installed.value.missing
    if not missing:
        return ListedExtension(installed.name, "in use", origin, installed.value.summary, adds, "", "")
    problem = f"{', '.join(missing)} cannot be imported"
    advice = f"pip install {' '.join(dict.fromkeys(_installed_by(installed, extra) for extra in missing.values()))}"
    return ListedExtension(installed.name, "lacks libraries", origin, installed.value.summary, adds, problem, advice)


def _installed_by(installed: InstalledExtension, extra: str) -> str:
    return f"'cc-pipeline[{extra}]'" if installed.origin == OWN_ORIGIN else extra


def _describe_addition(joint: str, extension: Extension, added: Mapping[str, Mapping[str, Any]]) -> str:
    label = joint.replace("_", " ")
    if joint not in added:
        return label if uses_joint(extension, joint) else ""
    names = _list_names(added[joint].get(extension.name))
    if not names:
        return ""
    return f"{label}: {', '.join(names)}" if len(names) <= _MAX_NAMES else f"{len(names)} {label}"


def uses_joint(extension: Extension, joint: str) -> bool:
    """Whether the extension has a function of its own at a joint."""
    default = next(extension_field.default for extension_field in fields(Extension) if extension_field.name == joint)
    return getattr(extension, joint) is not default


def _list_names(contribution: Any) -> list[str]:
    if contribution is None:
        return []
    if is_dataclass(contribution):
        return [field.name for field in fields(contribution)]
    values: Iterable[Any] = contribution
    return [value if isinstance(value, str) else str(getattr(value, "name", value)) for value in values]


def broken_findings() -> Iterator[Finding]:
    """Yields a finding for each extension that is known to be broken."""
    for installed in find_extensions():
        if installed.value is None and not installed.is_left_out:
            yield Finding(
                "bad", _TOPIC, f"{installed.name} ({installed.origin}): {installed.problem}", _broken_advice(installed)
            )


def _broken_advice(installed: InstalledExtension) -> str:
    return (
        f"Install a version of {installed.name} that fits, or do without the extension: "
        f"{LEFT_OUT_VARIABLE}={installed.name}."
    )


def extension_findings(workspace: Workspace) -> Iterator[Finding]:
    """Yields a finding for each extension that is broken or lacks libraries, one with the names of the others, and the
    findings of the extensions themselves. An extension that raises is a finding too."""
    listing = list_extensions(workspace.settings)
    if active_names := [listed_extension.name for listed_extension in listing if listed_extension.state == "in use"]:
        yield Finding("ok", "extensions", ", ".join(active_names))
    for listed_extension in listing:
        if listed_extension.state in ("broken", "lacks libraries"):
            level = "bad" if listed_extension.state == "broken" else "note"
            yield Finding(
                level,
                _TOPIC,
                f"{listed_extension.name} ({listed_extension.origin}): {listed_extension.problem}",
                listed_extension.advice,
            )
    for extension in extensions():
        if extension.doctor is None:
            continue
        try:
            yield from extension.doctor(workspace)
        except Exception as error:  # any error: it affects only this extension
            text = f"the doctor checks of the extension {extension.name} failed: {type(error).__name__}: {error}"
            advice = f"Report this to the extension's author, or do without it: {LEFT_OUT_VARIABLE}={extension.name}."
            yield Finding("bad", _TOPIC, text, advice)
