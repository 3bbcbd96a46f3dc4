"""The counts of a slice after a fetch: computed from rows of ``records``, noted in ``fetches``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.lake.slice import Metrics, Slice
from cc_pipeline.records.ask_counts import ASKS_UNTIL_LOST, BAD_PLAN
from cc_pipeline.transport.faults import handling_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCounts:
    """The numbers of captures after a fetch, by outcome.

    ``reason`` is the most frequent one of the pending ones, ``example`` a capture with its reason in words.
    ``ask_pending`` of them failed for a reason that counts towards a loss; ``asks`` is the least number of their asks.
    Lost captures are lost mostly for ``lost_reason``. ``mismatched`` of the fetched ones have another payload than the
    index names. ``stored_bytes`` are the bytes of the records, ``stored`` the bytes that are needed of each file."""

    planned: int
    fetched: int
    pending: int
    lost: int
    reason: str | None = None
    example: str | None = None
    ask_pending: int = 0
    asks: int = 0
    lost_reason: str | None = None
    mismatched: int = 0
    stored_bytes: int = 0
    stored: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSummary(FetchCounts):
    """The note of a slice after a fetch; see the columns of ``fetches``. ``failed_runs`` is the number of last fetches
    after which captures were pending for reasons that do not count. From ``next_ask_at`` on schedules request pending
    captures (``None``: none are)."""

    last_attempt_at: datetime
    next_ask_at: datetime | None = None
    failed_runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFetchCounts(FetchCounts):
    """The counts of one slice, or target, after a fetch. ``last_ask_at`` is the time of the earliest last ask of its
    pending captures. ``losses`` are the captures of each archive file that are lost, or pending for a reason that
    counts."""

    slice_: Slice
    last_ask_at: datetime | None = None
    losses: Mapping[str, int] = field(default_factory=dict)

    def metrics(self) -> Metrics:
        """The metrics for the metadata of the partition."""
        metrics: Metrics = {
            "pending": self.pending,
            "not fetched": share(self.planned - self.fetched, self.planned),
        }
        if self.pending:
            metrics["pending because of"] = f"{self.reason}, e.g. {self.example}"
        if self.mismatched:
            metrics["payloads other than indexed"] = self.mismatched
        return metrics


def share(part: int, total: int) -> str:
    """``part`` of ``total`` as a percentage for a person, e.g. ``0.3 %``; never rounded to nothing."""
    if not part:
        return "0 %"
    percent = 100 * part / total
    return f"{percent:.1f} %" if percent >= 0.1 else "< 0.1 %"


def describe_asks(asks: int, next_ask_at: datetime | None) -> str:
    """How often pending captures were asked for, and when schedules ask again: ``asked 1 of 3 times, next after …``."""
    next_note = "" if next_ask_at is None else f", next after {next_ask_at:%Y-%m-%d %H:%M} UTC"
    return f"asked {asks} of {ASKS_UNTIL_LOST} times{next_note}"


@dataclass(slots=True)
class _PendingCounts:
    """The pending captures of a target with one reason: how many, the least number of their asks, the earliest time of
    a last ask, and the first capture."""

    count: int = 0
    asks: int = ASKS_UNTIL_LOST
    last_ask_at: datetime | None = None
    example: str = ""

    def add(self, counts: _PendingCounts) -> None:
        self.example = self.example or counts.example
        self.count += counts.count
        self.asks = min(self.asks, counts.asks)
        self.last_ask_at = _find_earliest((self.last_ask_at, counts.last_ask_at))


@dataclass(slots=True)
class Tally:
    """Counts rows of the records table of one crawl, for each target and reason.

    Rows are added batch by batch, also in several processes whose tallies are then summed. The fields are plain values,
    so a tally can be sent to another process.
    """

    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _pending: dict[str, dict[str, _PendingCounts]] = field(default_factory=dict)
    _bytes: Counter[str] = field(default_factory=Counter)
    _files: dict[str, dict[str, int]] = field(default_factory=dict)
    _lost_reasons: dict[str, Counter[str]] = field(default_factory=dict)
    _losses: dict[str, Counter[str]] = field(default_factory=dict)
    _mismatched: Counter[str] = field(default_factory=Counter)

    def add(self, records: pa.RecordBatch) -> None:
        """Counts more rows."""
        rows = pa.Table.from_batches([records])
        for row in _count_groups(rows, ["target", "outcome"]):
            self._counts[row["target"], row["outcome"]] += row["count_all"]
        for row in _count_groups(mismatched_rows(rows), ["target"]):
            self._mismatched[row["target"]] += row["count_all"]
        stored = rows.filter(pc.is_valid(rows["stored_file"]))
        ends = pc.add(stored["stored_offset"], stored["stored_length"])
        by_file = stored.append_column("end", ends).group_by(["target", "stored_file"])
        for row in by_file.aggregate([("end", "max"), ("stored_length", "sum")]).to_pylist():
            self._store(row["target"], row["stored_file"], row["end_max"], row["stored_length_sum"])
        self._add_unfetched(rows.filter(pc.not_equal(rows["outcome"], "fetched")))

    def _add_unfetched(self, rows: pa.Table) -> None:
        aggregates = [([], "count_all"), ("asks", "min"), ("last_ask_at", "min"), ("url", "first"), ("detail", "first")]
        groups = rows.group_by(["target", "outcome", "reason"], use_threads=False).aggregate(aggregates)
        for row in groups.to_pylist():
            if row["outcome"] == "lost":
                self._lost_reasons.setdefault(row["target"], Counter())[row["reason"]] += row["count_all"]
            else:
                example = f"{row['url_first']}: {row['detail_first']}"
                pending = _PendingCounts(row["count_all"], row["asks_min"], row["last_ask_at_min"], example)
                self._get_pending(row["target"], row["reason"]).add(pending)
        counting = [reason for reason in rows["reason"].unique().to_pylist() if counts_as_loss(reason)]
        losses = rows.filter(pc.is_in(rows["reason"], value_set=pa.array(counting, pa.string())))
        for row in _count_groups(losses, ["target", "warc_filename"]):
            self._losses.setdefault(row["target"], Counter())[row["warc_filename"]] += row["count_all"]

    def include(self, tally: Tally) -> None:
        """Adds the counts of another tally."""
        self._counts.update(tally._counts)
        self._bytes.update(tally._bytes)
        self._mismatched.update(tally._mismatched)
        for target, reasons in tally._pending.items():
            for reason, pending_counts in reasons.items():
                self._get_pending(target, reason).add(pending_counts)
        for target, files in tally._files.items():
            for file, end in files.items():
                self._store(target, file, end, 0)
        for totals, added_counts in ((self._lost_reasons, tally._lost_reasons), (self._losses, tally._losses)):
            for target, counts in added_counts.items():
                totals.setdefault(target, Counter()).update(counts)

    def count_slices(self, slices: Iterable[Slice]) -> dict[Slice, SliceFetchCounts]:
        """The counts of each of ``slices``."""
        return {slice_: self._count_slice(slice_) for slice_ in slices}

    def _count_slice(self, slice_: Slice) -> SliceFetchCounts:
        target = slice_.target
        by_reason = self._pending.get(target, {})
        # equally frequent ones by name
        reason = min(by_reason, key=lambda name: (-by_reason[name].count, name), default=None)
        counting = [counts for name, counts in by_reason.items() if counts_as_loss(name)]
        numbers = {name: self._counts[target, name] for name in ("fetched", "pending", "lost")}
        return SliceFetchCounts(
            slice_=slice_,
            planned=sum(numbers.values()),
            **numbers,
            reason=reason,
            example=None if reason is None else by_reason[reason].example,
            ask_pending=sum(counts.count for counts in counting),
            asks=min((counts.asks for counts in counting), default=0),
            last_ask_at=_find_earliest(counts.last_ask_at for counts in counting),
            lost_reason=_most_common(self._lost_reasons.get(target, Counter())),
            losses=self._losses.get(target, {}),
            mismatched=self._mismatched[target],
            stored_bytes=self._bytes[target],
            stored=self._files.get(target, {}),
        )

    def _store(self, target: str, file: str, end: int, size: int) -> None:
        files = self._files.setdefault(target, {})
        files[file] = max(files.get(file, 0), end)
        self._bytes[target] += size

    def _get_pending(self, target: str, reason: str) -> _PendingCounts:
        return self._pending.setdefault(target, {}).setdefault(reason, _PendingCounts())


def counts_as_loss(reason: str) -> bool:
    """Whether a capture that is not fetched for ``reason`` speaks for a loss at the source."""
    return reason != BAD_PLAN and handling_of(reason).counts


def count_fetched(records: Iterable[pa.RecordBatch], slices: Sequence[Slice]) -> dict[Slice, SliceFetchCounts]:
    """The counts of each of ``slices`` of one crawl, from their rows of the records table."""
    tally = Tally()
    for batch in records:
        tally.add(batch)
    return tally.count_slices(slices)


def sum_by_target(slice_counts: Iterable[SliceFetchCounts]) -> list[SliceFetchCounts]:
    """The counts of each target, by which a source is judged: those of all its slices."""
    counts_by_target: dict[Slice, list[SliceFetchCounts]] = {}
    for counts in slice_counts:
        counts_by_target.setdefault(counts.slice_.partition, []).append(counts)
    return [_sum_counts(slice_, parts) for slice_, parts in counts_by_target.items()]


_SUMMED_NAMES: Final = ("planned", "fetched", "pending", "lost", "ask_pending", "mismatched")


def _sum_counts(slice_: Slice, parts: Sequence[SliceFetchCounts]) -> SliceFetchCounts:
    totals: dict[str, Any] = {name: sum(getattr(counts, name) for counts in parts) for name in _SUMMED_NAMES}
    totals["lost_reason"] = max(parts, key=lambda counts: counts.lost).lost_reason
    totals["asks"] = min((counts.asks for counts in parts if counts.ask_pending), default=0)
    # its reason and example
    return replace(max(parts, key=lambda counts: counts.pending), slice_=slice_, **totals)


def _find_earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def _most_common(counts: Counter[str]) -> str | None:
    return min(counts, key=lambda name: (-counts[name], name), default=None)


def _count_groups(rows: pa.Table, keys: list[str]) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = rows.group_by(keys).aggregate([([], "count_all")]).to_pylist()
    return groups


def mismatched_rows(records: pa.Table) -> pa.Table:
    """The fetched rows of ``records`` with another payload than the index names."""
    is_mismatch = pc.and_(pc.equal(records["outcome"], "fetched"), pc.equal(records["digest_check"], "mismatch"))
    return records.filter(pc.fill_null(is_mismatch, False))
