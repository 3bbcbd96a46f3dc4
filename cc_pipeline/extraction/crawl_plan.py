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
        due_targets = {slice_plan.slice_.whole.target for slice_plan in self.plan.todos} | self.retire
        return {slug: self.versions(slug) for slug in self.asked.for_ if slug not in due_targets}

    def found_nothing(self, slug: str) -> bool:
        """Whether complete indexes list no capture of a target, in any subset."""
        lookups = [self.standings[slice_].lookup for slice_ in self.asked.for_[slug]]
        is_empty = all(lookup is not None and lookup.complete and not lookup.captures for lookup in lookups)
        return is_empty and not self.asked.beside[slug]

    def versions(self, slug: str) -> dict[str, str]:
        """The content digests of a target's rows by table, where they are known: of all its slices together."""
        slice_states = [self.standings[slice_] for slice_ in (*self.asked.for_[slug], *self.asked.beside[slug])]
        digests: dict[str, str] = {}
        for stage in STAGES:
            metrics = summed(
                [slice_state.versions(stage) for slice_state in slice_states if slice_state.of(stage) is not None]
            )
            digests |= {name.removeprefix(VERSION): str(digest) for name, digest in metrics.items()}
        return digests


def look(workspace: Workspace, crawl: str, slugs: Sequence[str], *, look_for_bytes: bool = True) -> CrawlPlan:
    """Plans a run of ``slugs`` in ``crawl``. Reads logs and the tables with one row per slice. With ``look_for_bytes``
    it also looks for stored files and for the leftovers of killed runs.

    Raises ``UserInputError`` for keys that have no definition and cannot be given one, ``EnvironmentFault`` when the
    lake cannot be read.
    """
    target_slices = expand(workspace, crawl, slugs)
    return _looked(workspace, target_slices, wishes(workspace, target_slices.slices), look_for_bytes)


def look_for(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> CrawlPlan:
    """As :func:`look`, for targets that need not be registered. Nothing is written."""
    parts_by_target = definitions.meant(workspace.lake, targets)
    defined = {part.slug: part for parts in parts_by_target.values() for part in parts}
    versions = definitions.meant_versions(workspace.lake, defined.values())
    versions = blocked(workspace).versions(versions, lambda slugs: {slug: defined[slug] for slug in slugs})
    sets = {part.slug for target in targets if target.kind == "set" for part in parts_by_target[target.slug]}
    part_slugs = {slug: [part.slug for part in parts] for slug, parts in parts_by_target.items()}
    target_slices = expand(
        workspace, crawl, [*parts_by_target], parts=part_slugs, where={target.slug: target.where for target in targets}
    )
    requests = {slice_: Wanted(versions[slice_.defined], slice_.defined in sets) for slice_ in target_slices.slices}
    return _looked(workspace, target_slices, requests)


def _looked(
    workspace: Workspace, target_slices: Asked, requests: Mapping[Slice, Wanted], check_stored_files: bool = True
) -> CrawlPlan:
    table_versions = {table: workspace.lake.version(table) for table in _READ}
    slice_states = stand(workspace, target_slices.every, look_for_bytes=check_stored_files)
    indexes = indexes_of(workspace, {slice_: slice_states[slice_] for slice_ in requests})
    sets = {slug: slices for slug, slices in target_slices.for_.items() if slug.startswith(SET_SLUG)}
    obsolete_sets = {
        slug for slug, slices in sets.items() if any(left_over(workspace, stage, slug, slices) for stage in STAGES)
    }
    new_plan = plan(requests, slice_states, indexes, options_of(workspace.settings, datetime.now(UTC)))
    has_killed_fetch = check_stored_files and bool(left_behind(workspace.storage, target_slices.crawl))
    return CrawlPlan(
        target_slices,
        requests,
        slice_states,
        indexes,
        new_plan,
        frozenset(obsolete_sets),
        has_killed_fetch,
        table_versions,
    )


def planned_with_new_indexes(workspace: Workspace, previous_plan: CrawlPlan) -> CrawlPlan:
    """Plans the same targets again with the indexes that there are now, after a harvest. The slice states are read
    again only if a target was blocked, purged or defined meanwhile, or another run committed."""
    if any(workspace.lake.version(table) != version for table, version in previous_plan.seen.items()):
        return look(workspace, previous_plan.asked.crawl, [*previous_plan.asked.for_])
    indexes = indexes_of(workspace, {slice_: previous_plan.standings[slice_] for slice_ in previous_plan.wanted})
    options = options_of(workspace.settings, datetime.now(UTC))
    return replace(
        previous_plan, indexes=indexes, plan=plan(previous_plan.wanted, previous_plan.standings, indexes, options)
    )


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
    totals_before = {partition: total for crawl_plan in before for partition, total in _totals(crawl_plan).items()}
    totals_after = {partition: total for crawl_plan in after for partition, total in _totals(crawl_plan).items()}
    return {partition: Done(totals_before.get(partition, Total()), total) for partition, total in totals_after.items()}


def _totals(crawl_plan: CrawlPlan) -> dict[Slice, Total]:
    totals = {}
    for slug, slices in crawl_plan.asked.for_.items():
        slice_states = [crawl_plan.standings[slice_] for slice_ in slices]
        stage_states = (slice_state.of(stage) for stage in STAGES for slice_state in slice_states)
        fetches = [slice_state.fetch for slice_state in slice_states if slice_state.fetch is not None]
        totals[Slice(crawl_plan.asked.crawl, slug)] = Total(
            tuple(None if stage_state is None else stage_state.made_from for stage_state in stage_states),
            sum(slice_state.lookup.captures for slice_state in slice_states if slice_state.lookup is not None),
            sum(fetch.planned for fetch in fetches),
            sum(fetch.fetched for fetch in fetches),
            sum(fetch.unsettled for fetch in fetches),
            sum(fetch.mismatched for fetch in fetches),
            any(fetch.losses_doubted for fetch in fetches),
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
