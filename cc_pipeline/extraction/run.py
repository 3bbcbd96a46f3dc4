"""Makes pages from targets, many partitions (crawl, target) at a time. Each partition succeeds or fails by itself.

Partitions go through the stages in groups, which share lookups and commits. A group is small enough that little is
lost when a run ends, and large enough that a partition costs hardly more than in one call for all. The engine decides
the size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from cc_pipeline.errors import Incomplete
from cc_pipeline.extraction.engine import LOCAL, Engine
from cc_pipeline.extraction.failure_isolation import run_isolated
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.group_state import MAX_PLANS, RunState
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.extraction.slice_selection import expand_targets
from cc_pipeline.extraction.slice_state import read_slice_states
from cc_pipeline.grouping import group_within
from cc_pipeline.lake.slice import LOCATE, PAGE_TABLES, StageReport
from cc_pipeline.lake.slices import SlicesChanged
from cc_pipeline.workspace.workspace import Workspace

#: The tables of a partition, in the order in which they are made.
TABLES: Final = ("captures", "records", "page_metadata", "page_text", "page_links", "feed_items")
_Stage = Callable[[Workspace, str, Sequence[str]], StageReport]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result of one partition. ``reports`` has the report of each table that was made: its ``per_target`` has the
    partition's own metrics, the rest may be about several partitions. ``error`` is why other tables were not made."""

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
    """The reason why the source is left alone for now, if it is."""

    stop: Exception | None = None

    def raise_if_stopped(self) -> None:
        """Raises that reason, if there is one."""
        if self.stop is not None:
            raise self.stop


def extract(
    workspace: Workspace,
    partitions: Iterable[tuple[str, str]],
    tables: Collection[str],
    engine: Engine = LOCAL,
    on_begin: Callable[[Sequence[tuple[str, str]]], None] | None = None,
) -> Iterator[PartitionResult]:
    """Makes ``tables`` of the partitions ``partitions`` (crawl, slug), and yields each partition once, when it is done.
    ``engine`` fetches records and parses pages. ``on_begin`` is called with the partitions of each group before
    anything is done for them.

    Crawls come in the order given, the targets of one in the order of their slugs, as the files of the lake have them.
    If the source did not give everything for a partition, the fetched records are parsed all the same; the partition
    counts as failed. Errors that affect all partitions (see ``failure_isolation.py``) are raised after the finished
    partitions were yielded. Partitions that were not yielded then have not been tried."""
    source = _Source()
    crawls: dict[str, dict[str, None]] = {}
    for crawl, slug in partitions:
        crawls.setdefault(crawl, {})[slug] = None
    for crawl, slugs in crawls.items():
        sorted_slugs = iter(sorted(slugs))
        while group := list(islice(sorted_slugs, engine.partitions)):
            source.raise_if_stopped()
            if on_begin is not None:
                on_begin([(crawl, slug) for slug in group])
            make_group = partial(_make_group, RunState(workspace), workspace, crawl, source=source, engine=engine)
            yield from _replan_relocated(make_group, group, tables)


def _replan_relocated(
    make: Callable[[Sequence[str], Collection[str]], Iterator[PartitionResult]],
    slugs: Sequence[str],
    tables: Collection[str],
) -> Iterator[PartitionResult]:
    """Yields the results of ``make`` for the targets ``slugs``. Targets whose definitions or blocks changed before a
    commit are located again, with all stages that follow, at most as often as a stage is planned."""
    for remaining_tries in reversed(range(MAX_PLANS)):
        relocated_slugs: list[str] = []
        for partition_result in make(slugs, tables):
            if (
                isinstance(partition_result.error, SlicesChanged)
                and partition_result.error.relocate
                and "captures" in partition_result.reports
                and remaining_tries
            ):
                relocated_slugs.append(partition_result.slug)
            else:
                yield partition_result
        if not relocated_slugs:
            return
        slugs = relocated_slugs


def _make_group(
    run: RunState,
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    tables: Collection[str],
    *,
    source: _Source,
    engine: Engine,
) -> Iterator[PartitionResult]:
    """Locates the targets of a group together, then fetches and parses portions of them with a limited number of
    captures. Yields each target once, when it is done."""
    locate = partial(locate_captures, run=run)
    fetch, parse = partial(fetch_captures, engine=engine, run=run), partial(parse_records, engine=engine, run=run)
    pages = [table for table in TABLES if table in tables and table in PAGE_TABLES]
    group = _Group(workspace, crawl, slugs, source)
    try:
        if "captures" in tables:
            group.run_stage(locate, slugs, ["captures"])
            yield from group.end([*group.errors()])
        for portion in group.portions(engine.captures):
            source.raise_if_stopped()
            if "records" in tables:
                group.run_stage(fetch, portion, ["records"])
            if pages:
                errors = group.errors()
                group.run_stage(parse, [slug for slug in portion if slug not in errors], pages)
                # they count as failed, whatever happens to their pages
                short = [slug for slug in portion if isinstance(errors.get(slug), Incomplete)]
                group.run_stage(parse, _find_fetched(run, crawl, short), ())
            yield from group.end(portion)
    except Exception as error:
        # located captures stay and are reported; targets without any report have not been tried
        yield from group.end_tried(error)
        raise


class _Group:
    """Targets of one crawl that go through the stages together, with the results so far of the targets that are not
    done."""

    def __init__(self, workspace: Workspace, crawl: str, slugs: Sequence[str], source: _Source) -> None:
        self._workspace, self._crawl, self._source = workspace, crawl, source
        self._states = {slug: _State() for slug in slugs}

    def run_stage(self, stage: _Stage, slugs: Sequence[str], tables: Iterable[str]) -> None:
        """Calls a stage for targets, as often as needed to learn which of them fail. The others get its report for
        ``tables``."""
        for outcome in run_isolated(partial(stage, self._workspace, self._crawl), slugs):
            self._source.stop = self._source.stop or outcome.stop
            for slug in outcome.slugs:
                state, error = self._states[slug], outcome.errors.get(slug)
                if error is not None:
                    state.error = state.error or error
                elif outcome.report is not None:
                    state.reports |= dict.fromkeys(tables, outcome.report)

    def errors(self) -> dict[str, Exception]:
        """The first error of each target that has one."""
        return {slug: state.error for slug, state in self._states.items() if state.error is not None}

    def end(self, slugs: Iterable[str]) -> Iterator[PartitionResult]:
        """Yields the results of these targets, which are done."""
        for slug in slugs:
            state = self._states.pop(slug)
            yield PartitionResult(self._crawl, slug, state.reports, state.error)

    def end_tried(self, error: Exception) -> Iterator[PartitionResult]:
        """Yields the results of the targets that have a report or failed, before an ``error`` that ends the run."""
        for slug, state in self._states.items():
            if state.reports or state.error is not None:
                yield PartitionResult(self._crawl, slug, state.reports, state.error or error)

    def portions(self, max_captures: int) -> Iterator[list[str]]:
        """The targets in their order, in portions of at most ``max_captures`` captures."""
        counts = self._count_captures()
        return group_within([*self._states], (max_captures,), lambda slug: (counts[slug],))

    def _count_captures(self) -> dict[str, int]:
        """The number of captures of each target in the requested subsets: from the report of its lookup, or as
        noted."""
        reports = {slug: state.reports.get("captures") for slug, state in self._states.items()}
        counts = {
            slug: int(report.per_target[slug]["rows:captures"])
            for slug, report in reports.items()
            if report is not None
        }
        if uncounted := [slug for slug in self._states if slug not in counts]:
            target_slices = expand_targets(self._workspace, self._crawl, uncounted)
            slice_states = read_slice_states(self._workspace, target_slices.requested_slices, (LOCATE,))
            for slug, slices in target_slices.requested.items():
                counts[slug] = sum(
                    lookup.captures for slice_ in slices if (lookup := slice_states[slice_].lookup) is not None
                )
        return counts


def _find_fetched(run: RunState, crawl: str, slugs: Sequence[str]) -> list[str]:
    """The targets among ``slugs`` that have records, pending ones included."""
    if not slugs:
        return []
    state = run.take(crawl, slugs)
    run.keep(state)
    return [
        slug
        for slug, slices in state.target_slices.requested.items()
        if all(state.slice_states[slice_].fetched for slice_ in slices)
    ]
