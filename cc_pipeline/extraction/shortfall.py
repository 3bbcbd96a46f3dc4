"""What a fetch did not bring: how much of it is settled, when that is an error, and when to ask again.

A capture that is missing or in quarantine is *settled* when asking again cannot change it: the source says that its
file is gone, or has the same damaged bytes twice. All else is *unsettled*: trouble of the source, not of the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import Incomplete
from cc_pipeline.extraction.slice import Figures, Slice, StageReport
from cc_pipeline.keys import TIMESTAMP

#: Runs that ask for a capture, while the source gives others, before schedules leave it. A person's run always asks.
MOST_ROUNDS: Final = 5
#: Before schedules ask again: this long after the first time, then twice as long each time, up to the longest.
_FIRST_DISTANCE: Final = timedelta(minutes=30)
_LONGEST_DISTANCE: Final = timedelta(days=2)
#: The share of unsettled captures is taken of at least so many, so that one of a few is no failure.
LEAST_CAPTURES: Final = 100

FETCHES_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("planned", pa.int64(), nullable=False),
        pa.field("fetched", pa.int64(), nullable=False),
        pa.field("quarantined", pa.int64(), nullable=False),
        pa.field("missing", pa.int64(), nullable=False),
        pa.field("unsettled", pa.int64(), nullable=False),
        pa.field("given_up", pa.int64(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("example", pa.string()),
        pa.field("rounds", pa.int32(), nullable=False),
        pa.field("silent_runs", pa.int32(), nullable=False),
        pa.field("asked_at", TIMESTAMP, nullable=False),
        pa.field("made_from", pa.string(), nullable=False),
        pa.field("stored_bytes", pa.int64()),
        pa.field("stored_files", pa.list_(pa.struct([pa.field("file", pa.string()), pa.field("bytes", pa.int64())]))),
    ]
)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One slice after a fetch: captures by outcome, and of those not fetched how many are ``unsettled``.

    ``given_up`` of the unsettled ones were asked for in ``MOST_ROUNDS`` runs; ``rounds`` is the least number of runs
    that asked for one, ``asked`` their sum over all. ``reason`` is the commonest one, ``example`` a capture with its
    reason in words. ``stored_bytes`` are those of its records, ``stored`` the bytes that are needed of each file.
    """

    slice_: Slice
    planned: int
    fetched: int
    quarantined: int
    missing: int
    unsettled: int
    given_up: int
    reason: str | None
    example: str | None
    rounds: int
    asked: int = 0
    stored_bytes: int = 0
    stored: Mapping[str, int] = field(default_factory=dict)

    @property
    def open(self) -> int:
        """Captures that schedules will ask for again."""
        return self.unsettled - self.given_up

    @property
    def settled(self) -> int:
        """Captures that are not here, and that asking again will not bring."""
        return self.planned - self.fetched - self.unsettled

    def too_much(self, allowed: float) -> bool:
        """Whether more is unsettled than the share ``allowed``, or all that could be had is."""
        if not self.unsettled:
            return False
        return not self.fetched or self.open > allowed * max(self.planned, LEAST_CAPTURES)

    def figures(self) -> Figures:
        """For the metadata of the partition."""
        lost = self.planned - self.fetched
        shown: Figures = {"unsettled": self.unsettled, "not here": share(lost, self.planned)}
        if self.unsettled:
            shown["unsettled because of"] = f"{self.reason}, e.g. {self.example}"
        return shown


def share(part: int, whole: int) -> str:
    """``part`` of ``whole`` for a person, e.g. ``0.3 %``; never rounded to nothing."""
    if not part:
        return "0 %"
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent >= 0.1 else "< 0.1 %"


@dataclass(slots=True)
class _Lacking:
    """The unsettled captures of a target with one reason: how many, how many of them are given up, the least and the
    sum of the runs that asked for them, and the first one."""

    count: int = 0
    given_up: int = 0
    least: int | None = None
    asked: int = 0
    example: str = ""

    def add(self, more: _Lacking) -> None:
        if not self.count:
            self.example = more.example
        self.count += more.count
        self.given_up += more.given_up
        self.least = more.least if self.least is None else min(self.least, more.least or 0)
        self.asked += more.asked


class Tally:
    """What rows of the records table of one crawl say of how slices stand: some numbers for each target and reason.

    Rows are taken batch by batch, also in several processes whose tallies are then added up.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lacking: dict[str, dict[str | None, _Lacking]] = {}
        self._bytes: Counter[str] = Counter()
        self._files: dict[str, dict[str, int]] = {}

    def add(self, records: pa.RecordBatch) -> None:
        """Takes more rows."""
        rows = pa.Table.from_batches([records])
        for row in rows.group_by(["target", "outcome"]).aggregate([([], "count_all")]).to_pylist():
            self._counts[row["target"], row["outcome"]] += row["count_all"]
        for row in _by_reason(unsettled_rows(rows)):
            url, detail = row["url_first"], row["detail_first"]
            least, asked = row["asked_min"], row["asked_sum"]
            more = _Lacking(row["count_all"], row["given_up_sum"], least, asked, f"{url}: {detail}")
            self._of(row["target"], row["reason"]).add(more)
        ends = pc.add(rows["stored_offset"], rows["stored_length"])
        stored = rows.append_column("end", ends).group_by(["target", "stored_file"])
        for row in stored.aggregate([("end", "max"), ("stored_length", "sum")]).to_pylist():
            if row["stored_file"] is not None:
                self._store(row["target"], row["stored_file"], row["end_max"], row["stored_length_sum"])

    def include(self, other: Tally) -> None:
        """Adds the rows that another tally has seen."""
        self._counts.update(other._counts)
        for target, reasons in other._lacking.items():
            for reason, more in reasons.items():
                self._of(target, reason).add(more)
        for target, files in other._files.items():
            for file, end in files.items():
                self._store(target, file, end, 0)
        self._bytes.update(other._bytes)

    def shortfalls(self, slices: Sequence[Slice]) -> dict[Slice, Shortfall]:
        """The shortfall of each of ``slices``."""
        found = {}
        for slice_ in slices:
            mine = self._lacking.get(slice_.target, {})
            # the commonest first; of those as common as each other the first by name
            ordered = sorted(mine.items(), key=lambda one: (-one[1].count, one[0] is None, one[0] or ""))
            by_outcome = {name: self._counts[slice_.target, name] for name in ("fetched", "quarantined", "missing")}
            found[slice_] = Shortfall(
                slice_,
                planned=sum(by_outcome.values()),
                **by_outcome,
                unsettled=sum(one.count for one in mine.values()),
                given_up=sum(one.given_up for one in mine.values()),
                reason=ordered[0][0] if ordered else None,
                example=ordered[0][1].example if ordered else None,
                rounds=min((one.least or 0 for one in mine.values()), default=0),
                asked=sum(one.asked for one in mine.values()),
                stored_bytes=self._bytes[slice_.target],
                stored=self._files.get(slice_.target, {}),
            )
        return found

    def _store(self, target: str, file: str, end: int, size: int) -> None:
        files = self._files.setdefault(target, {})
        files[file] = max(files.get(file, 0), end)
        self._bytes[target] += size

    def _of(self, target: str, reason: str | None) -> _Lacking:
        return self._lacking.setdefault(target, {}).setdefault(reason, _Lacking())


def shortfalls(records: Iterable[pa.RecordBatch], slices: Sequence[Slice]) -> dict[Slice, Shortfall]:
    """The shortfall of each of ``slices`` of one crawl, from their rows of the records table."""
    tally = Tally()
    for batch in records:
        tally.add(batch)
    return tally.shortfalls(slices)


def of_targets(found: Iterable[Shortfall]) -> list[Shortfall]:
    """The shortfall of each target, by which a source is judged: that of all its slices."""
    several: dict[Slice, list[Shortfall]] = {}
    for one in found:
        several.setdefault(one.slice_.whole, []).append(one)
    return [_together(slice_, parts) for slice_, parts in several.items()]


def _together(slice_: Slice, parts: Sequence[Shortfall]) -> Shortfall:
    summed = ("planned", "fetched", "quarantined", "missing", "unsettled", "given_up", "asked")
    return replace(
        # its reason and example
        max(parts, key=lambda one: one.unsettled),
        slice_=slice_,
        rounds=min((one.rounds for one in parts if one.unsettled), default=0),
        **{name: sum(getattr(one, name) for one in parts) for name in summed},
    )


def _by_reason(lost: pa.Table) -> list[dict[str, Any]]:
    rounds = pc.fill_null(lost["rounds"], 0)
    over = pc.cast(pc.greater_equal(rounds, MOST_ROUNDS), pa.int64())
    marked = lost.append_column("asked", rounds).append_column("given_up", over)
    wanted = [([], "count_all"), ("given_up", "sum"), ("asked", "min"), ("asked", "sum")]
    firsts = [("url", "first"), ("detail", "first")]
    return marked.group_by(["target", "reason"], use_threads=False).aggregate([*wanted, *firsts]).to_pylist()


def unsettled_rows(records: pa.Table) -> pa.Table:
    """Those of ``records`` that are to be asked for again.

    Rows of before do not say: of them, missing captures are asked for again, and quarantined ones are not, since their
    bytes were read twice.
    """
    lost = records.filter(pc.not_equal(records["outcome"], "fetched"))
    plan = pc.fill_null(pc.equal(lost["reason"], "bad_plan"), False)  # the value for nulls
    before = pc.and_not(pc.equal(lost["outcome"], "missing"), plan)
    return lost.filter(pc.coalesce(pc.invert(lost["settled"]), before))


class NotGiven(Incomplete):
    """Targets lack more than they may. ``each`` says it of every one of them by slug, ``reasons`` are why most of their
    captures did not come. ``report`` is of all targets that were fetched together: what came is committed."""

    each: dict[str, Incomplete]
    reasons: set[str | None]
    report: StageReport


def refused(found: Sequence[Shortfall], allowed: float, source: str) -> NotGiven | None:
    """The error to raise where targets lack more than the share ``allowed``, with the figure and what to do. Its
    ``report`` is not set yet."""
    over = [one for one in found if one.too_much(allowed)]
    if not over:
        return None
    refusal = NotGiven(*_said(over, allowed, source))
    refusal.each = {one.slice_.target: Incomplete(*_said([one], allowed, source)) for one in over}
    refusal.reasons = {one.reason for one in over}
    return refusal


def _said(over: Sequence[Shortfall], allowed: float, source: str) -> tuple[str, str]:
    """What is wrong with these, and what to do."""
    worst = max(over, key=lambda one: one.unsettled / max(1, one.planned))
    total, planned = sum(one.unsettled for one in over), sum(one.planned for one in over)
    names = ", ".join(f"{one.slice_.target} in {one.slice_.crawl}" for one in over[:3])
    more = f" and {len(over) - 3:,} more" if len(over) > 3 else ""
    return (
        f"{source} did not give {total:,} of {planned:,} captures ({share(total, planned)}) of {names}{more}; mostly "
        f"{worst.reason}, e.g. {worst.example}",
        "What came is kept. Check the source and the network (cc-pipeline doctor), then run it again: only what is "
        f"missing is asked for. To go on without it, allow a larger share: CC_PIPELINE_MAX_UNSETTLED (now {allowed:g})",
    )


def fetch_rows(
    found: Mapping[Slice, Shortfall], made_from: Mapping[Slice, str], silent_runs: Mapping[Slice, int]
) -> dict[Slice, dict[str, object]]:
    """The row of each slice in the table ``fetches``, and ``asked``: how often all that is unsettled was asked for."""
    now = datetime.now(UTC)
    return {
        slice_: {
            "planned": one.planned, "fetched": one.fetched, "quarantined": one.quarantined, "missing": one.missing,
            "unsettled": one.unsettled, "given_up": one.given_up, "reason": one.reason, "example": one.example,
            "rounds": one.rounds, "silent_runs": silent_runs.get(slice_, 0), "asked_at": now, "asked": one.asked,
            "made_from": made_from[slice_], "stored_bytes": one.stored_bytes,
            "stored_files": [{"file": file, "bytes": end} for file, end in sorted(one.stored.items())],
        }
        for slice_, one in found.items()
    }  # fmt: skip


def due_at(rounds: int, silent_runs: int, asked_at: datetime) -> datetime:
    """When schedules ask again for what is unsettled: the distance doubles with each run that asked in vain."""
    tries = min(rounds + silent_runs, 16)
    return asked_at + min(_LONGEST_DISTANCE, _FIRST_DISTANCE * 2 ** max(0, tries - 1))
