"""What a check is: a function that looks at tables or files, with what it looks at and how it is called.

Checks report beside the assets and never stop a run. How Dagster evaluates them: ``defs/checks/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from cc_pipeline.checks.scope import CheckResult, Scope
    from cc_pipeline.lake.slice import Stage
    from cc_pipeline.workspace.workspace import Workspace

    Verdict: TypeAlias = Callable[[Workspace, Scope], CheckResult]

#: What one evaluation is of: partitions of crawl × target, crawls, files read whole, or one thing for all.
Unit = Literal["partition", "crawl", "file", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check of ``asset``, whose name has no prefix here. No other check of the asset has its ``name``.

    ``unit`` is what it looks at. ``watched`` are the tables whose logs say what changed, under the digest names of
    ``stages``, which are places of ``Stage`` values (``package.module.NAME``). Without them, an evaluation outside of a
    run over partitions looks at everything, so it must cost little. ``step`` is the step of Dagster that evaluates it,
    together with the others of this name. Without a ``verdict``, Dagster's instance is asked for the partitions that
    were left failed, and not the lake.
    """

    asset: str
    name: str
    description: str
    step: str
    verdict: Verdict | None
    unit: Unit = "whole"
    watched: Sequence[str] = ()
    stages: Sequence[str] = ()

    @property
    def digests(self) -> list[Stage]:
        """The ``stages`` themselves."""
        split = (place.rpartition(".") for place in self.stages)
        return [getattr(import_module(module), name) for module, _, name in split]


def check(
    asset: str,
    *,
    step: str,
    name: str = "",
    unit: Unit = "whole",
    watched: Sequence[str] = (),
    stages: Sequence[str] = (),
) -> Callable[[Verdict], Check]:
    """Makes a :class:`Check` of a function, which gives it its name, unless that is another one, and with its docstring
    the description. A module of checks is loaded with the definitions of a home, so the function imports what is
    heavy when it is called."""

    def make_check(verdict: Verdict) -> Check:
        description = " ".join((verdict.__doc__ or "").split())
        return Check(
            asset=asset,
            name=name or verdict.__name__,
            description=description,
            step=step,
            verdict=verdict,
            unit=unit,
            watched=watched,
            stages=stages,
        )

    return make_check


def checks_in(module: Mapping[str, object]) -> tuple[Check, ...]:
    """The checks among the values of a module, and in tuples there, in their order."""
    checks: list[Check] = []
    for value in module.values():
        members = value if isinstance(value, tuple) else (value,)
        checks += [member for member in members if isinstance(member, Check)]
    return tuple(checks)
