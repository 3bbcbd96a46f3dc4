"""Extensions: features that the core uses through one type, without knowing any of them by name.

An extension is a package in ``cc_pipeline.extensions`` with a value ``EXTENSION``. Its module imports nothing heavy:
the fields of the value are functions, which load what they need when they are called. A folder that is deleted takes
its feature with it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import dagster as dg

    from cc_pipeline.checks.check import Check
    from cc_pipeline.cli.command import Row
    from cc_pipeline.defs.engines import RunEngine
    from cc_pipeline.defs.home_namespace import HomeNamespace
    from cc_pipeline.lake.lake import TableSpec
    from cc_pipeline.lake.snapshot import MacroSpec, ViewSpec

#: The package with the extensions.
PACKAGE: Final = "cc_pipeline.extensions"


def _nothing() -> tuple[()]:
    return ()


def _no_names() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The contributions of a feature. Every field but the first two is a function, called when the core needs it.

    ``name`` is the name of the package; ``summary`` is one line for people. Names of contributions are unique among all
    extensions and the core.

    - ``tables`` of the lake, each with everything that the core needs to know.
    - ``views`` of ``cc.duckdb``, with the notes of their columns, and ``macros``, after those of the core.
    - ``settings``: a frozen dataclass.
    - ``engines`` extract the partitions of a run, by name.
    - ``commands`` by name.
    - ``definitions``: Dagster's, of a home: assets with their checks, jobs, sensors and schedules.
    - ``checks`` of its assets.
    """

    name: str
    summary: str

    tables: Callable[[], Sequence[TableSpec]] = _nothing
    views: Callable[[], Sequence[ViewSpec]] = _nothing
    macros: Callable[[], Sequence[MacroSpec]] = _nothing
    settings: Callable[[], type | None] = lambda: None
    engines: Callable[[], Mapping[str, Callable[[], RunEngine]]] = _no_names
    commands: Callable[[], Mapping[str, Row]] = _no_names
    definitions: Callable[[HomeNamespace], dg.Definitions | None] = lambda _: None
    checks: Callable[[], Sequence[Check]] = _nothing


@cache
def extensions() -> tuple[Extension, ...]:
    """Returns all extensions, by name."""
    # walked, since installed metadata is stale in a checkout
    modules = pkgutil.iter_modules(import_module(PACKAGE).__path__)
    return tuple(import_module(f"{PACKAGE}.{name}").EXTENSION for name in sorted(module.name for module in modules))
