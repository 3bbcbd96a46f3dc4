"""Reads the state of slices: the input and content digests of each stage, and the pending and lost captures.

Plans, summaries, checks, schedules and ``doctor`` all use it. It reads the given names in one pass a table, and only
rows of two tables with one row per slice.

    Slice      CC-MAIN-2024-22, example.org
    located    input 8f3a…, content c01d…     by parquet, complete, 45 captures
    fetched    input c01d…, content 77e2…     44 fetched, 1 pending since 18:04
    parsed     input 12ab…: older records     so its pages are to be parsed again
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from cc_pipeline.extraction.fetch_counts import FetchSummary
from cc_pipeline.extraction.reusable_records import count_lost_records
from cc_pipeline.lake.digests.digest import NOTHING
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import (
    EMPTIED_DIGEST,
    FETCH,
    LOCATE,
    PARSE,
    VERSION,
    Metrics,
    Slice,
    Stage,
    content_name,
    group_targets_by_crawl,
)
from cc_pipeline.records.range_plan import FetchEstimate
from cc_pipeline.records.storage import StoredSizes
from cc_pipeline.workspace.workspace import Workspace

#: The stages of a slice, in the order in which they are made.
STAGES: Final = (LOCATE, FETCH, PARSE)


@dataclass(frozen=True, slots=True)
class StageState:
    """The state of one stage of a slice: the input digest of its rows, and their content digests by table."""

    input_digest: str
    content_digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def content_digest(self) -> str:
        """The digest of the rows' content, which is the input of the next stage."""
        return "".join(self.content_digests.values())


@dataclass(frozen=True, slots=True)
class Lookup:
    """The note of a slice's lookup: the index (its kind and version), the version of the slice's definition, whether
    the index was complete, and the cost of a fetch of all its ``captures``. ``unlisted_captures`` of these are no
    longer in the index that named them, which nobody accepted; ``removal`` is a digest of these. ``index`` is empty if
    its version is not known."""

    located_by: str
    index: str
    definition: str
    complete: bool
    captures: int
    price: FetchEstimate
    index_files: int | None = None
    unread_files: int = 0
    index_size: int | None = None
    unlisted_captures: int = 0
    removal: str = NOTHING


@dataclass(frozen=True, slots=True)
class SliceState:
    """The state of one slice. A stage that was never made is ``None``. ``partially_committed``: a run was killed
    between the commits of the page tables. ``lookup`` and ``fetch`` are the notes of the stored rows. ``last_fetch`` is
    the note of the last fetch, even if its source gave nothing and the rows stayed. ``lost_records`` is the number of
    records whose bytes do not exist any more."""

    located: StageState | None = None
    fetched: StageState | None = None
    parsed: StageState | None = None
    partially_committed: bool = False
    lookup: Lookup | None = None
    fetch: FetchSummary | None = None
    last_fetch: FetchSummary | None = None
    lost_records: int = 0

    def stage_state(self, stage: Stage) -> StageState | None:
        """The state of one stage."""
        return {LOCATE.label: self.located, FETCH.label: self.fetched, PARSE.label: self.parsed}[stage.label]

    def input_digest(self, stage: Stage) -> str | None:
        """The input digest of the rows of a stage; ``None`` if it was never made."""
        stage_state = self.stage_state(stage)
        return None if stage_state is None else stage_state.input_digest

    def replaced_digests(self, stage: Stage) -> tuple[str | None, str | None]:
        """The input digest of the rows of a stage, and the content digest of its main table: a commit that replaces the
        rows compares both."""
        stage_state = self.stage_state(stage)
        return (
            (None, None)
            if stage_state is None
            else (stage_state.input_digest, stage_state.content_digests.get(stage.main_table))
        )

    def content_metrics(self, stage: Stage) -> Metrics:
        """``version:TABLE`` of one stage's tables, as metrics."""
        stage_state = self.stage_state(stage)
        return (
            {}
            if stage_state is None
            else {f"{VERSION}{table}": digest for table, digest in stage_state.content_digests.items()}
        )


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
    lake = workspace.lake
    stage_states = {stage.label: _read_stage_states(lake, stage, slices) for stage in stages}
    lookups = _read_lookups(workspace, stage_states[LOCATE.label][0]) if LOCATE in stages else {}
    last_fetches = _read_fetch_notes(workspace, slices) if FETCH in stages else {}
    fetched_digests = (
        {slice_: stage_state.input_digest for slice_, stage_state in stage_states[FETCH.label][0].items()}
        if FETCH in stages
        else {}
    )
    fetches = {
        slice_: note
        for slice_, (input_digest, note) in last_fetches.items()
        if fetched_digests.get(slice_) == input_digest
    }
    lost_records = (
        _count_lost_records(workspace, stage_states[FETCH.label][0], fetches)
        if FETCH in stages and check_stored_files
        else {}
    )
    no_states: tuple[dict[Slice, StageState], set[Slice]] = ({}, set())
    located, fetched, parsed = (stage_states.get(stage.label, no_states) for stage in STAGES)
    return {
        slice_: SliceState(
            located[0].get(slice_),
            fetched[0].get(slice_),
            parsed[0].get(slice_),
            slice_ in parsed[1],
            lookups.get(slice_),
            fetches.get(slice_),
            last_fetches[slice_][1] if slice_ in last_fetches else None,
            lost_records.get(slice_, 0),
        )
        for slice_ in slices
    }


def read_content_digests(lake: Lake, stage: Stage, slices: Collection[Slice]) -> dict[Slice, str | None]:
    """The content digest of each slice (:attr:`StageState.content_digest`), which is the input of the next stage;
    ``None`` if ``stage`` was not made."""
    stage_states = _read_stage_states(lake, stage, slices)[0]
    return {slice_: stage_states[slice_].content_digest if slice_ in stage_states else None for slice_ in slices}


def _read_stage_states(
    lake: Lake, stage: Stage, slices: Collection[Slice]
) -> tuple[dict[Slice, StageState], set[Slice]]:
    """The stage states of the slices that were made, and the slices whose tables have different digests."""
    names = {slice_: (stage.digest_name(slice_), content_name(slice_)) for slice_ in slices}
    digest_names = [name for pair in names.values() for name in pair]
    by_table = {table: lake.digests(table, digest_names) for table in stage.tables} if digest_names else {}
    stage_states: dict[Slice, StageState] = {}
    partial_slices: set[Slice] = set()
    for slice_, (name, content) in names.items():
        digests = {by_name[name] for by_name in by_table.values()}
        digest = digests.pop()
        if digests:
            partial_slices.add(slice_)
        elif digest is not None and digest != EMPTIED_DIGEST:
            content_digests = {
                table: content_digest
                for table, table_digests in by_table.items()
                if (content_digest := table_digests[content]) is not None
            }
            stage_states[slice_] = StageState(digest, content_digests)
    return stage_states, partial_slices


def _read_note_rows(
    workspace: Workspace, table: str, slices: Iterable[Slice]
) -> Iterator[tuple[Slice, dict[str, Any]]]:
    """The rows of a table with one row per slice. A row counts only if its digest is that of the stored rows: a run
    that was killed between two commits leaves others."""
    columns = [name for name in workspace.lake.specs[table].schema.names if name not in _LARGE_COLUMNS]
    for crawl, targets in group_targets_by_crawl(slices).items():
        for row in workspace.lake.read(table, {"crawl": crawl, "target": targets}, columns).to_pylist():
            yield Slice(crawl, row["target"]), row


#: Columns of such tables that grow with a set's members or with unread files.
_LARGE_COLUMNS: Final = ("members", "unread")


def _read_lookups(workspace: Workspace, stage_states: Mapping[Slice, StageState]) -> dict[Slice, Lookup]:
    return {
        slice_: Lookup(
            row["located_by"],
            row["index_version"],
            row["definition"],
            row["complete"],
            row["captures"],
            FetchEstimate(row["captures"], 0, row["fetch_requests"], row["fetch_bytes"], row["record_bytes"]),
            row["index_files"],
            row["unread_files"],
            row["index_size"],
            row["unlisted"],
            row["removal"],
        )
        for slice_, row in _read_note_rows(workspace, "lookups", stage_states)
        if row["input_digest"] == stage_states[slice_].input_digest
    }


def _read_fetch_notes(workspace: Workspace, slices: Collection[Slice]) -> dict[Slice, tuple[str, FetchSummary]]:
    """The last note of each slice, with the input digest of the fetch."""
    names = [column.name for column in fields(FetchSummary) if column.name != "stored"]
    notes_by_slice: dict[Slice, tuple[str, FetchSummary]] = {}
    for slice_, row in _read_note_rows(workspace, "fetches", slices):
        stored = {stored_file["file"]: stored_file["bytes"] for stored_file in row["stored_files"]}
        notes_by_slice[slice_] = row["input_digest"], FetchSummary(**{name: row[name] for name in names}, stored=stored)
    return notes_by_slice


def _count_lost_records(
    workspace: Workspace, stage_states: Mapping[Slice, StageState], fetches: Mapping[Slice, FetchSummary]
) -> dict[Slice, int]:
    """The number of records of each slice whose bytes do not exist any more. Rows are read only if a noted file is
    missing or too short: maintenance may have moved its records."""
    unsure_slices: list[Slice] = []
    for crawl, targets in group_targets_by_crawl(stage_states).items():
        sizes = StoredSizes(workspace.storage, crawl)
        for slice_ in (Slice(crawl, target) for target in targets):
            stored = fetches[slice_].stored if slice_ in fetches else None
            if stored is None or any(
                end > size for end, size in zip(stored.values(), sizes.sizes_of(stored), strict=True)
            ):
                unsure_slices.append(slice_)
    return count_lost_records(workspace, unsure_slices)
