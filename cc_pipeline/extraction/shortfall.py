"""The policy on losses: when an incomplete fetch is an error, which losses are believed, and when to ask again.

Pending captures are an error above a share of a target's captures. Losses and digest mismatches are doubted above a
share of all captures of a command: a source may give the same wrong answer twice. They are believed when a person
accepts them, or, for payloads, when the same bytes came once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.errors import Incomplete
from cc_pipeline.extraction.fetch_counts import Brought, Fetch, Shortfall, of_targets, share
from cc_pipeline.lake.slice import Slice, StageReport
from cc_pipeline.records.check import KNOWN_BAD_DIGESTS

#: Wait of schedules before they retry pending or doubted captures: this long after the first time, then twice as long
#: each time, up to the maximum.
_FIRST_DISTANCE: Final = timedelta(minutes=30)
_LONGEST_DISTANCE: Final = timedelta(days=2)
#: Wait before a lost file is rechecked; schedules wait twice as long each time.
SECOND_LOOK: Final = timedelta(days=1)
#: Files of which one recheck fetches one record each, of all slices together.
LOOKS: Final = 20
_LONGEST_SECOND_LOOK: Final = timedelta(days=64)
#: Shares are taken of at least so many captures, so that one of a few is no failure.
LEAST_CAPTURES: Final = 100
#: So many losses without a fetched capture are doubted, whatever the share.
MANY: Final = 10
#: The share of payloads with another digest above which they are doubted. Of 441 records of Common Crawl that we have
#: none is one, of 793 real records of all archives two are.
MISMATCHED: Final = 0.05
#: Columns of ``fetches`` that are fields of ``Brought``.
_NOTED: Final = tuple(name for name in Brought.__slots__ if name != "stored")


class NotGiven(Incomplete):
    """Targets lack more captures than they may. ``each`` has the error of each of them by slug, ``reasons`` are the
    most frequent reasons. ``report`` is of all targets that were fetched together: their fetched records are
    committed."""

    each: dict[str, Incomplete]
    reasons: set[str | None]
    report: StageReport


@dataclass(frozen=True, slots=True)
class Judged:
    """The assessment of a slice's losses; see the columns of ``fetches``."""

    losses_accepted: str | None = None
    losses_doubted: bool = False
    mismatches_confirmed: str | None = None
    mismatches_doubted: bool = False
    second_looks: int = 0

    @property
    def doubted(self) -> bool:
        """Whether any losses or mismatches are doubted."""
        return self.losses_doubted or self.mismatches_doubted


class Command:
    """The totals of all fetches of one command, slice by slice: a source is judged by all of them."""

    def __init__(self) -> None:
        self._each: dict[Slice, tuple[int, int, int, int]] = {}
        self._files: dict[Slice, tuple[str, int]] = {}
        self._sums = [0, 0, 0, 0]
        self._lost_in: Counter[str] = Counter()

    def take(self, slice_: Slice, counts: Shortfall, assessment: Judged) -> None:
        """Counts a slice, in place of its earlier count."""
        new_counts = (counts.planned, counts.fetched, _lost(counts, assessment), _odd(counts, assessment))
        old_counts = self._each.get(slice_, (0, 0, 0, 0))
        self._each[slice_] = new_counts
        self._sums = [total + new - old for total, new, old in zip(self._sums, new_counts, old_counts, strict=True)]
        if slice_ in self._files:
            name, count = self._files.pop(slice_)
            self._lost_in[name] -= count
        if new_counts[2] and counts.lost_file is not None:
            self._files[slice_] = counts.lost_file, counts.lost_in_one
            self._lost_in[counts.lost_file] += counts.lost_in_one

    def too_lost(self, allowed: float) -> bool:
        """Whether more than the share ``allowed`` is lost, or many captures are and none was fetched."""
        planned, fetched, lost, _ = self._sums
        # losses in one archive file are one accident, whatever their share
        accident = max(self._lost_in.values(), default=0)
        return (lost >= MANY and not fetched) or lost - accident > allowed * max(planned, LEAST_CAPTURES)

    def too_odd(self) -> bool:
        """Whether too many payloads have another digest than the index."""
        _, fetched, _, mismatched = self._sums
        return mismatched > MISMATCHED * max(fetched, LEAST_CAPTURES)


def judged(
    counts_by_slice: Mapping[Slice, Shortfall],
    last_fetches: Mapping[Slice, Fetch],
    command: Command,
    *,
    allowed: float,
    accepted: Collection[Slice],
    asked_twice: Collection[Slice],
) -> dict[Slice, Judged]:
    """Assesses the losses of the slices in ``counts_by_slice``, among all that the ``command`` fetched, and adds them
    to it. Unchanged losses that were doubted ``last_fetches`` stay doubted, however few captures a command asks for.

    ``allowed`` is the share of captures that may be lost. A person accepts the losses of the slices ``accepted``; the
    payloads of the slices ``asked_twice`` were fetched once more.
    """
    initial = {
        slice_: _believed(counts, last_fetches.get(slice_), slice_ in accepted, slice_ in asked_twice)
        for slice_, counts in counts_by_slice.items()
    }
    for slice_, counts in counts_by_slice.items():
        command.take(slice_, counts, initial[slice_])
    losses_exceed_limit, mismatches_exceed_limit = command.too_lost(allowed), command.too_odd()
    assessments = {}
    for slice_, assessment in initial.items():
        counts, note = counts_by_slice[slice_], last_fetches.get(slice_)
        has_same_losses = note is not None and note.losses_doubted and note.losses == counts.losses
        has_same_mismatches = note is not None and note.mismatches_doubted and note.mismatches == counts.mismatches
        assessments[slice_] = Judged(
            assessment.losses_accepted,
            (losses_exceed_limit or has_same_losses) and _lost(counts, assessment) > 0,
            assessment.mismatches_confirmed,
            (mismatches_exceed_limit or has_same_mismatches) and _odd(counts, assessment) > 0,
        )
    return assessments


def _believed(counts: Shortfall, last_fetch: Fetch | None, is_accepted: bool, fetched_twice: bool) -> Judged:
    accepted = counts.losses if is_accepted else None if last_fetch is None else last_fetch.losses_accepted
    is_unchanged = last_fetch is not None and last_fetch.mismatches == counts.mismatches
    confirmed = (
        counts.mismatches
        if fetched_twice and is_unchanged
        else None
        if last_fetch is None
        else last_fetch.mismatches_confirmed
    )
    return Judged(accepted if accepted == counts.losses else None, False, confirmed)


def _lost(counts: Brought, assessment: Judged) -> int:
    return 0 if assessment.losses_accepted == counts.losses else counts.settled


def _odd(counts: Shortfall, assessment: Judged) -> int:
    # the digests in the CDX of the ARC years were never checked
    is_excepted = counts.slice_.crawl in KNOWN_BAD_DIGESTS or counts.slice_.crawl in ARC_CRAWLS
    is_confirmed = assessment.mismatches_confirmed == counts.mismatches
    return 0 if is_excepted or is_confirmed else counts.mismatched


def too_much(counts: Brought, allowed: float) -> bool:
    """Whether more than the share ``allowed`` is unsettled, or every capture that the source could give."""
    if not counts.unsettled:
        return False
    return not counts.fetched or counts.unsettled > allowed * max(counts.planned, LEAST_CAPTURES)


def refused(
    counts_by_slice: Mapping[Slice, Shortfall], assessments: Mapping[Slice, Judged], allowed: float, source: str
) -> NotGiven | None:
    """The error to raise if targets lack more than the share ``allowed``, or their losses are doubted, with the numbers
    and the advice. Its ``report`` is not set yet."""
    targets = of_targets(counts_by_slice.values())
    over_limit = [counts for counts in targets if too_much(counts, allowed)]
    lost = {slice_.whole for slice_, assessment in assessments.items() if assessment.losses_doubted}
    mismatched = {slice_.whole for slice_, assessment in assessments.items() if assessment.mismatches_doubted}
    unconfirmed_losses = [counts for counts in targets if counts.slice_ in lost]
    unconfirmed_mismatches = [counts for counts in targets if counts.slice_ in mismatched]

    def build_error(slices: Collection[Slice] | None = None) -> Incomplete:
        groups = [
            [counts for counts in group if slices is None or counts.slice_ in slices]
            for group in (over_limit, unconfirmed_losses, unconfirmed_mismatches)
        ]
        if groups[0]:
            return Incomplete(*_said(groups[0], allowed, source))
        return Incomplete(*(_said_lost(groups[1], source) if groups[1] else _said_odd(groups[2], source)))

    failed_targets = {counts.slice_ for counts in (*over_limit, *unconfirmed_losses, *unconfirmed_mismatches)}
    if not failed_targets:
        return None
    total_error = build_error()
    incomplete_error = NotGiven(total_error.what, total_error.advice)
    incomplete_error.each = {slice_.target: build_error({slice_}) for slice_ in failed_targets}
    incomplete_error.reasons = {counts.reason for counts in over_limit} | ({None} if lost or mismatched else set())
    return incomplete_error


def _said(slice_counts: Sequence[Shortfall], allowed: float, source: str) -> tuple[str, str]:
    """The problem and the advice for targets with too many pending captures."""
    worst = max(slice_counts, key=lambda counts: counts.unsettled / max(1, counts.planned))
    amount = _many(slice_counts, "captures", lambda counts: (counts.unsettled, counts.planned))
    return (
        f"{source} did not give {amount}; mostly {worst.reason}, e.g. {worst.example}",
        "Fetched records are kept. Check the source and the network (cc-pipeline doctor), then run it again: only "
        "missing captures are asked for. To go on without them, allow a larger share: CC_PIPELINE_MAX_UNSETTLED "
        f"(now {allowed:g})",
    )


def _said_lost(slice_counts: Sequence[Shortfall], source: str) -> tuple[str, str]:
    worst = max(slice_counts, key=lambda counts: counts.settled)
    amount = _many(slice_counts, "captures", lambda counts: (counts.settled, counts.planned))
    options = " ".join(f"--accept-losses {counts.losses}" for counts in slice_counts[:3])
    return (
        f"{source} reports {amount} as lost, mostly {worst.lost_reason}: too many to be believed at once",
        "Fetched records are kept. Check the source (cc-pipeline doctor), and run it again: it checks whether they are "
        f"back. To accept that they are gone, add {options} to the run",
    )


def _said_odd(slice_counts: Sequence[Shortfall], source: str) -> tuple[str, str]:
    amount = _many(slice_counts, "records", lambda counts: (counts.mismatched, counts.fetched))
    return (
        f"{amount} from {source} have another payload than the index names",
        "They are kept. Check the source, and run it again: they are fetched once more, and an identical payload is "
        "accepted",
    )


def _many(slice_counts: Sequence[Shortfall], noun: str, get_counts: Callable[[Shortfall], tuple[int, int]]) -> str:
    """The number of captures in question: ``3 of 20 captures (15 %) of example.com in CC-MAIN-2024-22``."""
    part, total = (sum(column) for column in zip(*map(get_counts, slice_counts), strict=True))
    names = ", ".join(f"{counts.slice_.target} in {counts.slice_.crawl}" for counts in slice_counts[:3])
    remainder = f" and {len(slice_counts) - 3:,} more" if len(slice_counts) > 3 else ""
    return f"{part:,} of {total:,} {noun} ({share(part, total)}) of {names}{remainder}"


def fetch_rows(
    counts_by_slice: Mapping[Slice, Shortfall],
    input_digests: Mapping[Slice, str],
    silent_runs: Mapping[Slice, int],
    assessments: Mapping[Slice, Judged] = MappingProxyType({}),
) -> dict[Slice, dict[str, object]]:
    """The row of each slice in the table ``fetches``; ``asked`` is how often all unsettled captures were asked for."""
    now = datetime.now(UTC)
    return {
        slice_: {
            **{name: getattr(counts, name) for name in _NOTED},
            **{name: getattr(assessments.get(slice_, Judged()), name) for name in Judged.__slots__},
            "silent_runs": silent_runs.get(slice_, 0), "asked_at": now, "asked": counts.asked,
            "made_from": input_digests[slice_], "stored_files": stored_files(counts),
        }
        for slice_, counts in counts_by_slice.items()
    }  # fmt: skip


def stored_files(counts: Brought) -> list[dict[str, object]]:
    """The stored files of a slice, as the table has them."""
    return [{"file": file, "bytes": end} for file, end in sorted(counts.stored.items())]


def due_at(rounds: int, silent_runs: int, fetched_at: datetime) -> datetime:
    """The time at which schedules retry pending captures: the wait doubles with each run that asked in vain."""
    tries = min(rounds + silent_runs, 16)
    return fetched_at + min(_LONGEST_DISTANCE, _FIRST_DISTANCE * 2 ** max(0, tries - 1))


def looked_for_at(note: Fetch) -> datetime | None:
    """The time at which schedules recheck the losses and mismatches of a slice; ``None``: never."""
    recheck_count = min(note.second_looks, 16)
    if note.losses_doubted or note.mismatches_doubted:
        return due_at(recheck_count + 1, 0, note.asked_at)
    if not may_be_back(note):
        return None
    return note.asked_at + min(_LONGEST_SECOND_LOOK, SECOND_LOOK * 2**recheck_count)


def may_be_back(note: Fetch) -> bool:
    """Whether a slice has losses that nobody accepted, or mismatches that were doubted and came twice alike."""
    lost = note.settled > 0 and note.lost_in_one > 0 and note.losses_accepted != note.losses
    return lost or (note.mismatched > 0 and note.mismatches_confirmed == note.mismatches)
