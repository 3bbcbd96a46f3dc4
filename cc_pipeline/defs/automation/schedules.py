"""The schedules: each is a function that decides one tick, or a job alone. They ship stopped, as sensors do, and are
loaded like them (``sensors.py``)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import dagster as dg

from cc_pipeline.automation.due import (
    MAX_FAILURES,
    BackfillDecision,
    Bounds,
    Pace,
    Pair,
    RunProposal,
    decide_backfill,
    estimate_pace,
    format_duration,
    select_crawls,
)
from cc_pipeline.defs.declarations import Schedule, schedule
from cc_pipeline.defs.declared.late_loading import LOADING
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.partitions import KIND_TAG, SUMMARY_TAG, config_of, partition_key
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.progress import format_count

if TYPE_CHECKING:
    from cc_pipeline.automation.staleness import StalenessReport
    from cc_pipeline.workspace.workspace import Workspace

#: The most queued and running runs of schedules and sensors, so that the queue fits on one screen.
_MAX_RUNS = 10
#: The most partitions that a message names.
_MAX_NAMED_PARTITIONS = 5
#: In Dagster's queue, runs that a person launches (0) come first.
_PRIORITY = {"watch": "-1", "repair": "-2", "backfill": "-3"}


weekly_maintenance: Final = Schedule(
    name="weekly_maintenance", job="maintenance", cron="0 4 * * 0", description="Runs maintenance every Sunday."
)
weekly_checks: Final = Schedule(
    name="weekly_checks",
    job="check_everything",
    cron="0 5 * * 0",
    description="Checks the whole lake every Sunday, after maintenance.",
)


@schedule(cron="20 * * * *", job="trim_history")
def history(
    context: dg.ScheduleEvaluationContext, _: Workspace, namespace: HomeNamespace
) -> dg.RunRequest | dg.SkipReason:
    """Once a day deletes runs older than CC_PIPELINE_HISTORY_DAYS, ten minutes at a time."""
    with LOADING:
        from cc_pipeline.defs.history import is_recent
        from cc_pipeline.defs.partitions_in_flight import UNFINISHED

    instance = context.instance
    running = dg.RunsFilter(job_name=namespace.qualify("trim_history"), statuses=list(UNFINISHED))
    if instance.get_run_records(running, limit=1):
        return dg.SkipReason("another run is deleting old runs now")
    if is_recent(instance):
        return dg.SkipReason("old runs were deleted less than a day ago")
    return dg.RunRequest()


@schedule(cron="*/30 * * * *", job="extract_targets")
def backfill_missing(
    context: dg.ScheduleEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> list[dg.RunRequest] | dg.SkipReason:
    """Extracts missing pages of watched targets from the selected crawls, an hour of work at a time.

    A tick starts runs over lists of partitions, as many as the work in flight leaves room for.
    """
    try:
        return _tick(context, workspace, namespace)
    except CcPipelineError as fault:
        return dg.SkipReason(str(fault))


def _tick(
    context: dg.ScheduleEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> list[dg.RunRequest] | dg.SkipReason:
    with LOADING:
        from cc_pipeline.automation.reparse import describe_cost, is_agreed
        from cc_pipeline.automation.source_state import find_source_trouble
        from cc_pipeline.automation.staleness import assess_staleness
        from cc_pipeline.defs.automation.watched import watched_targets
        from cc_pipeline.defs.instance import end_runs_of_dead_processes
        from cc_pipeline.defs.partitions_in_flight import (
            find_in_flight,
            find_unresolved_failures,
            read_ended_runs,
            read_recorded_partitions,
        )
        from cc_pipeline.lake.live_rows import read_states
        from cc_pipeline.lake.slice import FETCH
        from cc_pipeline.workspace.workspace import rate_now

    instance, settings, now = context.instance, workspace.settings, _now()
    # the daemon does not monitor runs of the command line: a killed one would count as running for ever
    end_runs_of_dead_processes(instance, namespace)
    watched = watched_targets(workspace, namespace)
    # runs read the stored definitions, so a set that changed since the sensor's last tick counts from now on
    workspace.register_targets(watched.targets)
    partition_slugs = set(namespace.target_keys(instance))
    targets = [target for target in watched.targets if target.slug in partition_slugs]
    harvested = instance.get_materialized_partitions(namespace.key("row_groups"))
    # ids begin with the year, so this order is that of their age, not that of their registration
    runnable = sorted(harvested.intersection(namespace.crawl_keys(instance)), reverse=True)
    selected_crawls = select_crawls(runnable, settings.crawls)
    warnings = [watched.note] if watched.note is not None else []

    records = read_states(workspace.lake, {"stage": FETCH.label})
    in_flight = find_in_flight(instance, namespace)
    failed = find_unresolved_failures(instance, namespace, now=now)
    report = assess_staleness(workspace, runnable, [target.slug for target in targets], now)
    wanted_pairs = _select_pairs(
        report, selected_crawls, read_recorded_partitions(instance, "page_metadata", namespace), failed
    )
    if is_agreed(settings):
        wanted_pairs += sorted(
            ((old_slice.crawl, old_slice.target) for old_slice in report.reparse_costs), reverse=True
        )
    elif report.reparse_costs:
        warnings.append(
            describe_cost(settings, report.reparse_costs)
            + ". To have them parsed: cc-pipeline automation reparse --yes"
        )
    pairs_to_run = [pair for pair in dict.fromkeys(wanted_pairs) if pair not in report.waiting]
    startable_pairs = [pair for pair in pairs_to_run if pair not in in_flight.pairs]
    pace = estimate_pace(records, read_ended_runs(instance, namespace), rate_now(workspace))
    busy_seconds = pace.total(in_flight.pairs)
    failures = {pair: (failure.times, failure.last) for pair, failure in failed.items() if failure.times}
    unreached = {
        pair: (failure.unreached, failure.unreached_last) for pair, failure in failed.items() if failure.unreached_last
    }
    decision = decide_backfill(
        startable_pairs,
        report.due,
        failures,
        unreached,
        newest=runnable[0] if runnable else "",
        now=now,
        seconds=lambda pair: pace.seconds(pair[1]),
        bounds=Bounds(
            settings.backfill_per_tick,
            settings.backfill_hours * 3600 - busy_seconds,
            _MAX_RUNS - sum(in_flight.runs.get(kind, 0) for kind in _PRIORITY),
            settings.partitions_per_run,
        ),
    )
    warnings += _describe_abandoned(decision)
    if decision.runs:
        trouble = find_source_trouble(workspace, decision.runs[0].pairs[0][0])
        if trouble is not None:
            return dg.SkipReason(
                "; ".join(
                    [f"{trouble}; {format_count(len(startable_pairs), 'partition', 'wait')} for the source", *warnings]
                )
            )
    summary = _summarize_tick(decision, pace, len(pairs_to_run) - len(startable_pairs), busy_seconds)
    for warning in warnings:
        context.log.warning(warning)
    if not decision.runs:
        return dg.SkipReason("; ".join([summary if pairs_to_run else "no partition has to be run", *warnings]))
    context.log.info(summary)
    tick = f"{context.scheduled_execution_time:%Y%m%dT%H%M}"
    return [_request(namespace, tick, run, summary) for run in decision.runs]


def _now() -> datetime:
    return datetime.now(UTC)


def _select_pairs(
    report: StalenessReport, crawls: Collection[str], recorded: Collection[Pair], failed: Collection[Pair]
) -> list[Pair]:
    """Returns the pairs of ``crawls`` that are not recorded, then the pairs of any crawl that have to be made again:
    those that are stale or due, and those that ``failed`` after they were recorded. Each group has the newest crawl
    first."""
    missing = [pair for pair in report.pairs if pair[0] in crawls and pair not in recorded]
    repeated = [
        pair
        for pair in report.pairs
        if pair in report.due or pair in failed or (pair in recorded and pair in report.stale)
    ]
    return missing + repeated


def _request(namespace: HomeNamespace, tick: str, run: RunProposal, summary: str) -> dg.RunRequest:
    with LOADING:
        from cc_pipeline.defs.declared.collected_parts import listed_ops

    keys = [partition_key(*pair) for pair in run.pairs]
    tags = {KIND_TAG: run.kind, "dagster/priority": _PRIORITY[run.kind], SUMMARY_TAG: summary}
    # if the daemon is killed during a tick, the tick is repeated for the remaining pairs, which need another run key
    digest = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]
    run_config = config_of(namespace.qualify(listed_ops()["extract_targets"]), keys)
    return dg.RunRequest(run_key=f"{tick}:{digest}", run_config=run_config, tags=tags)


def _summarize_tick(decision: BackfillDecision, pace: Pace, in_flight: int, busy_seconds: float) -> str:
    """Describes for a person what is started, what is in flight, and how long the rest will take."""
    pair_count = sum(len(run.pairs) for run in decision.runs)
    texts = []
    if pair_count:
        texts.append(
            f"starts {format_count(pair_count, 'partition')} "
            f"({format_duration(sum(run.seconds for run in decision.runs))})"
        )
    if in_flight:
        texts.append(
            f"{format_count(in_flight, 'due partition', 'are')} queued or running ({format_duration(busy_seconds)} "
            "for all that are)"
        )
    if decision.remaining:
        texts.append(
            f"{format_count(decision.remaining, 'partition', 'wait')} for a later tick "
            f"({format_duration(decision.rest_seconds)} of work)"
        )
    if decision.delayed:
        texts.append(f"{format_count(len(decision.delayed), 'partition')} failed, to be tried again later")
    if decision.postponed:
        texts.append(
            f"{format_count(len(decision.postponed), 'partition', 'were')} not tried, since a run ended early; the "
            "next try is later"
        )
    if texts and not pace.is_measured:
        texts.append("no run has ended yet, so durations are estimated from the allowed requests per second")
    return "; ".join(texts)


def _describe_abandoned(decision: BackfillDecision) -> list[str]:
    if not decision.abandoned:
        return []
    return [
        f"{format_count(len(decision.abandoned), 'partition')} failed {MAX_FAILURES} times or more in a row, so this "
        "schedule does not try "
        f"them for a week: {abbreviate_pairs(decision.abandoned)}. Their runs show the reason; to try earlier, run "
        "these partitions by hand"
    ]


def abbreviate_pairs(pairs: Iterable[Pair]) -> str:
    """Returns the first few partitions as text."""
    keys = [partition_key(*pair) for pair in pairs]
    return ", ".join(keys[:_MAX_NAMED_PARTITIONS]) + (
        f" and {len(keys) - _MAX_NAMED_PARTITIONS:,} more" if len(keys) > _MAX_NAMED_PARTITIONS else ""
    )
