"""The table of commands: a row for each command and group of ``cc-pipeline``.

Help, options, the settings that options stand for, and docs/cli.md come from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Panels of the help, in their order.
EVERYDAY: Final = "Everyday"
HOME: Final = "Home and source"
FEATURES: Final = "Features"
PANELS: Final = (EVERYDAY, HOME, FEATURES)


@dataclass(frozen=True, slots=True)
class SharedOption:
    """An option of several commands: its name, its annotation for Typer and its default.

    ``overrides`` returns the settings that a value stands for, as keywords of ``load_settings``; ``None`` keeps a
    setting. A command's function with a parameter of this name gets the value too.
    """

    name: str
    annotation: Any
    overrides: Callable[[Any], Mapping[str, Any]] = lambda value: {}
    default: Any = None


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the table, under a name of one word or, in a group, of two.

    ``call`` is the function; its parameters are the command's arguments and options, and its docstring is the help,
    unless ``help`` replaces it. ``options`` are those that it shares with others: ``call`` gets what they stand for as
    ``settings``, or as ``overrides`` of settings that it loads itself. ``columns`` are those of its rows, which
    ``call`` returns or writes. ``position`` orders the commands of a panel; equal positions are ordered by name.
    """

    call: Callable[..., object]
    panel: str = FEATURES
    position: int = 100
    options: tuple[SharedOption, ...] = ()
    columns: tuple[str, ...] = ()
    help: str | None = None

    @property
    def text(self) -> str:
        """The help."""
        return self.help or inspect.getdoc(self.call) or ""


@dataclass(frozen=True, slots=True)
class Group:
    """A row for commands with a common first word."""

    help: str
    panel: str = FEATURES
    position: int = 100


Row = Command | Group
