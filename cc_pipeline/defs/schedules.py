"""Schedules: the bounded backfill of missing crawl × domain partitions. Ships stopped.

Belongs here: asking for runs of what is missing. Not here: which partitions those are (extraction/discovery).
"""

import os

import dagster as dg

from cc_pipeline.defs.jobs import extract_domain
from cc_pipeline.defs.partitions import by_crawl, contiguous_ranges, partition_key
from cc_pipeline.defs.resources import Pipeline
from cc_pipeline.extraction import watch_list as watch_list_file
from cc_pipeline.extraction.discovery import group_by_crawl, missing_partitions

_RANGE_START = "dagster/asset_partition_range_start"
_RANGE_END = "dagster/asset_partition_range_end"
_IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def partitions_per_tick() -> int:
    """How many partitions one tick may ask for (``CC_PIPELINE_BACKFILL_PER_TICK``, default 50)."""
    return int(os.environ.get("CC_PIPELINE_BACKFILL_PER_TICK") or 50)


@dg.schedule(
    job=extract_domain,
    cron_schedule="*/30 * * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Extracts watched domains from harvested crawls where they are missing, a bounded number per tick.",
)
def backfill_missing(context: dg.ScheduleEvaluationContext, pipeline: Pipeline) -> list[dg.RunRequest] | dg.SkipReason:
    """One tick: runs over contiguous ranges of missing partitions; none while earlier ones are still going."""
    instance = context.instance
    running = instance.get_runs(dg.RunsFilter(job_name="extract_domain", statuses=_IN_FLIGHT), limit=1)
    if running:
        return dg.SkipReason(f"run {running[0].run_id} is still at it")
    watched = [target.slug for target in watch_list_file.read(pipeline.workspace().settings.watch_list_path)]
    domains = instance.get_dynamic_partitions("domain")
    harvested = instance.get_materialized_partitions(dg.AssetKey("row_groups"))
    crawls = [crawl for crawl in instance.get_dynamic_partitions("crawl") if crawl in harvested]
    done = by_crawl(list(instance.get_materialized_partitions(dg.AssetKey("page_metadata"))))
    missing = missing_partitions(
        crawls=list(reversed(crawls)),
        domains=[slug for slug in watched if slug in set(domains)],
        done={(crawl, domain) for crawl, slugs in done.items() for domain in slugs},
        busy=set(),
        limit=partitions_per_tick(),
    )
    if not missing:
        return dg.SkipReason("no partition is missing")
    requests = []
    for crawl, wanted in group_by_crawl(missing).items():
        for first, last in contiguous_ranges(domains, wanted):
            start, end = partition_key(crawl, first), partition_key(crawl, last)
            key = f"{context.scheduled_execution_time:%Y%m%dT%H%M}:{start}"
            if first == last:
                requests.append(dg.RunRequest(run_key=key, partition_key=start))
            else:
                requests.append(dg.RunRequest(run_key=key, tags={_RANGE_START: start, _RANGE_END: end}))
    return requests
