"""Schedules: the bounded backfill of missing crawl × domain partitions. Ships stopped.

Belongs here: asking for runs of what is missing. Not here: which partitions those are (stages/automation/due), which
are in flight or failed (flight).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.defs.automation.flight import Pair, ended_runs, flight, left_failed, recorded
from cc_pipeline.defs.instance import end_runs_of_dead_processes
from cc_pipeline.defs.jobs import extract_domain
from cc_pipeline.defs.partitions import KIND_TAG, LEFT_TAG, keys_tags, partition_key
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.gate import limits_of
from cc_pipeline.extraction.plan import Why
from cc_pipeline.extraction.run import look
from cc_pipeline.extraction.shortfall import waiting_and_due
from cc_pipeline.extraction.slice import LOCATE
from cc_pipeline.stages.automation import watch_list as watch_list_file
from cc_pipeline.stages.automation.due import (
    MOST_FAILURES,
    AskedRun,
    BackfillDecision,
    Bounds,
    decide_backfill,
    missing_partitions,
    select_crawls,
)
from cc_pipeline.stages.automation.pace import Pace, pace_of, spoken
from cc_pipeline.stages.automation.reparse import outdated, seconds_of
from cc_pipeline.stages.automation.standing import trouble_of_source
from cc_pipeline.stages.workspace import Workspace

#: Runs of schedules and sensors that may wait or go on at the same time, so that a queue is never longer than a look.
_MOST_RUNS = 10
#: Partitions that a message names.
_NAMED = 5
#: In Dagster's queue what a person launches (0) comes first.
_PRIORITY = {"watch": "-1", "repair": "-2", "backfill": "-3"}


@dg.schedule(
    job=extract_domain,
    cron_schedule="*/30 * * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Extracts watched targets from the chosen crawls where they are missing, an hour of work at a time.",
)
def backfill_missing(
    context: dg.ScheduleEvaluationContext, workspace: dg.ResourceParam[Workspace]
) -> list[dg.RunRequest] | dg.SkipReason:
    """One tick: runs over lists of missing partitions, as many as the work under way leaves room for."""
    try:
        return _tick(context, workspace)
    except CcPipelineError as fault:
        return dg.SkipReason(str(fault))


def _tick(context: dg.ScheduleEvaluationContext, workspace: Workspace) -> list[dg.RunRequest] | dg.SkipReason:
    instance, settings, now = context.instance, workspace.settings, _now()
    # the daemon does not watch runs of the command line: a killed one would count as going for ever
    end_runs_of_dead_processes(instance, settings.hosts)
    watched = watch_list_file.read_what_is_right(settings.watch_list_path, settings.watch_list_copy)
    # runs go by what is written down, so a set that changed since the sensor's last tick counts from now on
    workspace.register_targets(watched.targets)
    here = set(instance.get_dynamic_partitions("domain"))
    targets = [target for target in watched.targets if target.slug in here]
    harvested = instance.get_materialized_partitions(dg.AssetKey("row_groups"))
    # ids begin with the year, so this is the order of their age, in whatever order they became partitions
    runnable = sorted(harvested.intersection(instance.get_dynamic_partitions("crawl")), reverse=True)
    chosen = select_crawls(runnable, settings.crawls)
    said = [watched.note] if watched.note is not None else []

    fetches = workspace.lake.read("fetches", columns=_OF_FETCHES)
    waiting, due = waiting_and_due(fetches, now)
    under_way = flight(instance)
    done = recorded(instance, "page_metadata")
    failed = left_failed(instance, now=now)
    wanted, again = _wanted(workspace, chosen, runnable, targets, done, due, failed)
    price = _price_of_reparse(workspace, {target.slug for target in targets}, done)
    if isinstance(price, str):
        said.append(price)
    else:
        again += price
    every = [pair for pair in dict.fromkeys([*wanted, *again]) if pair not in waiting]
    free = [pair for pair in every if pair not in under_way.pairs]
    pace = pace_of(fetches, ended_runs(instance), limits_of(settings).rate)
    busy = pace.total(under_way.pairs)
    failures = {pair: (one.times, one.last) for pair, one in failed.items() if one.times}
    unreached = {pair: (one.unreached, one.unreached_last) for pair, one in failed.items() if one.unreached_last}
    decision = decide_backfill(
        free,
        due,
        failures,
        unreached,
        newest=runnable[0] if runnable else "",
        now=now,
        seconds=lambda pair: pace.seconds(pair[1]),
        bounds=Bounds(
            settings.backfill_per_tick,
            settings.backfill_hours * 3600 - busy,
            _MOST_RUNS - sum(under_way.runs.get(kind, 0) for kind in _PRIORITY),
            settings.partitions_per_run,
        ),
    )
    said += _left(decision)
    if decision.runs:
        trouble = trouble_of_source(workspace, decision.runs[0].pairs[0][0])
        if trouble is not None:
            return dg.SkipReason("; ".join([f"{trouble}; {len(free):,} partitions wait for it", *said]))
    rest = _rest(decision, pace, len(every) - len(free), busy)
    for words in said:
        context.log.warning(words)
    if not decision.runs:
        return dg.SkipReason("; ".join([rest if every else "no partition is missing", *said]))
    context.log.info(rest)
    tick = f"{context.scheduled_execution_time:%Y%m%dT%H%M}"
    return [_request(f"{tick}:{number}", run, rest) for number, run in enumerate(decision.runs)]


def _now() -> datetime:
    return datetime.now(UTC)


_OF_FETCHES = ["crawl", "target", "planned", "unsettled", "given_up", "rounds", "silent_runs", "asked_at"]


def _wanted(
    workspace: Workspace,
    chosen: Sequence[str],
    runnable: Sequence[str],
    watched: Sequence[Target],
    done: Mapping[Pair, int],
    due: Collection[Pair],
    failed: Collection[Pair],
) -> tuple[list[Pair], list[Pair]]:
    """What is missing in the ``chosen`` crawls, and what is to be made again in any, each newest crawl first.

    A set whose members changed is made again, since its key stays the same: its new members alone are looked up and
    fetched. So is what is ``due`` to be asked for, and what ``failed`` when it was made anew. What another parser made
    is not: that has a price.
    """
    slugs = [target.slug for target in watched]
    missing = missing_partitions(chosen, slugs, done, ())
    sets = [target for target in watched if target.kind == "set"]
    broken = {*due, *failed}
    again = [(crawl, slug) for crawl in runnable for slug in slugs if (crawl, slug) in broken] if broken else []
    for crawl in runnable if sets else ():
        parsed = [target for target in sets if (crawl, target.slug) in done]
        stale = look(workspace, crawl, [target.slug for target in parsed]).plan.of(LOCATE, but=(Why.NOT_WHOLE,))
        again += [(crawl, slug) for slug in sorted({slice_.whole.target for slice_ in stale})]
    return list(missing), again


def _price_of_reparse(workspace: Workspace, slugs: Collection[str], done: Mapping[Pair, int]) -> list[Pair] | str:
    """The partitions that an older parser made, if somebody said yes to parsing them again; else what that costs."""
    found = outdated(workspace, max(done.values(), default=0))
    left = {pair: pages for pair, pages in found.left(done).items() if pair[1] in slugs}
    if found.agreed or not left:
        return sorted(left, reverse=True)
    hours = spoken(seconds_of(workspace.settings, list(left.values())))
    return (
        f"{sum(left.values()):,} pages of {len(left):,} partitions were made by an older parser; parsing them again "
        f"takes {hours} and fetches nothing. Say yes with: cc-pipeline automation reparse --yes"
    )


def _request(run_key: str, run: AskedRun, rest: str) -> dg.RunRequest:
    keys = keys_tags(partition_key(*pair) for pair in run.pairs)
    said = {KIND_TAG: run.kind, "dagster/priority": _PRIORITY[run.kind], LEFT_TAG: rest}
    return dg.RunRequest(run_key=run_key, tags=keys | said)


def _rest(decision: BackfillDecision, pace: Pace, in_flight: int, busy: float) -> str:
    """What is asked for, what is under way, and how long the rest will take, for a person."""
    asked = sum(len(run.pairs) for run in decision.runs)
    words = []
    if asked:
        words.append(f"asks for {asked:,} partitions ({spoken(sum(run.seconds for run in decision.runs))})")
    if in_flight:
        words.append(f"{in_flight:,} wanted partitions are in flight ({spoken(busy)} with all others)")
    if decision.rest:
        words.append(f"{decision.rest:,} are left for later, {spoken(decision.rest_seconds)} of work")
    if decision.resting:
        words.append(f"{len(decision.resting):,} failed and are tried again later")
    if decision.held:
        words.append(f"{len(decision.held):,} were not tried, since their runs ended early, and are asked for later")
    if words and not pace.measured:
        words.append("no run has ended yet, so times are those of the request budget")
    return "; ".join(words)


def _left(decision: BackfillDecision) -> list[str]:
    if not decision.left:
        return []
    return [
        f"{len(decision.left)} partitions failed {MOST_FAILURES} times in a row and are not tried again: "
        f"{named(decision.left)}. See why in their runs, then run them by hand or wait until a week has passed"
    ]


def named(pairs: Iterable[Pair]) -> str:
    """The first few of partitions, for a message."""
    keys = [partition_key(*pair) for pair in pairs]
    return ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else "")
