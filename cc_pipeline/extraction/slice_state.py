"""The state of slices, as plans, summaries, checks, schedules and ``doctor`` read it: the rows of ``slices`` that
count, and what their notes say.

    Slice      CC-MAIN-2024-22, example.org
    located    from definition af56, index parquet 4128          45 captures, complete
    fetched    from captures c01d…, policy record                44 fetched, 1 pending since 18:04
    parsed     from records 77e2…, parser 41: older records      so its pages are to be parsed again
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final

from cc_pipeline.extraction.fetch_counts import FetchSummary
from cc_pipeline.extraction.reusable_records import count_lost_records
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, VERSION, Metrics, Slice, Stage, group_targets_by_crawl
from cc_pipeline.lake.slices import SliceRow, read_epochs, read_slice_rows
from cc_pipeline.records.range_plan import FetchEstimate
from cc_pipeline.records.storage import StoredSizes
from cc_pipeline.workspace.workspace import Workspace

#: The stages of a slice, in the order in which they are made.
STAGES: Final = (LOCATE, FETCH, PARSE)


@dataclass(frozen=True, slots=True)
class Lookup:
    """The note of a slice's lookup: the index (its kind and version), the version of the slice's definition, whether
    the index was complete, and the cost of a fetch of all its ``captures``. ``unlisted_captures`` of these are no
    longer in the index that named them. ``index`` is empty if its version is not known."""

    located_by: str
    index: str
    definition: str
    complete: bool
    captures: int
    price: FetchEstimate
    index_files: int | None = None
    unread_files: int = 0
    unlisted_captures: int = 0

    @property
    def unread_share(self) -> float:
        """The share of the index's files, or of the asked blocks of the URL index, that could not be read."""
        return self.unread_files / self.index_files if self.index_files else 0.0


@dataclass(frozen=True, slots=True)
class SliceState:
    """The state of one slice: the ``epoch`` of its target, and its ``rows`` of ``slices`` by the label of the stage.
    ``lost_records`` is the number of records whose bytes do not exist any more."""

    epoch: int = 0
    rows: Mapping[str, SliceRow] = field(default_factory=dict)
    lost_records: int = 0

    def made(self, stage: Stage) -> SliceRow | None:
        """The row of a stage; ``None`` if it was never made."""
        row = self.rows.get(stage.label)
        return row if row is not None and row.tables else None

    @property
    def located(self) -> SliceRow | None:
        return self.made(LOCATE)

    @property
    def fetched(self) -> SliceRow | None:
        return self.made(FETCH)

    @property
    def parsed(self) -> SliceRow | None:
        return self.made(PARSE)

    @property
    def lookup(self) -> Lookup | None:
        """The note of the lookup of the stored captures."""
        row = self.located
        return None if row is None or not row.note else parse_lookup(row.note)

    @property
    def fetch(self) -> FetchSummary | None:
        """The note of the last fetch."""
        row = self.fetched
        return None if row is None or not row.note else _parse_fetch(row.note)

    def input_of(self, stage: Stage) -> Mapping[str, str] | None:
        """What the rows of a stage were made from; ``None`` if they never were."""
        row = self.made(stage)
        return None if row is None else row.input

    def content_metrics(self, stage: Stage) -> Metrics:
        """``version:TABLE`` of one stage's tables, as metrics."""
        row = self.made(stage)
        return {} if row is None else {name: value for name, value in row.metrics.items() if name.startswith(VERSION)}

    def with_row(self, row: SliceRow) -> SliceState:
        """The state after ``row`` was committed."""
        return replace(self, rows={**self.rows, row.stage: row})


def read_slice_states(
    workspace: Workspace,
    slices: Collection[Slice],
    stages: Sequence[Stage] = STAGES,
    *,
    check_stored_files: bool = True,
) -> dict[Slice, SliceState]:
    """Reads the current states of ``slices``, in their order, for the given ``stages``.

    With ``check_stored_files`` it looks whether the stored files exist, once a file. Raises ``EnvironmentFault`` when
    the lake cannot be read, or its store cannot be listed."""
    # the epochs first: a purge that begins in between is found by the commit
    epochs = read_epochs(workspace.lake, slices)
    rows = read_slice_rows(workspace.lake, slices, stages)
    by_slice: dict[Slice, dict[str, SliceRow]] = {slice_: {} for slice_ in slices}
    for (slice_, label), row in rows.items():
        by_slice[slice_][label] = row
    states = {slice_: SliceState(epochs[slice_], by_label) for slice_, by_label in by_slice.items()}
    if FETCH not in stages or not check_stored_files:
        return states
    lost_records = _count_lost_records(workspace, states)
    return {slice_: replace(state, lost_records=lost_records.get(slice_, 0)) for slice_, state in states.items()}


def parse_lookup(note: Mapping[str, Any]) -> Lookup:
    """The note of a lookup, as :func:`~cc_pipeline.extraction.lookup_notes.build_note` made it."""
    return Lookup(
        note["located_by"],
        note["index_version"],
        note["definition"],
        note["complete"],
        note["captures"],
        FetchEstimate(note["captures"], 0, note["fetch_requests"], note["fetch_bytes"], note["record_bytes"]),
        note["index_files"],
        note["unread_files"],
        note["unlisted"],
    )


_SUMMARY_NAMES: Final = tuple(column.name for column in fields(FetchSummary) if column.name != "stored")


def _parse_fetch(note: Mapping[str, Any]) -> FetchSummary:
    values = {name: note[name] for name in _SUMMARY_NAMES}
    for name in ("last_attempt_at", "next_ask_at"):
        values[name] = None if note[name] is None else datetime.fromisoformat(note[name])
    return FetchSummary(**values, stored={file_note["file"]: file_note["bytes"] for file_note in note["stored_files"]})


def _count_lost_records(workspace: Workspace, states: Mapping[Slice, SliceState]) -> dict[Slice, int]:
    """The number of records of each slice whose bytes do not exist any more. Rows are read only if a noted file is
    missing or too short: maintenance may have moved its records."""
    unsure_slices: list[Slice] = []
    fetched: Iterable[Slice] = [slice_ for slice_, state in states.items() if state.fetched is not None]
    for crawl, targets in group_targets_by_crawl(fetched).items():
        sizes = StoredSizes(workspace.storage, crawl)
        for slice_ in (Slice(crawl, target) for target in targets):
            fetch = states[slice_].fetch
            if fetch is None or any(
                end > size for end, size in zip(fetch.stored.values(), sizes.sizes_of(fetch.stored), strict=True)
            ):
                unsure_slices.append(slice_)
    return count_lost_records(workspace, unsure_slices)
