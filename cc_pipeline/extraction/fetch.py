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
    known = run.take_state(crawl, slugs)
    chosen = _choose(workspace, known, slugs, replay=replay, distrusted=distrusted)
    run.expect(LOCATE, {slice_: _said(known.standings[slice_]) for slice_ in chosen.todo})
    _refuse_blocked(workspace, chosen.todo, known.standings, run.blocked())
    if chosen.todo:
        workspace.agree_on_digests()
    if not replay:
        refuse_dear(workspace, {slice_: known.standings[slice_] for slice_ in chosen.priced})
    short = _shortfalls(workspace, crawl, known.standings)
    state = _State(workspace, crawl, run, known.standings, short, distrusted, engine)
    unfinished = left_behind(workspace.storage, crawl)
    for again, some in _alike(chosen, is_unfinished=bool(unfinished), replay=replay).items():
        _fetch(state, some, [slice_ for slice_ in some if slice_ in chosen.healed], again)
    forget(workspace.storage, unfinished)
    _judge_anew(state, chosen.gone, chosen.looked.in_vain)
    after = _state_after(state, known)
    # pages of repaired slices are to be parsed again, and lost bytes are looked for again
    if not chosen.healed and not any(one.lost for one in known.standings.values()):
        run.keep_state(after)
    return _finish(state, chosen, after, started)


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
        return [one for one in self.todo if one in self.reasons and self.reasons[one].why not in OF_FEW]


def _choose(
    workspace: Workspace,
    known: GroupState,
    slugs: Sequence[str],
    *,
    replay: bool,
    distrusted: Collection[Place],
) -> _Chosen:
    """Plans a fetch. Raises ``EnvironmentFault`` for targets that were not located."""
    asked, before, crawl = known.asked, known.standings, known.asked.crawl
    slices = part_slices(workspace, slices_of(crawl, slugs)) if replay or distrusted else asked.slices
    for slice_ in slices:
        if before[slice_].located is None:
            raise EnvironmentFault(
                f"captures of {slice_.whole.target} in {crawl} have not been located", "Materialize captures first."
            )
    wanted = dict.fromkeys(slices, Wanted("", told=frozenset([FETCH.label] if replay else ())))
    options = options_of(workspace.settings, None if replay else datetime.now(UTC))
    reasons = plan(wanted, before, {}, options, (FETCH,)).of(FETCH)
    lost = slices_that_lost(workspace, [one for one in slices if one not in reasons], distrusted) if distrusted else {}
    healed = {slice_: why.n for slice_, why in reasons.items() if why.why is Why.LOST} | lost
    looked = _look_again(workspace, crawl, reasons, before, replay=replay)
    gone = _in_vain(reasons, looked, replay=replay)
    todo = [*(one for one in reasons if one not in gone), *lost]
    return _Chosen(slices, reasons, healed, looked, gone, todo)


def _alike(chosen: _Chosen, *, is_unfinished: bool, replay: bool) -> dict[Again, list[Slice]]:
    """Groups the slices to be fetched by the scope of their fetch. ``is_unfinished``: a fetch was killed between its
    commit and its end, so its journals are settled even if no slice is due."""
    found: dict[Again, list[Slice]] = {}
    for slice_ in chosen.todo:
        reason = chosen.reasons.get(slice_)
        why = None if reason is None else reason.why
        settled = replay or why in (Why.DOUBTED, Why.PERHAPS)
        mismatched = replay or why in (Why.PAYLOADS, Why.PERHAPS)
        found.setdefault(Again(settled, mismatched, forget=settled and not replay), []).append(slice_)
    return found or ({Again(settled=False, mismatched=False, forget=False): []} if is_unfinished else {})


def _state_after(state: _State, known: GroupState) -> GroupState:
    """The state of the targets after their fetch was committed."""
    if not state.judgement:
        return known
    now = stand(state.workspace, state.judgement, (FETCH,), look_for_bytes=False)
    return known.changed(
        {
            at: replace(known.standings[at], fetched=one.fetched, fetch=one.fetch, asked=one.asked)
            for at, one in now.items()
        }
    )


def _finish(state: _State, chosen: _Chosen, after: GroupState, started: float) -> StageReport:
    """Empties slices that a set no longer has, and builds the report of the stage. Raises ``NotGiven``, with the
    report, if targets lack more than they may."""
    workspace, crawl, asked, now = state.workspace, state.crawl, after.asked, after.standings
    wholes, mine = {slice_.whole for slice_ in state.judgement}, set(chosen.slices)
    judged_now = {at: one for at, one in state.found.items() if at.whole in wholes and at in mine}
    # the source is not to blame for files that a person added
    source = f"the files of {crawl}" if crawl.startswith(LOCAL_CRAWLS) else workspace.settings.source
    refusal = refused(judged_now, state.judgement, workspace.settings.max_unsettled, source)
    report = FETCH.report(
        {one: _figures(short, now[one]) for one, short in state.found.items()},
        chosen.todo,
        started,
        bytes=sum(result.bytes for result in state.results),
        requests=chosen.looked.requests + sum(result.requests for result in state.results),
        notes=(*_notes(state), *lost_note(chosen.healed)),
    )
    whole = {one.slice_.target: one.figures() for one in of_targets(state.found.values())}
    report = asked.folded(report, whole)
    if refusal is None:
        retire_others(workspace, FETCH, asked, "fetches")
        return report
    refusal.report = report
    made = [slug for slug, own in asked.for_.items() if all(now[slice_].fetched is not None for slice_ in own)]
    retire_others(workspace, FETCH, asked, "fetches", made)
    raise refusal


def _refuse_blocked(
    workspace: Workspace, slices: Sequence[Slice], before: Mapping[Slice, Standing], block: Blocked
) -> None:
    """Raises ``EnvironmentFault`` if captures were located before their site was blocked."""
    now = wishes(workspace, slices, block) if block.blocks else {}
    for slice_ in now:
        lookup = before[slice_].lookup
        if lookup is not None and same_but_for_blocks(lookup.definition, now[slice_].version):
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

    def judge(self, found: Mapping[Slice, Shortfall], asked_twice: Collection[Slice] = ()) -> dict[Slice, Judged]:
        """Assesses the losses of some slices, among all that the command fetched."""
        notes = {slice_: note for slice_, one in self.before.items() if (note := one.asked) is not None}
        workspace = self.workspace
        # a person accepts the number of all losses of a target
        targets = of_targets({**self.found, **found}.values())
        told = {one.slice_ for one in targets if one.losses in workspace.accepted_losses}
        return judged(
            found,
            notes,
            workspace.of_command(Command),
            allowed=workspace.settings.max_lost,
            accepted={slice_ for slice_ in found if slice_.whole in told},
            asked_twice=asked_twice,
        )


@dataclass(frozen=True, slots=True)
class Again:
    """The scope of a refetch, beside pending captures: ``settled`` ones, and records with another payload than the
    index names (``mismatched``). ``forget``: settled captures that are not fetched are pending from now on."""

    settled: bool
    mismatched: bool
    forget: bool


def _look_again(
    workspace: Workspace, crawl: str, reasons: Mapping[Slice, Reason], before: Mapping[Slice, Standing], *, replay: bool
) -> Looked:
    """Rechecks slices that lost captures, with a few requests."""
    looks = {}
    for slice_, why in reasons.items():
        note = before[slice_].fetch
        if not replay and why.why in (Why.DOUBTED, Why.PERHAPS) and note is not None:
            looks[slice_] = note.second_looks
    return look_again(workspace, crawl, looks) if looks else Looked(frozenset(), frozenset(), 0)


def _in_vain(reasons: Mapping[Slice, Reason], looked: Looked, *, replay: bool) -> list[Slice]:
    """The slices whose losses were confirmed by the recheck, or were not rechecked."""
    if replay:
        return []
    # a distrusted source that gives some records now is asked for all of them
    heals = {reasons[one].why for one in looked.back} & {Why.DOUBTED}
    lost = [one for one, why in reasons.items() if why.why in (Why.DOUBTED, Why.PERHAPS)]
    return [one for one in lost if one not in looked.back and reasons[one].why not in heals]


def _said(stands: Standing) -> str:
    assert stands.located is not None, "it was located"
    return stands.located.says


def _shortfalls(workspace: Workspace, crawl: str, standings: Mapping[Slice, Standing]) -> dict[Slice, Shortfall]:
    """The counts of each slice that was ever fetched: from its note, or from its rows if the note does not count."""
    found = {}
    for slice_, one in standings.items():
        if one.fetch is not None:
            noted = {name: getattr(one.fetch, name) for name in Brought.__slots__}
            found[slice_] = Shortfall(slice_=slice_, **noted)
    silent = [slice_ for slice_, one in standings.items() if slice_ not in found and one.fetched is not None]
    where = {"crawl": crawl, "target": [slice_.target for slice_ in silent]}
    rows = stream_rows(workspace.lake, "records", where, _STANDING) if silent else ()
    return found | shortfalls(rows, silent)


def _fetch(state: _State, slices: Sequence[Slice], healed: Sequence[Slice], again: Again) -> None:
    """Fetches ``slices`` and commits the records."""
    workspace, crawl = state.workspace, state.crawl
    policy = workspace.settings.digest_policy
    wanted = {one: fetched_from(_said(state.before[one]), policy) for one in slices}
    commit = uuid.uuid4().hex
    targets = [slice_.target for slice_ in wanted]
    sources = workspace.archives(crawl).sources
    witnessed, records = witness.known(_witnesses(workspace), sources)
    # files that are reused must not be swept before the commit
    with lease(workspace.storage, crawl, commit, targets) as held_here, workspace.scratch_folder("fetch") as scratch:
        captures, places = _captures(workspace, crawl, targets, scratch)
        held = held_rows(workspace, crawl, targets, captures, places, scratch, state.distrusted)
        # Arrow keeps freed memory for new rows, and fetching needs memory of other kinds
        pa.default_memory_pool().release_unused()
        fetched = state.engine.fetch(
            workspace,
            ToFetch(
                [*wanted],
                captures,
                places,
                held,
                Order(
                    crawl,
                    commit,
                    input_digest({"plans": list(wanted.values())}),
                    RecordOptions(
                        fail_on_digest=policy == "fail",
                        retry_settled=again.settled,
                        retry_mismatched=again.mismatched,
                        forget_settled=again.forget,
                        witnessed=witnessed,
                        search=witness.Search(records, _listed(crawl)),
                    ),
                ),
                scratch,
                holding=lambda adopted: held_here.hold(held.files | adopted),
                in_table=lambda: stream_rows(workspace.lake, "records", {"crawl": crawl}, PLACE_NAME),
            ),
        )
        with disk_trouble(_witnesses(workspace)):
            witness.note(_witnesses(workspace), fetched.result.witnesses)
        _balanced(captures.rows, fetched.rows, fetched.result.outcomes, crawl)
        held_here.confirm()
        result = fetched.result
        twice = slices if again.mismatched and result.answered and not result.kept_back else ()
        judgement = state.judge(fetched.found, twice)
        if wanted:
            _commit(state, wanted, healed, fetched, judgement)
        else:
            settle(workspace.storage, fetched.result)
    state.found |= fetched.found
    state.judgement |= judgement
    state.results.append(fetched.result)


def _commit(
    state: _State,
    wanted: Mapping[Slice, str],
    healed: Sequence[Slice],
    fetched: Fetched,
    judgement: Mapping[Slice, Judged],
) -> None:
    """Commits the records and the notes of the slices. If the source gave nothing at all, ``records`` stays as it
    was."""
    workspace, lake = state.workspace, state.workspace.lake
    result, found = fetched.result, fetched.found
    notes = {slice_: state.before[slice_].asked for slice_ in wanted}
    silent = (
        {} if result.answered else {one: 1 if note is None else note.silent_runs + 1 for one, note in notes.items()}
    )
    made_from = _made_from(wanted, found)
    rows = fetch_rows(found, made_from, silent, judgement)
    here = {slice_: state.before[slice_].made_from(FETCH) for slice_ in wanted}
    same = {slice_: row for slice_, row in rows.items() if here[slice_] == made_from[slice_]}
    is_brought = bool(result.answered or result.reused or result.adopted)
    with state.run.replacing(FETCH, {slice_: state.before[slice_] for slice_ in wanted}):
        # first, so that a killed run is not taken for one that never was; but not if the digest stays: then the note
        # would count for rows that are not there yet
        note_slices(lake, "fetches", {s: row for s, row in rows.items() if here[s] != made_from[s]}, but="asked_at")
        if is_brought:
            note_superseded(workspace, [*wanted], result.stored, time.time())
            forget_failed_pages(workspace, healed, state.distrusted)
            fetched.commit(lake, made_from)
            settle(workspace.storage, result)
        else:
            note_slices(lake, "fetches", same, but="asked_at")
    if is_brought:
        note_slices(lake, "fetches", same, but="asked_at")


def _judge_anew(state: _State, slices: Collection[Slice], in_vain: Collection[Slice]) -> None:
    """Notes the new assessments of slices whose losses stay. For slices asked for ``in_vain`` it notes the failed
    recheck."""
    if not slices:
        return
    found = {slice_: state.found[slice_] for slice_ in slices}
    judgement = {}
    for slice_, one in state.judge(found).items():
        note = state.before[slice_].fetch
        looks = (0 if note is None else note.second_looks) + (slice_ in in_vain)
        judgement[slice_] = replace(one, second_looks=looks)
    before = {slice_: state.before[slice_] for slice_ in slices}
    made_from = {slice_: made for slice_, one in before.items() if (made := one.made_from(FETCH)) is not None}
    rows = fetch_rows(found, made_from, {}, judgement)
    for slice_, row in rows.items():
        note = state.before[slice_].fetch
        if note is not None and slice_ not in in_vain:
            row["asked_at"] = note.asked_at
    with state.run.replacing(FETCH, before):
        note_slices(state.workspace.lake, "fetches", rows, but="asked_at")
    state.judgement |= judgement


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
    found = PlacesFound()
    # after they are sorted: both at once would take the memory of both
    for batch in captures.batches():
        found.add(batch)
    return captures, found.places()


def _made_from(wanted: Mapping[Slice, str], found: Mapping[Slice, Shortfall]) -> dict[Slice, str]:
    # pending captures deserve another try, so the slice does not count as complete
    return {slice_: with_open(digest) if found[slice_].unsettled else digest for slice_, digest in wanted.items()}


def _balanced(captures: int, records: int, outcomes: Mapping[str, int], crawl: str) -> None:
    """The invariant of the ledger, enforced before anything becomes visible."""
    if records != captures or sum(outcomes.values()) != captures:
        raise AssertionError(f"{crawl}: {captures} captures became {records} records")
    if not outcomes.keys() <= {"fetched", "quarantined", "missing"}:
        raise AssertionError(f"{crawl}: unknown outcomes {sorted(outcomes)}")


def _notes(state: _State) -> tuple[str, ...]:
    notes = []
    reused, adopted = sum(one.reused for one in state.results), sum(one.adopted for one in state.results)
    if reused:
        notes.append(f"{reused:,} captures were stored already and not fetched again")
    if adopted:
        notes.append(f"{adopted:,} records were adopted from a stopped run")
    found = [state.found[slice_] for slice_ in state.judgement]
    again, lost = sum(one.unsettled for one in found), sum(one.settled for one in found)
    if again:
        notes.append(f"{again:,} captures were not fetched; the next run retries them at once")
    if lost:
        doubted = any(one.losses_doubted for one in state.judgement.values())
        said = "reported lost, which is not confirmed" if doubted else "missing or damaged in the source itself"
        notes.append(f"{lost:,} captures are {said}; see the view ledger")
    if odd := sum(one.mismatched for one in found):
        notes.append(f"{odd:,} records have another payload than the index names; see digest_check in the view ledger")
    return (*notes, *dict.fromkeys(note for result in state.results for note in result.notes))


def _figures(found: Shortfall, stands: Standing) -> Figures:
    return {
        "rows:records": found.planned,
        "fetched": found.fetched,
        "quarantined": found.quarantined,
        "missing": found.missing,
        "stored bytes": found.stored_bytes,
        **stands.versions(FETCH),
        **found.figures(),
    }
