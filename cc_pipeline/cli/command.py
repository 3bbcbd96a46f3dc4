"""The commands and groups of ``cc-pipeline``, each in a panel of the help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import typer

#: Panels of the help, in their order.
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
