"""The plan of a run for the targets of one crawl, and the changes that the run made: the difference of the slice states
before and after it."""

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

#: Tables whose commits may change a plan: targets and their blocks, and the last table of each stage.
_READ: Final = ("targets", *(stage.main_table for stage in STAGES))

#: ``new``: no rows before. ``updated``: looked up, fetched or parsed again. ``undone``: a stage is missing.
Change: TypeAlias = Literal["new", "updated", "same", "undone"]


@dataclass(frozen=True, slots=True)
class CrawlPlan:
    """The plan for one crawl: the requested targets, the request and the state of each slice, the indexes by which it
    can be located, and the stages that are due.

    ``retire`` are sets that still have slices of an earlier division. ``unfinished``: a fetch of the crawl was killed,
    and the next fetch adopts its records. ``seen`` are the versions of the tables that the plan was made from.
    """

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
        """The targets that a run would not change, each with the content digests of its rows by table, where they are
        known."""
        if self.unfinished:
            return {}
        due = {todo.slice_.whole.target for todo in self.plan.todos} | self.retire
        return {slug: self.versions(slug) for slug in self.asked.for_ if slug not in due}

    def found_nothing(self, slug: str) -> bool:
        """Whether complete indexes list no capture of a target, in any subset."""
        lookups = [self.standings[slice_].lookup for slice_ in self.asked.for_[slug]]
        empty = all(one is not None and one.complete and not one.captures for one in lookups)
        return empty and not self.asked.beside[slug]

    def versions(self, slug: str) -> dict[str, str]:
        """The content digests of a target's rows by table, where they are known: of all its slices together."""
        every = [self.standings[one] for one in (*self.asked.for_[slug], *self.asked.beside[slug])]
        found: dict[str, str] = {}
        for stage in STAGES:
            numbers = summed([one.versions(stage) for one in every if one.of(stage) is not None])
            found |= {name.removeprefix(VERSION): str(number) for name, number in numbers.items()}
        return found


def look(workspace: Workspace, crawl: str, slugs: Sequence[str], *, look_for_bytes: bool = True) -> CrawlPlan:
    """Plans a run of ``slugs`` in ``crawl``. Reads logs and the tables with one row per slice. With ``look_for_bytes``
    it also looks for stored files and for the leftovers of killed runs.

    Raises ``UserInputError`` for keys that have no definition and cannot be given one, ``EnvironmentFault`` when the
    lake cannot be read.
    """
    asked = expand(workspace, crawl, slugs)
    return _looked(workspace, asked, wishes(workspace, asked.slices), look_for_bytes)


def look_for(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> CrawlPlan:
    """As :func:`look`, for targets that need not be registered. Nothing is written."""
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
    """Plans the same targets again with the indexes that there are now, after a harvest. The slice states are read
    again only if a target was blocked, purged or defined meanwhile, or another run committed."""
    if any(workspace.lake.version(table) != version for table, version in before.seen.items()):
        return look(workspace, before.asked.crawl, [*before.asked.for_])
    indexes = indexes_of(workspace, {slice_: before.standings[slice_] for slice_ in before.wanted})
    options = options_of(workspace.settings, datetime.now(UTC))
    return replace(before, indexes=indexes, plan=plan(before.wanted, before.standings, indexes, options))


@dataclass(frozen=True, slots=True)
class Total:
    """The state of a partition (a crawl and a whole target) in the requested subsets: the input digests of its slices,
    and its numbers of captures: located, planned for the fetch, fetched, pending, and fetched with another payload than
    the index names. ``doubted``: its losses are not confirmed yet."""

    made_from: tuple[str | None, ...] = ()
    captures: int = 0
    planned: int = 0
    fetched: int = 0
    unsettled: int = 0
    mismatched: int = 0
    doubted: bool = False

    @property
    def lost(self) -> int:
        """The number of captures that the source has damaged, or does not have."""
        return self.planned - self.fetched - self.unsettled


@dataclass(frozen=True, slots=True)
class Done:
    """The state of one partition ``before`` and ``after`` a run."""

    before: Total
    after: Total

    @property
    def change(self) -> Change:
        """The change of the partition: whether it is new, updated, unchanged, or lacks a stage."""
        if not self.after.made_from or None in self.after.made_from:
            return "undone"
        if not self.before.made_from or all(digest is None for digest in self.before.made_from):
            return "new"
        return "same" if self.before.made_from == self.after.made_from else "updated"


def done_between(before: Iterable[CrawlPlan], after: Iterable[CrawlPlan]) -> dict[Slice, Done]:
    """Compares two plans of the same partitions: the change of each partition between them."""
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
    """The targets among ``slugs`` that a run would not change; see :attr:`CrawlPlan.current`. Empty if the plan cannot
    be made: the run will tell why."""
    try:
        with workspace.lake.still():
            return look(workspace, crawl, slugs).current
    except CcPipelineError:
        return {}
