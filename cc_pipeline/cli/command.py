"""The commands and groups of ``cc-pipeline``, each in a panel of the help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import typer

#: Panels of the help, in their order. A command may name another; it is shown below these.
EVERYDAY: Final = "Everyday"
HOME: Final = "Home and source"
FEATURES: Final = "Features"
PANELS: Final = (EVERYDAY, HOME, FEATURES)


@dataclass(frozen=True, slots=True)
class Command:
    """A command or a group of commands.

    ``call`` is the function, or a typer application for a group. ``position`` orders the commands of a panel;
    equal positions are ordered by name. ``help`` replaces the function's docstring.
    """

    call: Callable[..., None] | typer.Typer
    panel: str = FEATURES
    position: int = 100
    help: str | None = None


def as_command(value: object) -> Command:
    """Returns a function or a typer application as a command of the features panel, and a command unchanged. Raises
    ``TypeError`` for other values."""
    command = value if isinstance(value, Command) else Command(value)  # type: ignore[arg-type]  # checked below
    if not callable(command.call):
        raise TypeError(f"{command.call!r} is neither a function nor a typer.Typer")
    return command
