"""Fetching: from captures to stored, verified records, committed per crawl."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import RECORD_KEY_NAMES
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.crawls import LOCAL as LOCAL_CRAWLS
from cc_pipeline.commoncrawl.paths import path_list_key, published_key
from cc_pipeline.errors import EnvironmentFault, disk_trouble
from cc_pipeline.extraction.blocked import Blocked, same_but_for_blocks
from cc_pipeline.extraction.engine import LOCAL, Engine, Fetched, ToFetch
from cc_pipeline.extraction.fetch_counts import Brought, Shortfall, of_targets, shortfalls
from cc_pipeline.extraction.plan import Reason, Wanted, Why, fetched_from, options_of, plan, with_open
from cc_pipeline.extraction.price_gate import refuse_dear
from cc_pipeline.extraction.reusable_records import (
    Place,
    forget_failed_pages,
    held_rows,
    lost_note,
    note_superseded,
    slices_that_lost,
)
from cc_pipeline.extraction.run_inputs import GroupState, RunInputs, planned_again
from cc_pipeline.extraction.second_look import Looked, look_again
from cc_pipeline.extraction.shortfall import Command, Judged, fetch_rows, judged, refused
from cc_pipeline.extraction.standing import Standing, stand
from cc_pipeline.extraction.target_slices import part_slices, retire_others, wishes
from cc_pipeline.lake.digests.digest import input_digest
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import FETCH, LOCATE, Figures, Slice, StageReport, note_slices, slices_of
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.records import witness
from cc_pipeline.records.fetch import RecordsResult, settle
from cc_pipeline.records.leases import forget, lease, left_behind
from cc_pipeline.records.places import PLACE_NAME, Places, PlacesFound
from cc_pipeline.records.range_plan import Order, RecordOptions
from cc_pipeline.records.storage import STORED
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA
from cc_pipeline.workspace.workspace import Workspace

#: Columns of records from which the counts of slices are computed.
_STANDING = [
    *("target", "url", "outcome", "reason", "detail", "settled", "rounds", "digest_check", "payload_length"),
    *(*PLACE_NAME, *STORED),
]


def fetch_captures(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    *,
    replay: bool = False,
    distrusted: Collection[Place] = (),
    engine: Engine = LOCAL,
) -> StageReport:
    """Gives every planned capture of ``slugs`` in ``crawl`` exactly one outcome. ``engine`` fetches. Stored records are
    fetched again only if their bytes are gone.

    ``replay``: quarantined and settled records are fetched again too, in all located subsets. ``distrusted`` are
    captures whose stored bytes are not used.
    Raises ``NotGiven`` when the source gives nothing, or less than the settings allow, after the fetched records were
    committed; the error names the targets and has the report of all. Raises ``EnvironmentFault`` when the disk fails,
    and as :func:`~cc_pipeline.extraction.run_inputs.planned_again` does. Records fetched until then are kept, and the
    next call adopts them.
    """

    def fetch_all(run: RunInputs) -> StageReport:
        return _fetch_all(workspace, crawl, slugs, run, replay=replay, distrusted=distrusted, engine=engine)

    return planned_again(workspace, crawl, slugs, fetch_all)


def _fetch_all(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    run: RunInputs,
    *,
    replay: bool,
    distrusted: Collection[Place],
    engine: Engine,
) -> StageReport:
    started = time.monotonic()
    group_state = run.take_state(crawl, slugs)
    fetch_plan = _choose(workspace, group_state, slugs, replay=replay, distrusted=distrusted)
    run.expect(LOCATE, {slice_: _said(group_state.standings[slice_]) for slice_ in fetch_plan.todo})
    _refuse_blocked(workspace, fetch_plan.todo, group_state.standings, run.blocked())
    if fetch_plan.todo:
        workspace.agree_on_digests()
    if not replay:
        refuse_dear(workspace, {slice_: group_state.standings[slice_] for slice_ in fetch_plan.priced})
    counts_by_slice = _shortfalls(workspace, crawl, group_state.standings)
    state = _State(workspace, crawl, run, group_state.standings, counts_by_slice, distrusted, engine)
    killed_fetches = left_behind(workspace.storage, crawl)
    for scope, slices in _alike(fetch_plan, is_unfinished=bool(killed_fetches), replay=replay).items():
        _fetch(state, slices, [slice_ for slice_ in slices if slice_ in fetch_plan.healed], scope)
    forget(workspace.storage, killed_fetches)
    _judge_anew(state, fetch_plan.gone, fetch_plan.looked.in_vain)
    new_state = _state_after(state, group_state)
    # pages of repaired slices are to be parsed again, and lost bytes are looked for again
    if not fetch_plan.healed and not any(slice_state.lost for slice_state in group_state.standings.values()):
        run.keep_state(new_state)
    return _finish(state, fetch_plan, new_state, started)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The plan of one fetch: the requested ``slices``, and the ``reasons`` for which some are fetched.

    ``healed`` are slices that lost stored bytes, each with how many records. ``looked`` is the result of the recheck of
    lost captures, and ``gone`` are the slices whose losses it confirmed. ``todo`` are all other slices to be fetched.
    """

    slices: Sequence[Slice]
    reasons: Mapping[Slice, Reason]
    healed: Mapping[Slice, int]
    looked: Looked
    gone: Sequence[Slice]
    todo: Sequence[Slice]

    @property
    def priced(self) -> list[Slice]:
        """The slices for which nobody has agreed yet to a fetch of all captures."""
        return [slice_ for slice_ in self.todo if slice_ in self.reasons and self.reasons[slice_].why not in OF_FEW]


def _choose(
    workspace: Workspace,
    group_state: GroupState,
    slugs: Sequence[str],
    *,
    replay: bool,
    distrusted: Collection[Place],
) -> _Chosen:
    """Plans a fetch. Raises ``EnvironmentFault`` for targets that were not located."""
    target_slices, slice_states, crawl = group_state.asked, group_state.standings, group_state.asked.crawl
    slices = part_slices(workspace, slices_of(crawl, slugs)) if replay or distrusted else target_slices.slices
    for slice_ in slices:
        if slice_states[slice_].located is None:
            raise EnvironmentFault(
                f"captures of {slice_.whole.target} in {crawl} have not been located", "Materialize captures first."
            )
    requests = dict.fromkeys(slices, Wanted("", told=frozenset([FETCH.label] if replay else ())))
    options = options_of(workspace.settings, None if replay else datetime.now(UTC))
    reasons = plan(requests, slice_states, {}, options, (FETCH,)).of(FETCH)
    lost = (
        slices_that_lost(workspace, [slice_ for slice_ in slices if slice_ not in reasons], distrusted)
        if distrusted
        else {}
    )
    repaired = {slice_: reason.n for slice_, reason in reasons.items() if reason.why is Why.LOST} | lost
    recheck = _look_again(workspace, crawl, reasons, slice_states, replay=replay)
    still_lost = _in_vain(reasons, recheck, replay=replay)
    due_slices = [*(slice_ for slice_ in reasons if slice_ not in still_lost), *lost]
    return _Chosen(slices, reasons, repaired, recheck, still_lost, due_slices)


def _alike(fetch_plan: _Chosen, *, is_unfinished: bool, replay: bool) -> dict[Again, list[Slice]]:
    """Groups the slices to be fetched by the scope of their fetch. ``is_unfinished``: a fetch was killed between its
    commit and its end, so its journals are settled even if no slice is due."""
    slices_by_scope: dict[Again, list[Slice]] = {}
    for slice_ in fetch_plan.todo:
        reason = fetch_plan.reasons.get(slice_)
        reason_kind = None if reason is None else reason.why
        settled = replay or reason_kind in (Why.DOUBTED, Why.PERHAPS)
        mismatched = replay or reason_kind in (Why.PAYLOADS, Why.PERHAPS)
        slices_by_scope.setdefault(Again(settled, mismatched, forget=settled and not replay), []).append(slice_)
    return slices_by_scope or ({Again(settled=False, mismatched=False, forget=False): []} if is_unfinished else {})


def _state_after(state: _State, group_state: GroupState) -> GroupState:
    """The state of the targets after their fetch was committed."""
    if not state.judgement:
        return group_state
    new_states = stand(state.workspace, state.judgement, (FETCH,), look_for_bytes=False)
    return group_state.changed(
        {
            slice_: replace(
                group_state.standings[slice_],
                fetched=slice_state.fetched,
                fetch=slice_state.fetch,
                asked=slice_state.asked,
            )
            for slice_, slice_state in new_states.items()
        }
    )


def _finish(state: _State, fetch_plan: _Chosen, group_state: GroupState, started: float) -> StageReport:
    """Empties slices that a set no longer has, and builds the report of the stage. Raises ``NotGiven``, with the
    report, if targets lack more than they may."""
    workspace, crawl, target_slices, slice_states = (
        state.workspace,
        state.crawl,
        group_state.asked,
        group_state.standings,
    )
    partitions, planned_slices = {slice_.whole for slice_ in state.judgement}, set(fetch_plan.slices)
    assessed_counts = {
        slice_: counts
        for slice_, counts in state.found.items()
        if slice_.whole in partitions and slice_ in planned_slices
    }
    # the source is not to blame for files that a person added
    source = f"the files of {crawl}" if crawl.startswith(LOCAL_CRAWLS) else workspace.settings.source
    incomplete_error = refused(assessed_counts, state.judgement, workspace.settings.max_unsettled, source)
    report = FETCH.report(
        {slice_: _figures(counts, slice_states[slice_]) for slice_, counts in state.found.items()},
        fetch_plan.todo,
        started,
        bytes=sum(result.bytes for result in state.results),
        requests=fetch_plan.looked.requests + sum(result.requests for result in state.results),
        notes=(*_notes(state), *lost_note(fetch_plan.healed)),
    )
    target_metrics = {counts.slice_.target: counts.figures() for counts in of_targets(state.found.values())}
    report = target_slices.folded(report, target_metrics)
    if incomplete_error is None:
        retire_others(workspace, FETCH, target_slices, "fetches")
        return report
    incomplete_error.report = report
    fetched_targets = [
        slug
        for slug, slices in target_slices.for_.items()
        if all(slice_states[slice_].fetched is not None for slice_ in slices)
    ]
    retire_others(workspace, FETCH, target_slices, "fetches", fetched_targets)
    raise incomplete_error


def _refuse_blocked(
    workspace: Workspace, slices: Sequence[Slice], slice_states: Mapping[Slice, Standing], blocklist: Blocked
) -> None:
    """Raises ``EnvironmentFault`` if captures were located before their site was blocked."""
    requests = wishes(workspace, slices, blocklist) if blocklist.blocks else {}
    for slice_ in requests:
        lookup = slice_states[slice_].lookup
        if lookup is not None and same_but_for_blocks(lookup.definition, requests[slice_].version):
            raise EnvironmentFault(
                f"{slice_.whole.target} in {slice_.crawl} was located before it, or one of its sites, was blocked",
                f"See: cc-pipeline targets block. Locate a set again: cc-pipeline run … --crawl {slice_.crawl}",
            )


#: Reasons for a fetch of few captures, or of captures that are mostly stored: its cost was agreed to before.
OF_FEW: Final = (Why.OPEN, Why.LOST, Why.DOUBTED, Why.PERHAPS, Why.PAYLOADS, Why.TORN)


@dataclass(slots=True)
class _State:
    """One call of the stage: the slice states ``before`` it, the current counts of each slice (``found``), the
    assessments of the fetched slices, and the result of each fetch."""

    workspace: Workspace
    crawl: str
    run: RunInputs
    before: Mapping[Slice, Standing]
    found: dict[Slice, Shortfall]
    distrusted: Collection[Place]
    engine: Engine
    judgement: dict[Slice, Judged] = field(default_factory=dict)
    results: list[RecordsResult] = field(default_factory=list)

    def judge(
        self, counts_by_slice: Mapping[Slice, Shortfall], fetched_twice: Collection[Slice] = ()
    ) -> dict[Slice, Judged]:
        """Assesses the losses of some slices, among all that the command fetched."""
        notes = {slice_: note for slice_, slice_state in self.before.items() if (note := slice_state.asked) is not None}
        workspace = self.workspace
        # a person accepts the number of all losses of a target
        targets = of_targets({**self.found, **counts_by_slice}.values())
        accepted_targets = {
            target_counts.slice_ for target_counts in targets if target_counts.losses in workspace.accepted_losses
        }
        return judged(
            counts_by_slice,
            notes,
            workspace.of_command(Command),
            allowed=workspace.settings.max_lost,
            accepted={slice_ for slice_ in counts_by_slice if slice_.whole in accepted_targets},
            asked_twice=fetched_twice,
        )


@dataclass(frozen=True, slots=True)
class Again:
    """The scope of a refetch, beside pending captures: ``settled`` ones, and records with another payload than the
    index names (``mismatched``). ``forget``: settled captures that are not fetched are pending from now on."""

    settled: bool
    mismatched: bool
    forget: bool


def _look_again(
    workspace: Workspace,
    crawl: str,
    reasons: Mapping[Slice, Reason],
    slice_states: Mapping[Slice, Standing],
    *,
    replay: bool,
) -> Looked:
    """Rechecks slices that lost captures, with a few requests."""
    recheck_counts = {}
    for slice_, reason in reasons.items():
        note = slice_states[slice_].fetch
        if not replay and reason.why in (Why.DOUBTED, Why.PERHAPS) and note is not None:
            recheck_counts[slice_] = note.second_looks
    return look_again(workspace, crawl, recheck_counts) if recheck_counts else Looked(frozenset(), frozenset(), 0)


def _in_vain(reasons: Mapping[Slice, Reason], recheck: Looked, *, replay: bool) -> list[Slice]:
    """The slices whose losses were confirmed by the recheck, or were not rechecked."""
    if replay:
        return []
    # a distrusted source that gives some records now is asked for all of them
    recovered_kinds = {reasons[slice_].why for slice_ in recheck.back} & {Why.DOUBTED}
    lost = [slice_ for slice_, reason in reasons.items() if reason.why in (Why.DOUBTED, Why.PERHAPS)]
    return [slice_ for slice_ in lost if slice_ not in recheck.back and reasons[slice_].why not in recovered_kinds]


def _said(slice_state: Standing) -> str:
    assert slice_state.located is not None, "it was located"
    return slice_state.located.says


def _shortfalls(workspace: Workspace, crawl: str, slice_states: Mapping[Slice, Standing]) -> dict[Slice, Shortfall]:
    """The counts of each slice that was ever fetched: from its note, or from its rows if the note does not count."""
    counts_by_slice = {}
    for slice_, slice_state in slice_states.items():
        if slice_state.fetch is not None:
            noted_counts = {name: getattr(slice_state.fetch, name) for name in Brought.__slots__}
            counts_by_slice[slice_] = Shortfall(slice_=slice_, **noted_counts)
    unnoted_slices = [
        slice_
        for slice_, slice_state in slice_states.items()
        if slice_ not in counts_by_slice and slice_state.fetched is not None
    ]
    where = {"crawl": crawl, "target": [slice_.target for slice_ in unnoted_slices]}
    rows = stream_rows(workspace.lake, "records", where, _STANDING) if unnoted_slices else ()
    return counts_by_slice | shortfalls(rows, unnoted_slices)


def _fetch(state: _State, slices: Sequence[Slice], repaired: Sequence[Slice], scope: Again) -> None:
    """Fetches ``slices`` and commits the records."""
    workspace, crawl = state.workspace, state.crawl
    policy = workspace.settings.digest_policy
    complete_digests = {slice_: fetched_from(_said(state.before[slice_]), policy) for slice_ in slices}
    commit_id = uuid.uuid4().hex
    targets = [slice_.target for slice_ in complete_digests]
    sources = workspace.archives(crawl).sources
    known_good, good_records = witness.known(_witnesses(workspace), sources)
    # files that are reused must not be swept before the commit
    with (
        lease(workspace.storage, crawl, commit_id, targets) as file_lease,
        workspace.scratch_folder("fetch") as scratch,
    ):
        captures, places = _captures(workspace, crawl, targets, scratch)
        reusable = held_rows(workspace, crawl, targets, captures, places, scratch, state.distrusted)
        # Arrow keeps freed memory for new rows, and fetching needs memory of other kinds
        pa.default_memory_pool().release_unused()
        fetched = state.engine.fetch(
            workspace,
            ToFetch(
                [*complete_digests],
                captures,
                places,
                reusable,
                Order(
                    crawl,
                    commit_id,
                    input_digest({"plans": list(complete_digests.values())}),
                    RecordOptions(
                        fail_on_digest=policy == "fail",
                        retry_settled=scope.settled,
                        retry_mismatched=scope.mismatched,
                        forget_settled=scope.forget,
                        witnessed=known_good,
                        search=witness.Search(good_records, _listed(crawl)),
                    ),
                ),
                scratch,
                holding=lambda adopted: file_lease.hold(reusable.files | adopted),
                in_table=lambda: stream_rows(workspace.lake, "records", {"crawl": crawl}, PLACE_NAME),
            ),
        )
        with disk_trouble(_witnesses(workspace)):
            witness.note(_witnesses(workspace), fetched.result.witnesses)
        _balanced(captures.rows, fetched.rows, fetched.result.outcomes, crawl)
        file_lease.confirm()
        result = fetched.result
        fetched_twice = slices if scope.mismatched and result.answered and not result.kept_back else ()
        assessments = state.judge(fetched.found, fetched_twice)
        if complete_digests:
            _commit(state, complete_digests, repaired, fetched, assessments)
        else:
            settle(workspace.storage, fetched.result)
    state.found |= fetched.found
    state.judgement |= assessments
    state.results.append(fetched.result)


def _commit(
    state: _State,
    complete_digests: Mapping[Slice, str],
    repaired: Sequence[Slice],
    fetched: Fetched,
    assessments: Mapping[Slice, Judged],
) -> None:
    """Commits the records and the notes of the slices. If the source gave nothing at all, ``records`` stays as it
    was."""
    workspace, lake = state.workspace, state.workspace.lake
    result, counts_by_slice = fetched.result, fetched.found
    last_fetches = {slice_: state.before[slice_].asked for slice_ in complete_digests}
    silent_runs = (
        {}
        if result.answered
        else {slice_: 1 if note is None else note.silent_runs + 1 for slice_, note in last_fetches.items()}
    )
    input_digests = _made_from(complete_digests, counts_by_slice)
    rows = fetch_rows(counts_by_slice, input_digests, silent_runs, assessments)
    stored_digests = {slice_: state.before[slice_].made_from(FETCH) for slice_ in complete_digests}
    unchanged_rows = {slice_: row for slice_, row in rows.items() if stored_digests[slice_] == input_digests[slice_]}
    has_new_records = bool(result.answered or result.reused or result.adopted)
    with state.run.replacing(FETCH, {slice_: state.before[slice_] for slice_ in complete_digests}):
        # first, so that a killed run is not taken for one that never was; but not if the digest stays: then the note
        # would count for rows that are not there yet
        note_slices(
            lake,
            "fetches",
            {slice_: row for slice_, row in rows.items() if stored_digests[slice_] != input_digests[slice_]},
            but="asked_at",
        )
        if has_new_records:
            note_superseded(workspace, [*complete_digests], result.stored, time.time())
            forget_failed_pages(workspace, repaired, state.distrusted)
            fetched.commit(lake, input_digests)
            settle(workspace.storage, result)
        else:
            note_slices(lake, "fetches", unchanged_rows, but="asked_at")
    if has_new_records:
        note_slices(lake, "fetches", unchanged_rows, but="asked_at")


def _judge_anew(state: _State, slices: Collection[Slice], lost_again: Collection[Slice]) -> None:
    """Notes the new assessments of slices whose losses stay. For slices asked for ``lost_again`` it notes the failed
    recheck."""
    if not slices:
        return
    counts_by_slice = {slice_: state.found[slice_] for slice_ in slices}
    assessments = {}
    for slice_, assessment in state.judge(counts_by_slice).items():
        note = state.before[slice_].fetch
        recheck_count = (0 if note is None else note.second_looks) + (slice_ in lost_again)
        assessments[slice_] = replace(assessment, second_looks=recheck_count)
    previous_states = {slice_: state.before[slice_] for slice_ in slices}
    input_digests = {
        slice_: stored_digest
        for slice_, slice_state in previous_states.items()
        if (stored_digest := slice_state.made_from(FETCH)) is not None
    }
    rows = fetch_rows(counts_by_slice, input_digests, {}, assessments)
    for slice_, row in rows.items():
        note = state.before[slice_].fetch
        if note is not None and slice_ not in lost_again:
            row["asked_at"] = note.asked_at
    with state.run.replacing(FETCH, previous_states):
        note_slices(state.workspace.lake, "fetches", rows, but="asked_at")
    state.judgement |= assessments


def _witnesses(workspace: Workspace) -> Path:
    """The file of the home's known-good records, which prove that a mirror works."""
    return workspace.settings.home / "cache" / "witnesses.json"


def _listed(crawl: str) -> str | None:
    """The key of the path list of a crawl's archive files, if there may be one."""
    return None if crawl in ARC_CRAWLS or published_key(crawl) is None else path_list_key(crawl, "warc")


def _captures(workspace: Workspace, crawl: str, targets: Sequence[str], scratch: Path) -> tuple[OrderedRows, Places]:
    """The captures of ``targets`` in the order of their locations, and these locations."""
    schema = pa.schema([CAPTURES_SCHEMA.field(name) for name in RECORD_KEY_NAMES])
    captures = OrderedRows(schema, (*PLACE_NAME, "target"), scratch)
    for batch in stream_rows(workspace.lake, "captures", {"crawl": crawl, "target": targets}, RECORD_KEY_NAMES):
        captures.add(batch)
    collected_places = PlacesFound()
    # after they are sorted: both at once would take the memory of both
    for batch in captures.batches():
        collected_places.add(batch)
    return captures, collected_places.places()


def _made_from(complete_digests: Mapping[Slice, str], counts_by_slice: Mapping[Slice, Shortfall]) -> dict[Slice, str]:
    # pending captures deserve another try, so the slice does not count as complete
    return {
        slice_: with_open(digest) if counts_by_slice[slice_].unsettled else digest
        for slice_, digest in complete_digests.items()
    }


def _balanced(captures: int, records: int, outcomes: Mapping[str, int], crawl: str) -> None:
    """The invariant of the ledger, enforced before anything becomes visible."""
    if records != captures or sum(outcomes.values()) != captures:
        raise AssertionError(f"{crawl}: {captures} captures became {records} records")
    if not outcomes.keys() <= {"fetched", "quarantined", "missing"}:
        raise AssertionError(f"{crawl}: unknown outcomes {sorted(outcomes)}")


def _notes(state: _State) -> tuple[str, ...]:
    notes = []
    reused, adopted = sum(result.reused for result in state.results), sum(result.adopted for result in state.results)
    if reused:
        notes.append(f"{reused:,} captures were stored already and not fetched again")
    if adopted:
        notes.append(f"{adopted:,} records were adopted from a stopped run")
    slice_counts = [state.found[slice_] for slice_ in state.judgement]
    pending_captures, lost_captures = (
        sum(counts.unsettled for counts in slice_counts),
        sum(counts.settled for counts in slice_counts),
    )
    if pending_captures:
        notes.append(f"{pending_captures:,} captures were not fetched; the next run retries them at once")
    if lost_captures:
        is_unconfirmed = any(assessment.losses_doubted for assessment in state.judgement.values())
        description = (
            "reported lost, which is not confirmed" if is_unconfirmed else "missing or damaged in the source itself"
        )
        notes.append(f"{lost_captures:,} captures are {description}; see the view ledger")
    if mismatches := sum(counts.mismatched for counts in slice_counts):
        notes.append(
            f"{mismatches:,} records have another payload than the index names; see digest_check in the view ledger"
        )
    return (*notes, *dict.fromkeys(note for result in state.results for note in result.notes))


def _figures(counts: Shortfall, slice_state: Standing) -> Figures:
    return {
        "rows:records": counts.planned,
        "fetched": counts.fetched,
        "quarantined": counts.quarantined,
        "missing": counts.missing,
        "stored bytes": counts.stored_bytes,
        **slice_state.versions(FETCH),
        **counts.figures(),
    }
