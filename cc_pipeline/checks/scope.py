"""The scope of a check, the partitions of a run or everything, and its result. This module is light: modules of checks
are loaded with the definitions of a home."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.progress import list_first

if TYPE_CHECKING:
    from cc_pipeline.advice import Advice
    from cc_pipeline.lake.slice import Slice

#: The most partitions that a message names.
MAX_SHOWN_KEYS: Final = 5
_SEVERITIES: Final[tuple[Severity, ...]] = ("ok", "warn", "error")


@dataclass(frozen=True, slots=True)
class Scope:
    """The ``slices`` to examine (``None``: all)."""

    slices: Collection[Slice] | None = None

    @property
    def crawls(self) -> set[str] | None:
        """The crawls to examine, ``None`` for all."""
        return None if self.slices is None else {slice_.crawl for slice_ in self.slices}


def key_of(slice_: Slice) -> str:
    """Returns the key of the partition that a slice belongs to, as Dagster writes it."""
    return f"{slice_.crawl}|{whole_slug(slice_.target)}" if slice_.target else slice_.crawl


def join_results(name: str, verdicts: Sequence[CheckResult]) -> CheckResult:
    """Joins several results into one, the worst first. The metrics are kept only for a single result."""
    if not verdicts:
        return CheckResult(name, "ok", "nothing to check")
    ordered = sorted(verdicts, key=lambda verdict: -_SEVERITIES.index(verdict.severity))
    lines = [*dict.fromkeys(verdict.message for verdict in ordered)]
    remainder = [f"and {len(lines) - 20:,} more"] if len(lines) > 20 else []
    return CheckResult(
        name,
        ordered[0].severity,
        "\n".join(lines[:20] + remainder),
        verdicts[0].metrics if len(verdicts) == 1 else {},
        tuple(key for verdict in ordered for key in verdict.wrong),
    )


def abbreviate_keys(keys: Collection[str]) -> str:
    """Returns the first of ``keys``, and how many more there are."""
    return list_first(sorted(keys), MAX_SHOWN_KEYS)


Severity = Literal["ok", "warn", "error"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: ``ok``, ``warn`` or ``error``, with ``metrics`` for display.

    ``wrong`` are the keys of partitions with a problem. ``advice`` says what to do, if ``message`` does not.
    """

    name: str
    severity: Severity
    message: str
    metrics: Mapping[str, int | float | str] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    advice: str | Advice = ""

    @property
    def passed(self) -> bool:
        return self.severity == "ok"
