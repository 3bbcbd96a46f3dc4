"""Fetching: from captures to stored, verified records, committed per crawl."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import RECORD_KEY_NAMES
from cc_pipeline.commoncrawl.crawls import LOCAL as LOCAL_CRAWLS
from cc_pipeline.errors import EnvironmentFault, disk_trouble
from cc_pipeline.extraction.blocklist import differs_only_in_blocks
from cc_pipeline.extraction.cost_limit import enforce_cost_limit
from cc_pipeline.extraction.engine import LOCAL, Engine, FetchRequest, FetchResult
from cc_pipeline.extraction.fetch_counts import FetchCounts, SliceFetchCounts, count_fetched, sum_by_target
from cc_pipeline.extraction.group_state import GroupState, RunState, run_and_replan
from cc_pipeline.extraction.loss_policy import (
    CommandTotals,
    LossAssessment,
    assess_losses,
    build_fetch_notes,
    build_incomplete_error,
)
from cc_pipeline.extraction.loss_recheck import RecheckResult, recheck_losses
from cc_pipeline.extraction.plan import (
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
from cc_pipeline.lake.slices import SliceRow, commit_slices, commit_written, draw_generations, refuse_changed_epochs
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.progress import format_count
from cc_pipeline.records.fetch import RecordsResult
from cc_pipeline.records.file_leases import FileLease, forget, lease, list_expired_leases
from cc_pipeline.records.locations import PLACE_NAME, LocationCollector, LocationIndex
from cc_pipeline.records.orders import Order, RecordOptions
from cc_pipeline.records.segments import retire_journals
from cc_pipeline.records.storage import STORED
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA
from cc_pipeline.workspace.workspace import Workspace

#: Seconds for which a good record shows that the source works. Without one nothing counts as lost: a source with
#: indexes and without archives says "not found" of each record.
_PROOF_SECONDS: Final = 86_400.0
#: Columns of records from which the counts of slices are computed.
_STATE_COLUMNS: Final = (
    "target", "url", "outcome", "reason", "detail", "is_final", "unsuccessful_runs", "digest_check", "payload_length",
    *PLACE_NAME, *STORED,
)  # fmt: skip


def fetch_captures(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    *,
    replay: bool = False,
    distrusted: Collection[Place] = (),
    engine: Engine = LOCAL,
    run: RunState | None = None,
) -> StageReport:
    """Gives every planned capture of ``slugs`` in ``crawl`` exactly one outcome. ``engine`` fetches. Stored records are
    fetched again only if their bytes are gone. ``run`` has the states that the stages before left.

    ``replay``: quarantined and settled records are fetched again too, in all located subsets. ``distrusted`` are
    captures whose stored bytes are not used. Raises ``FetchIncomplete`` when the source gives nothing, or less than the
    settings allow, after the fetched records were committed; the error names the targets and has the report of all.
    Raises ``EnvironmentFault`` when the disk fails, ``SlicesChanged`` if other processes keep changing the slices.
    Records fetched until then are kept, and the next call adopts them.
    """
    state = run or RunState(workspace)
    fetch_all = partial(_fetch_all, workspace, crawl, slugs, state, replay=replay, distrusted=distrusted, engine=engine)
    return run_and_replan(state, crawl, slugs, fetch_all)


def _fetch_all(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    run: RunState,
    *,
    replay: bool,
    distrusted: Collection[Place],
    engine: Engine,
) -> StageReport:
    started = time.monotonic()
    group_state = run.take(crawl, slugs)
    fetch_plan = _plan_fetch(workspace, group_state, slugs, replay=replay, distrusted=distrusted)
    _refuse_blocked_slices(fetch_plan.due_slices, group_state)
    if fetch_plan.due_slices:
        workspace.agree_on_digests()
    if not replay:
        enforce_cost_limit(workspace, {slice_: group_state.slice_states[slice_] for slice_ in fetch_plan.priced_slices})
    counts_by_slice = _count_fetched(workspace, crawl, group_state.slice_states)
    state = _FetchState(workspace, crawl, group_state, counts_by_slice, distrusted, engine)
    killed_fetches = list_expired_leases(workspace.storage, crawl)
    for scope, slices in _group_by_scope(fetch_plan, is_unfinished=bool(killed_fetches), replay=replay).items():
        _fetch(state, slices, [slice_ for slice_ in slices if slice_ in fetch_plan.repaired], scope)
    forget(workspace.storage, killed_fetches)
    _reassess_losses(state, fetch_plan.still_lost, fetch_plan.recheck.still_lost)
    new_state = group_state.with_rows(state.committed)
    # pages of repaired slices are to be parsed again, and lost bytes are looked for again
    if not fetch_plan.repaired and not any(one.lost_records for one in group_state.slice_states.values()):
        run.keep(new_state)
    return _finish(state, fetch_plan, new_state, started)


@dataclass(frozen=True, slots=True)
class _FetchPlan:
    """The plan of one fetch: the requested ``slices``, and the ``reasons`` for which some are fetched.

    ``repaired`` are slices that lost stored bytes, each with how many records. ``recheck`` is the result of the recheck
    of lost captures, and ``still_lost`` are the slices whose losses it confirmed. ``due_slices`` are all other slices
    to be fetched."""

    slices: Sequence[Slice]
    reasons: Mapping[Slice, Reason]
    repaired: Mapping[Slice, int]
    recheck: RecheckResult
    still_lost: Sequence[Slice]
    due_slices: Sequence[Slice]

    @property
    def priced_slices(self) -> list[Slice]:
        """The slices for which nobody has agreed yet to a fetch of all captures."""
        return [
            slice_
            for slice_ in self.due_slices
            if slice_ in self.reasons and self.reasons[slice_].kind not in PARTIAL_FETCH_REASONS
        ]


def _plan_fetch(
    workspace: Workspace,
    group_state: GroupState,
    slugs: Sequence[str],
    *,
    replay: bool,
    distrusted: Collection[Place],
) -> _FetchPlan:
    """Plans a fetch. Raises ``EnvironmentFault`` for targets that were not located."""
    target_slices, slice_states, crawl = (
        group_state.target_slices,
        group_state.slice_states,
        group_state.target_slices.crawl,
    )
    slices = (
        find_part_slices(workspace, slices_of(crawl, slugs)) if replay or distrusted else target_slices.requested_slices
    )
    for slice_ in slices:
        if slice_states[slice_].located is None:
            raise EnvironmentFault(
                f"captures of {slice_.partition.target} in {crawl} have not been located",
                "Locate them first: run the target (cc-pipeline run), or materialize the asset captures.",
            )
    requests = dict.fromkeys(slices, SliceRequest("", forced_stages=frozenset([FETCH.label] if replay else ())))
    options = options_of(workspace.settings, None if replay else datetime.now(UTC))
    reasons = plan(requests, slice_states, {}, options, (FETCH,)).reasons_for(FETCH)
    lost = (
        count_lost_records(workspace, [slice_ for slice_ in slices if slice_ not in reasons], distrusted)
        if distrusted
        else {}
    )
    repaired = {slice_: reason.n for slice_, reason in reasons.items() if reason.kind is ReasonKind.LOST_BYTES} | lost
    recheck = _recheck_losses(workspace, crawl, reasons, slice_states, replay=replay)
    still_lost = _find_still_lost(reasons, recheck, replay=replay)
    due_slices = [*(slice_ for slice_ in reasons if slice_ not in still_lost), *lost]
    return _FetchPlan(slices, reasons, repaired, recheck, still_lost, due_slices)


def _group_by_scope(fetch_plan: _FetchPlan, *, is_unfinished: bool, replay: bool) -> dict[RefetchScope, list[Slice]]:
    """Groups the slices to be fetched by the scope of their fetch. ``is_unfinished``: a fetch was killed between its
    commit and its end, so its journals are settled even if no slice is due."""
    slices_by_scope: dict[RefetchScope, list[Slice]] = {}
    for slice_ in fetch_plan.due_slices:
        reason = fetch_plan.reasons.get(slice_)
        reason_kind = None if reason is None else reason.kind
        settled = replay or reason_kind in (ReasonKind.UNCONFIRMED_LOSSES, ReasonKind.RECHECK_DUE)
        mismatched = replay or reason_kind in (ReasonKind.UNCONFIRMED_MISMATCHES, ReasonKind.RECHECK_DUE)
        slices_by_scope.setdefault(RefetchScope(settled, mismatched, forget=settled and not replay), []).append(slice_)
    return slices_by_scope or (
        {RefetchScope(settled=False, mismatched=False, forget=False): []} if is_unfinished else {}
    )


def _finish(state: _FetchState, fetch_plan: _FetchPlan, group_state: GroupState, started: float) -> StageReport:
    """Empties slices that a set no longer has, and builds the report of the stage. Raises ``FetchIncomplete``, with the
    report, if targets lack more than they may."""
    workspace, crawl, target_slices, slice_states = (
        state.workspace,
        state.crawl,
        group_state.target_slices,
        group_state.slice_states,
    )
    partitions, planned_slices = {slice_.partition for slice_ in state.assessments}, set(fetch_plan.slices)
    assessed_counts = {
        slice_: counts
        for slice_, counts in state.counts_by_slice.items()
        if slice_.partition in partitions and slice_ in planned_slices
    }
    # the source is not to blame for files that a person added
    source = f"the files of {crawl}" if crawl.startswith(LOCAL_CRAWLS) else workspace.settings.source
    incomplete_error = build_incomplete_error(
        assessed_counts, state.assessments, workspace.settings.max_pending, source
    )
    report = FETCH.report(
        {slice_: _build_metrics(counts, slice_states[slice_]) for slice_, counts in state.counts_by_slice.items()},
        fetch_plan.due_slices,
        started,
        bytes=sum(result.bytes for result in state.results),
        requests=fetch_plan.recheck.requests + sum(result.requests for result in state.results),
        notes=(*_write_notes(state), *describe_lost_records(fetch_plan.repaired)),
    )
    target_metrics = {
        counts.slice_.target: counts.metrics() for counts in sum_by_target(state.counts_by_slice.values())
    }
    report = target_slices.fold_by_target(report, target_metrics)
    if incomplete_error is None:
        empty_obsolete_slices(workspace, FETCH, target_slices)
        return report
    incomplete_error.report = report
    fetched_targets = [
        slug
        for slug, slices in target_slices.requested.items()
        if all(slice_states[slice_].fetched is not None for slice_ in slices)
    ]
    empty_obsolete_slices(workspace, FETCH, target_slices, fetched_targets)
    raise incomplete_error


def _refuse_blocked_slices(slices: Sequence[Slice], state: GroupState) -> None:
    """Raises ``EnvironmentFault`` if captures were located before their site was blocked."""
    for slice_ in slices if state.blocklist.blocks else ():
        lookup = state.slice_states[slice_].lookup
        if lookup is not None and differs_only_in_blocks(lookup.definition, state.requests[slice_].version):
            raise EnvironmentFault(
                f"{slice_.partition.target} in {slice_.crawl} is not fetched: the list of blocked sites was changed "
                "after it was located",
                "See the blocked sites: cc-pipeline targets block. Then run the target again, which leaves them out: "
                f"cc-pipeline run … --crawl {slice_.crawl}",
            )


#: Reasons for a fetch of few captures, or of captures that are mostly stored: its cost was agreed to before.
PARTIAL_FETCH_REASONS: Final = (
    ReasonKind.PENDING_CAPTURES,
    ReasonKind.LOST_BYTES,
    ReasonKind.UNCONFIRMED_LOSSES,
    ReasonKind.RECHECK_DUE,
    ReasonKind.UNCONFIRMED_MISMATCHES,
    ReasonKind.INCOMPLETE_ROWS,
)


@dataclass(slots=True)
class _FetchState:
    """One call of the stage: the state before it (``group``), the current counts of each slice (``counts_by_slice``),
    the assessments of the fetched slices, the rows of ``slices`` that were ``committed``, and the result of each
    fetch."""

    workspace: Workspace
    crawl: str
    group: GroupState
    counts_by_slice: dict[Slice, SliceFetchCounts]
    distrusted: Collection[Place]
    engine: Engine
    assessments: dict[Slice, LossAssessment] = field(default_factory=dict)
    committed: list[SliceRow] = field(default_factory=list)
    results: list[RecordsResult] = field(default_factory=list)

    @property
    def previous_states(self) -> Mapping[Slice, SliceState]:
        """The states of the slices before the call."""
        return self.group.slice_states

    def assess(
        self, counts_by_slice: Mapping[Slice, SliceFetchCounts], fetched_twice: Collection[Slice] = ()
    ) -> dict[Slice, LossAssessment]:
        """Assesses the losses of some slices, among all that the command fetched."""
        notes = {
            slice_: note
            for slice_, slice_state in self.previous_states.items()
            if (note := slice_state.last_fetch) is not None
        }
        workspace = self.workspace
        # a person accepts the number of all losses of a target
        targets = sum_by_target({**self.counts_by_slice, **counts_by_slice}.values())
        accepted_targets = {
            target_counts.slice_ for target_counts in targets if target_counts.losses in workspace.accepted_losses
        }
        return assess_losses(
            counts_by_slice,
            notes,
            workspace.command_value(CommandTotals),
            allowed=workspace.settings.max_lost,
            accepted={slice_ for slice_ in counts_by_slice if slice_.partition in accepted_targets},
            fetched_twice=fetched_twice,
        )


@dataclass(frozen=True, slots=True)
class RefetchScope:
    """The scope of a refetch, beside pending captures: ``settled`` ones, and records with another payload than the
    index names (``mismatched``). ``forget``: settled captures that are not fetched are pending from now on."""

    settled: bool
    mismatched: bool
    forget: bool


def _recheck_losses(
    workspace: Workspace,
    crawl: str,
    reasons: Mapping[Slice, Reason],
    slice_states: Mapping[Slice, SliceState],
    *,
    replay: bool,
) -> RecheckResult:
    """Rechecks slices that lost captures, with a few requests."""
    recheck_counts = {}
    for slice_, reason in reasons.items():
        note = slice_states[slice_].fetch
        if not replay and reason.kind in (ReasonKind.UNCONFIRMED_LOSSES, ReasonKind.RECHECK_DUE) and note is not None:
            recheck_counts[slice_] = note.second_looks
    return (
        recheck_losses(workspace, crawl, recheck_counts)
        if recheck_counts
        else RecheckResult(frozenset(), frozenset(), 0)
    )


def _find_still_lost(reasons: Mapping[Slice, Reason], recheck: RecheckResult, *, replay: bool) -> list[Slice]:
    """The slices whose losses were confirmed by the recheck, or were not rechecked."""
    if replay:
        return []
    # a distrusted source that gives some records now is asked for all of them
    recovered_kinds = {reasons[slice_].kind for slice_ in recheck.recovered} & {ReasonKind.UNCONFIRMED_LOSSES}
    lost = [
        slice_
        for slice_, reason in reasons.items()
        if reason.kind in (ReasonKind.UNCONFIRMED_LOSSES, ReasonKind.RECHECK_DUE)
    ]
    return [
        slice_ for slice_ in lost if slice_ not in recheck.recovered and reasons[slice_].kind not in recovered_kinds
    ]


def _count_fetched(
    workspace: Workspace, crawl: str, slice_states: Mapping[Slice, SliceState]
) -> dict[Slice, SliceFetchCounts]:
    """The counts of each slice that was ever fetched: from its note, or from its rows if the note does not count."""
    counts_by_slice = {}
    for slice_, slice_state in slice_states.items():
        if slice_state.fetch is not None:
            noted_counts = {name: getattr(slice_state.fetch, name) for name in FetchCounts.__slots__}
            counts_by_slice[slice_] = SliceFetchCounts(slice_=slice_, **noted_counts)
    unnoted_slices = [
        slice_
        for slice_, slice_state in slice_states.items()
        if slice_ not in counts_by_slice and slice_state.fetched is not None
    ]
    where = {"crawl": crawl, "target": [slice_.target for slice_ in unnoted_slices]}
    rows = stream_rows(workspace.lake, "records", where, _STATE_COLUMNS) if unnoted_slices else ()
    return counts_by_slice | count_fetched(rows, unnoted_slices)


def _fetch(state: _FetchState, slices: Sequence[Slice], repaired: Sequence[Slice], scope: RefetchScope) -> None:
    """Fetches ``slices`` and commits the records."""
    workspace, crawl = state.workspace, state.crawl
    order = _build_order(state, slices, scope)
    targets = [slice_.target for slice_ in slices]
    generations = draw_generations(slices)
    # files that are reused must not be swept before the commit
    with (
        lease(workspace.storage, crawl, order.commit, targets) as file_lease,
        workspace.scratch_folder("fetch") as scratch,
    ):
        # after the lease: a purge sees the lease, or is seen here, before anything is stored
        refuse_changed_epochs(workspace.lake, {slice_: state.previous_states[slice_].epoch for slice_ in slices})
        fetched = _fetch_records(state, order, generations, file_lease, scratch)
        file_lease.confirm()
        result = fetched.result
        fetched_twice = slices if scope.mismatched and result.answered and not result.unchanged else ()
        assessments = state.assess(fetched.counts_by_slice, fetched_twice)
        if slices:
            _commit(state, generations, repaired, fetched, assessments)
        else:
            retire_journals(workspace.storage, result.settled)
    state.counts_by_slice |= fetched.counts_by_slice
    state.assessments |= assessments
    state.results.append(result)


def _build_order(state: _FetchState, slices: Sequence[Slice], scope: RefetchScope) -> Order:
    """The order of a fetch of some slices."""
    workspace = state.workspace
    contents = [_get_captures(state.previous_states[slice_]).content for slice_ in slices]
    return Order(
        state.crawl,
        uuid.uuid4().hex,
        compute_input_digest({"plans": contents, "policy": workspace.settings.digest_policy}),
        RecordOptions(
            fail_on_digest=workspace.settings.digest_policy == "fail",
            retry_settled=scope.settled,
            retry_mismatched=scope.mismatched,
            forget_settled=scope.forget,
            source_gave_good_record=_has_given_good_record(workspace, state.crawl),
        ),
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
    reusable = find_reusable_records(workspace, crawl, targets, captures, places, scratch, state.distrusted)
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
    if fetched.result.fetched and not crawl.startswith(LOCAL_CRAWLS):
        _note_good_record(workspace)
    _check_balance(captures.rows, fetched.rows, fetched.result.outcomes, crawl)
    return fetched


def _commit(
    state: _FetchState,
    generations: Mapping[Slice, int],
    repaired: Sequence[Slice],
    fetched: FetchResult,
    assessments: Mapping[Slice, LossAssessment],
) -> None:
    """Commits the records and the notes of the slices. If the source gave nothing at all, ``records`` stays as it was,
    and only the notes change."""
    workspace, result, counts_by_slice = state.workspace, fetched.result, fetched.counts_by_slice
    slices = [*generations]
    inputs = {
        slice_: build_fetch_input(
            _get_captures(state.previous_states[slice_]).content,
            workspace.settings.digest_policy,
            complete=not counts_by_slice[slice_].pending,
        )
        for slice_ in slices
    }
    last_fetches = {slice_: state.previous_states[slice_].last_fetch for slice_ in slices}
    runs_without_response = (
        {}
        if result.answered
        else {slice_: 1 if note is None else note.runs_without_response + 1 for slice_, note in last_fetches.items()}
    )
    has_new_records = bool(result.answered or result.reused or result.adopted)
    notes = build_fetch_notes(counts_by_slice, inputs, runs_without_response, assessments)
    base = state.group.base(workspace, FETCH, slices, LOCATE)
    if has_new_records:
        note_superseded(workspace, slices, result.stored, time.time())
        forget_failed_pages(workspace, repaired, state.distrusted)
        written = {"records": fetched.write()}
        state.committed += commit_written(workspace.lake, FETCH, inputs, written, generations, base, notes=notes)
        retire_journals(workspace.storage, result.settled)
        return
    rows = []
    for slice_, note in notes.items():
        old = base.replaced.get(slice_, SliceRow(slice_, FETCH.label, 0, 0))
        rows.append(replace(old, note=note | {"is_failed": old.input != inputs[slice_]}))
    state.committed += commit_slices(workspace.lake, rows, base)


def _reassess_losses(state: _FetchState, slices: Collection[Slice], lost_again: Collection[Slice]) -> None:
    """Notes the new assessments of slices whose losses stay. For slices asked for ``lost_again`` it notes the failed
    recheck."""
    if not slices:
        return
    counts_by_slice = {slice_: state.counts_by_slice[slice_] for slice_ in slices}
    assessments = {}
    for slice_, assessment in state.assess(counts_by_slice).items():
        note = state.previous_states[slice_].fetch
        recheck_count = (0 if note is None else note.second_looks) + (slice_ in lost_again)
        assessments[slice_] = replace(assessment, second_looks=recheck_count)
    base = state.group.base(state.workspace, FETCH, slices)
    inputs = {slice_: row.input for slice_, row in base.replaced.items()}
    rows = []
    for slice_, new_note in build_fetch_notes(counts_by_slice, inputs, {}, assessments).items():
        row = base.replaced[slice_]
        kept = {} if slice_ in lost_again else {"last_attempt_at": row.note["last_attempt_at"]}
        if row.note != new_note | kept:
            rows.append(replace(row, note=new_note | kept))
    if rows:
        state.committed += commit_slices(state.workspace.lake, rows, base)
    state.assessments |= assessments


def _has_given_good_record(workspace: Workspace, crawl: str) -> bool:
    """Whether the source of ``crawl`` gave this home a good record within ``_PROOF_SECONDS``. Files of a user may be
    anywhere, so a record of them proves nothing later."""
    if crawl.startswith(LOCAL_CRAWLS):
        return False
    path = _good_record_path(workspace)
    is_recent = path.exists() and 0 <= time.time() - path.stat().st_mtime < _PROOF_SECONDS
    return is_recent and path.read_text("utf-8") == workspace.settings.source


def _note_good_record(workspace: Workspace) -> None:
    path = _good_record_path(workspace)
    with disk_trouble(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(workspace.settings.source, "utf-8")


def _good_record_path(workspace: Workspace) -> Path:
    """A file with the source, whose time is that of the last good record."""
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
    if not outcomes.keys() <= {"fetched", "quarantined", "missing"}:
        raise AssertionError(f"{crawl}: unknown outcomes {sorted(outcomes)}")


def _write_notes(state: _FetchState) -> tuple[str, ...]:
    notes = []
    reused, adopted = sum(result.reused for result in state.results), sum(result.adopted for result in state.results)
    if reused:
        notes.append(f"{format_count(reused, 'capture', 'were')} stored already and not fetched again")
    if adopted:
        notes.append(f"used {format_count(adopted, 'record')} that a stopped run had fetched")
    slice_counts = [state.counts_by_slice[slice_] for slice_ in state.assessments]
    pending_captures, lost_captures = (
        sum(counts.pending for counts in slice_counts),
        sum(counts.settled for counts in slice_counts),
    )
    if pending_captures:
        notes.append(
            f"{format_count(pending_captures, 'capture', 'were')} not fetched; the next run requests them again"
        )
    if lost_captures:
        is_unconfirmed = any(assessment.losses_unconfirmed for assessment in state.assessments.values())
        description = (
            "reported as lost, not confirmed yet" if is_unconfirmed else "missing or damaged in the source itself"
        )
        notes.append(f"{format_count(lost_captures, 'capture', 'are')} {description}; see the view ledger")
    if mismatches := sum(counts.mismatched for counts in slice_counts):
        notes.append(
            f"the payloads of {mismatches:,} records differ from the digest in the index; see digest_check in the "
            "view ledger"
        )
    return tuple(notes)


def _build_metrics(counts: SliceFetchCounts, slice_state: SliceState) -> Metrics:
    return {
        "rows:records": counts.planned,
        "fetched": counts.fetched,
        "quarantined": counts.quarantined,
        "missing": counts.missing,
        "stored bytes": counts.stored_bytes,
        **slice_state.content_metrics(FETCH),
        **counts.metrics(),
    }
