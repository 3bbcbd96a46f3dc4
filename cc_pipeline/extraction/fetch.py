"""Fetching: from captures to stored, verified records, committed per crawl."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.paths import path_list_key, published_key, segments_key
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.engine import LOCAL, Engine, Fetched, ToFetch
from cc_pipeline.extraction.expanding import expand, part_slices, retire_others
from cc_pipeline.extraction.gate import refuse_dear
from cc_pipeline.extraction.held import (
    Place,
    forget_failed_pages,
    held_rows,
    lost_note,
    note_superseded,
    slices_that_lost,
)
from cc_pipeline.extraction.plan import Wanted, Why, fetched_from, options_of, plan, with_open
from cc_pipeline.extraction.shortfall import NotGiven, Shortfall, fetch_rows, of_targets, refused, shortfalls
from cc_pipeline.extraction.slice import FETCH, LOCATE, Figures, Slice, StageReport, note_slices, slices_of
from cc_pipeline.extraction.standing import Standing, stand
from cc_pipeline.index.btree.locator import CRAWL_2012, URL_INDEX_2012
from cc_pipeline.keys import RECORD_KEY_NAMES
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.records.fetch import settle
from cc_pipeline.records.leases import forget, lease, left_behind
from cc_pipeline.records.lost import STORED
from cc_pipeline.records.options import RecordOptions
from cc_pipeline.records.places import PLACE_NAME, Places, PlacesFound
from cc_pipeline.stages.indexing.own_lists import first_own_key
from cc_pipeline.stages.tables import CAPTURES_SCHEMA
from cc_pipeline.stages.workspace import Workspace

#: Columns of records that say how slices stand.
_STANDING = ["target", "url", "outcome", "reason", "detail", "settled", "rounds", *STORED]


def fetch_captures(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    *,
    replay: bool = False,
    distrusted: Collection[Place] = (),
    engine: Engine = LOCAL,
) -> StageReport:
    """Gives every planned capture of ``slugs`` in ``crawl`` exactly one outcome, by ``engine``. Stored records are not
    fetched again, unless their bytes are gone.

    ``replay`` fetches quarantined and settled records again too, of all subsets that are there, and ``distrusted`` are
    captures whose stored bytes are not used. Raises ``NotGiven`` when the source gives nothing, or less than the
    settings allow, after what came was committed: it says of which targets, and has the report of all. Raises
    ``EnvironmentFault`` when the disk fails. Records fetched until then are kept, and the next call adopts them.
    """
    started = time.monotonic()
    asked = expand(workspace, crawl, slugs)
    slices = part_slices(workspace, slices_of(crawl, slugs)) if replay or distrusted else asked.slices
    before = stand(workspace, asked.every, (LOCATE, FETCH))
    for slice_ in slices:
        if before[slice_].located is None:
            raise EnvironmentFault(
                f"captures of {slice_.whole.target} in {crawl} have not been located", "Materialize captures first."
            )
    wanted = dict.fromkeys(slices, Wanted("", told=frozenset([FETCH.label] if replay else ())))
    reasons = plan(wanted, before, {}, options_of(workspace.settings), (FETCH,)).of(FETCH)
    lost = slices_that_lost(workspace, [one for one in slices if one not in reasons], distrusted) if distrusted else {}
    healed = {slice_: why.n for slice_, why in reasons.items() if why.why is Why.LOST} | lost
    todo = [*reasons, *lost]
    if not replay:
        refuse_dear(workspace, {one: before[one] for one, why in reasons.items() if why.why not in _NOT_PRICED})
    unfinished = left_behind(workspace.storage, crawl)
    fetched: Fetched | None = None
    refusal: NotGiven | None = None
    # where a fetch was killed between its commit and its end, its journals are settled even if nothing is to be done
    if todo or unfinished:
        to_make = {one: fetched_from(_said(before[one]), workspace.settings.digest_policy) for one in todo}
        fetched = _fetch(workspace, crawl, to_make, [*healed], replay, distrusted, engine)
        forget(workspace.storage, unfinished)
    now = stand(workspace, asked.every, (FETCH,), look_for_bytes=False) if fetched else before
    found = _shortfalls(workspace, crawl, now, fetched)
    if fetched is not None:
        wholes, mine = {slice_.whole for slice_ in todo}, set(slices)
        judged = of_targets(one for at, one in found.items() if at.whole in wholes and at in mine)
        refusal = refused(judged, workspace.settings.max_unsettled, workspace.settings.source)
    report = FETCH.report(
        {one: _figures(short, now[one]) for one, short in found.items()},
        todo,
        started,
        bytes=fetched.result.bytes if fetched else 0,
        requests=fetched.result.requests if fetched else 0,
        notes=(*_notes(fetched), *lost_note(healed)),
    )
    whole = {one.slice_.target: one.figures() for one in of_targets(found.values())}
    report = asked.folded(report, whole)
    if refusal is None:
        retire_others(workspace, FETCH, asked, "fetches")
        return report
    refusal.report = report
    made = [slug for slug, own in asked.for_.items() if all(now[slice_].fetched is not None for slice_ in own)]
    retire_others(workspace, FETCH, asked, "fetches", made)
    raise refusal


#: Reasons for a fetch of little, of what was agreed to before.
_NOT_PRICED = (Why.OPEN, Why.LOST)


def _said(stands: Standing) -> str:
    assert stands.located is not None, "it was located"
    return stands.located.says


def _shortfalls(
    workspace: Workspace, crawl: str, standings: Mapping[Slice, Standing], fetched: Fetched | None
) -> dict[Slice, Shortfall]:
    """How each slice that was ever fetched stands, by its note; the rows of slices of before that have none are
    read."""
    found = dict(fetched.found) if fetched is not None else {}
    for slice_, one in standings.items():
        note = one.fetch
        if slice_ not in found and note is not None and note.stored_bytes is not None:
            found[slice_] = Shortfall(
                slice_, note.planned, note.fetched, note.quarantined, note.missing, note.unsettled, note.given_up,
                note.reason, note.example, note.rounds, 0, note.stored_bytes, note.stored or {},
            )  # fmt: skip
    silent = [slice_ for slice_, one in standings.items() if slice_ not in found and one.fetched is not None]
    where = {"crawl": crawl, "target": [slice_.target for slice_ in silent]}
    rows = stream_rows(workspace.lake, "records", where, _STANDING) if silent else ()
    return found | shortfalls(rows, silent)


def _fetch(
    workspace: Workspace,
    crawl: str,
    wanted: Mapping[Slice, str],
    healed: Sequence[Slice],
    replay: bool,
    distrusted: Collection[Place],
    engine: Engine,
) -> Fetched:
    commit = uuid.uuid4().hex
    # Arrow keeps what it freed for rows to come, and fetching needs memory of other kinds
    pa.default_memory_pool().release_unused()
    targets = [slice_.target for slice_ in wanted]
    # nothing that is counted on from here to the commit may be swept meanwhile
    with (
        lease(workspace.storage, crawl, commit, targets) as held_here,
        workspace.scratch_folder("fetch") as scratch,
    ):
        captures, places = _captures(workspace, crawl, targets, scratch)
        held = held_rows(workspace, crawl, targets, places, scratch, distrusted)
        fetched = engine.fetch(
            workspace,
            ToFetch(
                crawl,
                [*wanted],
                captures,
                places,
                held,
                RecordOptions(
                    fail_on_digest=workspace.settings.digest_policy == "fail",
                    retry_settled=replay,
                    witnesses=_witnesses(workspace, crawl),
                ),
                commit,
                input_digest({"plans": list(wanted.values())}),
                scratch,
                holding=lambda adopted: held_here.hold(held.files | adopted),
                in_table=lambda: stream_rows(workspace.lake, "records", {"crawl": crawl}, PLACE_NAME),
            ),
        )
        _balanced(captures.rows, fetched.rows, fetched.result.outcomes, crawl)
        held_here.confirm()
        if wanted:
            _commit(workspace, crawl, wanted, healed, distrusted, fetched)
        else:
            settle(workspace.storage, fetched.result)
    return fetched


def _commit(
    workspace: Workspace,
    crawl: str,
    wanted: Mapping[Slice, str],
    healed: Sequence[Slice],
    distrusted: Collection[Place],
    fetched: Fetched,
) -> None:
    """Keeps what came, and how each slice stands. Where the source gave nothing at all, ``records`` stays as it was."""
    lake, result, found = workspace.lake, fetched.result, fetched.found
    before = {
        Slice(row["crawl"], row["target"]): row["silent_runs"]
        for row in lake.read("fetches", {"crawl": crawl, "target": [s.target for s in wanted]}).to_pylist()
    }
    silent = {} if result.answered else {slice_: before.get(slice_, 0) + 1 for slice_ in wanted}
    made_from = _made_from(wanted, found)
    rows = fetch_rows(found, made_from, silent)
    here = FETCH.made_from(lake, wanted.keys())
    # first, so that a run killed in between is not taken for one that never was; but not where the digest stays, since
    # the note would count then for rows that are not there yet
    note_slices(lake, "fetches", {s: row for s, row in rows.items() if here[s] != made_from[s]}, but="asked_at")
    if result.answered or result.reused or result.adopted:
        note_superseded(workspace, [*wanted], result.stored, time.time())
        forget_failed_pages(workspace, healed, distrusted)
        fetched.commit(lake, made_from)
        settle(workspace.storage, result)
    note_slices(lake, "fetches", {s: row for s, row in rows.items() if here[s] == made_from[s]}, but="asked_at")


def _witnesses(workspace: Workspace, crawl: str) -> tuple[str, ...]:
    """Keys that a source with this crawl has."""
    if crawl in ARC_CRAWLS:
        return (URL_INDEX_2012, segments_key(CRAWL_2012))
    named = first_own_key(workspace.settings, crawl)
    if named is not None:
        return (named,)
    listed = published_key(crawl)
    return () if listed is None else tuple(dict.fromkeys((listed, path_list_key(crawl, "warc"))))


def _captures(workspace: Workspace, crawl: str, targets: Sequence[str], scratch: Path) -> tuple[OrderedRows, Places]:
    """The captures of ``targets`` in the order of their places, and these."""
    found = PlacesFound()
    schema = pa.schema([CAPTURES_SCHEMA.field(name) for name in RECORD_KEY_NAMES])
    captures = OrderedRows(schema, (*PLACE_NAME, "target"), scratch)
    for batch in stream_rows(workspace.lake, "captures", {"crawl": crawl, "target": targets}, RECORD_KEY_NAMES):
        captures.add(batch)
        found.add(batch)
    return captures, found.places()


def _made_from(wanted: Mapping[Slice, str], found: Mapping[Slice, Shortfall]) -> dict[Slice, str]:
    # captures that may still come deserve another try: the slice then does not count as complete
    return {slice_: with_open(digest) if found[slice_].unsettled else digest for slice_, digest in wanted.items()}


def _balanced(captures: int, records: int, outcomes: Mapping[str, int], crawl: str) -> None:
    """The invariant of the ledger, enforced before anything becomes visible."""
    if records != captures or sum(outcomes.values()) != captures:
        raise AssertionError(f"{crawl}: {captures} captures became {records} records")
    if not outcomes.keys() <= {"fetched", "quarantined", "missing"}:
        raise AssertionError(f"{crawl}: unknown outcomes {sorted(outcomes)}")


def _notes(fetched: Fetched | None) -> tuple[str, ...]:
    if fetched is None:
        return ()
    result, found = fetched.result, fetched.found
    notes = []
    if result.reused:
        notes.append(f"{result.reused:,} captures were held already and not fetched again")
    if result.adopted:
        notes.append(f"{result.adopted:,} records were taken over from a run that had been stopped")
    again, settled = sum(one.unsettled for one in found.values()), sum(one.settled for one in found.values())
    if again:
        notes.append(f"{again:,} captures did not come and will be asked for again, by the next run at once")
    if settled:
        notes.append(f"{settled:,} captures are missing or damaged in the source itself; see the view ledger")
    return (*notes, *result.notes)


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
