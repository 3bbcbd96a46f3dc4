"""Sensors: new crawls, the watch list, failed runs. All ship stopped.

Belongs here: reading the instance and the source, and asking for runs. Not here: the decisions (extraction/discovery).
"""

import json

import dagster as dg

from cc_pipeline.defs.jobs import harvest_crawl
from cc_pipeline.defs.partitions import CRAWL, DOMAIN, MAX_PARTITIONS
from cc_pipeline.defs.resources import Pipeline
from cc_pipeline.extraction import watch_list as watch_list_file
from cc_pipeline.extraction.crawls import list_crawls
from cc_pipeline.extraction.discovery import decide_crawls
from cc_pipeline.extraction.stage_index import is_published

_NEW_KEYS_PER_TICK = 200
_SIX_HOURS = 6 * 3600


@dg.sensor(
    job=harvest_crawl,
    minimum_interval_seconds=_SIX_HOURS,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Registers crawls as partitions and harvests those of CC_PIPELINE_CRAWLS once they are published.",
)
def new_crawls(context: dg.SensorEvaluationContext, pipeline: Pipeline) -> dg.SensorResult | dg.SkipReason:
    """One tick: read collinfo (cached for a day), register what is new, run what is selected and published."""
    workspace = pipeline.workspace()
    cursor = json.loads(context.cursor) if context.cursor else {"requested": []}
    decision = decide_crawls(
        listed=[crawl.id for crawl in list_crawls(workspace)],
        registered=set(context.instance.get_dynamic_partitions("crawl")),
        requested=set(cursor["requested"]),
        selection=workspace.settings.crawls,
        is_runnable=lambda crawl: is_published(workspace, crawl),
        new_keys_per_tick=_NEW_KEYS_PER_TICK,
    )
    if not decision.register and not decision.run:
        waiting = f"; waiting for {', '.join(decision.waiting)}" if decision.waiting else ""
        return dg.SkipReason(f"no new crawl{waiting}")
    cursor["requested"] = [*cursor["requested"], *decision.run]
    return dg.SensorResult(
        dynamic_partitions_requests=[CRAWL.build_add_request(list(decision.register))] if decision.register else [],
        run_requests=[dg.RunRequest(run_key=f"harvest:{crawl}", partition_key=crawl) for crawl in decision.run],
        cursor=json.dumps(cursor),
    )


@dg.sensor(
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Makes the targets of domains.txt partitions. Their backfill is the schedule's.",
)
def watch_list(context: dg.SensorEvaluationContext, pipeline: Pipeline) -> dg.SensorResult | dg.SkipReason:
    """One tick: targets of the list that are no partition yet become one."""
    workspace = pipeline.workspace()
    targets = watch_list_file.read(workspace.settings.watch_list_path)
    # definitions may change under the same key (a set gains a member): written down each time, a no-op when equal
    workspace.register_targets(targets)
    known = set(context.instance.get_dynamic_partitions("domain"))
    new = [target.slug for target in targets if target.slug not in known][:_NEW_KEYS_PER_TICK]
    if not new:
        return dg.SkipReason("every target of the watch list is a partition already")
    crawls = len(context.instance.get_dynamic_partitions("crawl"))
    if (len(known) + len(new)) * crawls > MAX_PARTITIONS:
        return dg.SkipReason(
            f"{crawls:,} crawls × {len(known) + len(new):,} targets would pass {MAX_PARTITIONS:,} partitions; "
            "put domains that belong together into a set (docs/targets.md)"
        )
    return dg.SensorResult(dynamic_partitions_requests=[DOMAIN.build_add_request(new)])
