"""How much work a partition is likely to be: an estimate from what was fetched and how long runs took.

Belongs here: captures and seconds that are expected. Not here: what is asked for (stages/automation/due).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from cc_pipeline.commoncrawl.parts import whole_slug

#: Captures of a target that nothing is known about, in a home where nothing was fetched yet.
_UNKNOWN: Final = 100.0
#: A partition costs as much as so many captures before its first one: its look-up, its commits, its records.
_FIXED: Final = 20.0
#: Captures a second where the source has no limit: they are still to be checked and parsed.
_UNLIMITED: Final = 50.0


@dataclass(frozen=True, slots=True)
class Pace:
    """``captures`` is what a target has on average in the crawls where it was fetched, ``usual`` what one has that was
    fetched nowhere. ``each`` are seconds a capture; ``measured`` says that they come from runs that have ended, and
    not from the request budget alone."""

    captures: Mapping[str, float]
    usual: float
    each: float
    measured: bool

    def seconds(self, target: str) -> float:
        """Seconds that a partition of ``target`` is likely to take."""
        return (self.captures.get(target, self.usual) + _FIXED) * self.each

    def total(self, pairs: Iterable[tuple[str, str]]) -> float:
        """Seconds that partitions (crawl, target) are likely to take, one after the other."""
        return sum(self.seconds(target) for _, target in pairs)


def pace_of(fetches: pa.Table, runs: Sequence[tuple[float, int]], rate: float | None) -> Pace:
    """The pace of a home. ``fetches`` is the table of that name, ``runs`` are seconds and partitions of runs that have
    ended, ``rate`` requests a second that the budget allows (``None``: no limit).

    Runs measure everything at once: requests, bytes, parsing, and this machine. Without any, each capture counts as a
    request of its own, which is the most it can be.
    """
    by_target: dict[str, float] = defaultdict(float)
    for row in fetches.group_by("target").aggregate([("planned", "mean")]).to_pylist():
        # a large set has its captures in parts
        by_target[whole_slug(row["target"])] += row["planned_mean"]
    usual = sum(by_target.values()) / len(by_target) if by_target else _UNKNOWN
    seconds, partitions = sum(one[0] for one in runs), sum(one[1] for one in runs)
    if partitions and by_target:
        return Pace(by_target, usual, seconds / partitions / (usual + _FIXED), measured=True)
    return Pace(by_target, usual, 1 / (_UNLIMITED if rate is None else min(rate, _UNLIMITED)), measured=False)


def spoken(seconds: float) -> str:
    """A duration for a person who plans: ``about 5 min``, ``about 3.5 h``, ``about 12 days``."""
    if seconds < 3600:
        return f"about {max(1, round(seconds / 60))} min"
    if seconds < 48 * 3600:
        return f"about {seconds / 3600:.1f} h"
    return f"about {seconds / 86_400:.0f} days"
