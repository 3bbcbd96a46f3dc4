"""The note of a fetched slice: what the table ``fetches`` shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cc_pipeline.extraction.fetch_counts import FetchCounts, FetchSummary, SliceFetchCounts
from cc_pipeline.extraction.loss_policy import next_ask_time
from cc_pipeline.lake.slice import Slice

#: Columns of ``fetches`` that are fields of ``FetchCounts``.
_COUNT_COLUMNS: Final = tuple(name for name in FetchCounts.__slots__ if name != "stored")


def build_fetch_notes(
    counts_by_slice: Mapping[Slice, SliceFetchCounts],
    previous_notes: Mapping[Slice, FetchSummary | None],
    ask_time: datetime,
) -> dict[Slice, dict[str, object]]:
    """The note of each slice after a fetch at ``ask_time``; see the columns of ``fetches``."""
    notes: dict[Slice, dict[str, object]] = {}
    for slice_, counts in counts_by_slice.items():
        previous = previous_notes[slice_]
        has_failed = counts.pending > counts.ask_pending
        failed_runs = (0 if previous is None else previous.failed_runs) + 1 if has_failed else 0
        next_ask_at = next_ask_time(counts, failed_runs, ask_time)
        notes[slice_] = {
            **{name: getattr(counts, name) for name in _COUNT_COLUMNS},
            "failed_runs": failed_runs,
            "last_attempt_at": _format_time(ask_time),
            "next_ask_at": None if next_ask_at is None else _format_time(next_ask_at),
            "stored_files": list_stored_files(counts),
        }
    return notes


def _format_time(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")


def list_stored_files(counts: FetchCounts) -> list[dict[str, object]]:
    """The stored files of a slice, as the table has them."""
    return [{"file": file, "bytes": end} for file, end in sorted(counts.stored.items())]
