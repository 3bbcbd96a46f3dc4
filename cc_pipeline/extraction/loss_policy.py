"""The policy on losses: when an incomplete fetch is an error, which losses are believed, and when to ask again.

Pending captures are an error above a share of a target's captures. Losses and digest mismatches are unconfirmed above a
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

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, UNRELIABLE_DIGEST_CRAWLS
from cc_pipeline.errors import Incomplete
from cc_pipeline.extraction.fetch_counts import FetchCounts, FetchSummary, SliceFetchCounts, share, sum_by_target
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.lake.slice import Slice, StageReport
from cc_pipeline.progress import list_first

#: Wait of schedules before they retry pending or unconfirmed captures: this long after the first time, then twice as
#: long each time, up to the maximum.
_FIRST_DELAY: Final = timedelta(minutes=30)
_MAX_DELAY: Final = timedelta(days=2)
#: Wait before a lost file is rechecked; schedules wait twice as long each time.
RECHECK_DELAY: Final = timedelta(days=1)
#: Files of which one recheck fetches one record each, of all slices together.
MAX_RECHECKED_FILES: Final = 20
_MAX_RECHECK_DELAY: Final = timedelta(days=64)
#: Shares are taken of at least so many captures, so that one of a few is no failure.
MIN_CAPTURES: Final = 100
#: Maximum number of ``--accept-losses`` options that an advice has.
MAX_NUMBERS: Final = 20
#: So many losses without a fetched capture are unconfirmed, whatever the share.
MANY_LOSSES: Final = 10
#: The share of payloads with another digest above which they are unconfirmed. Of 441 records of Common Crawl that we
#: have none is one, of 793 real records of all archives two are.
MAX_MISMATCH_SHARE: Final = 0.05
#: Columns of ``fetches`` that are fields of ``FetchCounts``.
_COUNT_COLUMNS: Final = tuple(name for name in FetchCounts.__slots__ if name != "stored")


class FetchIncomplete(Incomplete):
    """Targets lack more captures than they may. ``errors_by_target`` has the error of each of them by slug, ``reasons``
    are the most frequent reasons. ``report`` is of all targets that were fetched together: their fetched records are
    committed."""

    errors_by_target: dict[str, Incomplete]
    reasons: set[str | None]
    report: StageReport


@dataclass(frozen=True, slots=True)
class LossAssessment:
    """The assessment of a slice's losses; see the columns of ``fetches``."""

    losses_accepted: str | None = None
    losses_unconfirmed: bool = False
    mismatches_confirmed: str | None = None
    mismatches_unconfirmed: bool = False
    second_looks: int = 0


class CommandTotals:
    """The totals of all fetches of one command, slice by slice: a source is judged by all of them."""

    def __init__(self) -> None:
        self._counts_by_slice: dict[Slice, tuple[int, int, int, int]] = {}
        self._files: dict[Slice, tuple[str, int]] = {}
        self._totals = [0, 0, 0, 0]
        self._losses_by_file: Counter[str] = Counter()

    def take(self, slice_: Slice, counts: SliceFetchCounts, assessment: LossAssessment) -> None:
        """Counts a slice, in place of its earlier count."""
        new_counts = (
            counts.planned,
            counts.fetched,
            _count_unaccepted(counts, assessment),
            _count_unconfirmed(counts, assessment),
        )
        old_counts = self._counts_by_slice.get(slice_, (0, 0, 0, 0))
        self._counts_by_slice[slice_] = new_counts
        self._totals = [total + new - old for total, new, old in zip(self._totals, new_counts, old_counts, strict=True)]
        if slice_ in self._files:
            name, count = self._files.pop(slice_)
            self._losses_by_file[name] -= count
        if new_counts[2] and counts.lost_top_file is not None:
            self._files[slice_] = counts.lost_top_file, counts.lost_in_top_file
            self._losses_by_file[counts.lost_top_file] += counts.lost_in_top_file

    def exceeds_loss_limit(self, allowed: float) -> bool:
        """Whether more than the share ``allowed`` is lost, or many captures are and none was fetched."""
        planned, fetched, lost, _ = self._totals
        # losses in one archive file are one accident, whatever their share
        accident = max(self._losses_by_file.values(), default=0)
        return (lost >= MANY_LOSSES and not fetched) or lost - accident > allowed * max(planned, MIN_CAPTURES)

    def exceeds_mismatch_limit(self) -> bool:
        """Whether too many payloads have another digest than the index."""
        _, fetched, _, mismatched = self._totals
        return mismatched > MAX_MISMATCH_SHARE * max(fetched, MIN_CAPTURES)


def assess_losses(
    counts_by_slice: Mapping[Slice, SliceFetchCounts],
    last_fetches: Mapping[Slice, FetchSummary],
    command: CommandTotals,
    *,
    allowed: float,
    accepted: Collection[Slice],
    fetched_twice: Collection[Slice],
) -> dict[Slice, LossAssessment]:
    """Assesses the losses of the slices in ``counts_by_slice``, among all that the ``command`` fetched, and adds them
    to it. Unchanged losses that were unconfirmed ``last_fetches`` stay unconfirmed, however few captures a command asks
    for.

    ``allowed`` is the share of captures that may be lost. A person accepts the losses of the slices ``accepted``; the
    payloads of the slices ``fetched_twice`` were fetched once more.
    """
    initial = {
        slice_: _assess_slice(counts, last_fetches.get(slice_), slice_ in accepted, slice_ in fetched_twice)
        for slice_, counts in counts_by_slice.items()
    }
    for slice_, counts in counts_by_slice.items():
        command.take(slice_, counts, initial[slice_])
    losses_exceed_limit, mismatches_exceed_limit = command.exceeds_loss_limit(allowed), command.exceeds_mismatch_limit()
    assessments = {}
    for slice_, assessment in initial.items():
        counts, note = counts_by_slice[slice_], last_fetches.get(slice_)
        has_same_losses = note is not None and note.losses_unconfirmed and note.losses == counts.losses
        has_same_mismatches = note is not None and note.mismatches_unconfirmed and note.mismatches == counts.mismatches
        assessments[slice_] = LossAssessment(
            assessment.losses_accepted,
            (losses_exceed_limit or has_same_losses) and _count_unaccepted(counts, assessment) > 0,
            assessment.mismatches_confirmed,
            (mismatches_exceed_limit or has_same_mismatches) and _count_unconfirmed(counts, assessment) > 0,
        )
    return assessments


def _assess_slice(
    counts: SliceFetchCounts, last_fetch: FetchSummary | None, is_accepted: bool, fetched_twice: bool
) -> LossAssessment:
    accepted = counts.losses if is_accepted else None if last_fetch is None else last_fetch.losses_accepted
    is_unchanged = last_fetch is not None and last_fetch.mismatches == counts.mismatches
    confirmed = (
        counts.mismatches
        if fetched_twice and is_unchanged
        else None
        if last_fetch is None
        else last_fetch.mismatches_confirmed
    )
    return LossAssessment(accepted if accepted == counts.losses else None, False, confirmed)


def _count_unaccepted(counts: FetchCounts, assessment: LossAssessment) -> int:
    return 0 if assessment.losses_accepted == counts.losses else counts.settled


def _count_unconfirmed(counts: SliceFetchCounts, assessment: LossAssessment) -> int:
    # the digests in the CDX of the ARC years were never checked
    is_excepted = counts.slice_.crawl in UNRELIABLE_DIGEST_CRAWLS or counts.slice_.crawl in ARC_CRAWLS
    is_confirmed = assessment.mismatches_confirmed == counts.mismatches
    return 0 if is_excepted or is_confirmed else counts.mismatched


def exceeds_pending_limit(counts: FetchCounts, allowed: float) -> bool:
    """Whether more than the share ``allowed`` is pending, or every capture that the source could give."""
    if not counts.pending:
        return False
    return not counts.fetched or counts.pending > allowed * max(counts.planned, MIN_CAPTURES)


def build_incomplete_error(
    counts_by_slice: Mapping[Slice, SliceFetchCounts],
    assessments: Mapping[Slice, LossAssessment],
    allowed: float,
    source: str,
) -> FetchIncomplete | None:
    """The error to raise if targets lack more than the share ``allowed``, or their losses are unconfirmed, with the
    numbers and the advice. Its ``report`` is not set yet."""
    targets = sum_by_target(counts_by_slice.values())
    over_limit = [counts for counts in targets if exceeds_pending_limit(counts, allowed)]
    lost = {slice_.partition for slice_, assessment in assessments.items() if assessment.losses_unconfirmed}
    mismatched = {slice_.partition for slice_, assessment in assessments.items() if assessment.mismatches_unconfirmed}
    unconfirmed_losses = [counts for counts in targets if counts.slice_ in lost]
    unconfirmed_mismatches = [counts for counts in targets if counts.slice_ in mismatched]

    def build_error(slices: Collection[Slice] | None = None) -> Incomplete:
        groups = [
            [counts for counts in group if slices is None or counts.slice_ in slices]
            for group in (over_limit, unconfirmed_losses, unconfirmed_mismatches)
        ]
        if groups[0]:
            return Incomplete(*_describe_pending(groups[0], allowed, source))
        return Incomplete(
            *(_describe_losses(groups[1], source) if groups[1] else _describe_mismatches(groups[2], source))
        )

    failed_targets = {counts.slice_ for counts in (*over_limit, *unconfirmed_losses, *unconfirmed_mismatches)}
    if not failed_targets:
        return None
    total_error = build_error()
    incomplete_error = FetchIncomplete(total_error.problem, total_error.advice)
    incomplete_error.errors_by_target = {slice_.target: build_error({slice_}) for slice_ in failed_targets}
    incomplete_error.reasons = {counts.reason for counts in over_limit} | ({None} if lost or mismatched else set())
    return incomplete_error


def _describe_pending(slice_counts: Sequence[SliceFetchCounts], allowed: float, source: str) -> tuple[str, str]:
    """The problem and the advice for targets with too many pending captures."""
    worst = max(slice_counts, key=lambda counts: counts.pending / max(1, counts.planned))
    # the limit does not apply to a target of which nothing was fetched
    limit_advice = (
        ""
        if any(not counts.fetched for counts in slice_counts)
        else f" To continue without them, allow a larger share: CC_PIPELINE_MAX_PENDING (now {allowed:g})"
    )
    amount = _describe_amount(slice_counts, "captures", lambda counts: (counts.pending, counts.planned))
    return (
        f"{source} did not give {amount}; mostly {worst.reason}, e.g. {worst.example}",
        "Fetched records are kept. Check the source and the network (cc-pipeline doctor), then run it again: only "
        f"captures that are not fetched yet are requested.{limit_advice}",
    )


def _describe_losses(slice_counts: Sequence[SliceFetchCounts], source: str) -> tuple[str, str]:
    worst = max(slice_counts, key=lambda counts: counts.settled)
    amount = _describe_amount(slice_counts, "captures", lambda counts: (counts.settled, counts.planned))
    options = describe_accept_options([counts.losses for counts in slice_counts])
    return (
        f"{source} reports {amount} as lost, mostly {worst.lost_reason}: too many to accept without a second check",
        "Fetched records are kept. Check the source (cc-pipeline doctor), and run it again: the run checks whether the "
        f"captures are back. To accept the loss, add {options} to the run",
    )


def describe_accept_options(numbers: Sequence[str]) -> str:
    """The options of ``run`` that accept the losses with these numbers, one for each target."""
    options = " ".join(f"--accept-losses {number}" for number in numbers[:MAX_NUMBERS])
    more_note = f" (the numbers of {MAX_NUMBERS} of {len(numbers):,} targets; a run that accepts them names the others)"
    return options + (more_note if len(numbers) > MAX_NUMBERS else "")


def _describe_mismatches(slice_counts: Sequence[SliceFetchCounts], source: str) -> tuple[str, str]:
    amount = _describe_amount(slice_counts, "records", lambda counts: (counts.mismatched, counts.fetched))
    return (
        f"the payloads of {amount} from {source} differ from the digest in the index",
        "The records are kept. Check the source, and run it again: the records are fetched once more, and an identical "
        "payload is accepted",
    )


def _describe_amount(
    slice_counts: Sequence[SliceFetchCounts], noun: str, get_counts: Callable[[SliceFetchCounts], tuple[int, int]]
) -> str:
    """The number of captures in question: ``3 of 20 captures (15 %) of example.com in CC-MAIN-2024-22``."""
    part, total = (sum(column) for column in zip(*map(get_counts, slice_counts), strict=True))
    names = list_first([f"{counts.slice_.target} in {counts.slice_.crawl}" for counts in slice_counts], 3)
    return f"{part:,} of {total:,} {noun} ({share(part, total)}) of {names}"


def build_fetch_notes(
    counts_by_slice: Mapping[Slice, SliceFetchCounts],
    inputs: Mapping[Slice, Mapping[str, str]],
    runs_without_response: Mapping[Slice, int],
    assessments: Mapping[Slice, LossAssessment] = MappingProxyType({}),
) -> dict[Slice, dict[str, object]]:
    """The note of each slice after a fetch; see the columns of ``fetches``. ``is_failed``: the source gave nothing, and
    the stored records are of other captures."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {
        slice_: {
            **{name: getattr(counts, name) for name in _COUNT_COLUMNS},
            **{name: getattr(assessments.get(slice_, LossAssessment()), name) for name in LossAssessment.__slots__},
            "runs_without_response": runs_without_response.get(slice_, 0), "last_attempt_at": now,
            "input_digest": digest_fetch_input(inputs[slice_]), "stored_files": list_stored_files(counts),
            "is_failed": False,
        }
        for slice_, counts in counts_by_slice.items()
    }  # fmt: skip


def digest_fetch_input(input_: Mapping[str, str]) -> str:
    """A digest of the input of a fetched slice, for people who compare two states of a target."""
    values = {"version": input_["version"], "digest_policy": input_["digest_policy"], "located": input_["captures"]}
    digest = compute_input_digest({"stage": "fetch"} | values)
    return digest if input_["state"] == "complete" else compute_input_digest({"incomplete": digest})


def list_stored_files(counts: FetchCounts) -> list[dict[str, object]]:
    """The stored files of a slice, as the table has them."""
    return [{"file": file, "bytes": end} for file, end in sorted(counts.stored.items())]


def next_fetch_time(rounds: int, runs_without_response: int, fetched_at: datetime) -> datetime:
    """The time at which schedules retry pending captures: the wait doubles with each run that asked in vain."""
    tries = min(rounds + runs_without_response, 16)
    return fetched_at + min(_MAX_DELAY, _FIRST_DELAY * 2 ** max(0, tries - 1))


def next_recheck_time(note: FetchSummary) -> datetime | None:
    """The time at which schedules recheck the losses and mismatches of a slice; ``None``: never."""
    recheck_count = min(note.second_looks, 16)
    if note.losses_unconfirmed or note.mismatches_unconfirmed:
        return next_fetch_time(recheck_count + 1, 0, note.last_attempt_at)
    if not needs_recheck(note):
        return None
    return note.last_attempt_at + min(_MAX_RECHECK_DELAY, RECHECK_DELAY * 2**recheck_count)


def needs_recheck(note: FetchSummary) -> bool:
    """Whether a slice has losses that nobody accepted, or mismatches that were unconfirmed and came twice alike."""
    lost = note.settled > 0 and note.lost_in_top_file > 0 and note.losses_accepted != note.losses
    return lost or (note.mismatched > 0 and note.mismatches_confirmed == note.mismatches)
