"""Schedules: the bounded backfill of missing crawl × domain partitions. Ships stopped.

Belongs here: asking for runs of what is missing. Not here: which partitions those are (stages/automation).
"""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.defs.instance import end_runs_of_dead_processes
from cc_pipeline.defs.jobs import extract_domain
from cc_pipeline.defs.partitions import by_crawl, contiguous_ranges, partition_key, range_tags, run_partitions
from cc_pipeline.stages import watch_list as watch_list_file
from cc_pipeline.stages.automation import BackfillDecision, decide_backfill, group_by_crawl, missing_partitions
from cc_pipeline.stages.parse import out_of_date
from cc_pipeline.stages.shortfall import waiting_and_due
from cc_pipeline.stages.workspace import Workspace

#: How many of the newest failed runs are looked at. A tick starts far fewer.
_MOST_RUNS = 2_000


def recent_failures(
    instance: dg.DagsterInstance, job: str, crawls: Sequence[str], domains: Sequence[str], within: timedelta
) -> Counter[tuple[str, str]]:
    """How many runs of ``job`` failed ``within`` the time before now, by (crawl, domain)."""
    lately = dg.RunsFilter(
        job_name=job, statuses=[dg.DagsterRunStatus.FAILURE], created_after=datetime.now(UTC) - within
    )
    failures: Counter[tuple[str, str]] = Counter()
    for run in instance.get_runs(lately, limit=_MOST_RUNS):
        failures.update(run_partitions(run.tags, crawls, domains))
    return failures


#: The schedule does not try a partition again that failed this often in ``_REMEMBERED``, until the failures are older
#: than that. A person can run it at any time.
_MOST_FAILURES = 3
_REMEMBERED = timedelta(days=7)
#: Partitions that failed before and that one tick tries again. Few, because when the source is down all of them fail.
_RETRIES_PER_TICK = 5
#: Partitions that a message names.
_NAMED = 5
_IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dg.schedule(
    job=extract_domain,
    cron_schedule="*/30 * * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Extracts watched domains from harvested crawls where they are missing, a limited number per tick.",
)
def backfill_missing(
    context: dg.ScheduleEvaluationContext, workspace: dg.ResourceParam[Workspace]
) -> list[dg.RunRequest] | dg.SkipReason:
    """One tick: runs over contiguous ranges of missing partitions; none while earlier ones are still going."""
    instance = context.instance
    # the daemon does not watch runs of the command line: a killed one would count as going for ever
    end_runs_of_dead_processes(instance)
    running = instance.get_runs(dg.RunsFilter(job_name="extract_domain", statuses=_IN_FLIGHT), limit=1)
    if running:
        return dg.SkipReason(f"run {running[0].run_id} has not ended yet")
    crawls, domains = instance.get_dynamic_partitions("crawl"), instance.get_dynamic_partitions("domain")
    watched = watch_list_file.read(workspace.settings.watch_list_path)
    # runs go by what is written down, so a set that changed since the sensor's last tick counts from now on
    workspace.register_targets(watched)
    waiting, due = waiting_and_due(workspace.lake.read("fetches"), datetime.now(UTC))
    failures = recent_failures(instance, "extract_domain", crawls, domains, _REMEMBERED)
    # what the source did not give has a rhythm of its own, however often its runs failed
    for pair in due:
        failures.pop(pair, None)
    targets = [target for target in watched if target.slug in set(domains)]
    decision = decide_backfill(
        [pair for pair in _missing(instance, workspace, crawls, targets, due) if pair not in waiting],
        failures,
        limit=workspace.settings.backfill_per_tick,
        retries=_RETRIES_PER_TICK,
        most_failures=_MOST_FAILURES,
    )
    requests = _requests(decision, domains, f"{context.scheduled_execution_time:%Y%m%dT%H%M}")
    left = _left(decision)
    if left:
        context.log.warning(left)
    return requests or dg.SkipReason(left or "no partition is missing")


def _missing(
    instance: dg.DagsterInstance,
    workspace: Workspace,
    crawls: Sequence[str],
    watched: Sequence[Target],
    due: Collection[tuple[str, str]],
) -> tuple[tuple[str, str], ...]:
    """Newest crawl first. A set whose members changed is missing again, since its key stays the same; so is what is
    ``due`` to be asked for again."""
    harvested = instance.get_materialized_partitions(dg.AssetKey("row_groups"))
    runnable = [crawl for crawl in reversed(crawls) if crawl in harvested]
    pages = by_crawl(list(instance.get_materialized_partitions(dg.AssetKey("page_metadata"))))
    done = {(crawl, domain) for crawl, slugs in pages.items() for domain in slugs} - set(due)
    sets = [target for target in watched if target.kind == "set"]
    for crawl in runnable:
        parsed = [target for target in sets if (crawl, target.slug) in done]
        done -= {(crawl, slug) for slug in out_of_date(workspace, crawl, parsed)}
    return missing_partitions(runnable, [target.slug for target in watched], done, set())


def _requests(decision: BackfillDecision, domains: Sequence[str], tick: str) -> list[dg.RunRequest]:
    ranges = [(key, key) for key in (partition_key(*pair) for pair in decision.again)]
    for crawl, wanted in group_by_crawl(decision.fresh).items():
        ranges += [
            (partition_key(crawl, first), partition_key(crawl, last))
            for first, last in contiguous_ranges(domains, wanted)
        ]
    return [_request(f"{tick}:{start}", start, end) for start, end in ranges]


def _request(run_key: str, start: str, end: str) -> dg.RunRequest:
    if start == end:
        return dg.RunRequest(run_key=run_key, partition_key=start)
    return dg.RunRequest(run_key=run_key, tags=range_tags(start, end))


def _left(decision: BackfillDecision) -> str:
    if not decision.left:
        return ""
    named = ", ".join(partition_key(*pair) for pair in decision.left[:_NAMED])
    more = f" and {len(decision.left) - _NAMED} more" if len(decision.left) > _NAMED else ""
    return (
        f"{len(decision.left)} partitions failed {_MOST_FAILURES} times in {_REMEMBERED.days} days and are not tried "
        f"again: {named}{more}. See why in their runs, then run them by hand or wait until the week has passed"
    )
