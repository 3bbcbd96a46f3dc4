"""Finds the stale and due partitions of all watched targets, for the sensor. The result is kept until something
changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cc_pipeline.automation.due import Pair
from cc_pipeline.automation.reparse import find_outdated
from cc_pipeline.extraction.crawl_plan import CrawlPlan, plan_crawl
from cc_pipeline.extraction.loss_policy import is_due
from cc_pipeline.extraction.plan import Price, ReasonKind, options_of
from cc_pipeline.lake.slice import Slice
from cc_pipeline.workspace.workspace import Workspace

#: The longest time until they are assessed again.
_MAX_AGE: Final = timedelta(days=1)
_END_OF_TIME: Final = datetime.max.replace(tzinfo=UTC)
#: The reasons for which automation makes something again. Changed settings or a newer parser have a cost that a person
#: agrees to, and lost bytes are an error that a person should see.
_AUTOMATIC_REASONS: Final = frozenset(
    {
        ReasonKind.NEW,
        ReasonKind.DEFINITION,
        ReasonKind.MEMBERS,
        ReasonKind.BLOCKED,
        ReasonKind.INDEX,
        ReasonKind.GAP_FILLED,
        ReasonKind.CAPTURES,
        ReasonKind.RECORDS,
        ReasonKind.INCOMPLETE_ROWS,
    }
)


@dataclass(frozen=True, slots=True)
class CrawlStaleness:
    """Targets of one crawl. ``stale`` targets are made again for a reason that automation acts on. Of targets with
    pending captures, ``due`` ones are fetched again now and ``waiting`` ones later. No further target becomes due
    before ``until`` (``None``: never)."""

    stale: frozenset[str]
    due: frozenset[str]
    waiting: frozenset[str]
    until: datetime | None = None


def assess_crawl(crawl_plan: CrawlPlan, now: datetime) -> CrawlStaleness:
    """Returns the stale, due and waiting targets of a crawl."""
    stale = {
        slice_plan.slice_.partition.target
        for slice_plan in crawl_plan.plan.slice_plans
        if slice_plan.first_reason is not None and slice_plan.first_reason.kind in _AUTOMATIC_REASONS
        # a subset that was not harvested cannot be located, so a run of it would fail
        if slice_plan.locate is None or crawl_plan.indexes[slice_plan.slice_.crawl, slice_plan.slice_.subset].versions
    }
    targets_by_due: dict[bool, set[str]] = {True: set(), False: set()}
    times: list[datetime] = []
    for slice_ in crawl_plan.target_slices.requested_slices:
        note = crawl_plan.slice_states[slice_].fetch
        if note is not None and note.next_ask_at is not None:
            times.append(note.next_ask_at)
            targets_by_due[is_due(note, now)].add(slice_.partition.target)
    # a set is fetched again if any of its parts has to be
    due, waiting = targets_by_due[True], targets_by_due[False] - targets_by_due[True]
    until = min((moment for moment in times if moment > now), default=None)
    return CrawlStaleness(frozenset(stale | crawl_plan.obsolete_sets), frozenset(due), frozenset(waiting), until)


@dataclass(slots=True)
class StalenessReport:
    """The stale, due and waiting targets of several crawls; see ``CrawlStaleness``. ``reparse_costs`` is the cost of
    parsing the pages of an older parser again, by partition. Before ``until`` time alone changes nothing here."""

    pairs: list[Pair] = field(default_factory=list)
    stale: set[Pair] = field(default_factory=set)
    due: set[Pair] = field(default_factory=set)
    waiting: set[Pair] = field(default_factory=set)
    reparse_costs: dict[Slice, Price] = field(default_factory=dict)
    until: datetime = _END_OF_TIME


#: The last report of each home in this process, with the inputs it was made of.
_last_reports: dict[Path, tuple[object, StalenessReport]] = {}


def assess_staleness(
    workspace: Workspace, crawls: Sequence[str], slugs: Sequence[str], now: datetime
) -> StalenessReport:
    """Assesses the targets ``slugs`` in ``crawls``. Returns the last result of this process if nothing has changed
    since.

    Raises ``CcPipelineError`` as :func:`~cc_pipeline.extraction.crawl_plan.plan_crawl`.
    """
    settings = workspace.settings
    inputs = (list(crawls), list(slugs), *_read_inputs(workspace))
    cached = _last_reports.get(settings.home)
    if cached is not None and cached[0] == inputs and now < cached[1].until:
        return cached[1]
    report = _assess_crawls(workspace, crawls, slugs, now)
    report.until = min(report.until, now + _MAX_AGE)
    _last_reports[settings.home] = inputs, report
    return report


def _read_inputs(workspace: Workspace) -> tuple[object, ...]:
    """Returns everything that decides the plan of given slices, except the time."""
    lake, settings = workspace.lake, workspace.settings
    versions = [lake.version(spec.name) for spec in lake.specs.values() if spec.key]
    return settings, options_of(settings), versions


def _assess_crawls(workspace: Workspace, crawls: Sequence[str], slugs: Sequence[str], now: datetime) -> StalenessReport:
    """Plans each crawl once."""
    report = StalenessReport()
    for crawl in crawls if slugs else ():
        # lost bytes are for doctor and the checks: checking each stored file would take too long for a tick
        crawl_plan = plan_crawl(workspace, crawl, slugs, check_stored_files=False)
        crawl_staleness = assess_crawl(crawl_plan, now)
        report.pairs += [(crawl, slug) for slug in slugs]
        report.stale |= {(crawl, slug) for slug in crawl_staleness.stale}
        report.due |= {(crawl, slug) for slug in crawl_staleness.due}
        report.waiting |= {(crawl, slug) for slug in crawl_staleness.waiting}
        report.until = min(report.until, crawl_staleness.until or report.until)
        report.reparse_costs.update(
            find_outdated(
                workspace.settings,
                {slice_: crawl_plan.slice_states[slice_] for slice_ in crawl_plan.target_slices.requested_slices},
            )
        )
    return report
