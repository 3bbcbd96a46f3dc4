"""Declares checks: each is a function on tables or files, with its name and the data that it reads.

``defs/checks.py`` evaluates them in Dagster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from cc_pipeline.checks.scope import CheckResult, Scope
    from cc_pipeline.workspace.workspace import Workspace

    Verdict: TypeAlias = Callable[[Workspace, Scope], CheckResult]

#: The item of one evaluation: a partition of crawl × target, a crawl, or everything together.
Unit = Literal["partition", "crawl", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check of ``asset``, whose name has no prefix here. No other check of the asset has its ``name``.

    ``unit`` is the kind of item that it examines; one of everything examines the whole lake in each run, so it must
    cost little. If a ``blocking`` check is red, assets behind its own are not made in the same run. Without a
    ``verdict``, the check is about the run itself: which partitions it made.
    """

    asset: str
    name: str
    description: str
    verdict: Verdict | None
    unit: Unit = "whole"
    blocking: bool = False


def check(
    asset: str,
    *,
    name: str = "",
    unit: Unit = "whole",
    blocking: bool = False,
) -> Callable[[Verdict], Check]:
    """Makes a :class:`Check` of a function. The function's name is the default for ``name``, its docstring is the
    description. A module of checks is loaded with the definitions of a home, so the function imports heavy modules when
    it is called."""

    def make_check(verdict: Verdict) -> Check:
        description = " ".join((verdict.__doc__ or "").split())
        return Check(
            asset=asset,
            name=name or verdict.__name__,
            description=description,
            verdict=verdict,
            unit=unit,
            blocking=blocking,
        )

    return make_check


def checks_in(module: Mapping[str, object]) -> tuple[Check, ...]:
    """Returns the checks among the values of a module, and in tuples there, in their order."""
    checks: list[Check] = []
    for value in module.values():
        members = value if isinstance(value, tuple) else (value,)
        checks += [member for member in members if isinstance(member, Check)]
    return tuple(checks)
