"""Fetching: from captures to stored, verified records, committed per crawl."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.parts import SEPARATOR, whole_slug
from cc_pipeline.commoncrawl.paths import path_list_key, published_key, segments_key
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.btree.locator import CRAWL_2012, URL_INDEX_2012
from cc_pipeline.keys import RECORD_KEY_NAMES
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.records.fetch import settle
from cc_pipeline.records.leases import forget, lease, left_behind
from cc_pipeline.records.options import RecordOptions
from cc_pipeline.records.places import PLACE_NAME, Places, PlacesFound
from cc_pipeline.stages.engine import LOCAL, Engine, Fetched, ToFetch
from cc_pipeline.stages.gate import refuse_dear
from cc_pipeline.stages.indexing.own_lists import first_own_key
from cc_pipeline.stages.keeping.held import (
    Place,
    forget_failed_pages,
    held_rows,
    lost_note,
    note_superseded,
    slices_that_lost,
)
from cc_pipeline.stages.sets.set_parts import over_parts
from cc_pipeline.stages.shortfall import (
    NotGiven,
    Shortfall,
    fetch_rows,
    of_targets,
    refused,
    shortfalls,
    unsettled_rows,
)
from cc_pipeline.stages.slice import FETCH, LOCATE, Figures, Slice, StageReport, note_slices, slices_of
from cc_pipeline.stages.tables import CAPTURES_SCHEMA
from cc_pipeline.stages.workspace import Workspace

VERSION = "1"
#: Columns of records that say how slices stand.
_STANDING = ["target", "url", "outcome", "reason", "detail", "settled", "rounds"]


@over_parts(FETCH, "fetches")
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

    ``replay`` fetches quarantined and settled records again too, and ``distrusted`` are captures whose stored bytes are
    not used. Raises ``NotGiven`` when the source gives nothing, or less than the settings allow, after what came was
    committed: it says of which targets, and has the report of all. Raises ``EnvironmentFault`` when the disk fails.
    Records fetched until then are kept, and the next call adopts them.
    """
    started = time.monotonic()
    wanted, stale, healed = to_fetch(workspace, crawl, slugs, replay=replay, distrusted=distrusted)
    if not replay:
        refuse_dear(workspace, crawl, fetched_otherwise(workspace, crawl, slugs))
    unfinished = left_behind(workspace.storage, crawl)
    fetched: Fetched | None = None
    refusal: NotGiven | None = None
    # where a fetch was killed between its commit and its end, its journals are settled even if nothing is stale
    if stale or unfinished:
        to_make = {slice_: wanted[slice_] for slice_ in stale}
        fetched = _fetch(workspace, crawl, to_make, [*healed], replay, distrusted, engine)
        forget(workspace.storage, unfinished)
        judged = of_targets([*fetched.found.values(), *_beside(workspace, crawl, wanted, fetched.found)])
        refusal = refused(judged, workspace.settings.max_unsettled, workspace.settings.source)
    figures, whole = _figures(workspace, crawl, wanted.keys())
    report = FETCH.report(
        figures,
        stale,
        started,
        bytes=fetched.result.bytes if fetched else 0,
        requests=fetched.result.requests if fetched else 0,
        notes=(*_notes(fetched), *lost_note(healed)),
    )
    report = replace(report, per_target={**whole, **report.per_target})
    if refusal is not None:
        refusal.report = report
        raise refusal
    return report


def _beside(
    workspace: Workspace, crawl: str, wanted: Collection[Slice], found: Mapping[Slice, Shortfall]
) -> list[Shortfall]:
    """How the other parts stand of the sets that have some parts among ``found``."""
    sets = {whole_slug(slice_.target) for slice_ in found}
    others = [slice_ for slice_ in wanted if slice_ not in found and whole_slug(slice_.target) in sets]
    where = {"crawl": crawl, "target": [slice_.target for slice_ in others]}
    return list(shortfalls(stream_rows(workspace.lake, "records", where, _STANDING), others).values())


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


def to_fetch(
    workspace: Workspace, crawl: str, slugs: Sequence[str], *, replay: bool = False, distrusted: Collection[Place] = ()
) -> tuple[dict[Slice, str], list[Slice], dict[Slice, int]]:
    """The digest that each of the located slices ``slugs`` would get; those that are to be fetched; and which of these
    only because bytes are gone or ``distrusted``, with how many records. Raises ``EnvironmentFault``."""
    wanted = _digests(workspace, slices_of(crawl, slugs))
    stale = list(wanted) if replay else _stale(workspace, crawl, wanted)
    behind = set(stale)
    healed = slices_that_lost(workspace, [slice_ for slice_ in wanted if slice_ not in behind], distrusted)
    return wanted, [*stale, *healed], healed


def _stale(workspace: Workspace, crawl: str, wanted: Mapping[Slice, str]) -> list[Slice]:
    """Slices that were not fetched from what is located now, and those that lack something that may still come."""
    stale = set(FETCH.stale(workspace.lake, wanted))
    rest = [slice_.target for slice_ in wanted if slice_ not in stale]
    columns = ["target", "outcome", "reason", "settled"]
    lacking: set[str] = set()
    for batch in stream_rows(workspace.lake, "records", {"crawl": crawl, "target": rest}, columns):
        lacking.update(unsettled_rows(pa.Table.from_batches([batch])).column("target").to_pylist())
    return [slice_ for slice_ in wanted if slice_ in stale or slice_.target in lacking]


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
    # first, so that a run killed in between is not taken for one that never was
    note_slices(lake, "fetches", fetch_rows(found, made_from, silent), but="asked_at")
    if result.answered or result.reused or result.adopted:
        note_superseded(workspace, [*wanted], result.stored, time.time())
        forget_failed_pages(workspace, healed, distrusted)
        fetched.commit(lake, made_from)
        settle(workspace.storage, result)


def _witnesses(workspace: Workspace, crawl: str) -> tuple[str, ...]:
    """Keys that a source with this crawl has."""
    if crawl in ARC_CRAWLS:
        return (URL_INDEX_2012, segments_key(CRAWL_2012))
    named = first_own_key(workspace.settings, crawl)
    if named is not None:
        return (named,)
    listed = published_key(crawl)
    return () if listed is None else tuple(dict.fromkeys((listed, path_list_key(crawl, "warc"))))


def fetched_otherwise(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> set[str]:
    """Those of the located ``slugs`` whose records were fetched for other captures than there are now.

    Records that the source did not give do not count, because they were requested.
    """
    wanted = _digests(workspace, slices_of(crawl, slugs))
    here = FETCH.made_from(workspace.lake, wanted.keys())
    return {s.target for s, digest in wanted.items() if here[s] not in (digest, _incomplete(digest))}


def _captures(workspace: Workspace, crawl: str, targets: Sequence[str], scratch: Path) -> tuple[OrderedRows, Places]:
    """The captures of ``targets`` in the order of their places, and these."""
    found = PlacesFound()
    schema = pa.schema([CAPTURES_SCHEMA.field(name) for name in RECORD_KEY_NAMES])
    captures = OrderedRows(schema, (*PLACE_NAME, "target"), scratch)
    for batch in stream_rows(workspace.lake, "captures", {"crawl": crawl, "target": targets}, RECORD_KEY_NAMES):
        captures.add(batch)
        found.add(batch)
    return captures, found.places()


def _digests(workspace: Workspace, slices: Sequence[Slice]) -> dict[Slice, str]:
    located = LOCATE.made_from(workspace.lake, slices)
    shared = {"version": VERSION, "digest_policy": workspace.settings.digest_policy}
    for slice_, digest in located.items():
        if digest is None:
            raise EnvironmentFault(
                f"captures of {whole_slug(slice_.target)} in {slice_.crawl} have not been located",
                "Materialize captures first.",
            )
    return {slice_: FETCH.digest(**shared, located=digest) for slice_, digest in located.items()}


def _made_from(wanted: Mapping[Slice, str], found: Mapping[Slice, Shortfall]) -> dict[Slice, str]:
    # captures that may still come deserve another try: the slice then does not count as complete
    return {slice_: _incomplete(digest) if found[slice_].unsettled else digest for slice_, digest in wanted.items()}


def _incomplete(digest: str) -> str:
    return input_digest({"incomplete": digest})


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


def _figures(
    workspace: Workspace, crawl: str, slices: Collection[Slice]
) -> tuple[dict[Slice, Figures], dict[str, Figures]]:
    """The figures of each slice, and those of divided sets that are no sums of their parts'."""
    where = {"crawl": crawl, "target": [slice_.target for slice_ in slices]}
    columns = [*_STANDING, "stored_length"]
    stored: Counter[str] = Counter()

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in stream_rows(workspace.lake, "records", where, columns):
            sizes = pa.Table.from_batches([batch]).group_by("target").aggregate([("stored_length", "sum")])
            stored.update({row["target"]: row["stored_length_sum"] or 0 for row in sizes.to_pylist()})
            yield batch

    found = shortfalls(rows(), list(slices))
    versions = FETCH.versions(workspace.lake, slices)
    figures: dict[Slice, Figures] = {
        slice_: {
            "rows:records": one.planned,
            "fetched": one.fetched,
            "quarantined": one.quarantined,
            "missing": one.missing,
            "stored bytes": stored[slice_.target],
            **versions[slice_],
            **one.figures(),
        }
        for slice_, one in found.items()
    }
    divided = [one for one in found.values() if SEPARATOR in one.slice_.target]
    return figures, {one.slice_.target: one.figures() for one in of_targets(divided)}
