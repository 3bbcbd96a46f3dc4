"""From targets to pages, many partitions (crawl, target) at a time, each of them with an end of its own.

Partitions go through the stages in groups, which share look-ups and commits. A group is small enough that little is
lost when a run ends, and large enough that a partition costs hardly more than in one call for all; the engine says how
large that is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, islice
from typing import Final, Literal, TypeAlias

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.errors import CcPipelineError, Doubted, EnvironmentFault, Incomplete
from cc_pipeline.extraction.blocked import blocked
from cc_pipeline.extraction.engine import LOCAL, Engine
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.isolation import Throttling, apart
from cc_pipeline.extraction.locate import indexes_of, locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.extraction.plan import Index, Plan, Wanted, options_of, plan
from cc_pipeline.extraction.run_inputs import PLANS, InputsChanged, RunInputs, at_work
from cc_pipeline.extraction.standing import STAGES, Standing, stand
from cc_pipeline.extraction.target_slices import Asked, expand, left_over, part_slices, summed, wishes
from cc_pipeline.lake import target_definitions as definitions
from cc_pipeline.lake.slice import FETCH, GONE, LOCATE, PAGE_TABLES, VERSION, Slice, StageReport, slices_of
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.records.leases import left_behind
from cc_pipeline.records.schema import OUTCOMES
from cc_pipeline.workspace.workspace import Workspace

Counts = dict[str, dict[str, int]]
#: Of the fetched records, those that have another payload than the index names.
_MISMATCHED: Final = "mismatched"

#: The tables of a partition, in the order in which they are made.
TABLES: Final = ("captures", "records", "page_metadata", "page_text", "page_links", "feed_items")
_Stage = Callable[[Workspace, str, Sequence[str]], StageReport]
#: ``new``: nothing was there before. ``updated``: looked up, fetched or parsed again. ``undone``: a stage is missing.
Change: TypeAlias = Literal["new", "updated", "same", "undone"]


@dataclass(frozen=True, slots=True)
class Made:
    """What came of one partition. ``reports`` has the report of each table that was made, in which ``per_target`` says
    what is the partition's own; the rest of it may be about several. ``error`` is why other tables were not made."""

    crawl: str
    slug: str
    reports: Mapping[str, StageReport]
    error: Exception | None = None


@dataclass(slots=True)
class _State:
    reports: dict[str, StageReport] = field(default_factory=dict)
    error: Exception | None = None


@dataclass(slots=True)
class _Source:
    """Why the source is left alone for now, once that is so. ``throttling`` has the objects that it refuses."""

    stop: Exception | None = None
    throttling: Throttling = field(default_factory=Throttling)

    def go_on(self) -> None:
        """Raises it."""
        if self.stop is not None:
            raise self.stop


def extract(
    workspace: Workspace,
    wanted: Iterable[tuple[str, str]],
    tables: Collection[str],
    engine: Engine = LOCAL,
    begun: Callable[[Sequence[tuple[str, str]]], None] | None = None,
) -> Iterator[Made]:
    """Makes ``tables`` of the partitions ``wanted`` (crawl, slug), and gives each partition once, when it is done.
    ``engine`` fetches records and parses pages. ``begun`` is called with the partitions of each group before anything
    is done for them.

    Crawls come in the order given, the targets of one in the order of their slugs, as the files of the lake have them.
    Of a partition whose source did not give everything, what came is parsed all the same; it counts as failed.
    Until the iterator ends the run has a lease on all of them, so that none is purged meanwhile.
    What is no partition's fault (see ``isolation.py``) is raised, after what was made until then
    was given: partitions that were not given then have not been tried.
    """
    source = _Source()
    crawls: dict[str, dict[str, None]] = {}
    for crawl, slug in wanted:
        crawls.setdefault(crawl, {})[slug] = None
    if not crawls:
        return
    with at_work(workspace, crawls) as run:
        for crawl, slugs in crawls.items():
            ordered = iter(sorted(slugs))
            while group := list(islice(ordered, engine.partitions)):
                source.go_on()
                if begun is not None:
                    begun([(crawl, slug) for slug in group])
                yield from _planned_again(
                    run, partial(_group, workspace, crawl, source=source, engine=engine), group, tables
                )


def _planned_again(
    run: RunInputs,
    make: Callable[[Sequence[str], Collection[str]], Iterator[Made]],
    slugs: Sequence[str],
    tables: Collection[str],
) -> Iterator[Made]:
    """What ``make`` gives for the targets ``slugs``. Those whose definitions or blocks changed before a commit are
    located again with all that follows, so often at most as a stage is planned."""
    for left in reversed(range(PLANS)):
        run.forget()
        again: list[str] = []
        for made in make(slugs, tables):
            if isinstance(made.error, InputsChanged) and made.error.relocate and "captures" in made.reports and left:
                again.append(made.slug)
            else:
                yield made
        if not again:
            return
        slugs = again


def _group(
    workspace: Workspace, crawl: str, slugs: Sequence[str], tables: Collection[str], *, source: _Source, engine: Engine
) -> Iterator[Made]:
    fetch, parse = partial(fetch_captures, engine=engine), partial(parse_records, engine=engine)
    states = {slug: _State() for slug in slugs}

    def run(stage: _Stage, some: Sequence[str], made: Iterable[str]) -> None:
        # a stage asks the same tables many questions, and what it commits it sees
        with workspace.lake.still():
            for outcome in apart(partial(stage, workspace, crawl), some, source.throttling):
                source.stop = source.stop or outcome.stop
                for slug in outcome.slugs:
                    error = outcome.errors.get(slug)
                    if error is not None:
                        states[slug].error = states[slug].error or error
                    elif outcome.report is not None:
                        states[slug].reports |= dict.fromkeys(made, outcome.report)

    def ended(some: Iterable[str]) -> Iterator[Made]:
        for slug in some:
            state = states.pop(slug)
            yield Made(crawl, slug, state.reports, state.error)

    try:
        if "captures" in tables:
            run(locate_captures, slugs, ["captures"])
            # captures in doubt are located: what is new beside them is fetched all the same
            lost = [s for s, one in states.items() if one.error is not None and not isinstance(one.error, Doubted)]
            yield from ended(lost)
        for some in _by_captures(workspace, crawl, states, engine.captures):
            source.go_on()
            if "records" in tables:
                run(fetch, some, ["records"])
            if pages := [table for table in TABLES if table in tables and table in PAGE_TABLES]:
                ready = [slug for slug in some if states[slug].error is None]
                short = [slug for slug in some if isinstance(states[slug].error, Incomplete)]
                run(parse, ready, pages)
                # they count as failed, whatever becomes of their pages
                run(parse, _fetched(workspace, crawl, short), ())
            yield from ended(some)
    except Exception as error:
        # captures that were located stay, and are told of; those of whom nothing was made have not been tried
        for slug, state in states.items():
            if state.reports or state.error is not None:
                yield Made(crawl, slug, state.reports, state.error or error)
        raise


def _by_captures(workspace: Workspace, crawl: str, states: Mapping[str, _State], together: int) -> Iterator[list[str]]:
    """The slugs in their order, so many at a time as have ``together`` captures."""
    counts = _captures(workspace, crawl, states)
    group, size = 0, 0
    numbers: dict[str, int] = {}
    for slug in states:
        if size and size + counts.get(slug, 0) > together:
            group, size = group + 1, 0
        size += counts.get(slug, 0)
        numbers[slug] = group
    for _, some in groupby(list(states), key=numbers.__getitem__):
        yield list(some)


def _captures(workspace: Workspace, crawl: str, states: Mapping[str, _State]) -> dict[str, int]:
    """How many captures each target has in the subsets asked for."""
    reports = {slug: state.reports.get("captures") for slug, state in states.items()}
    known = {
        slug: int(report.per_target[slug]["rows:captures"]) for slug, report in reports.items() if report is not None
    }
    asked = expand(workspace, crawl, [slug for slug in states if slug not in known])
    stands = stand(workspace, asked.slices, (LOCATE,))
    for slug, own in asked.for_.items():
        known[slug] = sum(one.captures for slice_ in own if (one := stands[slice_].lookup) is not None)
    return known


def _fetched(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> list[str]:
    """Those of ``slugs`` of which a source gave anything, now or before."""
    if not slugs:
        return []
    asked = expand(workspace, crawl, slugs)
    here = FETCH.made_from(workspace.lake, asked.slices)
    return [slug for slug, own in asked.for_.items() if all(here[slice_] not in (None, GONE) for slice_ in own)]


@dataclass(frozen=True, slots=True)
class CrawlPlan:
    """What was asked for in one crawl, what is wanted of each slice, how it stands, by which indexes it can be located,
    and what is to be done of it. ``retire`` are sets of which slices are left that they do not have any more.
    ``unfinished`` says that a fetch of the crawl was killed: the next one settles what it left."""

    asked: Asked
    wanted: Mapping[Slice, Wanted]
    standings: Mapping[Slice, Standing]
    indexes: Mapping[tuple[str, str], Index]
    plan: Plan
    retire: frozenset[str] = frozenset()
    unfinished: bool = False

    @property
    def current(self) -> dict[str, dict[str, str]]:
        """The targets of which a run would change nothing, and what their rows say by table, where that is known."""
        if self.unfinished:
            return {}
        due = {todo.slice_.whole.target for todo in self.plan.todos} | self.retire
        return {slug: self.versions(slug) for slug in self.asked.for_ if slug not in due}

    def found_nothing(self, slug: str) -> bool:
        """Whether a target has no capture, by indexes that were whole, in any subset."""
        lookups = [self.standings[slice_].lookup for slice_ in self.asked.for_[slug]]
        empty = all(one is not None and one.complete and not one.captures for one in lookups)
        return empty and not self.asked.beside[slug]

    def versions(self, slug: str) -> dict[str, str]:
        """What the rows of a target say, by table, where that is known: of all its slices together."""
        every = [self.standings[one] for one in (*self.asked.for_[slug], *self.asked.beside[slug])]
        found: dict[str, str] = {}
        for stage in STAGES:
            numbers = summed([one.versions(stage) for one in every if one.of(stage) is not None])
            found |= {name.removeprefix(VERSION): str(number) for name, number in numbers.items()}
        return found


def look(workspace: Workspace, crawl: str, slugs: Sequence[str], *, look_for_bytes: bool = True) -> CrawlPlan:
    """What a run would do of ``slugs`` in ``crawl``. Reads logs and tables with one row a slice, and asks the lake's
    place for stored files and for what killed runs left there, but without ``look_for_bytes``.

    Raises ``UserInputError`` for keys that nobody can define, ``EnvironmentFault`` when the lake cannot be read.
    """
    asked = expand(workspace, crawl, slugs)
    return _looked(workspace, asked, wishes(workspace, asked.slices), look_for_bytes)


def look_for(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> CrawlPlan:
    """As :func:`look`, for targets that need not be registered; nothing is written."""
    meant = definitions.meant(workspace.lake, targets)
    defined = {part.slug: part for parts in meant.values() for part in parts}
    versions = definitions.meant_versions(workspace.lake, defined.values())
    versions = blocked(workspace).versions(versions, lambda slugs: {slug: defined[slug] for slug in slugs})
    sets = {part.slug for target in targets if target.kind == "set" for part in meant[target.slug]}
    own = {slug: [part.slug for part in parts] for slug, parts in meant.items()}
    asked = expand(workspace, crawl, [*meant], parts=own, where={target.slug: target.where for target in targets})
    wanted = {slice_: Wanted(versions[slice_.defined], slice_.defined in sets) for slice_ in asked.slices}
    return _looked(workspace, asked, wanted)


def _looked(
    workspace: Workspace, asked: Asked, wanted: Mapping[Slice, Wanted], look_for_bytes: bool = True
) -> CrawlPlan:
    standings = stand(workspace, asked.every, look_for_bytes=look_for_bytes)
    indexes = indexes_of(workspace, {slice_: standings[slice_] for slice_ in wanted})
    sets = {slug: own for slug, own in asked.for_.items() if slug.startswith(SET_SLUG)}
    retire = {slug for slug, own in sets.items() if any(left_over(workspace, stage, slug, own) for stage in STAGES)}
    found = plan(wanted, standings, indexes, options_of(workspace.settings, datetime.now(UTC)))
    unfinished = look_for_bytes and bool(left_behind(workspace.storage, asked.crawl))
    return CrawlPlan(asked, wanted, standings, indexes, found, frozenset(retire), unfinished)


def planned_with_new_indexes(workspace: Workspace, before: CrawlPlan) -> CrawlPlan:
    """The same slices in the same state, planned with the indexes that there are now: after a harvest."""
    indexes = indexes_of(workspace, {slice_: before.standings[slice_] for slice_ in before.wanted})
    options = options_of(workspace.settings, datetime.now(UTC))
    return replace(before, indexes=indexes, plan=plan(before.wanted, before.standings, indexes, options))


@dataclass(frozen=True, slots=True)
class Total:
    """How a partition (a crawl and a whole target) stands in the subsets asked for: what its slices were made from, and
    captures that were found, planned for the fetch, fetched, still to be asked for, and fetched with another payload
    than the index names. ``doubted``: nobody believes yet that the others are lost."""

    made_from: tuple[str | None, ...] = ()
    captures: int = 0
    planned: int = 0
    fetched: int = 0
    unsettled: int = 0
    mismatched: int = 0
    doubted: bool = False

    @property
    def lost(self) -> int:
        """Captures that the source has damaged, or not at all."""
        return self.planned - self.fetched - self.unsettled


@dataclass(frozen=True, slots=True)
class Done:
    """What a run did with one partition: ``before`` and ``after`` it."""

    before: Total
    after: Total

    @property
    def change(self) -> Change:
        """Whether the run changed it."""
        if not self.after.made_from or None in self.after.made_from:
            return "undone"
        if not self.before.made_from or all(digest is None for digest in self.before.made_from):
            return "new"
        return "same" if self.before.made_from == self.after.made_from else "updated"


def done_between(before: Iterable[CrawlPlan], after: Iterable[CrawlPlan]) -> dict[Slice, Done]:
    """What was done between two looks at the same partitions: the difference of how they stand."""
    first = {partition: total for one in before for partition, total in _totals(one).items()}
    last = {partition: total for one in after for partition, total in _totals(one).items()}
    return {partition: Done(first.get(partition, Total()), total) for partition, total in last.items()}


def _totals(found: CrawlPlan) -> dict[Slice, Total]:
    totals = {}
    for slug, own in found.asked.for_.items():
        stands = [found.standings[slice_] for slice_ in own]
        made = (one.of(stage) for stage in STAGES for one in stands)
        fetches = [one.fetch for one in stands if one.fetch is not None]
        totals[Slice(found.asked.crawl, slug)] = Total(
            tuple(None if one is None else one.made_from for one in made),
            sum(one.lookup.captures for one in stands if one.lookup is not None),
            sum(one.planned for one in fetches),
            sum(one.fetched for one in fetches),
            sum(one.unsettled for one in fetches),
            sum(one.mismatched for one in fetches),
            any(one.losses_doubted for one in fetches),
        )
    return totals


def current(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, dict[str, str]]:
    """Those of ``slugs`` of which a run would change nothing; see :attr:`CrawlPlan.current`. None where anything is in
    the way: a run says what."""
    try:
        with workspace.lake.still():
            return look(workspace, crawl, slugs).current
    except CcPipelineError:
        return {}


@dataclass(frozen=True, slots=True)
class Replay:
    """Records by outcome and target, before and after, and those of the fetched whose payload is another. ``again`` are
    the targets whose pages must be parsed again.

    ``trouble`` says what the source did not give, where that was more than the settings allow.
    """

    before: Counts
    after: Counts
    again: tuple[str, ...]
    trouble: Incomplete | None = None

    @property
    def recovered(self) -> int:
        """Records that are as they should be now and were not before."""
        return sum(max(0, _right(self.after[slug]) - _right(self.before[slug])) for slug in self.before)


def replay_records(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> Replay:
    """Fetches every record of ``slugs`` in ``crawl`` again that is quarantined or missing, or has another payload than
    the index names.

    Raises ``EnvironmentFault`` for a target that has not been fetched, and when the disk fails; records fetched
    until then are kept.
    """
    trouble: Incomplete | None = None
    before = _counts(workspace, crawl, slugs)
    lost = [slug for slug in slugs if any(before[slug][name] for name in ("quarantined", "missing", _MISMATCHED))]
    if lost:
        try:
            fetch_captures(workspace, crawl, lost, replay=True)
        except Incomplete as error:
            trouble = error
    return Replay(before, _counts(workspace, crawl, slugs), tuple(lost), trouble)


def _counts(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> Counts:
    lake = workspace.lake
    every = part_slices(workspace, slices_of(crawl, slugs))
    for slice_, digest in FETCH.made_from(lake, every).items():
        if digest is None:
            raise EnvironmentFault(
                f"{slice_.whole.target} in {crawl} has not been fetched yet",
                f"Fetch it: cc-pipeline run … --crawl {crawl}",
            )
    counts: Counts = {slug: dict.fromkeys((*OUTCOMES, _MISMATCHED), 0) for slug in slugs}
    where = {"crawl": crawl, "target": [slice_.target for slice_ in every]}
    columns = ["target", "outcome", "digest_check"]
    for (target, outcome, check), count in count_rows(lake, "records", where, columns).items():
        counts[whole_slug(target)][outcome] += count
        counts[whole_slug(target)][_MISMATCHED] += count if (outcome, check) == ("fetched", "mismatch") else 0
    return counts


def _right(counts: Mapping[str, int]) -> int:
    return counts["fetched"] - counts[_MISMATCHED]
