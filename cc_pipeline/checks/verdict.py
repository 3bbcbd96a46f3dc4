"""What every check here gives: a verdict, and words for whoever shows it, be it Dagster, ``doctor`` or a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["ok", "warn", "error"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The verdict of one check: ``ok``, ``warn`` (worth a look) or ``error``; ``figures`` for whoever shows it.

    ``wrong`` are the keys of partitions that are not as they should be: to be looked at again until they are.
    """

    name: str
    severity: Severity
    message: str
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.severity == "ok"
