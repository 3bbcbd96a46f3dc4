"""The counts of a slice after a fetch: computed from rows of ``records``, noted in ``fetches``.

A capture that is missing or in quarantine is *lost* (settled) when asking again cannot change it: the source says that
its file does not exist, or gave the same damaged bytes twice, while it gives good records. Every other failure is
*pending*: a fault of the source, not of the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.lake.content_digests import NOTHING, combine_digests, compute_content_digests
from cc_pipeline.lake.slice import Metrics, Slice

#: Runs that ask for a capture, while the source gives others, before schedules give it up. A person's run always asks.
MAX_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCounts:
    """The numbers of captures after a fetch, by outcome; ``pending`` ones were not fetched and are retried.

    ``retries_exhausted`` of the pending ones were asked for in ``MAX_ROUNDS`` runs; ``unsuccessful_runs`` is the least
    number of runs that asked for one. ``reason`` is the most frequent one, ``example`` a capture with its reason in
    words. ``stored_bytes`` are the bytes of its records, ``stored`` the bytes that are needed of each file. Lost
    captures, mostly for ``lost_reason``, are at most ``lost_in_top_file`` in one archive file (``lost_top_file``).
    ``losses`` is a digest of them. ``mismatched`` of the fetched ones have another payload than the index names;
    ``mismatches`` is a digest of them and their payloads."""

    planned: int
    fetched: int
    quarantined: int
    missing: int
    pending: int
    retries_exhausted: int
    reason: str | None
    example: str | None
    unsuccessful_runs: int
    stored_bytes: int = 0
    stored: Mapping[str, int] = field(default_factory=dict)
    lost_reason: str | None = None
    lost_top_file: str | None = None
    lost_in_top_file: int = 0
    losses: str = NOTHING
    mismatched: int = 0
    mismatches: str = NOTHING

    @property
    def open(self) -> int:
        """The number of captures that schedules will ask for again."""
        return self.pending - self.retries_exhausted

    @property
    def settled(self) -> int:
        """The number of captures that are lost: asking again will not bring them."""
        return self.planned - self.fetched - self.pending


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSummary(FetchCounts):
    """The note of a slice after a fetch; see the columns of ``fetches``. ``runs_without_response`` is the number of
    last runs in which the source gave nothing, ``second_looks`` that of rechecks which confirmed the losses.
    ``losses_accepted`` is the digest of the losses that a person accepted, ``mismatches_confirmed`` that of the
    payloads that came twice. Losses or mismatches may be unconfirmed: too many to be accepted without a second
    fetch."""

    runs_without_response: int
    last_attempt_at: datetime
    losses_accepted: str | None = None
    losses_unconfirmed: bool = False
    mismatches_confirmed: str | None = None
    mismatches_unconfirmed: bool = False
    second_looks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFetchCounts(FetchCounts):
    """The counts of one slice, or target, after a fetch."""

    slice_: Slice

    def metrics(self) -> Metrics:
        """The metrics for the metadata of the partition."""
        lost = self.planned - self.fetched
        metrics: Metrics = {"pending": self.pending, "not here": share(lost, self.planned)}
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


@dataclass(slots=True)
class _PendingCounts:
    """The pending captures of a target with one reason: how many, how many of them are given up, the least number of
    runs that asked for one, and the first one."""

    count: int = 0
    retries_exhausted: int = 0
    min_rounds: int | None = None
    example: str = ""

    def add(self, other_counts: _PendingCounts) -> None:
        if not self.count:
            self.example = other_counts.example
        self.count += other_counts.count
        self.retries_exhausted += other_counts.retries_exhausted
        self.min_rounds = (
            other_counts.min_rounds if self.min_rounds is None else min(self.min_rounds, other_counts.min_rounds or 0)
        )


@dataclass(slots=True)
class Tally:
    """Counts rows of the records table of one crawl, for each target and reason.

    Rows are added batch by batch, also in several processes whose tallies are then summed. The fields are plain values,
    so a tally can be sent to another process.
    """

    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _pending: dict[str, dict[str | None, _PendingCounts]] = field(default_factory=dict)
    _bytes: Counter[str] = field(default_factory=Counter)
    _files: dict[str, dict[str, int]] = field(default_factory=dict)
    _lost_files: dict[str, Counter[str]] = field(default_factory=dict)
    _lost_reasons: dict[str, Counter[str]] = field(default_factory=dict)
    _mismatched: Counter[str] = field(default_factory=Counter)
    _losses: dict[str, str] = field(default_factory=dict)
    _mismatches: dict[str, str] = field(default_factory=dict)

    def add(self, records: pa.RecordBatch) -> None:
        """Counts more rows."""
        rows = pa.Table.from_batches([records])
        for row in rows.group_by(["target", "outcome"]).aggregate([([], "count_all")]).to_pylist():
            self._counts[row["target"], row["outcome"]] += row["count_all"]
        for row in _count_by_reason(unsettled_rows(rows)):
            url, detail = row["url_first"], row["detail_first"]
            pending_counts = _PendingCounts(
                row["count_all"], row["retries_exhausted_sum"], row["asked_min"], f"{url}: {detail}"
            )
            self._get_pending(row["target"], row["reason"]).add(pending_counts)
        ends = pc.add(rows["stored_offset"], rows["stored_length"])
        stored = rows.append_column("end", ends).group_by(["target", "stored_file"])
        for row in stored.aggregate([("end", "max"), ("stored_length", "sum")]).to_pylist():
            if row["stored_file"] is not None:
                self._store(row["target"], row["stored_file"], row["end_max"], row["stored_length_sum"])
        lost, mismatched = settled_rows(rows), mismatched_rows(rows)
        for row in lost.group_by(["target", "warc_filename"]).aggregate([([], "count_all")]).to_pylist():
            self._lost_files.setdefault(row["target"], Counter())[row["warc_filename"]] += row["count_all"]
        for row in lost.group_by(["target", "reason"]).aggregate([([], "count_all")]).to_pylist():
            self._lost_reasons.setdefault(row["target"], Counter())[row["reason"] or ""] += row["count_all"]
        for row in mismatched.group_by("target").aggregate([([], "count_all")]).to_pylist():
            self._mismatched[row["target"]] += row["count_all"]
        _add_digests(self._losses, compute_content_digests(lost.select(_CAPTURE_COLUMNS).to_batches(), "target", ()))
        # the detail has the computed digest
        mismatch_details = mismatched.select([*_CAPTURE_COLUMNS, "payload_length", "detail"])
        _add_digests(self._mismatches, compute_content_digests(mismatch_details.to_batches(), "target", ()))

    def include(self, other_tally: Tally) -> None:
        """Adds the counts of another tally."""
        self._counts.update(other_tally._counts)
        for target, reasons in other_tally._pending.items():
            for reason, pending_counts in reasons.items():
                self._get_pending(target, reason).add(pending_counts)
        for target, files in other_tally._files.items():
            for file, end in files.items():
                self._store(target, file, end, 0)
        self._bytes.update(other_tally._bytes)
        self._mismatched.update(other_tally._mismatched)
        for target, names in other_tally._lost_files.items():
            self._lost_files.setdefault(target, Counter()).update(names)
        for target, counts in other_tally._lost_reasons.items():
            self._lost_reasons.setdefault(target, Counter()).update(counts)
        _add_digests(self._losses, other_tally._losses)
        _add_digests(self._mismatches, other_tally._mismatches)

    def count_slices(self, slices: Sequence[Slice]) -> dict[Slice, SliceFetchCounts]:
        """The counts of each of ``slices``."""
        counts_by_slice = {}
        for slice_ in slices:
            pending_by_reason = self._pending.get(slice_.target, {})
            # the most frequent first; equally frequent ones by name
            sorted_reasons = sorted(
                pending_by_reason.items(), key=lambda pair: (-pair[1].count, pair[0] is None, pair[0] or "")
            )
            by_outcome = {name: self._counts[slice_.target, name] for name in ("fetched", "quarantined", "missing")}
            counts_by_slice[slice_] = SliceFetchCounts(
                slice_=slice_,
                planned=sum(by_outcome.values()),
                **by_outcome,
                pending=sum(counts.count for counts in pending_by_reason.values()),
                retries_exhausted=sum(counts.retries_exhausted for counts in pending_by_reason.values()),
                reason=sorted_reasons[0][0] if sorted_reasons else None,
                example=sorted_reasons[0][1].example if sorted_reasons else None,
                unsuccessful_runs=min((counts.min_rounds or 0 for counts in pending_by_reason.values()), default=0),
                stored_bytes=self._bytes[slice_.target],
                stored=self._files.get(slice_.target, {}),
                lost_reason=_most_common(self._lost_reasons.get(slice_.target, Counter())),
                lost_top_file=_most_common(files := self._lost_files.get(slice_.target, Counter())),
                lost_in_top_file=max(files.values(), default=0),
                losses=self._losses.get(slice_.target, NOTHING),
                mismatched=self._mismatched[slice_.target],
                mismatches=self._mismatches.get(slice_.target, NOTHING),
            )
        return counts_by_slice

    def _store(self, target: str, file: str, end: int, size: int) -> None:
        files = self._files.setdefault(target, {})
        files[file] = max(files.get(file, 0), end)
        self._bytes[target] += size

    def _get_pending(self, target: str, reason: str | None) -> _PendingCounts:
        return self._pending.setdefault(target, {}).setdefault(reason, _PendingCounts())


def is_unsettled(records: pa.Table) -> pa.ChunkedArray:
    """For each of ``records`` whether it is to be asked for again."""
    return pc.and_(pc.not_equal(records["outcome"], "fetched"), pc.fill_null(pc.invert(records["is_final"]), False))


#: Columns that identify a capture of a target in a crawl.
_CAPTURE_COLUMNS: Final = ["target", "warc_filename", "warc_record_offset"]


def _most_common(counts: Counter[str]) -> str | None:
    return min(counts, key=lambda name: (-counts[name], name), default=None)


def _add_digests(digests: dict[str, str], added_digests: Mapping[str, str]) -> None:
    for target, digest in added_digests.items():
        digests[target] = combine_digests((digests.get(target, NOTHING), digest))


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


def _sum_counts(slice_: Slice, parts: Sequence[SliceFetchCounts]) -> SliceFetchCounts:
    count_names = ("planned", "fetched", "quarantined", "missing", "pending", "retries_exhausted", "mismatched")
    digest_names = ("losses", "mismatches")
    totals: dict[str, Any] = {name: sum(getattr(counts, name) for counts in parts) for name in count_names}
    worst = max(parts, key=lambda counts: counts.lost_in_top_file)
    totals |= {"lost_in_top_file": worst.lost_in_top_file, "lost_top_file": worst.lost_top_file}
    totals["lost_reason"] = max(parts, key=lambda counts: counts.settled).lost_reason
    totals |= {name: combine_digests(getattr(counts, name) for counts in parts) for name in digest_names}
    return replace(
        # its reason and example
        max(parts, key=lambda counts: counts.pending),
        slice_=slice_,
        unsuccessful_runs=min((counts.unsuccessful_runs for counts in parts if counts.pending), default=0),
        **totals,
    )


def _count_by_reason(lost: pa.Table) -> list[dict[str, Any]]:
    rounds = pc.fill_null(lost["unsuccessful_runs"], 0)
    has_max_rounds = pc.cast(pc.greater_equal(rounds, MAX_ROUNDS), pa.int64())
    marked_rows = lost.append_column("asked", rounds).append_column("retries_exhausted", has_max_rounds)
    aggregates = [([], "count_all"), ("retries_exhausted", "sum"), ("asked", "min")]
    firsts = [("url", "first"), ("detail", "first")]
    return marked_rows.group_by(["target", "reason"], use_threads=False).aggregate([*aggregates, *firsts]).to_pylist()


def unsettled_rows(records: pa.Table) -> pa.Table:
    """The rows of ``records`` that are to be asked for again."""
    return records.filter(is_unsettled(records))


def settled_rows(records: pa.Table) -> pa.Table:
    """The rows of ``records`` that are lost, so that they are not asked for again; without those that have no
    location."""
    lost = records.filter(pc.not_equal(records["outcome"], "fetched"))
    has_no_location = pc.fill_null(pc.equal(lost["reason"], "bad_plan"), False)
    return lost.filter(pc.and_not(lost["is_final"], has_no_location))


def mismatched_rows(records: pa.Table) -> pa.Table:
    """The fetched rows of ``records`` with another payload than the index names."""
    is_mismatch = pc.and_(pc.equal(records["outcome"], "fetched"), pc.equal(records["digest_check"], "mismatch"))
    return records.filter(pc.fill_null(is_mismatch, False))
