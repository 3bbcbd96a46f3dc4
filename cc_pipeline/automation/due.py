"""Decides which crawls to harvest and which partitions to extract now, and how many in each tick. All functions are
pure decisions over lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.progress import format_count

#: Captures assumed for a target without any information, in a home where nothing was fetched yet.
_DEFAULT_CAPTURES: Final = 100.0
#: The cost of a partition before its first capture, in captures: its lookup, its commits, its records.
_PARTITION_OVERHEAD: Final = 20.0
#: Captures per second from a source without a limit: they still have to be checked and parsed.
_UNLIMITED_RATE: Final = 50.0

Pair = tuple[str, str]
_NO_RUNS: Final[Mapping[Pair, tuple[int, datetime]]] = MappingProxyType({})
#: A partition that failed this often in a row is not tried again until its failures are too old to be remembered. A
#: person can run it at any time.
MAX_FAILURES: Final = 4
#: The delay after the first failure; each further failure multiplies it by four. The last try has a run of its own, so
#: that a partition that kills its process does not take others with it for good.
_FIRST_DELAY: Final = timedelta(minutes=30)
#: The longest delay of a partition that was not tried because its run ended early. It is due again at once, the next
#: time after half an hour, then after four times as long each time. It is never given up, since nothing is wrong with
#: it.
_MAX_DELAY: Final = timedelta(hours=8)
#: Captures that a source did not return are requested again in a rhythm of their own, about ten times in the week that
#: failures are remembered. A partition with more failures fails before its captures are requested. That does not move
#: the rhythm, so it would be due again with every tick.
MAX_FAILURES_OF_DUE: Final = 12
#: How often runs are cut to a quarter if they end before they try all their partitions: from 200 partitions to three,
#: so that all are made soon once the cause is gone.
_MAX_SPLITS: Final = 3
#: Runs of a single partition that one tick starts.
_SINGLE_RUNS_PER_TICK: Final = 5


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a home. ``captures`` is the average number of captures of each target in the crawls where it was
    fetched, ``default_captures`` that of a target that was fetched nowhere. ``seconds_per_capture`` is seconds per
    capture. ``is_measured`` is false if the pace comes from the request budget alone, since no run has ended yet."""

    captures: Mapping[str, float]
    default_captures: float
    seconds_per_capture: float
    is_measured: bool

    def seconds(self, target: str) -> float:
        """Returns the seconds that a partition of ``target`` is likely to take."""
        return (self.captures.get(target, self.default_captures) + _PARTITION_OVERHEAD) * self.seconds_per_capture

    def total(self, pairs: Iterable[tuple[str, str]]) -> float:
        """Returns the seconds that partitions (crawl, target) are likely to take, one after the other."""
        return sum(self.seconds(target) for _, target in pairs)


def estimate_pace(records: pa.Table, runs: Sequence[tuple[float, int]], rate: float | None) -> Pace:
    """Computes the pace of a home. ``records`` has the number of ``rows`` of each slice with its ``target``, ``runs``
    are seconds and partitions of ended runs, ``rate`` is requests per second that the budget allows (``None``: no
    limit).

    Runs measure everything together: requests, bytes, parsing, and this machine. Without runs each capture counts as
    one request, which is the maximum.
    """
    captures_by_target: dict[str, float] = defaultdict(float)
    for row in records.group_by("target").aggregate([("rows", "mean")]).to_pylist():
        # a large set has its captures in parts
        captures_by_target[whole_slug(row["target"])] += row["rows_mean"]
    usual = sum(captures_by_target.values()) / len(captures_by_target) if captures_by_target else _DEFAULT_CAPTURES
    seconds, partitions = sum(run[0] for run in runs), sum(run[1] for run in runs)
    if partitions and captures_by_target:
        return Pace(captures_by_target, usual, seconds / partitions / (usual + _PARTITION_OVERHEAD), is_measured=True)
    return Pace(
        captures_by_target,
        usual,
        1 / (_UNLIMITED_RATE if rate is None else min(rate, _UNLIMITED_RATE)),
        is_measured=False,
    )


def format_duration(seconds: float) -> str:
    """Formats a duration for a person who plans: ``about 5 min``, ``about 3.5 h``, ``about 12 days``."""
    if seconds < 3600:
        return f"about {max(1, round(seconds / 60))} min"
    if seconds < 48 * 3600:
        return f"about {seconds / 3600:.1f} h"
    return f"about {format_count(round(seconds / 86_400), 'day')}"


@dataclass(frozen=True, slots=True)
class CrawlDecision:
    """Crawls to ``register`` as partitions, crawls to ``run`` (harvest), and selected crawls that are ``waiting``,
    since they are not published yet."""

    register: tuple[str, ...]
    run: tuple[str, ...]
    waiting: tuple[str, ...]


def select_crawls(listed_crawls: Sequence[str], selection: Sequence[str]) -> tuple[str, ...]:
    """Returns the crawls of ``listed_crawls`` (newest first) that the configured selection names: ``newest``, ``all``
    or ids."""
    if "all" in selection:
        return tuple(listed_crawls)
    selected_ids = {listed_crawls[0] if word == "newest" and listed_crawls else word for word in selection}
    return tuple(crawl for crawl in listed_crawls if crawl in selected_ids)


def decide_crawls(
    listed_crawls: Sequence[str],
    registered: Collection[str],
    requested: Collection[str],
    selection: Sequence[str],
    is_runnable: Callable[[str], bool],
    new_keys_per_tick: int,
) -> CrawlDecision:
    """Decides one tick of the sensor.

    ``listed_crawls`` is newest first, ``registered`` are partitions already, ``requested`` are crawls that earlier
    ticks have asked to run (the cursor). ``is_runnable`` is called only for crawls that would run; it may cost a
    request.
    """
    new = tuple(crawl for crawl in listed_crawls if crawl not in registered)
    # the oldest of the new ones first, so that partitions are added in the order of their age
    register = tuple(reversed(new[:new_keys_per_tick]))
    partition_crawls = {*registered, *register}
    candidates = [
        crawl_id
        for crawl_id in select_crawls(listed_crawls, selection)
        if crawl_id in partition_crawls and crawl_id not in requested
    ]
    run: list[str] = []
    waiting: list[str] = []
    for crawl in candidates[:new_keys_per_tick]:
        (run if is_runnable(crawl) else waiting).append(crawl)
    return CrawlDecision(register, tuple(run), tuple(waiting))


@dataclass(frozen=True, slots=True)
class RunProposal:
    """One run to start: its (crawl, domain) ``pairs``, its ``kind`` (``watch``, ``backfill`` or ``repair``), and the
    seconds that it is likely to take."""

    kind: str
    pairs: tuple[Pair, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class BackfillDecision:
    """``runs`` are started now. ``remaining`` pairs, likely to take ``rest_seconds``, wait for later ticks.
    ``abandoned`` pairs failed too often and are not tried again. ``delayed`` pairs failed and are tried again later.
    ``postponed`` pairs did not fail: runs ended repeatedly before these pairs were tried, so they wait for a while."""

    runs: tuple[RunProposal, ...]
    remaining: int
    rest_seconds: float
    abandoned: tuple[Pair, ...]
    delayed: tuple[Pair, ...]
    postponed: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one tick: at most ``partitions`` and ``seconds``, in at most ``runs`` of at most ``per_run``
    partitions. If ``runs`` and ``seconds`` are above zero, at least one partition is run, however long it takes."""

    partitions: int
    seconds: float
    runs: int
    per_run: int


def decide_backfill(
    missing: Iterable[Pair],
    due: Collection[Pair],
    failures: Mapping[Pair, tuple[int, datetime]],
    unreached: Mapping[Pair, tuple[int, datetime]] = _NO_RUNS,
    *,
    newest: str,
    now: datetime,
    seconds: Callable[[Pair], float],
    bounds: Bounds,
) -> BackfillDecision:
    """Decides which runs one tick of the backfill starts.

    ``missing`` are ordered by priority. Pairs of the crawl ``newest`` are ``watch``, the others ``backfill``. Pairs
    that failed, and pairs that are ``due`` to be fetched again, are ``repair``; these come in between. ``failures`` has
    the failures in a row of each pair and the time of the last one. ``unreached`` has how many runs since then ended
    before they tried the pair, and when the last of these did.
    """
    by_kind: dict[str, list[Pair]] = {"watch": [], "repair": [], "backfill": []}
    single_tries: list[Pair] = []
    abandoned: list[Pair] = []
    resting: list[Pair] = []
    postponed: list[Pair] = []
    for pair in missing:
        failure_count, last_failure = failures.get(pair, (0, now))
        if failure_count >= (MAX_FAILURES_OF_DUE if pair in due else MAX_FAILURES):
            abandoned.append(pair)
        elif _postponed_until(*unreached.get(pair, (0, now))) > now:
            postponed.append(pair)
        elif pair in due:
            by_kind["repair"].append(pair)
        elif not failure_count:
            by_kind["watch" if pair[0] == newest else "backfill"].append(pair)
        elif last_failure + _FIRST_DELAY * 4 ** (failure_count - 1) > now:
            resting.append(pair)
        elif failure_count == MAX_FAILURES - 1:
            single_tries.append(pair)
        else:
            by_kind["repair"].append(pair)
    runs: list[RunProposal] = []
    room = _Room(bounds)
    waiting: list[Pair] = single_tries[_SINGLE_RUNS_PER_TICK:]
    for kind, pairs in by_kind.items():
        for group in _split_into_runs(pairs, lambda pair: unreached.get(pair, (0, now))[0], bounds.per_run):
            run_pairs = room.take(group, seconds)
            if run_pairs:
                runs.append(RunProposal(kind, run_pairs, sum(map(seconds, run_pairs))))
            waiting += group[len(run_pairs) :]
        for pair in single_tries[:_SINGLE_RUNS_PER_TICK] if kind == "repair" else ():
            if room.take([pair], seconds):
                runs.append(RunProposal("repair", (pair,), seconds(pair)))
            else:
                waiting.append(pair)
    return BackfillDecision(
        tuple(runs), len(waiting), sum(map(seconds, waiting)), tuple(abandoned), tuple(resting), tuple(postponed)
    )


def _split_into_runs(pairs: Sequence[Pair], unreached: Callable[[Pair], int], per_run: int) -> Iterator[Sequence[Pair]]:
    """Yields the pairs of each run. Pairs that several runs did not reach go into ever smaller runs, each time with
    other neighbours: one of the pairs may end each run, and would keep the pairs after it from being made."""
    for times, group in groupby(sorted(pairs, key=unreached), key=unreached):
        members, max_size = list(group), max(1, per_run // 4 ** min(max(0, times - 1), _MAX_SPLITS))
        offset = times % max_size if times > 1 else 0
        for start, stop in pairwise([*sorted({0, *range(offset, len(members), max_size)}), len(members)]):
            yield members[start:stop]


def _postponed_until(times: int, last: datetime) -> datetime:
    """Returns the time from which a partition may be tried again that so many runs did not reach."""
    if times < 2:
        return last
    # a larger exponent would overflow the number of days
    return last + min(_MAX_DELAY, _FIRST_DELAY * 4 ** min(times - 2, 8))


class _Room:
    """The remaining room within the bounds of a tick."""

    def __init__(self, bounds: Bounds) -> None:
        self._partitions, self._seconds, self._runs = bounds.partitions, bounds.seconds, bounds.runs

    def take(self, pairs: Sequence[Pair], seconds: Callable[[Pair], float]) -> tuple[Pair, ...]:
        """Returns the first of ``pairs`` that there is room for, as one run. The very first pair may exceed the
        bounds."""
        accepted: list[Pair] = []
        for pair in pairs if self._runs > 0 else ():
            if self._partitions <= 0 or self._seconds <= 0:
                break
            accepted.append(pair)
            self._partitions -= 1
            self._seconds -= seconds(pair)
        if accepted:
            self._runs -= 1
        return tuple(accepted)
