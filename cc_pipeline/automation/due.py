"""Decides which partitions to extract now, and how many in each tick. All functions are pure decisions over lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

Pair = tuple[str, str]
#: A partition that failed this often in a row is tried again after a week. A person can run it at any time.
MAX_FAILURES: Final = 4
#: Captures that a source did not return have a rhythm of their own, about ten requests in a week. A partition with more
#: failures fails before its captures are requested, which does not move that rhythm.
MAX_FAILURES_OF_DUE: Final = 12
#: The delay after the first failure; each further failure multiplies it by four.
_FIRST_DELAY: Final = timedelta(minutes=30)
_LAST_DELAY: Final = timedelta(days=7)


def format_duration(seconds: float) -> str:
    """Formats a duration for a person who plans: ``about 5 min``, ``about 3.5 h``, ``about 12 days``."""
    if seconds < 3600:
        return f"about {max(1, round(seconds / 60))} min"
    if seconds < 48 * 3600:
        return f"about {seconds / 3600:.1f} h"
    return f"about {round(seconds / 86_400)} days"


def select_crawls(listed_crawls: Sequence[str], selection: Sequence[str]) -> tuple[str, ...]:
    """Returns the crawls of ``listed_crawls`` (newest first) that the configured selection names: ``newest``, ``all``
    or ids."""
    if "all" in selection:
        return tuple(listed_crawls)
    selected_ids = {listed_crawls[0] if word == "newest" and listed_crawls else word for word in selection}
    return tuple(crawl for crawl in listed_crawls if crawl in selected_ids)


@dataclass(frozen=True, slots=True)
class Failures:
    """A partition failed ``times`` in a row, the last time at ``last``."""

    times: int
    last: datetime

    @property
    def next_try(self) -> datetime:
        """The time from which the partition may be tried again."""
        return self.last + (_LAST_DELAY if self.times >= MAX_FAILURES else _FIRST_DELAY * 4 ** (self.times - 1))


@dataclass(frozen=True, slots=True)
class RunProposal:
    """One run to start: its (crawl, target) ``pairs`` and its ``kind``: ``watch``, ``repair`` or ``backfill``."""

    kind: str
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class BackfillDecision:
    """``runs`` are started now; ``remaining`` pairs wait for later ticks. ``delayed`` pairs failed and are tried again
    later, ``abandoned`` ones in a week."""

    runs: tuple[RunProposal, ...]
    remaining: int
    delayed: tuple[Pair, ...]
    abandoned: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one tick: at most ``partitions``, in at most ``runs`` of at most ``per_run`` partitions."""

    partitions: int
    runs: int
    per_run: int


def decide_backfill(
    wanted_pairs: Iterable[Pair],
    due: Collection[Pair],
    failures: Mapping[Pair, Failures],
    *,
    newest: str,
    now: datetime,
    bounds: Bounds,
) -> BackfillDecision:
    """Decides which runs one tick starts.

    ``wanted`` are ordered by priority. Pairs that failed, and pairs that are ``due`` to be fetched again, are
    ``repair``; of the others those of the crawl ``newest`` are ``watch``, the rest ``backfill``. A pair that failed
    goes into ever smaller runs, the last time alone: it may be the one that ends its process, and takes the others of
    the run with it.
    """
    groups: dict[tuple[str, int], list[Pair]] = {}
    delayed: list[Pair] = []
    abandoned: list[Pair] = []
    for pair in wanted_pairs:
        failed = failures.get(pair)
        if pair in due and (failed is None or failed.times < MAX_FAILURES_OF_DUE):
            groups.setdefault(("repair", 0), []).append(pair)
        elif failed is None:
            groups.setdefault(("watch" if pair[0] == newest else "backfill", 0), []).append(pair)
        elif failed.next_try <= now:
            groups.setdefault(("repair", failed.times), []).append(pair)
        else:
            (abandoned if failed.times >= MAX_FAILURES else delayed).append(pair)
    runs: list[RunProposal] = []
    room, waiting = bounds.partitions, 0
    for kind in ("watch", "repair", "backfill"):
        for times in sorted(times for name, times in groups if name == kind):
            pairs = groups[kind, times]
            size = 1 if times >= MAX_FAILURES - 1 else max(1, bounds.per_run // 4**times)
            for start in range(0, len(pairs), size):
                run_pairs = pairs[start : start + min(size, room)] if len(runs) < bounds.runs else []
                if run_pairs:
                    runs.append(RunProposal(kind, tuple(run_pairs)))
                    room -= len(run_pairs)
                waiting += len(pairs[start : start + size]) - len(run_pairs)
    return BackfillDecision(tuple(runs), waiting, tuple(delayed), tuple(abandoned))


def count_failures(
    failures: Mapping[Pair, Failures], ended_runs: Iterable[tuple[datetime, Collection[Pair]]], wanted: Collection[Pair]
) -> dict[Pair, Failures]:
    """Returns the failures of the pairs that are still ``wanted``, with those of runs that ended since: when each run
    ended, and the pairs that failed in it."""
    counts = {pair: failed for pair, failed in failures.items() if pair in wanted}
    for ended, pairs in ended_runs:
        for pair in pairs:
            if pair in wanted:
                earlier = counts.get(pair)
                counts[pair] = Failures(1 if earlier is None else earlier.times + 1, ended)
    return counts
