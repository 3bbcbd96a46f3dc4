"""Finds the stale and due partitions of all watched targets, for the schedule. The result is kept until something
changes. Many partitions are assessed in a process of their own, since 48,000 of them need more memory than a server
should hold."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cc_pipeline import children
from cc_pipeline.automation.due import Pair
from cc_pipeline.automation.reparse import find_outdated
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, PlaceFault, UserInputError
from cc_pipeline.extraction.blocklist import read_blocklist
from cc_pipeline.extraction.crawl_plan import CrawlPlan, plan_crawl
from cc_pipeline.extraction.loss_policy import is_due
from cc_pipeline.extraction.plan import Price, ReasonKind, options_of
from cc_pipeline.lake.slice import Slice
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace, open_workspace

#: From this number of partitions on, a process of its own assesses them.
_PROCESS_THRESHOLD: Final = 5_000
#: The longest time until they are assessed again.
_MAX_AGE: Final = timedelta(days=1)
#: Seconds that such a process may take: less than a tick may (``defs/instance.py``).
_PROCESS_SECONDS: Final = 540
#: Fields of a report that contain partitions.
_PAIR_FIELDS: Final = ("pairs", "stale", "due", "waiting")
#: Families of faults, by the names with which a process returns them.
_FAULTS: Final[dict[str, type[CcPipelineError]]] = {
    "place": PlaceFault,
    "environment": EnvironmentFault,
    "input": UserInputError,
    "other": CcPipelineError,
}
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
    is_large = len(crawls) * len(slugs) >= _PROCESS_THRESHOLD
    report = (
        _assess_in_process(settings, crawls, slugs, now) if is_large else _assess_crawls(workspace, crawls, slugs, now)
    )
    report.until = min(report.until, now + _MAX_AGE)
    _last_reports[settings.home] = inputs, report
    return report


def _read_inputs(workspace: Workspace) -> tuple[object, ...]:
    """Returns everything that decides the plan of given slices, except the time."""
    lake, settings = workspace.lake, workspace.settings
    versions = [lake.version(spec.name) for spec in lake.specs.values() if spec.key]
    return settings, options_of(settings), read_blocklist(workspace).blocks, versions


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


def _assess_in_process(
    settings: Settings, crawls: Sequence[str], slugs: Sequence[str], now: datetime
) -> StalenessReport:
    pickled_request = pickle.dumps((settings, list(crawls), list(slugs), now))
    environment = children.neutral_environment(*children.REMOTE, "CC_PIPELINE_", "PG")
    try:
        process = children.run(children.python_command(__name__), environment, pickled_request, _PROCESS_SECONDS)
    except subprocess.TimeoutExpired as late:
        raise EnvironmentFault(
            f"the process that finds partitions to run took more than {_PROCESS_SECONDS} s, so nothing was started",
            "Watch fewer targets or crawls, or run automation on a machine with less load.",
        ) from late
    if process.returncode:
        last_line = process.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise EnvironmentFault(
            f"the process that finds partitions to run ended with status {process.returncode}, so nothing was started: "
            f"{last_line[-500:]}",
            "The next tick tries again. If it fails each time, check this machine's memory.",
        )
    try:
        answer = json.loads(process.stdout)
        fault = None if answer["fault"] is None else _decode_fault(*answer["fault"])
        report = _decode_report(answer["outlook"]) if fault is None else StalenessReport()
    except (ValueError, TypeError, KeyError) as error:
        raise EnvironmentFault(
            f"the process that finds partitions to run returned invalid output, so nothing was started: {error}",
            "The next tick tries again.",
        ) from error
    if fault is not None:
        raise fault
    return report


def _encode_report(report: StalenessReport) -> dict[str, Any]:
    """Encodes the result as JSON: the output of another process is never unpickled."""
    return {
        **{name: list(getattr(report, name)) for name in _PAIR_FIELDS},
        "older": [[slice_.crawl, slice_.target, *astuple(price)] for slice_, price in report.reparse_costs.items()],
        "until": report.until.isoformat(),
    }


def _decode_report(answer: dict[str, Any]) -> StalenessReport:
    pairs, stale, due, waiting = ([(str(crawl), str(slug)) for crawl, slug in answer[name]] for name in _PAIR_FIELDS)
    reparse_costs = {Slice(str(crawl), str(target)): Price(*price) for crawl, target, *price in answer["older"]}
    return StalenessReport(
        pairs, set(stale), set(due), set(waiting), reparse_costs, datetime.fromisoformat(answer["until"])
    )


def _encode_fault(fault: CcPipelineError) -> tuple[str, list[str]]:
    """Returns the nearest of the error families that callers distinguish, and the arguments of the error."""
    if isinstance(fault, EnvironmentFault):
        return ("place" if isinstance(fault, PlaceFault) else "environment"), [fault.problem, fault.advice]
    return ("input" if isinstance(fault, UserInputError) else "other"), [str(fault)]


def _decode_fault(family: str, texts: list[str]) -> CcPipelineError:
    return _FAULTS[family](*map(str, texts))


def main() -> None:
    """Reads a request from standard input and writes the result to standard output."""
    settings, crawls, slugs, now = pickle.load(sys.stdin.buffer)
    answer: StalenessReport | CcPipelineError
    try:
        with open_workspace(settings) as workspace:
            answer = _assess_crawls(workspace, crawls, slugs, now)
    except CcPipelineError as fault:
        answer = fault
    if isinstance(answer, StalenessReport):
        document: dict[str, Any] = {"fault": None, "outlook": _encode_report(answer)}
    else:
        document = {"fault": _encode_fault(answer), "outlook": None}
    sys.stdout.write(json.dumps(document))
