"""What the tree of ``cc-pipeline`` is made of: commands and groups, each in a panel of the help."""

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

    ``call`` is the function, or a typer application for a group. ``position`` orders the commands of a panel; equal
    ones stand in the order of their names.
    """

    call: Callable[..., None] | typer.Typer
    panel: str = FEATURES
    position: int = 100


def as_command(value: object) -> Command:
    """A function or a typer application as a command of the panel of features. Raises ``TypeError`` for others."""
    if isinstance(value, Command):
        value, command = value.call, value
    elif callable(value):
        command = Command(value)
    else:
        command = None
    if command is None or not (callable(value) or isinstance(value, typer.Typer)):
        raise TypeError(f"{value!r} is neither a function nor a typer.Typer")
    return command
