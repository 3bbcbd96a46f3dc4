"""Locates the captures of targets, commits them per crawl, and estimates the cost of their fetch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.slice_slugs import PLAIN, given_slug, is_given, with_subset
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.blocked import Blocked, blocks_of
from cc_pipeline.extraction.located import Answer, Located, Summed
from cc_pipeline.extraction.lookup_notes import (
    Found,
    Known,
    commit_lookups,
    in_commits,
    in_passes,
    index_complete,
    keep_rows,
    keep_what_was_divided,
    keep_what_was_there,
    what_is_known,
)
from cc_pipeline.extraction.plan import Index, Why, located_from, options_of, plan
from cc_pipeline.extraction.price_gate import price_of_slices, refuse_dear
from cc_pipeline.extraction.removals import Listing, Removal, doubted, noted_listings, refused_removals, together_listed
from cc_pipeline.extraction.run_inputs import GroupState, RunInputs, planned_again
from cc_pipeline.extraction.standing import Standing, stand
from cc_pipeline.extraction.target_slices import left_over, retire_others, wishes
from cc_pipeline.harvesting.catalog import catalog_gaps, columnar_versions, open_catalog
from cc_pipeline.harvesting.crawls import has_cluster
from cc_pipeline.index.locator import BOTH, GIVEN, Into, LookupResult
from cc_pipeline.index.locators import AUTO, PARQUET, index_kinds
from cc_pipeline.index.lookup import IndexSources, look_up, outside_notes
from cc_pipeline.index.opening import URL_INDEXES
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import FETCH, LOCATE, Figures, Slice, StageReport, written
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA
from cc_pipeline.workspace.workspace import Workspace

#: Bytes of captures given to the writer at a time: its threads wait for each other, and it holds up to some thirty such
#: batches when other processes are busy.
_BYTES_AT_ONCE = 2 << 20
#: The index to ask, and for which subsets.
_Question: TypeAlias = tuple[str, tuple[str, ...]]
_STAYED = "{n:,} captures stay in {crawl} although this answer does not list them: other index files named them"
_GONE = "{n:,} captures were removed from {crawl}: its index no longer lists them"
_REPEATED = "the index of {crawl} repeats itself: {n:,} more rows of captures of {slug}, each of which is kept once"
#: Targets with repeated captures that the report names.
_NAMED = 5


def index_sources(workspace: Workspace, crawl: str) -> IndexSources:
    """The indexes of ``crawl`` in a workspace."""
    settings = workspace.settings
    return IndexSources(
        workspace.index_place(crawl),
        catalog=partial(open_catalog, workspace.lake),
        url_indexes=settings.home / URL_INDEXES,
        footers=settings.footers_path,
        cache=settings.cache_path / "page-indexes",
        max_gaps=settings.max_index_gaps,
        clusters=workspace.clusters,
        has_cluster=partial(has_cluster, workspace),
        max_requests=settings.max_requests,
        max_bytes=settings.max_bytes,
        home=settings.home,
    )


def captures_of(
    workspace: Workspace,
    crawl: str,
    targets: Sequence[Target],
    *,
    subsets: Sequence[str] | None = None,
    via: str | None = None,
    into: Into | None = None,
) -> LookupResult:
    """The captures of ``targets`` in ``crawl`` and the ``subsets`` (default: the settings'): all of them, or an error.
    With ``into`` they are passed to it as they are found."""
    settings = workspace.settings
    sources = index_sources(workspace, crawl)
    selected_subsets = settings.subsets if subsets is None else subsets
    return look_up(crawl, selected_subsets, targets, sources, via=via or settings.via, into=into)


def indexes_of(workspace: Workspace, slice_states: Mapping[Slice, Standing]) -> dict[tuple[str, str], Index]:
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
    kinds = index_kinds().values()
    indexes: dict[tuple[str, str], Index] = {}
    for crawl, subset in crawl_subsets:
        reported_versions = {kind.name: kind.version(settings.home, crawl, subset) for kind in kinds}
        reported_versions[PARQUET.name] = columnar.get((crawl, subset), "")
        versions = {name: version for name, version in reported_versions.items() if version}
        gaps = catalog_gaps(workspace, [crawl], (subset,)) if (crawl, subset) in incomplete else ()
        indexes[crawl, subset] = Index(
            versions, all(crawl_gaps.allowed(settings.max_index_gaps) for crawl_gaps in gaps)
        )
    return indexes


def refuse_unharvested(workspace: Workspace, indexes: Mapping[tuple[str, str], Index]) -> None:
    """Raises ``EnvironmentFault`` if the columnar index is to be asked and was not harvested."""
    settings = workspace.settings
    for (crawl, subset), index in indexes.items():
        if crawl not in ARC_CRAWLS and PARQUET.name not in index.versions and settings.via in (AUTO, PARQUET.name):
            if crawl in workspace.short_ways and settings.via == AUTO:
                continue
            subset_note = "" if subset == PLAIN else f" ({subset})"
            raise EnvironmentFault(
                f"the index of {crawl}{subset_note} has not been harvested",
                "First materialize row_groups of the crawl (the harvest_crawl job).",
            )


def locate_captures(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> StageReport:
    """Finds the captures of ``slugs`` in ``crawl``. Slices whose inputs are unchanged stay.

    Of a set with changed members, only the new members are looked up, and an unchanged part of it stays.
    Raises ``UserInputError`` for keys that have no definition and cannot be given one, and, after the captures were
    committed, for a fetch that would cost more than the settings allow; ``NotGiven`` for captures that the index no
    longer lists, which stay unconfirmed; ``IndexIncomplete`` if index files were not read and no other index has the
    crawl; ``EnvironmentFault`` if the index cannot be read, and as
    :func:`~cc_pipeline.extraction.run_inputs.planned_again` does.
    """
    return planned_again(workspace, crawl, slugs, lambda run: _locate_all(workspace, crawl, slugs, run), relocates=True)


def _locate_all(workspace: Workspace, crawl: str, slugs: Sequence[str], run: RunInputs) -> StageReport:
    started = time.monotonic()
    group_state = run.take_state(crawl, slugs)
    target_slices, slice_states = group_state.asked, group_state.standings
    blocklist = run.blocked()
    requests = wishes(workspace, target_slices.slices, blocklist)
    indexes = indexes_of(workspace, {slice_: slice_states[slice_] for slice_ in requests})
    options = options_of(workspace.settings)
    due_versions = {
        slice_: requests[slice_].version
        for slice_ in plan(requests, slice_states, indexes, options, (LOCATE,)).of(LOCATE)
    }
    totals = _locate(_Planned(workspace, crawl, run, blocklist, due_versions, slice_states, indexes))
    retire_others(workspace, LOCATE, target_slices, "lookups")
    new_state = _state_after(workspace, due_versions, group_state)
    # the cost of lost bytes was agreed to before
    fetch_reasons = plan(requests, new_state.standings, {}, options, (FETCH,)).of(FETCH, but=(Why.OPEN, Why.LOST))
    refuse_dear(workspace, {slice_: new_state.standings[slice_] for slice_ in fetch_reasons})
    run.keep_state(new_state)
    report = target_slices.folded(_report(workspace, due_versions, requests, new_state.standings, totals, started))
    removal_error = refused_removals(
        {slice_: _listing(new_state.standings[slice_]) for slice_ in target_slices.every}, slugs
    )
    if removal_error is not None:
        removal_error.report = report
        raise removal_error
    return report


def _state_after(workspace: Workspace, located_slices: Collection[Slice], group_state: GroupState) -> GroupState:
    """The state of the targets after these slices were located."""
    new_states = stand(workspace, located_slices, (LOCATE,)) if located_slices else {}
    return group_state.changed(
        {
            slice_: replace(group_state.standings[slice_], located=slice_state.located, lookup=slice_state.lookup)
            for slice_, slice_state in new_states.items()
        }
    )


def _report(
    workspace: Workspace,
    due_slices: Collection[Slice],
    requested_slices: Collection[Slice],
    slice_states: Mapping[Slice, Standing],
    totals: _Spent,
    started: float,
) -> StageReport:
    """The report of the stage, with the metrics of each slice."""
    metrics_by_target = {
        slice_.target: _figures(workspace, slice_, slice_state, slice_ in due_slices)
        for slice_, slice_state in slice_states.items()
        if slice_state.located
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


def _listing(slice_state: Standing) -> tuple[int, Listing]:
    """The number of captures of a slice, and the note of its look-up on its index."""
    lookup = slice_state.lookup
    if lookup is None:
        return 0, Listing()
    return lookup.captures, Listing(lookup.located_by, None, lookup.unlisted, lookup.removal)


@dataclass(slots=True)
class _Spent:
    """The costs and results of look-ups."""

    rows: int = 0
    requests: int = 0
    bytes: int = 0
    stayed: int = 0
    outside: int = 0
    blocked: int = 0
    gone: int = 0
    repeated: Counter[str] = field(default_factory=Counter)
    notes: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The look-ups that are due in a crawl: slices with the ``versions`` of their definitions. ``standings`` has all
    slices of their targets, ``indexes`` is by crawl and subset, and ``block`` has the sites that are left out."""

    workspace: Workspace
    crawl: str
    run: RunInputs
    block: Blocked
    versions: Mapping[Slice, str]
    standings: Mapping[Slice, Standing]
    indexes: Mapping[tuple[str, str], Index]

    def index_of(self, slice_: Slice) -> Index:
        """The index by which a slice can be located."""
        return self.indexes[self.crawl, slice_.subset]


def _locate(lookup_plan: _Planned) -> _Spent:
    """Looks up the planned slices and commits them, pass by pass."""
    workspace, crawl, versions = lookup_plan.workspace, lookup_plan.crawl, lookup_plan.versions
    totals, located_count = _Spent(), 0
    if indexed_slices := {slice_ for slice_ in versions if not is_given(slice_.target)}:
        refuse_unharvested(
            workspace, {(crawl, slice_.subset): lookup_plan.index_of(slice_) for slice_ in indexed_slices}
        )
        if reason := workspace.short_ways.get(crawl):
            totals.notes[reason] = None
    for targets in in_passes(workspace, [*versions]):
        progress.report("locate", located_count, len(versions), crawl)
        with workspace.scratch_folder("locate") as scratch:
            buffer = Located(scratch, lookup_plan.block)
            _locate_some(lookup_plan, targets, buffer, totals)
            totals.blocked += buffer.blocked
        located_count += len(targets)
    if versions:
        progress.report("locate", located_count, len(versions), crawl)
    totals.notes |= dict.fromkeys(_sentences(totals, crawl))
    return totals


def _locate_some(lookup_plan: _Planned, targets: Mapping[Slice, Target], buffer: Located, totals: _Spent) -> None:
    """Locates the slices of one pass: members are carried over, new captures come from the index, and stored captures
    are added. The index may take stored captures away only if it named them."""
    workspace, crawl, versions, slice_states = (
        lookup_plan.workspace,
        lookup_plan.crawl,
        lookup_plan.versions,
        lookup_plan.standings,
    )
    reusable_indexes = {
        slice_: _carried_by(workspace, versions[slice_], slice_states[slice_], lookup_plan.index_of(slice_))
        for slice_ in targets
    }
    tasks = what_is_known(workspace, targets, [slice_ for slice_ in targets if reusable_indexes[slice_]])
    kept_counts = keep_rows(workspace, tasks, buffer)
    summaries = {
        slice_: _as_before(versions[slice_], slice_states[slice_])
        for slice_, task in tasks.items()
        if task.asked is None
    }
    for query, slices in _questions(workspace, tasks, reusable_indexes).items():
        answer = _ask(workspace, crawl, query, {slice_: tasks[slice_] for slice_ in slices}, buffer)
        totals.requests, totals.bytes = totals.requests + answer.requests, totals.bytes + answer.bytes
        totals.notes |= dict.fromkeys(answer.notes)
        summaries |= {
            slice_: _found(slice_, answer, versions[slice_], lookup_plan.index_of(slice_)) for slice_ in slices
        }
    # if members were carried over, their rows were too
    relocated = {
        slice_
        for slice_, summary in summaries.items()
        if slice_states[slice_].located is not None and tasks[slice_].kept is None and summary.by != GIVEN
    }
    keep_what_was_there(workspace, tasks, relocated, buffer)
    old_listings = noted_listings(workspace.lake, relocated)
    new_slices = [
        slice_ for slice_, summary in summaries.items() if slice_states[slice_].located is None and summary.by != GIVEN
    ]
    for slug, set_slices in _by_set(new_slices).items():
        all_slices = [slice_ for slice_ in slice_states if slice_.whole.target == slug]
        if obsolete_slices := left_over(workspace, LOCATE, slug, all_slices):
            keep_what_was_divided(workspace, tasks, set_slices, obsolete_slices, buffer)
            old_listing = together_listed([*noted_listings(workspace.lake, obsolete_slices).values()])
            old_listings |= dict.fromkeys(set_slices, old_listing)
    totals.notes |= dict.fromkeys(_members_went(kept_counts, slice_states))
    _commit(lookup_plan, tasks, summaries, buffer, totals, old_listings)


def _sentences(totals: _Spent, crawl: str) -> Iterator[str]:
    """Writes a note on captures that were left out, kept, removed or repeated."""
    if totals.outside:
        yield from outside_notes(totals.outside)
    if totals.blocked:
        yield f"{totals.blocked:,} captures of blocked sites were left out in {crawl}"
    if totals.stayed:
        yield _STAYED.format(n=totals.stayed, crawl=crawl)
    if totals.gone:
        yield _GONE.format(n=totals.gone, crawl=crawl)
    for slug, count in sorted(totals.repeated.items())[:_NAMED]:
        yield _REPEATED.format(n=count, crawl=crawl, slug=slug)
    if len(totals.repeated) > _NAMED:
        yield f"the indexes of {len(totals.repeated) - _NAMED:,} more targets repeat rows too"


def _ask(
    workspace: Workspace, crawl: str, query: _Question, tasks: Mapping[Slice, Known], buffer: Located
) -> LookupResult:
    """Looks up some slices in one index and adds their captures to ``buffer``."""
    via, subsets = query
    if via == GIVEN:
        for slice_, task in tasks.items():
            for rows in _rows_given(workspace, slice_, task.target):
                buffer.add(slice_, rows)
        return LookupResult({}, 0, 0, 0.0, index=GIVEN)
    slices_by_slug: dict[str, list[Slice]] = {}
    for slice_ in tasks:
        slices_by_slug.setdefault(slice_.defined, []).append(slice_)

    def add_rows(slug: str, rows: pa.Table) -> None:
        for slice_ in slices_by_slug[slug]:
            slice_rows = rows.filter(pc.equal(rows["subset"], slice_.subset)) if len(subsets) > 1 else rows
            buffer.add(slice_, tasks[slice_].not_kept(slice_rows))

    targets = {slice_.defined: task.asked for slice_, task in tasks.items() if task.asked is not None}
    return captures_of(workspace, crawl, [*targets.values()], subsets=subsets, via=via, into=add_rows)


def captures_given(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> LookupResult:
    """The captures of ``targets`` that a person named one by one, of all subsets, from the lake. Raises
    ``EnvironmentFault``."""
    tables_by_slug = {}
    for target in targets:
        slices = [Slice(crawl, with_subset(target.slug, subset)) for subset in SUBSETS]
        tables = [rows for slice_ in slices for rows in _rows_given(workspace, slice_, target)]
        tables_by_slug[target.slug] = pa.concat_tables([CAPTURE_SCHEMA.empty_table(), *tables])
    return LookupResult(tables_by_slug, 0, 0, 0.0, index=GIVEN)


def _rows_given(workspace: Workspace, slice_: Slice, target: Target) -> Iterator[pa.Table]:
    where = {"crawl": slice_.crawl, "target": given_slug(slice_.target)}
    for batch in stream_rows(workspace.lake, "given_captures", where, CAPTURE_SCHEMA.names):
        rows = pa.Table.from_batches([batch])
        yield rows if target.condition is None else target.condition.keep(rows)


def _commit(
    lookup_plan: _Planned,
    tasks: Mapping[Slice, Known],
    summaries: Mapping[Slice, Found],
    buffer: Located,
    totals: _Spent,
    old_listings: Mapping[Slice, Listing],
) -> None:
    """Commits the located slices, some at a time. Captures that an index no longer lists stay if a person has to accept
    their removal. ``old_listings`` has the listings that were noted at the last look-up of the slices."""
    workspace, crawl, slice_states = lookup_plan.workspace, lookup_plan.crawl, lookup_plan.standings
    other_listings = {
        slice_: _listing(slice_state)
        for slice_, slice_state in slice_states.items()
        if slice_ not in lookup_plan.versions
    }
    input_digests = {
        slice_: located_from(crawl, summaries[slice_].definition, summaries[slice_].by, summaries[slice_].index)
        for slice_ in sorted(summaries)
    }
    targets = {slice_: tasks[slice_].target for slice_ in input_digests}
    # a target is assessed as a whole, so nothing is committed until all of its slices are known
    commits = [
        (commit_digests, *buffer.of({slice_: summaries[slice_].answer for slice_ in commit_digests}, targets))
        for commit_digests in in_commits(input_digests)
    ]
    all_totals = {
        slice_: capture_totals
        for _, _, totals_by_slice in commits
        for slice_, capture_totals in totals_by_slice.items()
    }
    unconfirmed = doubted(
        {
            slice_: _removal(summaries[slice_], capture_totals, old_listings.get(slice_, Listing()))
            for slice_, capture_totals in all_totals.items()
        },
        other_listings,
        workspace.settings.max_lost,
        workspace.accepted_losses,
    )
    totals.gone += sum(
        capture_totals.unlisted for slice_, capture_totals in all_totals.items() if slice_ not in unconfirmed
    )
    # an unconfirmed removal keeps the size of the old listing, to be compared with the next one
    summaries = {
        slice_: replace(summary, size=old_listings.get(slice_, Listing()).size) if slice_ in unconfirmed else summary
        for slice_, summary in summaries.items()
    }
    for commit_digests, rows, totals_by_slice in commits:
        kept_rows = buffer.without_unlisted(
            rows, [slice_ for slice_ in commit_digests if slice_ not in unconfirmed], totals_by_slice, targets
        )
        with lookup_plan.run.replacing(LOCATE, {slice_: slice_states[slice_] for slice_ in commit_digests}):
            commit_lookups(workspace, commit_digests, summaries, totals_by_slice)
            totals.rows += LOCATE.commit(workspace.lake, commit_digests, {"captures": partial(_large, kept_rows)})
        totals.stayed += sum(capture_totals.stayed for capture_totals in totals_by_slice.values())
        totals.outside += sum(capture_totals.outside for capture_totals in totals_by_slice.values())
        for slice_, slice_totals in totals_by_slice.items():
            totals.repeated.update({slice_.whole.target: slice_totals.repeated} if slice_totals.repeated else {})


def _by_set(slices: Sequence[Slice]) -> dict[str, list[Slice]]:
    """Groups the slices of named sets by the slugs of their sets."""
    slices_by_set: dict[str, list[Slice]] = {}
    for slice_ in slices:
        if slice_.target.startswith(SET_SLUG):
            slices_by_set.setdefault(slice_.whole.target, []).append(slice_)
    return slices_by_set


def _removal(summary: Found, totals: Summed, old_listing: Listing) -> Removal:
    """The captures that a look-up would take away from a slice."""
    new_listing = Listing(summary.by, summary.size, totals.unlisted, totals.removal)
    return Removal(totals.before, totals.rows - totals.unlisted, old_listing, new_listing)


def _carried_by(workspace: Workspace, version: str, slice_state: Standing, index: Index) -> str | None:
    """The complete and unchanged index by which a slice was located, so that it need not be asked again; else
    ``None``."""
    lookup = slice_state.lookup
    # unlisted captures are assessed by the whole slice
    if lookup is None or lookup.unlisted or blocks_of(lookup.definition) != blocks_of(version):
        return None
    if not lookup.complete or workspace.settings.via not in (AUTO, lookup.located_by):
        return None
    return lookup.located_by if index.has(lookup) else None


def _questions(
    workspace: Workspace, tasks: Mapping[Slice, Known], reusable_indexes: Mapping[Slice, str | None]
) -> dict[_Question, list[Slice]]:
    """The slices of each look-up, by the index to be asked and the subsets: an index is asked once for all subsets."""
    slices_by_target: dict[tuple[str, str, str], list[Slice]] = {}
    for slice_, task in tasks.items():
        if task.asked is not None:
            via = (task.kept is not None and reusable_indexes[slice_]) or workspace.settings.via
            via = GIVEN if is_given(slice_.target) else via
            slices_by_target.setdefault((via, slice_.defined, task.asked.version), []).append(slice_)
    slices_by_query: dict[_Question, list[Slice]] = {}
    for (via, _, _), slices in slices_by_target.items():
        slices_by_query.setdefault((via, tuple(sorted(slice_.subset for slice_ in slices))), []).extend(slices)
    return slices_by_query


def _large(rows: OrderedRows, columns: Sequence[str] = CAPTURES_SCHEMA.names) -> Iterator[pa.RecordBatch]:
    """``columns`` in large batches. The writer's threads share batches, and keep order only within one."""
    waiting: list[pa.RecordBatch] = []
    for batch in rows.batches():
        waiting.append(batch.select(columns))
        if sum(waiting_batch.nbytes for waiting_batch in waiting) >= _BYTES_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _found(slice_: Slice, answer: LookupResult, version: str, index: Index) -> Found:
    gaps = answer.gaps
    if gaps is not None and slice_.subset not in {subset for subset, _, _ in gaps.by_subset}:
        gaps = None
    located_by = answer.index or ""
    slice_lookup = Answer(answer.segments, () if gaps is not None else tuple(located_by.split(BOTH)))
    return Found(
        located_by,
        index.version_of(located_by, answer.index_version),
        version,
        gaps,
        slice_lookup,
        answer.sizes.get(slice_.subset),
    )


def _as_before(version: str, slice_state: Standing) -> Found:
    """Repeats the note of a set that only lost members: no index was asked."""
    lookup = slice_state.lookup
    assert lookup is not None, "it was carried over"
    return Found(lookup.located_by, lookup.index, version, None, size=lookup.index_size)


def _members_went(kept_counts: Mapping[Slice, int], slice_states: Mapping[Slice, Standing]) -> Iterator[str]:
    for slice_, count in kept_counts.items():
        lookup = slice_states[slice_].lookup
        if lookup is not None and (removed_captures := lookup.captures - count) > 0:
            yield (
                f"{removed_captures:,} captures of members that {slice_.whole.target} no longer has were removed from "
                f"{slice_.crawl}"
            )


def _figures(workspace: Workspace, slice_: Slice, slice_state: Standing, is_fresh: bool) -> Figures:
    """The rows of a slice and the cost of fetching all of them, so that a person can decide before the fetch."""
    lookup = slice_state.lookup
    if lookup is not None:
        rows, (record_bytes, size, requests) = lookup.captures, lookup.price
    else:
        # the note is of other rows: a run was killed between the two commits
        price = price_of_slices(workspace, [slice_])
        rows, record_bytes, size, requests = price.captures, price.record_bytes, price.bytes, price.requests
    metrics: Figures = {
        "rows:captures": rows,
        "record bytes": record_bytes,
        "fetch bytes": size,
        "fetch requests": requests,
        **slice_state.versions(LOCATE),
    }
    if lookup is not None:
        metrics["index complete"] = index_complete(lookup)
        metrics |= {"no longer in the index": lookup.unlisted} if lookup.unlisted else {}
    return metrics | written(metrics, is_fresh)
