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

    def take(self, slice_: Slice, short: Shortfall, believed: Judged) -> None:
        """Counts a slice, in place of its earlier count."""
        now = (short.planned, short.fetched, _lost(short, believed), _odd(short, believed))
        before = self._each.get(slice_, (0, 0, 0, 0))
        self._each[slice_] = now
        self._sums = [all_of_it + new - old for all_of_it, new, old in zip(self._sums, now, before, strict=True)]
        if slice_ in self._files:
            name, count = self._files.pop(slice_)
            self._lost_in[name] -= count
        if now[2] and short.lost_file is not None:
            self._files[slice_] = short.lost_file, short.lost_in_one
            self._lost_in[short.lost_file] += short.lost_in_one

    def too_lost(self, allowed: float) -> bool:
        """Whether more than the share ``allowed`` is lost, or many captures are and none was fetched."""
        planned, fetched, lost, _ = self._sums
        # losses in one archive file are one accident, whatever their share
        accident = max(self._lost_in.values(), default=0)
        return (lost >= MANY and not fetched) or lost - accident > allowed * max(planned, LEAST_CAPTURES)

    def too_odd(self) -> bool:
        """Whether too many payloads have another digest than the index."""
        _, fetched, _, odd = self._sums
        return odd > MISMATCHED * max(fetched, LEAST_CAPTURES)


def judged(
    found: Mapping[Slice, Shortfall],
    before: Mapping[Slice, Fetch],
    command: Command,
    *,
    allowed: float,
    accepted: Collection[Slice],
    asked_twice: Collection[Slice],
) -> dict[Slice, Judged]:
    """Assesses the losses of the slices in ``found``, among all that the ``command`` fetched, and adds them to it.
    Unchanged losses that were doubted ``before`` stay doubted, however few captures a command asks for.

    ``allowed`` is the share of captures that may be lost. A person accepts the losses of the slices ``accepted``; the
    payloads of the slices ``asked_twice`` were fetched once more.
    """
    believed = {
        slice_: _believed(short, before.get(slice_), slice_ in accepted, slice_ in asked_twice)
        for slice_, short in found.items()
    }
    for slice_, short in found.items():
        command.take(slice_, short, believed[slice_])
    too_lost, too_odd = command.too_lost(allowed), command.too_odd()
    judgement = {}
    for slice_, one in believed.items():
        short, note = found[slice_], before.get(slice_)
        still_lost = note is not None and note.losses_doubted and note.losses == short.losses
        still_odd = note is not None and note.mismatches_doubted and note.mismatches == short.mismatches
        judgement[slice_] = Judged(
            one.losses_accepted,
            (too_lost or still_lost) and _lost(short, one) > 0,
            one.mismatches_confirmed,
            (too_odd or still_odd) and _odd(short, one) > 0,
        )
    return judgement


def _believed(short: Shortfall, before: Fetch | None, accepts: bool, twice: bool) -> Judged:
    accepted = short.losses if accepts else None if before is None else before.losses_accepted
    same = before is not None and before.mismatches == short.mismatches
    confirmed = short.mismatches if twice and same else None if before is None else before.mismatches_confirmed
    return Judged(accepted if accepted == short.losses else None, False, confirmed)


def _lost(short: Brought, one: Judged) -> int:
    return 0 if one.losses_accepted == short.losses else short.settled


def _odd(short: Shortfall, one: Judged) -> int:
    # the digests in the CDX of the ARC years were never checked
    excepted = short.slice_.crawl in KNOWN_BAD_DIGESTS or short.slice_.crawl in ARC_CRAWLS
    confirmed = one.mismatches_confirmed == short.mismatches
    return 0 if excepted or confirmed else short.mismatched


def too_much(short: Brought, allowed: float) -> bool:
    """Whether more than the share ``allowed`` is unsettled, or every capture that the source could give."""
    if not short.unsettled:
        return False
    return not short.fetched or short.unsettled > allowed * max(short.planned, LEAST_CAPTURES)


def refused(
    found: Mapping[Slice, Shortfall], judgement: Mapping[Slice, Judged], allowed: float, source: str
) -> NotGiven | None:
    """The error to raise if targets lack more than the share ``allowed``, or their losses are doubted, with the numbers
    and the advice. Its ``report`` is not set yet."""
    targets = of_targets(found.values())
    over = [one for one in targets if too_much(one, allowed)]
    lost = {slice_.whole for slice_, one in judgement.items() if one.losses_doubted}
    odd = {slice_.whole for slice_, one in judgement.items() if one.mismatches_doubted}
    doubted_lost = [one for one in targets if one.slice_ in lost]
    doubted_odd = [one for one in targets if one.slice_ in odd]

    def said(of: Collection[Slice] | None = None) -> Incomplete:
        some = [[one for one in each if of is None or one.slice_ in of] for each in (over, doubted_lost, doubted_odd)]
        if some[0]:
            return Incomplete(*_said(some[0], allowed, source))
        return Incomplete(*(_said_lost(some[1], source) if some[1] else _said_odd(some[2], source)))

    every = {one.slice_ for one in (*over, *doubted_lost, *doubted_odd)}
    if not every:
        return None
    whole = said()
    refusal = NotGiven(whole.what, whole.advice)
    refusal.each = {slice_.target: said({slice_}) for slice_ in every}
    refusal.reasons = {one.reason for one in over} | ({None} if lost or odd else set())
    return refusal


def _said(over: Sequence[Shortfall], allowed: float, source: str) -> tuple[str, str]:
    """The problem and the advice for targets with too many pending captures."""
    worst = max(over, key=lambda one: one.unsettled / max(1, one.planned))
    many = _many(over, "captures", lambda one: (one.unsettled, one.planned))
    return (
        f"{source} did not give {many}; mostly {worst.reason}, e.g. {worst.example}",
        "Fetched records are kept. Check the source and the network (cc-pipeline doctor), then run it again: only "
        "missing captures are asked for. To go on without them, allow a larger share: CC_PIPELINE_MAX_UNSETTLED "
        f"(now {allowed:g})",
    )


def _said_lost(doubted: Sequence[Shortfall], source: str) -> tuple[str, str]:
    worst = max(doubted, key=lambda one: one.settled)
    many = _many(doubted, "captures", lambda one: (one.settled, one.planned))
    numbers = " ".join(f"--accept-losses {one.losses}" for one in doubted[:3])
    return (
        f"{source} reports {many} as lost, mostly {worst.lost_reason}: too many to be believed at once",
        "Fetched records are kept. Check the source (cc-pipeline doctor), and run it again: it checks whether they are "
        f"back. To accept that they are gone, add {numbers} to the run",
    )


def _said_odd(doubted: Sequence[Shortfall], source: str) -> tuple[str, str]:
    many = _many(doubted, "records", lambda one: (one.mismatched, one.fetched))
    return (
        f"{many} from {source} have another payload than the index names",
        "They are kept. Check the source, and run it again: they are fetched once more, and an identical payload is "
        "accepted",
    )


def _many(some: Sequence[Shortfall], what: str, counted: Callable[[Shortfall], tuple[int, int]]) -> str:
    """The number of captures in question: ``3 of 20 captures (15 %) of example.com in CC-MAIN-2024-22``."""
    few, total = (sum(column) for column in zip(*map(counted, some), strict=True))
    names = ", ".join(f"{one.slice_.target} in {one.slice_.crawl}" for one in some[:3])
    more = f" and {len(some) - 3:,} more" if len(some) > 3 else ""
    return f"{few:,} of {total:,} {what} ({share(few, total)}) of {names}{more}"


def fetch_rows(
    found: Mapping[Slice, Shortfall],
    made_from: Mapping[Slice, str],
    silent_runs: Mapping[Slice, int],
    judgement: Mapping[Slice, Judged] = MappingProxyType({}),
) -> dict[Slice, dict[str, object]]:
    """The row of each slice in the table ``fetches``; ``asked`` is how often all unsettled captures were asked for."""
    now = datetime.now(UTC)
    return {
        slice_: {
            **{name: getattr(one, name) for name in _NOTED},
            **{name: getattr(judgement.get(slice_, Judged()), name) for name in Judged.__slots__},
            "silent_runs": silent_runs.get(slice_, 0), "asked_at": now, "asked": one.asked,
            "made_from": made_from[slice_], "stored_files": stored_files(one),
        }
        for slice_, one in found.items()
    }  # fmt: skip


def stored_files(one: Brought) -> list[dict[str, object]]:
    """The stored files of a slice, as the table has them."""
    return [{"file": file, "bytes": end} for file, end in sorted(one.stored.items())]


def due_at(rounds: int, silent_runs: int, asked_at: datetime) -> datetime:
    """The time at which schedules retry pending captures: the wait doubles with each run that asked in vain."""
    tries = min(rounds + silent_runs, 16)
    return asked_at + min(_LONGEST_DISTANCE, _FIRST_DISTANCE * 2 ** max(0, tries - 1))


def looked_for_at(note: Fetch) -> datetime | None:
    """The time at which schedules recheck the losses and mismatches of a slice; ``None``: never."""
    looks = min(note.second_looks, 16)
    if note.losses_doubted or note.mismatches_doubted:
        return due_at(looks + 1, 0, note.asked_at)
    if not may_be_back(note):
        return None
    return note.asked_at + min(_LONGEST_SECOND_LOOK, SECOND_LOOK * 2**looks)


def may_be_back(note: Fetch) -> bool:
    """Whether a slice has losses that nobody accepted, or mismatches that were doubted and came twice alike."""
    lost = note.settled > 0 and note.lost_in_one > 0 and note.losses_accepted != note.losses
    return lost or (note.mismatched > 0 and note.mismatches_confirmed == note.mismatches)
