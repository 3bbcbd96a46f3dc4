"""The policy on captures that are not fetched: whether a source is ill, when an incomplete fetch is an error, and when
schedules request them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from cc_pipeline.errors import Incomplete
from cc_pipeline.extraction.fetch_counts import (
    FetchCounts,
    FetchSummary,
    SliceFetchCounts,
    describe_asks,
    share,
    sum_by_target,
)
from cc_pipeline.lake.slice import Slice, StageReport
from cc_pipeline.progress import list_first
from cc_pipeline.records.ask_counts import ASK_INTERVAL

#: Wait of schedules before they request captures again that failed for a reason that does not count: this long after
#: the first time, then twice as long each time, up to the maximum.
_FIRST_DELAY: Final = timedelta(minutes=30)
_MAX_DELAY: Final = timedelta(days=64)
#: Shares are taken of at least so many captures, so that one of a few is no failure.
MIN_CAPTURES: Final = 100
#: Fewer losses than this are no sign of an ill source, whatever their share.
MANY_LOSSES: Final = 10


class FetchIncomplete(Incomplete):
    """Targets lack more captures than they may. ``errors_by_target`` has the error of each of them by slug, ``reasons``
    are the most frequent reasons. ``report`` is of all targets that were fetched together: their fetched records are
    committed."""

    errors_by_target: dict[str, Incomplete]
    reasons: set[str | None]
    report: StageReport


class CommandTotals:
    """The totals of all slices that one command fetched, with the records of before: a source is judged by all of
    them."""

    def __init__(self) -> None:
        self._counts_by_slice: dict[Slice, SliceFetchCounts] = {}
        self._planned = 0
        self._losses_by_file: Counter[str] = Counter()

    def take(self, counts: SliceFetchCounts) -> None:
        """Counts a slice, in place of its earlier count."""
        if (old := self._counts_by_slice.get(counts.slice_)) is not None:
            self._planned -= old.planned
            self._losses_by_file.subtract(old.losses)
        self._counts_by_slice[counts.slice_] = counts
        self._planned += counts.planned
        self._losses_by_file.update(counts.losses)

    def is_ill(self, allowed: float) -> bool:
        """Whether more than the share ``allowed`` of all captures is lost, or speaks for a loss, and at least
        ``MANY_LOSSES`` are. The archive file with the most of them does not count: its loss is one accident."""
        losses = self._losses_by_file.total() - max(self._losses_by_file.values(), default=0)
        return losses >= MANY_LOSSES and losses > allowed * self._planned


def next_ask_time(counts: SliceFetchCounts, failed_runs: int, ask_time: datetime) -> datetime | None:
    """The time from which schedules request pending captures again, after a fetch at ``ask_time``; ``None``: none are
    pending. The wait doubles with each of ``failed_runs``, unless it is for the next ask that counts."""
    times = []
    if counts.ask_pending:
        last_ask_at = counts.last_ask_at
        is_valid = last_ask_at is not None and ask_time - ASK_INTERVAL < last_ask_at <= ask_time
        times.append((last_ask_at if is_valid and last_ask_at is not None else ask_time) + ASK_INTERVAL)
    if counts.pending > counts.ask_pending:
        times.append(ask_time + min(_MAX_DELAY, _FIRST_DELAY * 2 ** min(failed_runs - 1, 16)))
    return min(times, default=None)


def is_due(note: FetchSummary, now: datetime) -> bool:
    """Whether schedules request the pending captures of a slice at ``now``. A last attempt in the future is none."""
    return note.next_ask_at is not None and (note.next_ask_at <= now or note.last_attempt_at > now)


def exceeds_pending_limit(counts: FetchCounts, allowed: float) -> bool:
    """Whether more than the share ``allowed`` is pending, or every capture that the source could give."""
    if not counts.pending:
        return False
    return not counts.fetched or counts.pending > allowed * max(counts.planned, MIN_CAPTURES)


def build_incomplete_error(
    counts_by_slice: Mapping[Slice, SliceFetchCounts], ill_slices: Collection[Slice], allowed: float, source: str
) -> FetchIncomplete | None:
    """The error to raise if targets lack more than the share ``allowed``, or were fetched from a source that is ill,
    with the numbers and the advice. Its ``report`` is not set yet."""
    ill_partitions = {slice_.partition for slice_ in ill_slices}
    targets = sum_by_target(counts_by_slice.values())
    ill = [counts for counts in targets if counts.slice_ in ill_partitions]
    over_limit = [
        counts for counts in targets if counts.slice_ not in ill_partitions and exceeds_pending_limit(counts, allowed)
    ]
    if not ill and not over_limit:
        return None
    total = _build_error(ill or over_limit, _describe_ill if ill else _describe_pending, allowed, source)
    incomplete_error = FetchIncomplete(total.problem, total.advice)
    incomplete_error.errors_by_target = {
        counts.slice_.target: _build_error([counts], describe, allowed, source)
        for group, describe in ((ill, _describe_ill), (over_limit, _describe_pending))
        for counts in group
    }
    incomplete_error.reasons = {counts.reason for counts in (*over_limit, *ill)}
    return incomplete_error


def _build_error(
    counts: Sequence[SliceFetchCounts],
    describe: Callable[[Sequence[SliceFetchCounts], float], tuple[str, str]],
    allowed: float,
    source: str,
) -> Incomplete:
    problem, advice = describe(counts, allowed)
    part, total = sum(target.pending for target in counts), sum(target.planned for target in counts)
    names = list_first([f"{target.slice_.target} in {target.slice_.crawl}" for target in counts], 3)
    amount = f"{part:,} of {total:,} captures ({share(part, total)}) of {names}"
    return Incomplete(f"{source} did not give {amount}; {problem}", f"Fetched records are kept. {advice}")


def _describe_pending(counts: Sequence[SliceFetchCounts], allowed: float) -> tuple[str, str]:
    """The problem and the advice for targets with too many pending captures."""
    worst = max(counts, key=lambda target: target.pending / max(1, target.planned))
    # the limit does not apply to a target of which nothing was fetched
    limit_advice = (
        ""
        if any(not target.fetched for target in counts)
        else f" To continue without them, allow a larger share: CC_PIPELINE_MAX_PENDING (now {allowed:g})"
    )
    ask_note = f" ({describe_asks(worst.asks, None)})" if worst.ask_pending else ""
    return (
        f"mostly {worst.reason}, e.g. {worst.example}{ask_note}",
        "Check the source and the network (cc-pipeline doctor), then run it again: only captures that are not fetched "
        f"yet are requested.{limit_advice}",
    )


def _describe_ill(counts: Sequence[SliceFetchCounts], allowed: float) -> tuple[str, str]:
    """The problem and the advice for targets of a source that lacks too much to be believed."""
    worst = max(counts, key=lambda target: target.ask_pending)
    return (
        f"mostly {worst.reason}, e.g. {worst.example}. These are too many to count towards a loss",
        "Check the source (cc-pipeline doctor), and run it again later. If the captures are really lost, allow a "
        "larger share: CC_PIPELINE_MAX_LOST",
    )
