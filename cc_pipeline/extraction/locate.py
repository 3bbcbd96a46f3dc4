"""Locates the captures of targets, commits them per crawl, and estimates the cost of their fetch."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.advice import advise
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.slice_slugs import PLAIN, is_named_captures, named_captures_slug, with_subset
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.blocklist import blocks_of
from cc_pipeline.extraction.capture_buffer import CaptureBuffer, CaptureTotals, SliceLookup
from cc_pipeline.extraction.cost_limit import enforce_cost_limit
from cc_pipeline.extraction.group_state import GroupState, RunState, run_and_replan
from cc_pipeline.extraction.lookup_notes import (
    LookupSummary,
    LookupTask,
    add_captures_of_former_parts,
    add_previous_captures,
    build_details,
    build_note,
    carry_over_members,
    describe_completeness,
    plan_lookups,
    split_into_commits,
    split_into_passes,
)
from cc_pipeline.extraction.plan import SINGLE_CAPTURES, Index, build_locate_input, options_of, plan
from cc_pipeline.extraction.slice_selection import empty_obsolete_slices, find_obsolete_slices
from cc_pipeline.extraction.slice_state import Lookup, SliceState
from cc_pipeline.grouping import group_within
from cc_pipeline.harvesting.catalog import catalog_gaps, columnar_versions
from cc_pipeline.harvesting.index_sources import index_sources
from cc_pipeline.index.gaps import name_subsets
from cc_pipeline.index.locator import NAME_SEPARATOR, NAMED_CAPTURES, CaptureSink, LookupResult
from cc_pipeline.index.locators import AUTO, BTREE, PARQUET
from cc_pipeline.index.lookup import look_up, outside_notes
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import FETCH, LOCATE, Metrics, Slice, StageReport, count_written
from cc_pipeline.lake.slices import SliceRow, commit_written, draw_generations
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA
from cc_pipeline.workspace.workspace import Workspace

#: Bytes of captures given to the writer at a time: its threads wait for each other, and it holds up to some thirty such
#: batches when other processes are busy.
_WRITE_BATCH_BYTES = 2 << 20
#: The index to ask, and for which subsets.
_IndexQuery: TypeAlias = tuple[str, tuple[str, ...]]
_RETAINED_MESSAGE = "{captures} kept in {crawl}, although not in this lookup: other index files list them"
_UNLISTED_MESSAGE = (
    "{captures} no longer in the index of {crawl}; they are kept, with their records and pages. To remove them: "
    "run --accept-removals"
)
_REMOVED_MESSAGE = "{captures} removed from {crawl}: its index no longer lists them"


def find_captures(
    workspace: Workspace,
    crawl: str,
    targets: Sequence[Target],
    *,
    subsets: Sequence[str] | None = None,
    via: str | None = None,
    sink: CaptureSink | None = None,
) -> LookupResult:
    """The captures of ``targets`` in ``crawl`` and the ``subsets`` (default: the settings'): all of them, or an error.
    With ``sink`` they are passed to it as they are found."""
    settings = workspace.settings
    sources = index_sources(workspace, crawl)
    selected_subsets = settings.subsets if subsets is None else subsets
    return look_up(crawl, selected_subsets, targets, sources, via=via or settings.index, sink=sink)


def list_indexes(workspace: Workspace, slice_states: Mapping[Slice, SliceState]) -> dict[tuple[str, str], Index]:
    """The indexes that can locate slices, by crawl and subset. Sends no request. Equal versions stand for equal
    answers."""
    settings = workspace.settings
    incomplete = {
        (slice_.crawl, slice_.subset)
        for slice_, slice_state in slice_states.items()
        if slice_state.lookup and not slice_state.lookup.complete
    }
    crawl_subsets = sorted({(slice_.crawl, slice_.subset) for slice_ in slice_states})
    columnar = columnar_versions(workspace.lake, {crawl for crawl, _ in crawl_subsets if crawl not in ARC_CRAWLS})
    indexes: dict[tuple[str, str], Index] = {}
    for crawl, subset in crawl_subsets:
        if crawl in ARC_CRAWLS:
            versions = {BTREE: "published"}  # it never changes
        else:
            versions = {PARQUET: columnar[crawl, subset]} if (crawl, subset) in columnar else {}
        gaps = catalog_gaps(workspace, [crawl], (subset,)) if (crawl, subset) in incomplete else ()
        indexes[crawl, subset] = Index(
            versions, all(crawl_gaps.allowed(settings.max_index_gaps) for crawl_gaps in gaps)
        )
    return indexes


def refuse_unharvested(workspace: Workspace, indexes: Mapping[tuple[str, str], Index]) -> None:
    """Raises ``EnvironmentFault`` if the columnar index is to be asked and was not harvested."""
    settings = workspace.settings
    for (crawl, subset), index in indexes.items():
        if crawl not in ARC_CRAWLS and PARQUET not in index.versions and settings.index in (AUTO, PARQUET):
            if crawl in workspace.index_choices and settings.index == AUTO:
                continue
            subset_note = "" if subset == PLAIN else f" ({subset})"
            raise EnvironmentFault(
                f"the index of {crawl}{subset_note} has not been harvested",
                advise(
                    "index harvest",
                    crawl=crawl,
                    subset=name_subsets([subset]),
                    sentence="Harvest it first: the job harvest_crawl, or {}",
                ),
            )


def locate_captures(workspace: Workspace, crawl: str, slugs: Sequence[str], run: RunState | None = None) -> StageReport:
    """Finds the captures of ``slugs`` in ``crawl``. Slices whose inputs are unchanged stay. ``run`` has the states that
    the stages before left.

    Of a set with changed members, only the new members are looked up, and an unchanged part of it stays. Captures that
    the index no longer lists stay too, unless the settings accept removals. Raises ``UserInputError`` for keys that
    have no definition and cannot be given one, and, after the captures were committed, for a fetch that would cost more
    than the settings allow; ``IndexIncomplete`` if index files were not read and no other index has the crawl;
    ``EnvironmentFault`` if the index cannot be read; ``SlicesChanged`` if other processes keep changing the slices.
    """
    run_state = run or RunState(workspace)
    locate_all = partial(_locate_all, workspace, crawl, slugs, run_state)
    return run_and_replan(run_state, crawl, slugs, locate_all, relocates=True)


def _locate_all(workspace: Workspace, crawl: str, slugs: Sequence[str], run: RunState) -> StageReport:
    started = time.monotonic()
    state = run.take(crawl, slugs)
    requests = {slice_: state.requests[slice_] for slice_ in state.target_slices.requested_slices}
    indexes = list_indexes(workspace, {slice_: state.slice_states[slice_] for slice_ in requests})
    options = options_of(workspace.settings)
    due_versions = {
        slice_: requests[slice_].version
        for slice_ in plan(requests, state.slice_states, indexes, options, (LOCATE,)).reasons_for(LOCATE)
    }
    totals = _locate(_LookupPlan(workspace, state, due_versions, indexes))
    empty_obsolete_slices(workspace, LOCATE, state.target_slices)
    new_state = state.with_rows(totals.committed)
    fetch_plan = plan(requests, new_state.slice_states, {}, options, (FETCH,))
    fetch_reasons = fetch_plan.reasons_for(FETCH, excluded_kinds=SINGLE_CAPTURES)
    enforce_cost_limit(workspace, {slice_: new_state.slice_states[slice_] for slice_ in fetch_reasons})
    run.keep(new_state)
    return state.target_slices.fold_by_target(
        _build_report(due_versions, requests, new_state.slice_states, totals, started)
    )


def _build_report(
    due_slices: Collection[Slice],
    requested_slices: Collection[Slice],
    slice_states: Mapping[Slice, SliceState],
    totals: _LookupTotals,
    started: float,
) -> StageReport:
    """The report of the stage, with the metrics of each slice."""
    metrics_by_target = {
        slice_.target: _build_metrics(slice_state, slice_state.lookup, slice_ in due_slices)
        for slice_, slice_state in slice_states.items()
        if slice_state.lookup
    }
    return StageReport(
        LOCATE.label,
        rows=sum(int(metrics["rows:captures"]) for metrics in metrics_by_target.values()),
        written=totals.rows,
        bytes=totals.bytes,
        requests=totals.requests,
        seconds=time.monotonic() - started,
        fresh_slices=len(due_slices),
        reused_slices=len(requested_slices) - len(due_slices),
        notes=tuple(totals.notes),
        per_target=metrics_by_target,
    )


@dataclass(slots=True)
class _LookupTotals:
    """The costs and results of lookups."""

    rows: int = 0
    requests: int = 0
    bytes: int = 0
    retained: int = 0
    outside: int = 0
    blocked: int = 0
    unlisted_captures: int = 0
    removed: int = 0
    notes: dict[str, None] = field(default_factory=dict)
    committed: list[SliceRow] = field(default_factory=list)

    def add(self, totals_by_slice: Mapping[Slice, CaptureTotals]) -> None:
        """Counts captures of slices that were committed: retained, removed and left out ones."""
        for capture_totals in totals_by_slice.values():
            self.retained += capture_totals.retained
            self.unlisted_captures += capture_totals.unlisted_captures
            self.removed += capture_totals.removed
            self.outside += capture_totals.outside


@dataclass(frozen=True, slots=True)
class _LookupPlan:
    """The lookups that are due in a crawl: slices with the ``versions`` of their definitions. ``state`` has all slices
    of their targets, ``indexes`` is by crawl and subset."""

    workspace: Workspace
    state: GroupState
    versions: Mapping[Slice, str]
    indexes: Mapping[tuple[str, str], Index]

    @property
    def crawl(self) -> str:
        """The crawl of the slices."""
        return self.state.target_slices.crawl

    @property
    def slice_states(self) -> Mapping[Slice, SliceState]:
        """The states of all slices of the targets."""
        return self.state.slice_states

    def get_index(self, slice_: Slice) -> Index:
        """The index by which a slice can be located."""
        return self.indexes[self.crawl, slice_.subset]


def _locate(lookup_plan: _LookupPlan) -> _LookupTotals:
    """Looks up the planned slices and commits them, pass by pass."""
    workspace, crawl, versions = lookup_plan.workspace, lookup_plan.crawl, lookup_plan.versions
    totals, located_count = _LookupTotals(), 0
    if indexed_slices := {slice_ for slice_ in versions if not is_named_captures(slice_.target)}:
        refuse_unharvested(
            workspace, {(crawl, slice_.subset): lookup_plan.get_index(slice_) for slice_ in indexed_slices}
        )
        if reason := workspace.index_choices.get(crawl):
            totals.notes[reason] = None
    for targets in split_into_passes(workspace, [*versions]):
        progress.report("locate", located_count, len(versions), crawl)
        with workspace.scratch_folder("locate") as scratch:
            buffer = CaptureBuffer(scratch, lookup_plan.state.blocklist)
            _locate_pass(lookup_plan, targets, buffer, totals)
            totals.blocked += buffer.blocked_captures
        located_count += len(targets)
    if versions:
        progress.report("locate", located_count, len(versions), crawl)
    totals.notes |= dict.fromkeys(_write_notes(totals, crawl))
    return totals


def _locate_pass(
    lookup_plan: _LookupPlan, targets: Mapping[Slice, Target], buffer: CaptureBuffer, totals: _LookupTotals
) -> None:
    """Locates the slices of one pass: members are carried over, new captures come from the index, and stored captures
    are added."""
    workspace, versions, slice_states = lookup_plan.workspace, lookup_plan.versions, lookup_plan.slice_states
    reusable_indexes = {
        slice_: _find_reusable_index(workspace, versions[slice_], slice_states[slice_], lookup_plan.get_index(slice_))
        for slice_ in targets
    }
    tasks = plan_lookups(workspace, targets, [slice_ for slice_ in targets if reusable_indexes[slice_]])
    kept_counts = carry_over_members(workspace, tasks, buffer)
    totals.notes |= dict.fromkeys(_describe_removed_members(kept_counts, slice_states))
    summaries = _ask_indexes(lookup_plan, tasks, reusable_indexes, buffer, totals)
    _add_stored_captures(lookup_plan, tasks, summaries, buffer)
    _commit_pass(lookup_plan, tasks, summaries, buffer, totals)


def _ask_indexes(
    lookup_plan: _LookupPlan,
    tasks: Mapping[Slice, LookupTask],
    reusable_indexes: Mapping[Slice, str | None],
    buffer: CaptureBuffer,
    totals: _LookupTotals,
) -> dict[Slice, LookupSummary]:
    """Adds the captures that the indexes have of each task to ``buffer``, and the cost to ``totals``. Returns the
    summary of each slice."""
    workspace, crawl, versions = lookup_plan.workspace, lookup_plan.crawl, lookup_plan.versions
    summaries = {
        slice_: _repeat_summary(versions[slice_], lookup_plan.slice_states[slice_])
        for slice_, task in tasks.items()
        if task.requested_target is None
    }
    for query, slices in _group_by_query(workspace, tasks, reusable_indexes).items():
        answer = _ask_index(workspace, crawl, query, {slice_: tasks[slice_] for slice_ in slices}, buffer)
        totals.requests, totals.bytes = totals.requests + answer.requests, totals.bytes + answer.bytes
        totals.notes |= dict.fromkeys(answer.notes)
        summaries |= {
            slice_: _build_summary(slice_, answer, versions[slice_], lookup_plan.get_index(slice_)) for slice_ in slices
        }
    return summaries


def _add_stored_captures(
    lookup_plan: _LookupPlan,
    tasks: Mapping[Slice, LookupTask],
    summaries: Mapping[Slice, LookupSummary],
    buffer: CaptureBuffer,
) -> None:
    """Adds the stored captures of slices to ``buffer``: the index may take them away only if it named them."""
    workspace, slice_states = lookup_plan.workspace, lookup_plan.slice_states
    indexed_slices = [slice_ for slice_, summary in summaries.items() if summary.located_by != NAMED_CAPTURES]
    # if members were carried over, their rows were too
    relocated = {
        slice_
        for slice_ in indexed_slices
        if slice_states[slice_].located is not None and tasks[slice_].kept_members is None
    }
    add_previous_captures(workspace, tasks, relocated, buffer)
    new_slices = [slice_ for slice_ in indexed_slices if slice_states[slice_].located is None]
    for slug, set_slices in _group_by_set(new_slices).items():
        all_slices = [slice_ for slice_ in slice_states if slice_.partition.target == slug]
        if obsolete_slices := find_obsolete_slices(workspace, LOCATE, slug, all_slices):
            add_captures_of_former_parts(workspace, tasks, set_slices, obsolete_slices, buffer)


def _write_notes(totals: _LookupTotals, crawl: str) -> Iterator[str]:
    """Writes a note on captures that were left out, kept or removed."""
    if totals.outside:
        yield from outside_notes(totals.outside)
    if totals.blocked:
        yield f"{crawl}: left out {format_count(totals.blocked, 'capture')} of blocked sites"
    if totals.retained:
        yield _RETAINED_MESSAGE.format(captures=format_count(totals.retained, "capture", "are"), crawl=crawl)
    if totals.unlisted_captures:
        yield _UNLISTED_MESSAGE.format(captures=format_count(totals.unlisted_captures, "capture", "are"), crawl=crawl)
    if totals.removed:
        yield _REMOVED_MESSAGE.format(captures=format_count(totals.removed, "capture", "were"), crawl=crawl)


def _ask_index(
    workspace: Workspace, crawl: str, query: _IndexQuery, tasks: Mapping[Slice, LookupTask], buffer: CaptureBuffer
) -> LookupResult:
    """Looks up some slices in one index and adds their captures to ``buffer``."""
    via, subsets = query
    if via == NAMED_CAPTURES:
        for slice_, task in tasks.items():
            for rows in _read_named_captures(workspace, slice_, task.target):
                buffer.add(slice_, rows)
        return LookupResult({}, 0, 0, 0.0, index=NAMED_CAPTURES)
    slices_by_slug: dict[str, list[Slice]] = {}
    for slice_ in tasks:
        slices_by_slug.setdefault(slice_.definition_slug, []).append(slice_)

    def add_rows(slug: str, rows: pa.Table) -> None:
        for slice_ in slices_by_slug[slug]:
            slice_rows = rows.filter(pc.equal(rows["subset"], slice_.subset)) if len(subsets) > 1 else rows
            buffer.add(slice_, tasks[slice_].exclude_kept(slice_rows))

    targets = {
        slice_.definition_slug: task.requested_target
        for slice_, task in tasks.items()
        if task.requested_target is not None
    }
    return find_captures(workspace, crawl, [*targets.values()], subsets=subsets, via=via, sink=add_rows)


def load_named_captures(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> LookupResult:
    """The captures of ``targets`` that a person named one by one, of all subsets, from the lake. Raises
    ``EnvironmentFault``."""
    tables_by_slug = {}
    for target in targets:
        slices = [Slice(crawl, with_subset(target.slug, subset)) for subset in SUBSETS]
        tables = [rows for slice_ in slices for rows in _read_named_captures(workspace, slice_, target)]
        tables_by_slug[target.slug] = pa.concat_tables([CAPTURE_SCHEMA.empty_table(), *tables])
    return LookupResult(tables_by_slug, 0, 0, 0.0, index=NAMED_CAPTURES)


def _read_named_captures(workspace: Workspace, slice_: Slice, target: Target) -> Iterator[pa.Table]:
    where = {"crawl": slice_.crawl, "target": named_captures_slug(slice_.target)}
    for batch in stream_rows(workspace.lake, "named_captures", where, CAPTURE_SCHEMA.names):
        rows = pa.Table.from_batches([batch])
        yield rows if target.condition is None else target.condition.keep(rows)


def _commit_pass(
    lookup_plan: _LookupPlan,
    tasks: Mapping[Slice, LookupTask],
    summaries: Mapping[Slice, LookupSummary],
    buffer: CaptureBuffer,
    totals: _LookupTotals,
) -> None:
    """Commits the located slices, some at a time."""
    targets = {slice_: tasks[slice_].target for slice_ in summaries}
    for slices in split_into_commits(sorted(summaries)):
        rows, totals_by_slice = buffer.read_slices(
            {slice_: summaries[slice_].slice_lookup for slice_ in slices},
            targets,
            removes_unlisted=lookup_plan.workspace.settings.accept_removals,
        )
        committed = _commit_slices(lookup_plan, summaries, rows, totals_by_slice)
        totals.rows += sum(row.tables["captures"].rows for row in committed)
        totals.committed += committed
        totals.add(totals_by_slice)


def _commit_slices(
    lookup_plan: _LookupPlan,
    summaries: Mapping[Slice, LookupSummary],
    rows: OrderedRows,
    totals: Mapping[Slice, CaptureTotals],
) -> list[SliceRow]:
    """Commits the captures of some slices, with the notes of their lookups."""
    workspace, slices = lookup_plan.workspace, [*totals]
    inputs = {
        slice_: build_locate_input(summary.definition, summary.located_by, summary.index_version)
        for slice_, summary in summaries.items()
        if slice_ in totals
    }
    generations = draw_generations(slices)
    by_target = {slice_.target: number for slice_, number in generations.items()}
    written = write_rows(workspace.lake, "captures", lookup_plan.crawl, _enlarge_batches(rows), by_target)
    return commit_written(
        workspace.lake,
        LOCATE,
        inputs,
        {"captures": written},
        generations,
        lookup_plan.state.base(workspace, LOCATE, slices),
        notes={slice_: build_note(slice_, summaries[slice_], totals[slice_]) for slice_ in slices},
        details={slice_: build_details(summaries[slice_], totals[slice_]) for slice_ in slices},
    )


def _group_by_set(slices: Sequence[Slice]) -> dict[str, list[Slice]]:
    """Groups the slices of named sets by the slugs of their sets."""
    slices_by_set: dict[str, list[Slice]] = {}
    for slice_ in slices:
        if slice_.target.startswith(SET_SLUG):
            slices_by_set.setdefault(slice_.partition.target, []).append(slice_)
    return slices_by_set


def _find_reusable_index(workspace: Workspace, version: str, slice_state: SliceState, index: Index) -> str | None:
    """The complete and unchanged index by which a slice was located, so that it need not be asked again; else
    ``None``."""
    lookup = slice_state.lookup
    located = slice_state.located
    if lookup is None or located is None or not located.input:
        return None
    # unlisted captures are counted by the whole slice
    if lookup.unlisted_captures or blocks_of(lookup.definition) != blocks_of(version):
        return None
    if not lookup.complete or workspace.settings.index not in (AUTO, lookup.located_by):
        return None
    return lookup.located_by if index.is_unchanged(lookup) else None


def _group_by_query(
    workspace: Workspace, tasks: Mapping[Slice, LookupTask], reusable_indexes: Mapping[Slice, str | None]
) -> dict[_IndexQuery, list[Slice]]:
    """The slices of each lookup, by the index to be asked and the subsets: an index is asked once for all subsets."""
    slices_by_target: dict[tuple[str, str, str], list[Slice]] = {}
    for slice_, task in tasks.items():
        if task.requested_target is not None:
            via = (task.kept_members is not None and reusable_indexes[slice_]) or workspace.settings.index
            via = NAMED_CAPTURES if is_named_captures(slice_.target) else via
            slices_by_target.setdefault((via, slice_.definition_slug, task.requested_target.version), []).append(slice_)
    slices_by_query: dict[_IndexQuery, list[Slice]] = {}
    for (via, _, _), slices in slices_by_target.items():
        slices_by_query.setdefault((via, tuple(sorted(slice_.subset for slice_ in slices))), []).extend(slices)
    return slices_by_query


def _enlarge_batches(rows: OrderedRows) -> Iterator[pa.RecordBatch]:
    """The columns of ``captures`` in large batches. The writer's threads share batches, and keep order only within
    one."""
    batches = (batch.select(CAPTURES_SCHEMA.names) for batch in rows.batches())
    return map(pa.concat_batches, group_within(batches, (_WRITE_BATCH_BYTES,), lambda batch: (batch.nbytes,)))


def _build_summary(slice_: Slice, answer: LookupResult, version: str, index: Index) -> LookupSummary:
    gaps = answer.gaps
    if gaps is not None and slice_.subset not in {subset for subset, _, _ in gaps.by_subset}:
        gaps = None
    located_by = answer.index or ""
    slice_lookup = SliceLookup(answer.segments, () if gaps is not None else tuple(located_by.split(NAME_SEPARATOR)))
    return LookupSummary(
        located_by,
        index.version_of(located_by, answer.index_version),
        version,
        gaps,
        slice_lookup,
    )


def _repeat_summary(version: str, slice_state: SliceState) -> LookupSummary:
    """Repeats the note of a set that only lost members: no index was asked."""
    lookup = slice_state.lookup
    assert lookup is not None, "it was carried over"
    return LookupSummary(lookup.located_by, lookup.index, version, None)


def _describe_removed_members(
    kept_counts: Mapping[Slice, int], slice_states: Mapping[Slice, SliceState]
) -> Iterator[str]:
    for slice_, count in kept_counts.items():
        lookup = slice_states[slice_].lookup
        if lookup is not None and (removed_captures := lookup.captures - count) > 0:
            yield (
                f"removed {format_count(removed_captures, 'capture')} from {slice_.crawl}, of members that "
                f"{slice_.partition.target} no longer has"
            )


def _build_metrics(slice_state: SliceState, lookup: Lookup, is_fresh: bool) -> Metrics:
    """The rows of a slice and the cost of fetching all of them, so that a person can decide before the fetch."""
    price = lookup.price
    metrics: Metrics = {
        "rows:captures": price.captures,
        "record bytes": price.record_bytes,
        "fetch bytes": price.bytes,
        "fetch requests": price.requests,
        **slice_state.content_metrics(LOCATE),
        "index complete": describe_completeness(lookup),
    }
    metrics |= {"no longer in the index": lookup.unlisted_captures} if lookup.unlisted_captures else {}
    return metrics | count_written(metrics, is_fresh)
