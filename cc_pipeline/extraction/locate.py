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
    chosen = settings.subsets if subsets is None else subsets
    return look_up(crawl, chosen, targets, sources, via=via or settings.via, into=into)


def indexes_of(workspace: Workspace, standings: Mapping[Slice, Standing]) -> dict[tuple[str, str], Index]:
    """The indexes that can locate slices, by crawl and subset. Sends no request. Equal versions stand for equal
    answers."""
    settings = workspace.settings
    over_holes = {(s.crawl, s.subset) for s, one in standings.items() if one.lookup and not one.lookup.complete}
    places = sorted({(slice_.crawl, slice_.subset) for slice_ in standings})
    columnar = columnar_versions(workspace.lake, {crawl for crawl, _ in places if crawl not in ARC_CRAWLS})
    kinds = index_kinds().values()
    found: dict[tuple[str, str], Index] = {}
    for crawl, subset in places:
        told = {kind.name: kind.version(settings.home, crawl, subset) for kind in kinds}
        told[PARQUET.name] = columnar.get((crawl, subset), "")
        versions = {name: version for name, version in told.items() if version}
        gaps = catalog_gaps(workspace, [crawl], (subset,)) if (crawl, subset) in over_holes else ()
        found[crawl, subset] = Index(versions, all(one.allowed(settings.max_index_gaps) for one in gaps))
    return found


def refuse_unharvested(workspace: Workspace, indexes: Mapping[tuple[str, str], Index]) -> None:
    """Raises ``EnvironmentFault`` if the columnar index is to be asked and was not harvested."""
    settings = workspace.settings
    for (crawl, subset), index in indexes.items():
        if crawl not in ARC_CRAWLS and PARQUET.name not in index.versions and settings.via in (AUTO, PARQUET.name):
            if crawl in workspace.short_ways and settings.via == AUTO:
                continue
            of = "" if subset == PLAIN else f" ({subset})"
            raise EnvironmentFault(
                f"the index of {crawl}{of} has not been harvested",
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
    before = run.take_state(crawl, slugs)
    asked, standings = before.asked, before.standings
    block = run.blocked()
    wanted = wishes(workspace, asked.slices, block)
    indexes = indexes_of(workspace, {slice_: standings[slice_] for slice_ in wanted})
    options = options_of(workspace.settings)
    todo = {one: wanted[one].version for one in plan(wanted, standings, indexes, options, (LOCATE,)).of(LOCATE)}
    spent = _locate(_Planned(workspace, crawl, run, block, todo, standings, indexes))
    retire_others(workspace, LOCATE, asked, "lookups")
    after = _state_after(workspace, todo, before)
    # the cost of lost bytes was agreed to before
    fetches = plan(wanted, after.standings, {}, options, (FETCH,)).of(FETCH, but=(Why.OPEN, Why.LOST))
    refuse_dear(workspace, {slice_: after.standings[slice_] for slice_ in fetches})
    run.keep_state(after)
    report = asked.folded(_report(workspace, todo, wanted, after.standings, spent, started))
    refusal = refused_removals({one: _listing(after.standings[one]) for one in asked.every}, slugs)
    if refusal is not None:
        refusal.report = report
        raise refusal
    return report


def _state_after(workspace: Workspace, located: Collection[Slice], before: GroupState) -> GroupState:
    """The state of the targets after these slices were located."""
    now = stand(workspace, located, (LOCATE,)) if located else {}
    return before.changed(
        {at: replace(before.standings[at], located=one.located, lookup=one.lookup) for at, one in now.items()}
    )


def _report(
    workspace: Workspace,
    todo: Collection[Slice],
    wanted: Collection[Slice],
    now: Mapping[Slice, Standing],
    spent: _Spent,
    started: float,
) -> StageReport:
    """The report of the stage, with the metrics of each slice."""
    figures = {at.target: _figures(workspace, at, one, at in todo) for at, one in now.items() if one.located}
    return StageReport(
        LOCATE.label,
        rows=sum(int(own["rows:captures"]) for own in figures.values()),
        written=spent.rows,
        bytes=spent.bytes,
        requests=spent.requests,
        seconds=time.monotonic() - started,
        fresh_slices=len(todo),
        reused_slices=len(wanted) - len(todo),
        notes=tuple(spent.notes),
        per_target=figures,
    )


def _listing(stands: Standing) -> tuple[int, Listing]:
    """The number of captures of a slice, and the note of its look-up on its index."""
    found = stands.lookup
    if found is None:
        return 0, Listing()
    return found.captures, Listing(found.located_by, None, found.unlisted, found.removal)


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


def _locate(planned: _Planned) -> _Spent:
    """Looks up the planned slices and commits them, pass by pass."""
    workspace, crawl, versions = planned.workspace, planned.crawl, planned.versions
    spent, done = _Spent(), 0
    if asked := {slice_ for slice_ in versions if not is_given(slice_.target)}:
        refuse_unharvested(workspace, {(crawl, slice_.subset): planned.index_of(slice_) for slice_ in asked})
        if why := workspace.short_ways.get(crawl):
            spent.notes[why] = None
    for some in in_passes(workspace, [*versions]):
        progress.report("locate", done, len(versions), crawl)
        with workspace.scratch_folder("locate") as scratch:
            located = Located(scratch, planned.block)
            _locate_some(planned, some, located, spent)
            spent.blocked += located.blocked
        done += len(some)
    if versions:
        progress.report("locate", done, len(versions), crawl)
    spent.notes |= dict.fromkeys(_sentences(spent, crawl))
    return spent


def _locate_some(planned: _Planned, some: Mapping[Slice, Target], located: Located, spent: _Spent) -> None:
    """Locates the slices of one pass: members are carried over, new captures come from the index, and stored captures
    are added. The index may take stored captures away only if it named them."""
    workspace, crawl, versions, standings = planned.workspace, planned.crawl, planned.versions, planned.standings
    by = {s: _carried_by(workspace, versions[s], standings[s], planned.index_of(s)) for s in some}
    known = what_is_known(workspace, some, [s for s in some if by[s]])
    kept = keep_rows(workspace, known, located)
    found = {s: _as_before(versions[s], standings[s]) for s, one in known.items() if one.asked is None}
    for question, asking in _questions(workspace, known, by).items():
        answer = _ask(workspace, crawl, question, {s: known[s] for s in asking}, located)
        spent.requests, spent.bytes = spent.requests + answer.requests, spent.bytes + answer.bytes
        spent.notes |= dict.fromkeys(answer.notes)
        found |= {s: _found(s, answer, versions[s], planned.index_of(s)) for s in asking}
    # if members were carried over, their rows were too
    again = {
        s for s, one in found.items() if standings[s].located is not None and known[s].kept is None and one.by != GIVEN
    }
    keep_what_was_there(workspace, known, again, located)
    then = noted_listings(workspace.lake, again)
    new = [s for s, one in found.items() if standings[s].located is None and one.by != GIVEN]
    for slug, own in _by_set(new).items():
        every = [slice_ for slice_ in standings if slice_.whole.target == slug]
        if left := left_over(workspace, LOCATE, slug, every):
            keep_what_was_divided(workspace, known, own, left, located)
            before = together_listed([*noted_listings(workspace.lake, left).values()])
            then |= dict.fromkeys(own, before)
    spent.notes |= dict.fromkeys(_members_went(kept, standings))
    _commit(planned, known, found, located, spent, then)


def _sentences(spent: _Spent, crawl: str) -> Iterator[str]:
    """Writes a note on captures that were left out, kept, removed or repeated."""
    if spent.outside:
        yield from outside_notes(spent.outside)
    if spent.blocked:
        yield f"{spent.blocked:,} captures of blocked sites were left out in {crawl}"
    if spent.stayed:
        yield _STAYED.format(n=spent.stayed, crawl=crawl)
    if spent.gone:
        yield _GONE.format(n=spent.gone, crawl=crawl)
    for slug, count in sorted(spent.repeated.items())[:_NAMED]:
        yield _REPEATED.format(n=count, crawl=crawl, slug=slug)
    if len(spent.repeated) > _NAMED:
        yield f"the indexes of {len(spent.repeated) - _NAMED:,} more targets repeat rows too"


def _ask(
    workspace: Workspace, crawl: str, question: _Question, known: Mapping[Slice, Known], located: Located
) -> LookupResult:
    """Looks up some slices in one index and adds their captures to ``located``."""
    via, subsets = question
    if via == GIVEN:
        for slice_, one in known.items():
            for rows in _rows_given(workspace, slice_, one.target):
                located.add(slice_, rows)
        return LookupResult({}, 0, 0, 0.0, index=GIVEN)
    takers: dict[str, list[Slice]] = {}
    for slice_ in known:
        takers.setdefault(slice_.defined, []).append(slice_)

    def take(slug: str, rows: pa.Table) -> None:
        for slice_ in takers[slug]:
            mine = rows.filter(pc.equal(rows["subset"], slice_.subset)) if len(subsets) > 1 else rows
            located.add(slice_, known[slice_].not_kept(mine))

    targets = {slice_.defined: one.asked for slice_, one in known.items() if one.asked is not None}
    return captures_of(workspace, crawl, [*targets.values()], subsets=subsets, via=via, into=take)


def captures_given(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> LookupResult:
    """The captures of ``targets`` that a person named one by one, of all subsets, from the lake. Raises
    ``EnvironmentFault``."""
    found = {}
    for target in targets:
        slices = [Slice(crawl, with_subset(target.slug, subset)) for subset in SUBSETS]
        tables = [rows for slice_ in slices for rows in _rows_given(workspace, slice_, target)]
        found[target.slug] = pa.concat_tables([CAPTURE_SCHEMA.empty_table(), *tables])
    return LookupResult(found, 0, 0, 0.0, index=GIVEN)


def _rows_given(workspace: Workspace, slice_: Slice, target: Target) -> Iterator[pa.Table]:
    where = {"crawl": slice_.crawl, "target": given_slug(slice_.target)}
    for batch in stream_rows(workspace.lake, "given_captures", where, CAPTURE_SCHEMA.names):
        rows = pa.Table.from_batches([batch])
        yield rows if target.condition is None else target.condition.keep(rows)


def _commit(
    planned: _Planned,
    known: Mapping[Slice, Known],
    found: Mapping[Slice, Found],
    located: Located,
    spent: _Spent,
    then: Mapping[Slice, Listing],
) -> None:
    """Commits the located slices, some at a time. Captures that an index no longer lists stay if a person has to accept
    their removal. ``then`` has the listings that were noted at the last look-up of the slices."""
    workspace, crawl, before = planned.workspace, planned.crawl, planned.standings
    others = {slice_: _listing(one) for slice_, one in before.items() if slice_ not in planned.versions}
    made_from = {s: located_from(crawl, found[s].definition, found[s].by, found[s].index) for s in sorted(found)}
    targets = {s: known[s].target for s in made_from}
    # a target is assessed as a whole, so nothing is committed until all of its slices are known
    commits = [(some, *located.of({s: found[s].answer for s in some}, targets)) for some in in_commits(made_from)]
    every = {slice_: one for _, _, summed in commits for slice_, one in summed.items()}
    stay = doubted(
        {s: _removal(found[s], one, then.get(s, Listing())) for s, one in every.items()},
        others,
        workspace.settings.max_lost,
        workspace.accepted_losses,
    )
    spent.gone += sum(one.unlisted for slice_, one in every.items() if slice_ not in stay)
    # an unconfirmed removal keeps the size of the old listing, to be compared with the next one
    found = {s: replace(one, size=then.get(s, Listing()).size) if s in stay else one for s, one in found.items()}
    for some, rows, summed in commits:
        left = located.without_unlisted(rows, [s for s in some if s not in stay], summed, targets)
        with planned.run.replacing(LOCATE, {slice_: before[slice_] for slice_ in some}):
            commit_lookups(workspace, some, found, summed)
            spent.rows += LOCATE.commit(workspace.lake, some, {"captures": partial(_large, left)})
        spent.stayed += sum(one.stayed for one in summed.values())
        spent.outside += sum(one.outside for one in summed.values())
        for slice_, own in summed.items():
            spent.repeated.update({slice_.whole.target: own.repeated} if own.repeated else {})


def _by_set(slices: Sequence[Slice]) -> dict[str, list[Slice]]:
    """Groups the slices of named sets by the slugs of their sets."""
    found: dict[str, list[Slice]] = {}
    for slice_ in slices:
        if slice_.target.startswith(SET_SLUG):
            found.setdefault(slice_.whole.target, []).append(slice_)
    return found


def _removal(found: Found, summed: Summed, then: Listing) -> Removal:
    """The captures that a look-up would take away from a slice."""
    now = Listing(found.by, found.size, summed.unlisted, summed.removal)
    return Removal(summed.before, summed.rows - summed.unlisted, then, now)


def _carried_by(workspace: Workspace, version: str, stands: Standing, index: Index) -> str | None:
    """The complete and unchanged index by which a slice was located, so that it need not be asked again; else
    ``None``."""
    found = stands.lookup
    # unlisted captures are assessed by the whole slice
    if found is None or found.unlisted or blocks_of(found.definition) != blocks_of(version):
        return None
    if not found.complete or workspace.settings.via not in (AUTO, found.located_by):
        return None
    return found.located_by if index.has(found) else None


def _questions(
    workspace: Workspace, known: Mapping[Slice, Known], by: Mapping[Slice, str | None]
) -> dict[_Question, list[Slice]]:
    """The slices of each look-up, by the index to be asked and the subsets: an index is asked once for all subsets."""
    same: dict[tuple[str, str, str], list[Slice]] = {}
    for slice_, one in known.items():
        if one.asked is not None:
            via = (one.kept is not None and by[slice_]) or workspace.settings.via
            via = GIVEN if is_given(slice_.target) else via
            same.setdefault((via, slice_.defined, one.asked.version), []).append(slice_)
    questions: dict[_Question, list[Slice]] = {}
    for (via, _, _), asking in same.items():
        questions.setdefault((via, tuple(sorted(slice_.subset for slice_ in asking))), []).extend(asking)
    return questions


def _large(rows: OrderedRows, columns: Sequence[str] = CAPTURES_SCHEMA.names) -> Iterator[pa.RecordBatch]:
    """``columns`` in large batches. The writer's threads share batches, and keep order only within one."""
    waiting: list[pa.RecordBatch] = []
    for batch in rows.batches():
        waiting.append(batch.select(columns))
        if sum(one.nbytes for one in waiting) >= _BYTES_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _found(slice_: Slice, answer: LookupResult, version: str, index: Index) -> Found:
    gaps = answer.gaps
    if gaps is not None and slice_.subset not in {subset for subset, _, _ in gaps.by_subset}:
        gaps = None
    by = answer.index or ""
    how = Answer(answer.segments, () if gaps is not None else tuple(by.split(BOTH)))
    return Found(by, index.version_of(by, answer.index_version), version, gaps, how, answer.sizes.get(slice_.subset))


def _as_before(version: str, stands: Standing) -> Found:
    """Repeats the note of a set that only lost members: no index was asked."""
    before = stands.lookup
    assert before is not None, "it was carried over"
    return Found(before.located_by, before.index, version, None, size=before.index_size)


def _members_went(kept: Mapping[Slice, int], standings: Mapping[Slice, Standing]) -> Iterator[str]:
    for slice_, count in kept.items():
        before = standings[slice_].lookup
        if before is not None and (went := before.captures - count) > 0:
            yield (
                f"{went:,} captures of members that {slice_.whole.target} no longer has were removed from "
                f"{slice_.crawl}"
            )


def _figures(workspace: Workspace, slice_: Slice, stands: Standing, made: bool) -> Figures:
    """The rows of a slice and the cost of fetching all of them, so that a person can decide before the fetch."""
    found = stands.lookup
    if found is not None:
        rows, (record_bytes, size, requests) = found.captures, found.price
    else:
        # the note is of other rows: a run was killed between the two commits
        price = price_of_slices(workspace, [slice_])
        rows, record_bytes, size, requests = price.captures, price.record_bytes, price.bytes, price.requests
    own: Figures = {
        "rows:captures": rows,
        "record bytes": record_bytes,
        "fetch bytes": size,
        "fetch requests": requests,
        **stands.versions(LOCATE),
    }
    if found is not None:
        own["index complete"] = index_complete(found)
        own |= {"no longer in the index": found.unlisted} if found.unlisted else {}
    return own | written(own, made)
