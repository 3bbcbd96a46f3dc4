"""Declares checks: each is a function on tables or files, with its name and the data that it reads.

Checks report beside the assets and never stop a run. ``defs/checks/`` evaluates them in Dagster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    ``unit`` is the kind of item that it examines. ``stages`` are the labels of the stages whose commits it examines.
    Without them, an evaluation outside of a run over partitions examines everything, so it must cost little. ``step``
    is the step of Dagster that evaluates it, together with the others of this name. Without a ``verdict``, the check
    reads the failed partitions from Dagster's instance instead of the lake.
    """

    asset: str
    name: str
    description: str
    step: str
    verdict: Verdict | None
    unit: Unit = "whole"
    stages: Sequence[str] = ()


def check(
    asset: str,
    *,
    step: str,
    name: str = "",
    unit: Unit = "whole",
    stages: Sequence[str] = (),
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
            step=step,
            verdict=verdict,
            unit=unit,
            stages=stages,
        )

    return make_check


def checks_in(module: Mapping[str, object]) -> tuple[Check, ...]:
    """Returns the checks among the values of a module, and in tuples there, in their order."""
    checks: list[Check] = []
    for value in module.values():
        members = value if isinstance(value, tuple) else (value,)
        checks += [member for member in members if isinstance(member, Check)]
    return tuple(checks)
