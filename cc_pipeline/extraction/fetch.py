"""Fetching: from captures to stored, verified records, committed per crawl."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from cc_pipeline.advice import advise
from cc_pipeline.atomic import write_whole
from cc_pipeline.capture_columns import RECORD_KEY_NAMES
from cc_pipeline.commoncrawl.crawls import LOCAL as LOCAL_CRAWLS
from cc_pipeline.commoncrawl.target_text import text_of_key
from cc_pipeline.errors import EnvironmentFault, disk_trouble
from cc_pipeline.extraction.blocklist import differs_only_in_blocks
from cc_pipeline.extraction.cost_limit import enforce_cost_limit
from cc_pipeline.extraction.engine import LOCAL, Engine, FetchRequest, FetchResult
from cc_pipeline.extraction.fetch_counts import (
    FetchCounts,
    SliceFetchCounts,
    describe_asks,
    sum_by_target,
)
from cc_pipeline.extraction.fetch_notes import build_fetch_notes
from cc_pipeline.extraction.group_state import GroupState, RunState, run_and_replan
from cc_pipeline.extraction.loss_policy import CommandTotals, build_incomplete_error
from cc_pipeline.extraction.plan import (
    SINGLE_CAPTURES,
    Reason,
    ReasonKind,
    SliceRequest,
    build_fetch_input,
    options_of,
    plan,
)
from cc_pipeline.extraction.reusable_records import (
    Place,
    count_lost_records,
    describe_lost_records,
    find_reusable_records,
    forget_failed_pages,
    note_superseded,
)
from cc_pipeline.extraction.slice_selection import empty_obsolete_slices, find_part_slices
from cc_pipeline.extraction.slice_state import SliceState
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import FETCH, LOCATE, Metrics, Slice, StageReport, slices_of
from cc_pipeline.lake.slices import SliceRow, commit_written, draw_generations, refuse_changed_epochs
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.progress import format_count
from cc_pipeline.records.fetch import RecordsResult
from cc_pipeline.records.file_leases import FileLease, forget, lease, list_expired_leases
from cc_pipeline.records.locations import PLACE_NAME, LocationCollector, LocationIndex
from cc_pipeline.records.orders import Order, RecordOptions
from cc_pipeline.records.schema import OUTCOMES
from cc_pipeline.records.segments import retire_journals
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA
from cc_pipeline.workspace.workspace import Workspace

#: How long a good record shows that the source works. Without one no ask counts: a source with indexes and without
#: archives says "not found" of each record.
_PROOF_AGE: Final = timedelta(days=1)


def current_time() -> datetime:
    """The time of asks."""
    return datetime.now(UTC)


def fetch_captures(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    *,
    distrusted: Collection[Place] = (),
    engine: Engine = LOCAL,
    run: RunState | None = None,
) -> StageReport:
    """Gives every planned capture of ``slugs`` in ``crawl`` exactly one outcome. ``engine`` fetches. Stored records are
    fetched again only if their bytes are gone. ``run`` has the states that the stages before left.

    ``distrusted`` are captures whose stored bytes are not used. Raises ``FetchIncomplete`` when the source gives
    nothing, or less than the settings allow, after the fetched records were committed; the error names the targets
    and has the report of all. Raises ``EnvironmentFault`` when the disk fails, ``SlicesChanged`` if other processes
    keep changing the slices. Records fetched until then are kept, and the next call adopts them.
    """
    state = run or RunState(workspace)
    fetch_all = partial(_fetch_all, workspace, crawl, slugs, state, distrusted=distrusted, engine=engine)
    return run_and_replan(state, crawl, slugs, fetch_all)


def _fetch_all(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    run: RunState,
    *,
    distrusted: Collection[Place],
    engine: Engine,
) -> StageReport:
    started = time.monotonic()
    group_state = run.take(crawl, slugs)
    fetch_plan = _plan_fetch(workspace, group_state, slugs, distrusted)
    _refuse_blocked_slices(fetch_plan.due_slices, group_state)
    enforce_cost_limit(workspace, {slice_: group_state.slice_states[slice_] for slice_ in fetch_plan.priced_slices})
    counts_by_slice = {
        slice_: SliceFetchCounts(slice_=slice_, **{name: getattr(note, name) for name in FetchCounts.__slots__})
        for slice_, slice_state in group_state.slice_states.items()
        if (note := slice_state.fetch) is not None
    }
    state = _FetchState(workspace, crawl, group_state, counts_by_slice, distrusted, engine)
    killed_fetches = list_expired_leases(workspace.storage, crawl)
    # a fetch that was killed between its commit and its end left journals, even if no slice is due
    if fetch_plan.due_slices or killed_fetches:
        _fetch(state, fetch_plan)
    forget(workspace.storage, killed_fetches)
    new_state = group_state.with_rows(state.committed)
    # pages of repaired slices are to be parsed again, and lost bytes are looked for again
    slice_states = group_state.slice_states.values()
    if not fetch_plan.repaired and not any(slice_state.lost_records for slice_state in slice_states):
        run.keep(new_state)
    return _finish(state, fetch_plan, new_state, started)


@dataclass(frozen=True, slots=True)
class _FetchPlan:
    """The plan of one fetch: the requested ``slices``, and the ``reasons`` for which some are fetched.

    ``repaired`` are slices that lost stored bytes, each with how many records. ``due_slices`` are all slices to be
    fetched."""

    slices: Sequence[Slice]
    reasons: Mapping[Slice, Reason]
    repaired: Mapping[Slice, int]
    due_slices: Sequence[Slice]

    @property
    def priced_slices(self) -> list[Slice]:
        """The slices for which nobody has agreed yet to a fetch of all captures."""
        return [slice_ for slice_, reason in self.reasons.items() if reason.kind not in PARTIAL_FETCH_REASONS]


def _plan_fetch(
    workspace: Workspace,
    group_state: GroupState,
    slugs: Sequence[str],
    distrusted: Collection[Place],
) -> _FetchPlan:
    """Plans a fetch. Raises ``EnvironmentFault`` for targets that were not located."""
    target_slices, slice_states, crawl = (
        group_state.target_slices,
        group_state.slice_states,
        group_state.target_slices.crawl,
    )
    slices = find_part_slices(workspace, slices_of(crawl, slugs)) if distrusted else target_slices.requested_slices
    for slice_ in slices:
        if slice_states[slice_].located is None:
            raise EnvironmentFault(
                f"captures of {slice_.partition.target} in {crawl} have not been located",
                advise(
                    "run",
                    text_of_key(slice_.partition.target),
                    crawl=crawl,
                    sentence="Locate them first: {}, or materialize the asset captures.",
                ),
            )
    requests = dict.fromkeys(slices, SliceRequest(""))
    reasons = plan(requests, slice_states, {}, options_of(workspace.settings), (FETCH,)).reasons_for(FETCH)
    lost = (
        count_lost_records(workspace, [slice_ for slice_ in slices if slice_ not in reasons], distrusted)
        if distrusted
        else {}
    )
    repaired = {slice_: reason.n for slice_, reason in reasons.items() if reason.kind is ReasonKind.LOST_BYTES} | lost
    return _FetchPlan(slices, reasons, repaired, [*reasons, *lost])


def _finish(state: _FetchState, fetch_plan: _FetchPlan, group_state: GroupState, started: float) -> StageReport:
    """Empties slices that a set no longer has, and builds the report of the stage. Raises ``FetchIncomplete``, with the
    report, if targets lack more than they may."""
    workspace, crawl, target_slices, slice_states = (
        state.workspace,
        state.crawl,
        group_state.target_slices,
        group_state.slice_states,
    )
    partitions, planned_slices = {slice_.partition for slice_ in fetch_plan.due_slices}, set(fetch_plan.slices)
    judged_counts = {
        slice_: counts
        for slice_, counts in state.counts_by_slice.items()
        if slice_.partition in partitions and slice_ in planned_slices
    }
    # the source is not to blame for files that a person added
    source = f"the files of {crawl}" if crawl.startswith(LOCAL_CRAWLS) else workspace.settings.source
    incomplete_error = build_incomplete_error(judged_counts, state.ill_slices, workspace.settings.max_pending, source)
    report = FETCH.report(
        {slice_: _build_metrics(counts, slice_states[slice_]) for slice_, counts in state.counts_by_slice.items()},
        fetch_plan.due_slices,
        started,
        bytes=0 if state.result is None else state.result.bytes,
        requests=0 if state.result is None else state.result.requests,
        notes=(*_write_notes(state, fetch_plan, slice_states), *describe_lost_records(fetch_plan.repaired)),
    )
    target_metrics = {
        counts.slice_.target: counts.metrics() for counts in sum_by_target(state.counts_by_slice.values())
    }
    report = target_slices.fold_by_target(report, target_metrics)
    empty_obsolete_slices(workspace, FETCH, target_slices)
    if incomplete_error is not None:
        incomplete_error.report = report
        raise incomplete_error
    return report


def _refuse_blocked_slices(slices: Sequence[Slice], state: GroupState) -> None:
    """Raises ``EnvironmentFault`` if captures were located before their site was blocked."""
    for slice_ in slices if state.blocklist.blocks else ():
        lookup = state.slice_states[slice_].lookup
        if lookup is not None and differs_only_in_blocks(lookup.definition, state.requests[slice_].version):
            raise EnvironmentFault(
                f"{slice_.partition.target} in {slice_.crawl} is not fetched: the list of blocked sites was changed "
                "after it was located",
                advise(
                    "run",
                    text_of_key(slice_.partition.target),
                    crawl=slice_.crawl,
                    sentence=f"See the blocked sites: {advise('targets block')}. Then run the target again, which "
                    "leaves them out: {}",
                ),
            )


#: Reasons for a fetch of few captures, or of captures that are mostly stored: its cost was agreed to before.
PARTIAL_FETCH_REASONS: Final = (*SINGLE_CAPTURES, ReasonKind.INCOMPLETE_ROWS)


@dataclass(slots=True)
class _FetchState:
    """One call of the stage: the state before it (``group``), the current counts of each slice (``counts_by_slice``),
    the rows of ``slices`` that were ``committed``, and the result of the fetch. No ask of ``ill_slices`` counted, since
    their source seems to be ill."""

    workspace: Workspace
    crawl: str
    group: GroupState
    counts_by_slice: dict[Slice, SliceFetchCounts]
    distrusted: Collection[Place]
    engine: Engine
    ill_slices: Collection[Slice] = ()
    committed: list[SliceRow] = field(default_factory=list)
    result: RecordsResult | None = None

    @property
    def previous_states(self) -> Mapping[Slice, SliceState]:
        """The states of the slices before the call."""
        return self.group.slice_states


def _fetch(state: _FetchState, fetch_plan: _FetchPlan) -> None:
    """Fetches the due slices and commits the records."""
    workspace, crawl, slices = state.workspace, state.crawl, fetch_plan.due_slices
    order = _build_order(state, slices)
    generations = draw_generations(slices)
    # files that are reused must not be swept before the commit
    with (
        lease(workspace.storage, crawl, order.commit, [slice_.target for slice_ in slices]) as file_lease,
        workspace.scratch_folder("fetch") as scratch,
    ):
        # after the lease: a purge sees the lease, or is seen here, before anything is stored
        refuse_changed_epochs(workspace.lake, {slice_: state.previous_states[slice_].epoch for slice_ in slices})
        fetched = _fetch_records(state, order, generations, file_lease, scratch)
        file_lease.confirm()
        if slices:
            is_source_sound = _judge(state, fetched)
            _commit(state, order, generations, fetch_plan.repaired, fetched, is_source_sound)
        else:
            retire_journals(workspace.storage, fetched.result.settled)
    state.result = fetched.result


def _judge(state: _FetchState, fetched: FetchResult) -> bool:
    """Returns whether the asks of a fetch count: its source gave a good record within a day, and is not ill. Notes the
    counts of its slices."""
    totals = state.workspace.command_value(CommandTotals)
    counts_by_slice = fetched.count_slices(False)
    for counts in counts_by_slice.values():
        totals.take(counts)
    is_ill = totals.is_ill(state.workspace.settings.max_lost)
    if is_ill:
        state.ill_slices = [slice_ for slice_, counts in counts_by_slice.items() if counts.ask_pending]
    is_source_sound = fetched.result.source_gave_good_record and not is_ill
    if is_source_sound and any(counts.ask_pending for counts in counts_by_slice.values()):
        counts_by_slice = fetched.count_slices(True)
    state.counts_by_slice |= counts_by_slice
    return is_source_sound


def _build_order(state: _FetchState, slices: Sequence[Slice]) -> Order:
    """The order of a fetch of some slices."""
    workspace, ask_time = state.workspace, current_time()
    contents = [_get_captures(state.previous_states[slice_]).content for slice_ in slices]
    return Order(
        state.crawl,
        uuid.uuid4().hex,
        compute_input_digest({"plans": contents}),
        RecordOptions(
            retry_lost=workspace.settings.refetch,
            source_gave_good_record=_has_given_good_record(workspace, state.crawl, ask_time),
        ),
        ask_time,
    )


def _get_captures(slice_state: SliceState) -> SliceRow:
    assert slice_state.located is not None, "it was located"
    return slice_state.located


def _fetch_records(
    state: _FetchState, order: Order, generations: Mapping[Slice, int], file_lease: FileLease, scratch: Path
) -> FetchResult:
    """Lets the engine fetch the captures of slices, without records that are stored. Commits nothing."""
    workspace, crawl, slices = state.workspace, state.crawl, [*generations]
    targets = [slice_.target for slice_ in slices]
    located = [_get_captures(state.previous_states[slice_]).tables["captures"].generation for slice_ in slices]
    captures, places = _read_captures(workspace, crawl, targets, located, scratch)
    reusable = find_reusable_records(workspace, crawl, targets, places, scratch, state.distrusted)
    # Arrow keeps freed memory for new rows, and fetching needs memory of other kinds
    pa.default_memory_pool().release_unused()
    fetched = state.engine.fetch(
        workspace,
        FetchRequest(
            slices,
            captures,
            places,
            reusable,
            order,
            {slice_.target: number for slice_, number in generations.items()},
            scratch,
            on_adopted_files=lambda adopted: file_lease.hold(reusable.files | adopted),
            read_table_places=lambda: stream_rows(workspace.lake, "records", {"crawl": crawl}, PLACE_NAME),
        ),
    )
    gives_proof = fetched.result.fetched or not order.options.source_gave_good_record
    if fetched.result.source_gave_good_record and gives_proof and not crawl.startswith(LOCAL_CRAWLS):
        _note_good_record(workspace, order.ask_time)
    _check_balance(captures.rows, fetched.rows, fetched.result.outcomes, crawl)
    return fetched


def _commit(
    state: _FetchState,
    order: Order,
    generations: Mapping[Slice, int],
    repaired: Mapping[Slice, int],
    fetched: FetchResult,
    is_source_sound: bool,
) -> None:
    """Commits the records and the notes of the slices."""
    workspace, result, slices = state.workspace, fetched.result, [*generations]
    counts_by_slice = {slice_: state.counts_by_slice[slice_] for slice_ in slices}
    inputs = {
        slice_: build_fetch_input(
            _get_captures(state.previous_states[slice_]).content,
            complete=not counts_by_slice[slice_].pending,
        )
        for slice_ in slices
    }
    previous_notes = {slice_: state.previous_states[slice_].fetch for slice_ in slices}
    notes = build_fetch_notes(counts_by_slice, previous_notes, order.ask_time)
    note_superseded(workspace, slices, result.stored, time.time())
    forget_failed_pages(workspace, [*repaired], state.distrusted)
    written = {"records": fetched.write(is_source_sound)}
    base = state.group.base(workspace, FETCH, slices, LOCATE)
    state.committed += commit_written(workspace.lake, FETCH, inputs, written, generations, base, notes=notes)
    retire_journals(workspace.storage, result.settled)


def _has_given_good_record(workspace: Workspace, crawl: str, now: datetime) -> bool:
    """Whether the source of ``crawl`` gave this home a good record within ``_PROOF_AGE``. Files of a user may be
    anywhere, so a record of them proves nothing later."""
    if crawl.startswith(LOCAL_CRAWLS):
        return False
    try:
        source, _, note_time = _good_record_path(workspace).read_text("utf-8").rpartition(" ")
        is_recent = timedelta() <= now - datetime.fromisoformat(note_time) < _PROOF_AGE
    except (OSError, ValueError, TypeError):  # no file, or a damaged one: the next good record is noted again
        return False
    return is_recent and source == workspace.settings.source


def _note_good_record(workspace: Workspace, now: datetime) -> None:
    path = _good_record_path(workspace)
    with disk_trouble(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{workspace.settings.source} {now.isoformat()}".encode())


def _good_record_path(workspace: Workspace) -> Path:
    """A file with the source, and the time of its last good record."""
    return workspace.settings.cache_path / "good_record"


def _read_captures(
    workspace: Workspace, crawl: str, targets: Sequence[str], generations: Sequence[int], scratch: Path
) -> tuple[OrderedRows, LocationIndex]:
    """The captures of ``targets`` in the order of their locations, and these locations."""
    schema = pa.schema([CAPTURES_SCHEMA.field(name) for name in RECORD_KEY_NAMES])
    captures = OrderedRows(schema, (*PLACE_NAME, "target"), scratch)
    where = {"crawl": crawl, "target": targets}
    for batch in stream_rows(workspace.lake, "captures", where, RECORD_KEY_NAMES, generations):
        captures.add(batch)
    collected_places = LocationCollector()
    # after they are sorted: both at once would take the memory of both
    for batch in captures.batches():
        collected_places.add(batch)
    return captures, collected_places.places()


def _check_balance(captures: int, records: int, outcomes: Mapping[str, int], crawl: str) -> None:
    """The invariant of the ledger, enforced before anything becomes visible."""
    if records != captures or sum(outcomes.values()) != captures:
        raise AssertionError(f"{crawl}: {captures} captures became {records} records")
    if not outcomes.keys() <= {*OUTCOMES}:
        raise AssertionError(f"{crawl}: unknown outcomes {sorted(outcomes)}")


def _write_notes(
    state: _FetchState, fetch_plan: _FetchPlan, slice_states: Mapping[Slice, SliceState]
) -> tuple[str, ...]:
    notes = []
    if state.result is not None and state.result.reused:
        notes.append(f"{format_count(state.result.reused, 'capture', 'were')} stored already and not fetched again")
    if state.result is not None and state.result.adopted:
        notes.append(f"used {format_count(state.result.adopted, 'record')} that a stopped run had fetched")
    counts_by_slice = {slice_: state.counts_by_slice[slice_] for slice_ in fetch_plan.due_slices}
    if pending := {slice_: counts for slice_, counts in counts_by_slice.items() if counts.pending}:
        times = [note.next_ask_at for slice_ in pending if (note := slice_states[slice_].fetch) and note.next_ask_at]
        [total] = sum_by_target(replace(counts, slice_=Slice(state.crawl, "")) for counts in pending.values())
        notes.append(
            f"{format_count(total.pending, 'capture')} pending, {describe_asks(total.asks, min(times, default=None))}"
        )
    if lost := sum(counts.lost for counts in counts_by_slice.values()):
        notes.append(f"{format_count(lost, 'capture', 'are')} lost in the source itself; see the view ledger")
    if mismatches := sum(counts.mismatched for counts in counts_by_slice.values()):
        notes.append(
            f"the payloads of {mismatches:,} records differ from the digest in the index; see digest_check in the "
            "view ledger"
        )
    return tuple(notes)


def _build_metrics(counts: SliceFetchCounts, slice_state: SliceState) -> Metrics:
    return {
        "rows:records": counts.planned,
        "fetched": counts.fetched,
        "lost": counts.lost,
        "stored bytes": counts.stored_bytes,
        **slice_state.content_metrics(FETCH),
        **counts.metrics(),
    }
