"""The sensors: each is a function that decides one tick. They ship stopped, unless the person who places the home has
chosen otherwise.

This module is loaded with the definitions of a home. Heavy modules are imported in a tick, by one thread at a time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import dagster as dg

from cc_pipeline.automation.due import decide_crawls
from cc_pipeline.commoncrawl.crawls import index_is_built
from cc_pipeline.defs.declarations import sensor
from cc_pipeline.defs.declared.late_loading import LOADING
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.partitions import KIND_TAG, PARTITION_TAG, STATE_TAG, explain_too_many, range_of, room_for_crawls
from cc_pipeline.defs.webhook import post_event
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.progress import format_count

if TYPE_CHECKING:
    from cc_pipeline.settings import Settings
    from cc_pipeline.workspace.workspace import Workspace

_SIX_HOURS: Final = 6 * 3600

#: The most partition keys that one tick adds; the next tick adds the others.
_NEW_KEYS_PER_TICK = 200
#: The most failures of a harvest in a row before a person has to act. The delay between them doubles.
_MAX_FAILURES = 3
#: The newest runs of the sensor that are read to count a crawl's failures.
_MAX_READ_RUNS = 500

#: Harvested crawls whose path lists are compared: the lists of older crawls do not change any more.
_NEWEST_CRAWLS = 2

#: The most characters of a run's error in a message.
_MAX_REASON_LENGTH = 2_000
#: The most characters of a failed partition's reason in a message.
_MAX_PARTITION_REASON_LENGTH = 500
#: The most partitions of a run in a message.
_MAX_NAMED_PARTITIONS = 10
#: The most failed publications of one state of the tables.
_MAX_FAILED_PUBLICATIONS = 3


@sensor(seconds=_SIX_HOURS, job="harvest_crawl")
def new_crawls(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.SensorResult | dg.SkipReason:
    """Registers crawls as partitions and harvests those of CC_PIPELINE_CRAWLS once they are published.

    Failed harvests are repeated. While the list of crawls cannot be read, its last good copy counts. Crawls that were
    known at release are no news: without a copy, only crawls that CC_PIPELINE_CRAWLS names are looked up.
    """
    with LOADING:
        from cc_pipeline.harvesting.crawls import is_published

    # the list is fetched once a day
    crawl_list = workspace.crawl_list
    configured_crawls, lookup_faults = _find_configured_crawls(workspace)
    note = "".join(
        f"; {remark}" for remark in (*([crawl_list.note] if crawl_list.note is not None else []), *lookup_faults)
    )
    current = [crawl.id for crawl in crawl_list.crawls] if crawl_list.origin in ("list", "copy") else []
    listed_crawls = [*current, *(crawl for crawl in configured_crawls if crawl not in current)]
    source_faults: list[str] = []

    def is_runnable(crawl: str) -> bool:
        # a crawl whose source does not answer is tried again with the next tick
        if source_faults:
            return False
        try:
            return is_published(workspace, crawl)
        except CcPipelineError as fault:
            source_faults.append(str(fault))
            return False

    cursor = json.loads(context.cursor) if context.cursor else {"requested": []}
    failures, due = _count_failures(context.instance, namespace, _now())
    requested = [crawl for crawl in cursor["requested"] if crawl not in due]
    registered = set(namespace.crawl_keys(context.instance))
    domains = len(namespace.target_keys(context.instance))
    room = room_for_crawls(len(registered), domains)
    new = [crawl for crawl in listed_crawls if crawl not in registered]
    if len(new) > room:
        # the newest ones that there is room for
        note += f"; {explain_too_many(len(registered) + len(new), domains)}"
    excess_crawls = set(new[room:])
    decision = decide_crawls(
        listed_crawls=[crawl for crawl in listed_crawls if crawl not in excess_crawls],
        registered=registered,
        requested=set(requested),
        selection=workspace.settings.crawls if current else configured_crawls,
        is_runnable=is_runnable,
        new_keys_per_tick=_NEW_KEYS_PER_TICK,
    )
    if not decision.register and not decision.run:
        reason = (
            f"the source does not answer ({source_faults[0]}), so these crawls are tried with the next tick"
            if source_faults
            else "listed and not published yet"
        )
        waiting = f"; {reason}: {', '.join(decision.waiting)}" if decision.waiting else ""
        abandoned = [crawl for crawl in requested if failures.get(crawl, 0) >= _MAX_FAILURES]
        abandoned_text = (
            f"; the harvest failed {_MAX_FAILURES} times and must be launched by hand: {', '.join(abandoned)}"
            if abandoned
            else ""
        )
        return dg.SkipReason(f"no new crawl{waiting}{abandoned_text}{note}")
    cursor["requested"] = [*requested, *decision.run]
    return dg.SensorResult(
        dynamic_partitions_requests=[namespace.crawl.build_add_request(list(decision.register))]
        if decision.register
        else [],
        run_requests=[
            # Dagster does not run a key again, so every attempt has its own
            dg.RunRequest(run_key=f"harvest:{crawl}{_attempt_suffix(failures.get(crawl, 0))}", partition_key=crawl)
            for crawl in decision.run
        ],
        cursor=json.dumps(cursor),
    )


def _find_configured_crawls(workspace: Workspace) -> tuple[list[str], list[str]]:
    """Returns the crawls that CC_PIPELINE_CRAWLS names and the source has, and the errors of the others. For each crawl
    that no list has, the source is asked at most once a day."""
    with LOADING:
        from cc_pipeline.harvesting.crawls import find_crawl

    crawl_ids: list[str] = []
    lookup_faults: list[str] = []
    for word in workspace.settings.crawls:
        if word in ("newest", "all"):
            continue
        try:
            crawl_ids.append(find_crawl(workspace, word).id)
        except CcPipelineError as fault:
            lookup_faults.append(str(fault))
    return crawl_ids, lookup_faults


def _now() -> datetime:
    return datetime.now(UTC)


def _attempt_suffix(failures: int) -> str:
    return f":{failures + 1}" if failures else ""


def _count_failures(
    instance: dg.DagsterInstance, namespace: HomeNamespace, now: datetime
) -> tuple[dict[str, int], set[str]]:
    """Counts the failed harvests of each crawl since its last run that did not fail; crawls without failures are left
    out. Also returns the crawls among them that are to be tried again ``now``: after six hours, then twelve."""
    sensor_runs = dg.RunsFilter(
        job_name=namespace.qualify("harvest_crawl"), tags={"dagster/sensor_name": namespace.qualify("new_crawls")}
    )
    failures: dict[str, int] = {}
    recovered: set[str] = set()
    last_failures: dict[str, datetime] = {}
    for record in instance.get_run_records(sensor_runs, limit=_MAX_READ_RUNS):
        crawl = record.dagster_run.tags.get(PARTITION_TAG, "")
        if record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
            recovered.add(crawl)
        elif crawl not in recovered:
            failures[crawl] = failures.get(crawl, 0) + 1
            last_failures.setdefault(crawl, record.create_timestamp)
    wait = timedelta(seconds=_SIX_HOURS)
    due = {
        crawl
        for crawl, count in failures.items()
        # ticks are six hours apart, not to the second, so the delay ends a little before the tick
        if count < _MAX_FAILURES and last_failures[crawl] + wait * (2 ** (count - 1) - 0.5) <= now
    }
    return failures, due


@sensor(seconds=60)
def watch_list(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.SensorResult | dg.SkipReason:
    """Registers the targets of domains.txt as partitions. The schedule backfill_missing extracts them."""
    with LOADING:
        from cc_pipeline.defs.automation.watched import watched_targets

    watched = watched_targets(workspace, namespace)
    targets, note = watched.targets, f"; {watched.note}" if watched.note is not None else ""
    try:
        # a definition may change under the same key (a set gains a member), so it is stored each time; no commit if
        # equal
        workspace.register_targets(targets)
    except CcPipelineError as fault:
        return dg.SkipReason(f"{fault}{note}")
    registered = set(namespace.target_keys(context.instance))
    new = [target.slug for target in targets if target.slug not in registered][:_NEW_KEYS_PER_TICK]
    if not new:
        return dg.SkipReason(f"no new target: every target of the watch list is a partition already{note}")
    refused = explain_too_many(len(namespace.crawl_keys(context.instance)), len(registered) + len(new))
    if refused is not None:
        return dg.SkipReason(f"{refused}{note}")
    if watched.note is not None:
        context.log.warning(watched.note)
    added = f"added {format_count(len(new), 'target')} of the watch list as partitions{note}"
    return dg.SensorResult(skip_reason=added, dynamic_partitions_requests=[namespace.target.build_add_request(new)])


@sensor(seconds=86_400, job="harvest_crawl")
def path_lists(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.SensorResult | dg.SkipReason:
    """Harvests the newest crawls again if their path lists have changed.

    Each new content is harvested once. A failed harvest is shown among the failed runs.
    """
    with LOADING:
        from cc_pipeline.harvesting.crawl_index import changed_list_digest

    requested_digests: dict[str, str] = json.loads(context.cursor) if context.cursor else {}
    # records of deleted keys stay
    harvested = context.instance.get_materialized_partitions(namespace.key("row_groups")).intersection(
        namespace.crawl_keys(context.instance)
    )
    changed: dict[str, str] = {}
    try:
        # an index that is built in this home grows only if a person agrees
        published = [crawl for crawl in harvested if not index_is_built(crawl)]
        for crawl in sorted(published, reverse=True)[:_NEWEST_CRAWLS]:
            list_digest = changed_list_digest(workspace, crawl)
            if list_digest is not None and requested_digests.get(crawl) != list_digest:
                changed[crawl] = list_digest
    except CcPipelineError as fault:
        return dg.SkipReason(str(fault))
    if not changed:
        return dg.SkipReason("no path list of the newest crawls has changed")
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(run_key=f"list:{crawl}:{digest[:16]}", partition_key=crawl)
            for crawl, digest in changed.items()
        ],
        cursor=json.dumps(
            {crawl: requested_digests[crawl] for crawl in sorted(requested_digests)[-_NEWEST_CRAWLS:]} | changed
        ),
    )


@sensor(seconds=60, is_of_failed_runs=True)
def failed_runs(context: dg.RunFailureSensorContext, workspace: Workspace, namespace: HomeNamespace) -> None:
    """Reports each failed run and its reason once, in the log and to CC_PIPELINE_WEBHOOK."""
    with LOADING:
        from cc_pipeline.defs.declared.collected_parts import owns
        from cc_pipeline.defs.run_failures import describe_failure

    run = context.dagster_run
    if not owns(namespace, run):
        return
    partitions = name_partitions(run, namespace)
    failure = describe_failure(context.get_step_failure_events())
    # a run without a failed step was ended from outside: its process was killed, or a person cancelled it
    reason = failure.reason if failure.error_class is not None else context.failure_event.message or ""
    event = {
        "event": "run failed",
        "job": run.job_name,
        "run_id": run.run_id,
        "kind": run.tags.get(KIND_TAG, ""),
        "partitions": partitions,
        "reason": reason[:_MAX_REASON_LENGTH],
        "failed_partitions": [
            {
                "partition": partition_failure.partition,
                "reason": partition_failure.reason[:_MAX_PARTITION_REASON_LENGTH],
            }
            for partition_failure in failure.partitions[:_MAX_NAMED_PARTITIONS]
        ],
        "failed_partitions_count": len(failure.partitions),
    }
    partitions_text = f" ({', '.join(partitions)})" if partitions else ""
    context.log.error(f"run {run.run_id} of {run.job_name}{partitions_text} failed: {event['reason']}")
    _notify(context.log, workspace.settings, event)


def name_partitions(run: dg.DagsterRun, namespace: HomeNamespace) -> list[str]:
    """Returns the first partitions of a run; for a range its two ends."""
    with LOADING:
        from cc_pipeline.defs.run_notes import listed_partitions

    partitions = listed_partitions(run, namespace)
    if partitions is None:
        return [key for key in dict.fromkeys(range_of(run.tags)) if key]
    remainder = [f"{len(partitions) - _MAX_NAMED_PARTITIONS:,} more"] if len(partitions) > _MAX_NAMED_PARTITIONS else []
    return partitions[:_MAX_NAMED_PARTITIONS] + remainder


@sensor(seconds=300)
def source_refusals(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.SensorResult | dg.SkipReason:
    """Reports when the source refuses so often that no request is sent to it; the backfill waits meanwhile.

    Each change is reported once, also to the webhook.
    """
    with LOADING:
        from cc_pipeline.automation.source_state import find_refusing_host

    refusing_host = find_refusing_host(workspace)
    previous_state = context.cursor or "answers"
    if refusing_host is None:
        words, source_state = f"requests are sent to {workspace.settings.source} as usual", "answers"
    else:
        words = (
            f"{refusing_host.host} refuses requests ({refusing_host.last_refusal}): none is sent until "
            f"{refusing_host.refuses_until:%Y-%m-%d %H:%M} UTC. To try at once: "
            f"cc-pipeline doctor --reset-host {refusing_host.host}"
        )
        source_state = "refuses"
    if source_state != previous_state:
        context.log.warning(words)
        _notify(context.log, workspace.settings, {"event": f"source {source_state}", "reason": words})
    return dg.SensorResult(skip_reason=words, cursor=source_state)


@sensor(seconds=60, job="publish")
def publication(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.RunRequest | dg.SkipReason:
    """Publishes cc.duckdb when it is behind: at most every CC_PIPELINE_PUBLISH_EVERY minutes, or when all runs have
    ended."""
    with LOADING:
        from cc_pipeline.defs.partitions_in_flight import UNFINISHED, find_in_flight
        from cc_pipeline.publish.publish import find_publication_lag, is_being_published

    try:
        lag = find_publication_lag(workspace)
    except CcPipelineError as fault:
        return dg.SkipReason(str(fault))
    if lag is None:
        return dg.SkipReason("cc.duckdb is up to date")
    instance, minutes, publish = context.instance, workspace.settings.publish_every, namespace.qualify("publish")
    # a command publishes without a run
    if is_being_published(workspace.settings) or instance.get_runs(
        dg.RunsFilter(job_name=publish, statuses=list(UNFINISHED)), limit=1
    ):
        return dg.SkipReason("another run is publishing cc.duckdb now")
    if not lag.longer_than(minutes) and find_in_flight(instance, namespace).is_busy:
        return dg.SkipReason(
            f"runs are in flight, and cc.duckdb is less than {minutes:g} minutes old (CC_PIPELINE_PUBLISH_EVERY)"
        )
    # the same state of the tables is published again only after a failure, and a limited number of times
    state = {STATE_TAG: lag.state}
    failed = instance.get_runs_count(
        dg.RunsFilter(job_name=publish, tags=state, statuses=[dg.DagsterRunStatus.FAILURE])
    )
    if failed >= _MAX_FAILED_PUBLICATIONS:
        return dg.SkipReason(
            f"publishing cc.duckdb failed {failed} times, so it is not tried again until the tables change. The runs "
            f"of {publish} show the reason; then launch {publish} by hand"
        )
    return dg.RunRequest(run_key=f"{lag.state}:{failed}", tags=state)


def _notify(log: logging.Logger, settings: Settings, event: Mapping[str, object]) -> None:
    problem = post_event(settings.webhook, event)
    if problem is not None:
        log.warning(f"the event was not sent to the webhook (CC_PIPELINE_WEBHOOK): {problem}")
