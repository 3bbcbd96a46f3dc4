"""``--guard-formulas``: a flag of every command that writes CSV, and whether it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperCommand, TyperOption

if TYPE_CHECKING:
    from click import Parameter

_HELP: Final = (
    "In CSV, put ' before text that begins with =, +, -, @, a tab or the end of a line, so that no spreadsheet "
    "runs it. Without it the text is exact."
)
_given = [False]


def guarding() -> bool:
    """Whether the command that runs is to make formulas in CSV harmless."""
    return _given[0]


class GuardedCommand(TyperCommand):
    """A command, with the flag where it has a choice of formats and CSV is one."""

    def __init__(self, name: str | None, *, params: Sequence[Parameter] = (), **others: Any) -> None:
        own = list(params)
        if any("--format" in one.opts and "csv" in (getattr(one, "help", None) or "") for one in own):
            option = TyperOption(
                param_decls=["--guard-formulas"],
                is_flag=True,
                default=False,
                expose_value=False,
                callback=lambda _context, _option, value: _given.__setitem__(0, bool(value)),
                help=_HELP,
            )
            own.append(option)
        super().__init__(name, params=own, **others)
