"""Extensions: features that the core uses through one type, without knowing any of them by name.

Extensions of this project are the packages in ``cc_pipeline.extensions``; those of others are entry points of the group
``cc_pipeline.extensions``. Each has a value ``EXTENSION``. Its module imports nothing heavy: the fields of the value
are functions, which load what they need when they are called.
"""

from __future__ import annotations

import os
import pkgutil
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from cc_pipeline.errors import CcPipelineError

if TYPE_CHECKING:
    from cc_pipeline.checks.check import Check
    from cc_pipeline.checks.finding import Finding
    from cc_pipeline.defs.declarations import HomeDefinitions
    from cc_pipeline.defs.engines import RunEngine
    from cc_pipeline.defs.home_namespace import HomeNamespace
    from cc_pipeline.export.format import ExportFormat
    from cc_pipeline.index.locators import IndexKind
    from cc_pipeline.lake.lake import TableSpec
    from cc_pipeline.lake.snapshot import MacroSpec, ViewSpec
    from cc_pipeline.settings import Settings
    from cc_pipeline.workspace.workspace import Workspace

#: The package with our extensions, and the group of entry points of others.
GROUP: Final = "cc_pipeline.extensions"
#: The origin of extensions of this project.
OWN_ORIGIN: Final = "cc_pipeline"
#: The variable with the names of extensions to leave out, separated by commas.
LEFT_OUT_VARIABLE: Final = "CC_PIPELINE_WITHOUT"


#: Problems of extensions that were loaded and then refused, by name.
_BROKEN: Final[dict[str, str]] = {}


def _nothing(*_: object) -> tuple[()]:
    return ()


def _no_names() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The contributions of a feature. Every field but the first three is a function, called when the core needs it.

    ``name`` is a unique word; ``summary`` is one line for people. ``needs`` are modules that the extension imports and
    the core does not, each with the extra of this project (or the package) that installs it.

    - ``tables`` of the lake, each with everything that the core needs to know.
    - ``views`` of ``cc.duckdb``, with the notes of their columns, and ``macros``, after those of the core. If one
      fails or its name is taken, the file has none of them.
    - ``settings``: a frozen dataclass.
    - ``locators``: kinds of index, which find captures.
    - ``engines`` extract the partitions of a run, by name.
    - ``export_formats``: ``RowFormat`` or ``RecordFormat`` of ``export/format.py``, by name.
    - ``commands``: functions, typer groups or ``cli.command.Command``, by name.
    - ``definitions``: assets, jobs, sensors and schedules of a home.
    - ``checks`` of its assets.
    - ``maintenance`` is called by the weekly maintenance, and returns how many files it deleted.
    - ``doctor`` reports findings.
    """

    name: str
    summary: str
    needs: Mapping[str, str] = field(default_factory=dict)

    tables: Callable[[], Sequence[TableSpec]] = _nothing
    views: Callable[[], Sequence[ViewSpec]] = _nothing
    macros: Callable[[], Sequence[MacroSpec]] = _nothing
    settings: Callable[[], type | None] = lambda: None
    locators: Callable[[], Sequence[IndexKind]] = _nothing
    engines: Callable[[], Mapping[str, Callable[[], RunEngine]]] = _no_names
    export_formats: Callable[[], Mapping[str, ExportFormat]] = _no_names
    commands: Callable[[], Mapping[str, Any]] = _no_names
    definitions: Callable[[HomeNamespace], HomeDefinitions | None] = lambda _: None
    checks: Callable[[Settings], Sequence[Check]] = _nothing
    maintenance: Callable[[Workspace], int] | None = None
    doctor: Callable[[Workspace], Iterator[Finding]] | None = None

    @property
    def missing(self) -> dict[str, str]:
        """The modules of ``needs`` that are not installed, each with what installs it."""
        return {module: extra for module, extra in self.needs.items() if find_spec(module.partition(".")[0]) is None}


@dataclass(frozen=True, slots=True)
class InstalledExtension:
    """An installed extension. ``origin`` is ``cc_pipeline``, or the distribution that it came with.

    ``value`` is ``None`` for an extension that is broken or left out; ``problem`` says why.
    """

    name: str
    origin: str
    value: Extension | None
    problem: str = ""

    @property
    def is_left_out(self) -> bool:
        """Whether the environment leaves it out."""
        return self.problem == _LEFT_OUT


_LEFT_OUT: Final = f"left out by {LEFT_OUT_VARIABLE}"
JOINTS: Final = tuple(
    extension_field.name
    for extension_field in fields(Extension)
    if extension_field.name not in ("name", "summary", "needs")
)
#: The joints that contribute several values, by name or as a sequence.
_BY_NAME: Final = ("engines", "export_formats", "commands")
_IN_A_ROW: Final = ("tables", "views", "macros", "locators", "checks")
#: The joints that need no arguments.
COLLECTED: Final = tuple(name for name in JOINTS if name not in ("definitions", "checks", "maintenance", "doctor"))


def find_extensions() -> tuple[InstalledExtension, ...]:
    """Returns all installed extensions, ours first, each group by name; those that cannot be loaded too."""
    return tuple(
        replace(installed, value=None, problem=_BROKEN[installed.name]) if installed.name in _BROKEN else installed
        for installed in _find(os.environ.get(LEFT_OUT_VARIABLE, ""))
    )


def extensions() -> tuple[Extension, ...]:
    """Returns the extensions that are in use."""
    return tuple(installed.value for installed in find_extensions() if installed.value is not None)


def refuse(name: str, problem: str) -> None:
    """Leaves an extension out from now on, because of ``problem``."""
    _BROKEN[name] = problem


def collect(joint: str, *arguments: Any, reserved_names: Collection[str] = ()) -> dict[str, Any]:
    """Returns the contributions of all extensions to ``joint``, a field of ``Extension`` that takes ``arguments``, by
    the name of the extension.

    An extension is refused from now on if it raises, returns another shape, or uses a name of the core
    (``reserved_names``) or of an earlier extension: :func:`find_extensions` has the reason. A ``CcPipelineError`` is
    about a home, its settings or the machine: then only this contribution is missing, with a warning."""
    collected: dict[str, Any] = {}
    owners = dict.fromkeys(reserved_names, "the core")
    for extension in extensions():
        try:
            contribution = _check_shape(joint, getattr(extension, joint)(*arguments))
            names = [*contribution] if joint in _BY_NAME else []
            if name := next((name for name in names if name in owners), None):
                raise ValueError(f"the name {name} is already used by {owners[name]}")
            owners |= dict.fromkeys(names, f"the extension {extension.name}")
            collected[extension.name] = contribution
        except CcPipelineError as error:
            warnings.warn(f"{joint} of the extension {extension.name} are missing in this run: {error}", stacklevel=2)
        except Exception as error:  # any error costs only this extension
            refuse(extension.name, f"{joint}: {type(error).__name__}: {error}")
    return collected


def _check_shape(joint: str, contribution: Any) -> Any:
    """Returns the contribution. Raises ``TypeError`` if it is no mapping or sequence, as the joint demands."""
    if joint in _BY_NAME and not isinstance(contribution, Mapping):
        raise TypeError(f"{contribution!r} is not a mapping with names as keys")
    return tuple(contribution) if joint in _IN_A_ROW else contribution


@cache
def _find(names_text: str) -> tuple[InstalledExtension, ...]:
    left_out = {name.strip() for name in names_text.split(",") if name.strip()}
    installed: dict[str, InstalledExtension] = {}
    for name, origin, load in (*_find_own(), *_find_foreign()):
        if name in installed:
            problem = f"{installed[name].origin} provides an extension with the same name, which is used instead"
            installed[f"{name} ({origin})"] = InstalledExtension(name, origin, None, problem)
        elif name in left_out:
            installed[name] = InstalledExtension(name, origin, None, _LEFT_OUT)
        else:
            installed[name] = _load(name, origin, load)
    return tuple(installed.values())


def _load(name: str, origin: str, load: Callable[[], object]) -> InstalledExtension:
    try:
        value = load()
    except Exception as error:  # any error costs only this extension
        return InstalledExtension(name, origin, None, f"{type(error).__name__}: {error}")
    if not isinstance(value, Extension):
        return InstalledExtension(
            name, origin, None, f"its value is {type(value).__name__}, not a cc_pipeline.extension.Extension"
        )
    if value.name != name:
        return InstalledExtension(name, origin, None, f"its Extension has another name, {value.name!r}")
    return InstalledExtension(name, origin, value)


def _find_own() -> Iterator[tuple[str, str, Callable[[], object]]]:
    # installed metadata is stale in a checkout
    package = import_module(GROUP)
    for package_module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        yield package_module.name, OWN_ORIGIN, partial(_own_value, package_module.name)


def _own_value(name: str) -> object:
    return import_module(f"{GROUP}.{name}").EXTENSION


def _find_foreign() -> Iterator[tuple[str, str, Callable[[], object]]]:
    from importlib.metadata import entry_points  # noqa: PLC0415  # slow to load, and most modules that import this one never ask

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        yield point.name, point.dist.name if point.dist is not None else point.value, point.load
