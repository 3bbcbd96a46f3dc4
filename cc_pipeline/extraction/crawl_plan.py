"""What a run would do of targets in a crawl, and what it did: the difference of how they stood before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.blocked import blocked
from cc_pipeline.extraction.locate import indexes_of
from cc_pipeline.extraction.plan import Index, Plan, Wanted, options_of, plan
from cc_pipeline.extraction.standing import STAGES, Standing, stand
from cc_pipeline.extraction.target_slices import Asked, expand, left_over, summed, wishes
from cc_pipeline.lake import target_definitions as definitions
from cc_pipeline.lake.slice import VERSION, Slice
from cc_pipeline.records.leases import left_behind
from cc_pipeline.workspace.workspace import Workspace

#: What a commit to may change a plan: targets, what is blocked of them, and the last table of each stage.
_READ: Final = ("targets", *(stage.main_table for stage in STAGES))

#: ``new``: nothing was there before. ``updated``: looked up, fetched or parsed again. ``undone``: a stage is missing.
Change: TypeAlias = Literal["new", "updated", "same", "undone"]


@dataclass(frozen=True, slots=True)
class CrawlPlan:
    """What was asked for in one crawl, what is wanted of each slice, how it stands, by which indexes it can be located,
    and what is to be done of it. ``retire`` are sets of which slices are left that they do not have any more.
    ``unfinished`` says that a fetch of the crawl was killed: the next one settles what it left. ``seen`` are the
    versions of the tables that it was read from."""

    asked: Asked
    wanted: Mapping[Slice, Wanted]
    standings: Mapping[Slice, Standing]
    indexes: Mapping[tuple[str, str], Index]
    plan: Plan
    retire: frozenset[str] = frozenset()
    unfinished: bool = False
    seen: Mapping[str, int] = field(default_factory=dict)

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
    seen = {table: workspace.lake.version(table) for table in _READ}
    standings = stand(workspace, asked.every, look_for_bytes=look_for_bytes)
    indexes = indexes_of(workspace, {slice_: standings[slice_] for slice_ in wanted})
    sets = {slug: own for slug, own in asked.for_.items() if slug.startswith(SET_SLUG)}
    retire = {slug for slug, own in sets.items() if any(left_over(workspace, stage, slug, own) for stage in STAGES)}
    found = plan(wanted, standings, indexes, options_of(workspace.settings, datetime.now(UTC)))
    unfinished = look_for_bytes and bool(left_behind(workspace.storage, asked.crawl))
    return CrawlPlan(asked, wanted, standings, indexes, found, frozenset(retire), unfinished, seen)


def planned_with_new_indexes(workspace: Workspace, before: CrawlPlan) -> CrawlPlan:
    """The same targets, planned with the indexes that there are now: after a harvest. Their state is read again only
    where somebody blocked, purged or defined a target meanwhile, or another run committed."""
    if any(workspace.lake.version(table) != version for table, version in before.seen.items()):
        return look(workspace, before.asked.crawl, [*before.asked.for_])
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
