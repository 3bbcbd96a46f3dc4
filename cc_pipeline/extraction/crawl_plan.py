"""The plan of a run for the targets of one crawl, and the changes that the run made: the difference of the slice states
before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.blocklist import read_blocklist
from cc_pipeline.extraction.group_state import read_group_state
from cc_pipeline.extraction.locate import list_indexes
from cc_pipeline.extraction.plan import Index, Plan, SliceRequest, options_of, plan
from cc_pipeline.extraction.slice_selection import (
    TargetSlices,
    find_obsolete_slices,
    list_candidates,
    sum_metrics,
)
from cc_pipeline.extraction.slice_state import STAGES, SliceState, read_slice_states
from cc_pipeline.lake import target_definitions as definitions
from cc_pipeline.lake.slice import VERSION, Slice
from cc_pipeline.records.file_leases import list_expired_leases
from cc_pipeline.workspace.workspace import Workspace

#: Tables whose commits may change a plan.
_PLAN_TABLES: Final = ("targets", "slices")

#: Numbers of a partition that are sums of its fetches.
_FETCH_COUNTS: Final = ("planned", "fetched", "pending", "lost", "mismatched")

#: ``new``: no rows before. ``updated``: looked up, fetched or parsed again. ``not run``: a stage is missing.
Change: TypeAlias = Literal["new", "updated", "same", "not run"]


@dataclass(frozen=True, slots=True)
class CrawlPlan:
    """The plan for one crawl: the requested targets, the request and the state of each slice, the indexes by which it
    can be located, and the stages that are due.

    ``obsolete_sets`` are sets that still have slices of an earlier division. ``has_killed_fetch``: a fetch of the crawl
    was killed, and the next fetch adopts its records. ``table_versions`` are the versions of the tables that the plan
    was made from."""

    target_slices: TargetSlices
    requests: Mapping[Slice, SliceRequest]
    slice_states: Mapping[Slice, SliceState]
    indexes: Mapping[tuple[str, str], Index]
    plan: Plan
    obsolete_sets: frozenset[str] = frozenset()
    has_killed_fetch: bool = False
    table_versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def current_targets(self) -> dict[str, dict[str, str]]:
        """The targets that a run would not change, each with the content digests of its rows by table, where they are
        known."""
        if self.has_killed_fetch:
            return {}
        due_targets = {slice_plan.slice_.partition.target for slice_plan in self.plan.slice_plans} | self.obsolete_sets
        return {slug: self.content_digests(slug) for slug in self.target_slices.requested if slug not in due_targets}

    def has_no_captures(self, slug: str) -> bool:
        """Whether complete indexes list no capture of a target, in any subset."""
        lookups = [self.slice_states[slice_].lookup for slice_ in self.target_slices.requested[slug]]
        is_empty = all(lookup is not None and lookup.complete and not lookup.captures for lookup in lookups)
        return is_empty and not self.target_slices.additional[slug]

    def content_digests(self, slug: str) -> dict[str, str]:
        """The content digests of a target's rows by table, where they are known: of all its slices together."""
        slice_states = [
            self.slice_states[slice_]
            for slice_ in (*self.target_slices.requested[slug], *self.target_slices.additional[slug])
        ]
        digests: dict[str, str] = {}
        for stage in STAGES:
            metrics = sum_metrics(
                [
                    slice_state.content_metrics(stage)
                    for slice_state in slice_states
                    if slice_state.made(stage) is not None
                ]
            )
            digests |= {name.removeprefix(VERSION): str(digest) for name, digest in metrics.items()}
        return digests


def plan_crawl(workspace: Workspace, crawl: str, slugs: Sequence[str], *, check_stored_files: bool = True) -> CrawlPlan:
    """Plans a run of ``slugs`` in ``crawl``. Reads logs and the tables with one row per slice. With
    ``check_stored_files`` it also looks for stored files and for the leftovers of killed runs.

    Raises ``UserInputError`` for keys that have no definition and cannot be given one, ``EnvironmentFault`` when the
    lake cannot be read.
    """
    table_versions = {table: workspace.lake.version(table) for table in _PLAN_TABLES}
    state = read_group_state(workspace, crawl, slugs, check_stored_files=check_stored_files)
    requests = {slice_: state.requests[slice_] for slice_ in state.target_slices.requested_slices}
    crawl_plan = _plan_slices(workspace, state.target_slices, requests, state.slice_states, table_versions)
    has_killed_fetch = check_stored_files and bool(list_expired_leases(workspace.storage, crawl))
    return replace(crawl_plan, has_killed_fetch=has_killed_fetch)


def plan_targets(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> CrawlPlan:
    """As :func:`plan_crawl`, for targets that need not be registered. Nothing is written."""
    parts_by_target = definitions.plan_parts(workspace.lake, targets)
    defined = {part.slug: part for parts in parts_by_target.values() for part in parts}
    versions = definitions.plan_versions(workspace.lake, defined.values())
    versions = read_blocklist(workspace).qualify_versions(
        versions, lambda slugs: {slug: defined[slug] for slug in slugs}
    )
    sets = {part.slug for target in targets if target.kind == "set" for part in parts_by_target[target.slug]}
    part_slugs = {slug: [part.slug for part in parts] for slug, parts in parts_by_target.items()}
    where = {target.slug: target.where for target in targets}
    candidates = list_candidates(workspace, crawl, [*parts_by_target], parts=part_slugs, where=where)
    states = read_slice_states(workspace, candidates.all_slices)
    target_slices = candidates.keep_additional({slice_ for slice_, state in states.items() if state.located})
    requests = {
        slice_: SliceRequest(versions[slice_.definition_slug], slice_.definition_slug in sets)
        for slice_ in target_slices.requested_slices
    }
    return _plan_slices(workspace, target_slices, requests, states, {})


def _plan_slices(
    workspace: Workspace,
    target_slices: TargetSlices,
    requests: Mapping[Slice, SliceRequest],
    slice_states: Mapping[Slice, SliceState],
    table_versions: Mapping[str, int],
) -> CrawlPlan:
    indexes = list_indexes(workspace, {slice_: slice_states[slice_] for slice_ in requests})
    sets = {slug: slices for slug, slices in target_slices.requested.items() if slug.startswith(SET_SLUG)}
    obsolete_sets = {
        slug
        for slug, slices in sets.items()
        if any(find_obsolete_slices(workspace, stage, slug, slices) for stage in STAGES)
    }
    new_plan = plan(requests, slice_states, indexes, options_of(workspace.settings))
    return CrawlPlan(
        target_slices,
        requests,
        slice_states,
        indexes,
        new_plan,
        frozenset(obsolete_sets),
        table_versions=table_versions,
    )


def replan_with_new_indexes(workspace: Workspace, previous_plan: CrawlPlan) -> CrawlPlan:
    """Plans the same targets again with the indexes that there are now, after a harvest. The slice states are read
    again only if a target was blocked, purged or defined meanwhile, or another run committed."""
    if any(workspace.lake.version(table) != version for table, version in previous_plan.table_versions.items()):
        return plan_crawl(workspace, previous_plan.target_slices.crawl, [*previous_plan.target_slices.requested])
    indexes = list_indexes(workspace, {slice_: previous_plan.slice_states[slice_] for slice_ in previous_plan.requests})
    options = options_of(workspace.settings)
    return replace(
        previous_plan, indexes=indexes, plan=plan(previous_plan.requests, previous_plan.slice_states, indexes, options)
    )


@dataclass(frozen=True, slots=True)
class PartitionTotals:
    """The state of a partition (a crawl and a whole target) in the requested subsets: the inputs of its slices by
    stage, and its numbers of captures: located, no longer listed by the index, planned for the fetch, fetched, pending,
    lost, and fetched with another payload than the index names. ``asks`` is how often pending ones were asked for, and
    ``next_ask_at`` when schedules ask again."""

    inputs: tuple[Mapping[str, str] | None, ...] = ()
    captures: int = 0
    unlisted: int = 0
    planned: int = 0
    fetched: int = 0
    pending: int = 0
    lost: int = 0
    mismatched: int = 0
    asks: int = 0
    next_ask_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """The state of one partition ``before`` and ``after`` a run."""

    before: PartitionTotals
    after: PartitionTotals

    @property
    def change(self) -> Change:
        """The change of the partition: whether it is new, updated, unchanged, or lacks a stage."""
        if not self.after.inputs or None in self.after.inputs:
            return "not run"
        if all(input_ is None for input_ in self.before.inputs):
            return "new"
        return "same" if self.before.inputs == self.after.inputs else "updated"


def compare_plans(before: Iterable[CrawlPlan], after: Iterable[CrawlPlan]) -> dict[Slice, PartitionChange]:
    """Compares two plans of the same partitions: the change of each partition between them."""
    totals_before: dict[Slice, PartitionTotals] = {}
    for crawl_plan in before:
        totals_before |= _sum_partitions(crawl_plan)
    return {
        partition: PartitionChange(totals_before.get(partition, PartitionTotals()), total)
        for crawl_plan in after
        for partition, total in _sum_partitions(crawl_plan).items()
    }


def _sum_partitions(crawl_plan: CrawlPlan) -> dict[Slice, PartitionTotals]:
    totals = {}
    for slug, slices in crawl_plan.target_slices.requested.items():
        slice_states = [crawl_plan.slice_states[slice_] for slice_ in slices]
        lookups = [slice_state.lookup for slice_state in slice_states if slice_state.lookup is not None]
        fetches = [slice_state.fetch for slice_state in slice_states if slice_state.fetch is not None]
        totals[Slice(crawl_plan.target_slices.crawl, slug)] = PartitionTotals(
            tuple(slice_state.input_of(stage) for stage in STAGES for slice_state in slice_states),
            sum(lookup.captures for lookup in lookups),
            sum(lookup.unlisted_captures for lookup in lookups),
            **{name: sum(getattr(fetch, name) for fetch in fetches) for name in _FETCH_COUNTS},
            asks=min((fetch.asks for fetch in fetches if fetch.ask_pending), default=0),
            next_ask_at=min((fetch.next_ask_at for fetch in fetches if fetch.next_ask_at is not None), default=None),
        )
    return totals


def find_current_targets(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, dict[str, str]]:
    """The targets among ``slugs`` that a run would not change; see :attr:`CrawlPlan.current`. Empty if the plan cannot
    be made: the run will tell why."""
    try:
        return plan_crawl(workspace, crawl, slugs).current_targets
    except CcPipelineError:
        return {}
