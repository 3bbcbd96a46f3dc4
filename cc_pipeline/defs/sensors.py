"""The sensors and schedules of a home. They ship stopped: a person turns automation on."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import dagster as dg

from cc_pipeline.advice import advise
from cc_pipeline.automation.due import (
    MAX_FAILURES,
    BackfillDecision,
    Bounds,
    Failures,
    Pair,
    count_failures,
    decide_backfill,
    select_crawls,
)
from cc_pipeline.automation.reparse import describe_cost, is_agreed
from cc_pipeline.automation.source_state import find_source_trouble
from cc_pipeline.automation.staleness import StalenessReport, assess_staleness
from cc_pipeline.commoncrawl.crawls import index_is_built
from cc_pipeline.defs.dynamic_keys import UNFINISHED
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.lake_records import LAST
from cc_pipeline.defs.partitions import (
    KIND_TAG,
    MAX_PARTITIONS_PER_RUN,
    explain_too_many,
    group_by_crawl,
    listed_keys,
    partition_key,
    room_for_crawls,
    split_key,
)
from cc_pipeline.defs.recording import read_failure
from cc_pipeline.defs.watched import watched_targets
from cc_pipeline.defs.webhook import post_event
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.harvesting.crawl_index import changed_list_digest
from cc_pipeline.harvesting.crawls import find_crawl, is_published
from cc_pipeline.progress import format_count, list_first
from cc_pipeline.publish.publish import find_publication_lag, is_being_published
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

_SIX_HOURS: Final = 6 * 3600
#: The most partition keys that one tick adds; the next tick adds the others.
_NEW_KEYS_PER_TICK = 200
#: The newest failed runs that a tick reads.
_MAX_READ_RUNS = 500
#: Harvested crawls whose path lists are compared: the lists of older crawls do not change any more.
_NEWEST_CRAWLS = 2
#: The most characters of a run's error, and of a partition's, in a message; and the most partitions.
_MAX_REASON_LENGTH, _MAX_PARTITION_REASON_LENGTH, _MAX_NAMED_PARTITIONS = 2_000, 500, 10
#: The most queued and running runs of the backfill, so that the queue fits on one screen.
_MAX_RUNS = 10
#: The most partitions that one tick of the backfill starts.
_MAX_PARTITIONS = 2_000
#: In Dagster's queue, runs that a person launches (0) come first.
_PRIORITY: Final[Mapping[str, str]] = {"watch": "-1", "repair": "-2", "backfill": "-3"}


def define(namespace: HomeNamespace, jobs: Mapping[str, Any], *, is_automatic: bool) -> list[dg.SensorDefinition]:
    """Returns the sensors. ``jobs`` are the jobs that they launch, by name without prefix. With ``is_automatic`` they
    are on from the start."""
    status = dg.DefaultSensorStatus.RUNNING if is_automatic else dg.DefaultSensorStatus.STOPPED

    def sensor(name: str, seconds: int, job: str | None, decide: Callable[..., Any], description: str) -> Any:
        def evaluate(context: dg.SensorEvaluationContext) -> Any:
            try:
                return decide(context, namespace.workspace(context), namespace)
            except CcPipelineError as fault:
                return dg.SkipReason(str(fault))

        return dg.SensorDefinition(
            name=namespace.qualify(name),
            evaluation_fn=evaluate,
            minimum_interval_seconds=seconds,
            description=description,
            job=None if job is None else jobs[job],
            default_status=status,
            required_resource_keys={namespace.resource},
        )

    # Dagster's decorator of failed runs gives no resources to a function without a parameter of their name
    failed_runs = dg.RunStatusSensorDefinition(
        name=namespace.qualify("failed_runs"),
        run_status=dg.DagsterRunStatus.FAILURE,
        run_status_sensor_fn=lambda context: report_failed_run(context, namespace),
        minimum_interval_seconds=60,
        default_status=status,
        description="Reports each failed run and its reason once, in the log and to CC_PIPELINE_WEBHOOK.",
    )
    conditions = dg.AutomationConditionSensorDefinition(
        # Dagster's own sensor of this name covers all assets without a sensor; with the same name ours replaces it
        "default_automation_condition_sensor" if namespace.is_only_home else namespace.qualify("conditions"),
        target=dg.AssetSelection.assets(namespace.key("crawls")),
        default_status=status,
        minimum_interval_seconds=300,
    )
    return [*(sensor(*declared) for declared in _SENSORS), failed_runs, conditions]


def define_schedules(
    namespace: HomeNamespace, jobs: Mapping[str, Any], *, is_automatic: bool
) -> list[dg.ScheduleDefinition]:
    """Returns the schedules of those ``jobs``, as :func:`define` does."""
    status = dg.DefaultScheduleStatus.RUNNING if is_automatic else dg.DefaultScheduleStatus.STOPPED
    declared = [
        ("weekly_maintenance", "maintenance", "0 4 * * 0", "Runs maintenance every Sunday."),
        ("weekly_checks", "check_everything", "0 5 * * 0", "Checks the whole lake every Sunday, after maintenance."),
        ("history", "trim_history", "20 3 * * *", "Deletes runs older than CC_PIPELINE_HISTORY_DAYS, once a day."),
    ]
    return [
        dg.ScheduleDefinition(
            name=namespace.qualify(name),
            job=jobs[job],
            cron_schedule=cron,
            default_status=status,
            description=description,
        )
        for name, job, cron, description in declared
        if job in jobs
    ]


def find_new_crawls(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.SensorResult | dg.SkipReason:
    """Decides a tick of ``new_crawls``.

    While the list of crawls cannot be read, its last good copy counts. Crawls that were known at release are no news:
    without a copy, only crawls that CC_PIPELINE_CRAWLS names are looked up.
    """
    # the list is fetched once a day
    crawl_list = workspace.crawl_list
    configured_crawls, notes = _find_configured_crawls(workspace)
    notes = [*([crawl_list.note] if crawl_list.note is not None else []), *notes]
    current = [crawl.id for crawl in crawl_list.crawls] if crawl_list.origin in ("list", "copy") else []
    listed_crawls = [*current, *(crawl for crawl in configured_crawls if crawl not in current)]
    instance, job = context.instance, namespace.qualify("harvest_crawl")
    registered, targets = set(namespace.crawl_keys(instance)), len(namespace.target_keys(instance))
    new = [crawl for crawl in listed_crawls if crawl not in registered]
    room = room_for_crawls(len(registered), targets)
    if len(new) > room:
        # the newest ones that there is room for
        notes.append(str(explain_too_many(len(registered) + len(new), targets)))
    unfinished = instance.get_runs(dg.RunsFilter(job_name=job, statuses=list(UNFINISHED)))
    harvested = instance.get_materialized_partitions(namespace.key("row_groups"))
    harvested |= {run.tags.get("dagster/partition", "") for run in unfinished}
    known_crawls = [crawl for crawl in listed_crawls if crawl in registered or crawl in new[:room]]
    selection = workspace.settings.crawls if current else configured_crawls
    missing_crawls = [crawl for crawl in select_crawls(known_crawls, selection) if crawl not in harvested]
    source_faults: list[str] = []
    published = [crawl for crawl in missing_crawls if _is_runnable(workspace, crawl, source_faults)]
    if waiting := [crawl for crawl in missing_crawls if crawl not in published]:
        reason = f"the source does not answer: {source_faults[0]}" if source_faults else "not published yet"
        notes.append(f"{', '.join(waiting)}: {reason}")
    if not new[:room] and not published:
        return dg.SkipReason("; ".join(["no new crawl", *notes]))
    # Dagster lists keys in the order of their registration: the oldest first
    add_request = namespace.crawl.build_add_request(new[:room][::-1])
    return dg.SensorResult(
        dynamic_partitions_requests=[add_request] if new[:room] else [],
        # Dagster does not run a key again: a failed harvest is repeated on the next day
        run_requests=[
            dg.RunRequest(run_key=f"harvest:{crawl}:{_now():%Y-%m-%d}", partition_key=crawl) for crawl in published
        ],
    )


def _is_runnable(workspace: Workspace, crawl: str, source_faults: list[str]) -> bool:
    """Whether a crawl is published. After the first error of the source, which is added to ``source_faults``, it is not
    asked again in this tick."""
    if source_faults:
        return False
    try:
        return is_published(workspace, crawl)
    except CcPipelineError as fault:
        source_faults.append(str(fault))
        return False


def _find_configured_crawls(workspace: Workspace) -> tuple[list[str], list[str]]:
    """Returns the crawls that CC_PIPELINE_CRAWLS names and the source has, and the errors of the others. For each crawl
    that no list has, the source is asked at most once a day."""
    crawl_ids: list[str] = []
    faults: list[str] = []
    for word in workspace.settings.crawls:
        if word not in ("newest", "all"):
            try:
                crawl_ids.append(find_crawl(workspace, word).id)
            except CcPipelineError as fault:
                faults.append(str(fault))
    return crawl_ids, faults


def _now() -> datetime:
    return datetime.now(UTC)


def register_watched(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.SensorResult | dg.SkipReason:
    """Decides a tick of ``watch_list``."""
    watched = watched_targets(workspace, namespace)
    note = f"; {watched.note}" if watched.note is not None else ""
    # a definition may change under the same key (a set gains a member); no commit if equal
    workspace.register_targets(watched.targets)
    registered = set(namespace.target_keys(context.instance))
    new = [target.slug for target in watched.targets if target.slug not in registered][:_NEW_KEYS_PER_TICK]
    if not new:
        return dg.SkipReason(f"no new target: every target of the watch list is a partition already{note}")
    refused = explain_too_many(len(namespace.crawl_keys(context.instance)), len(registered) + len(new))
    if refused is not None:
        return dg.SkipReason(f"{refused}{note}")
    added = f"added {format_count(len(new), 'target')} of the watch list as partitions{note}"
    return dg.SensorResult(skip_reason=added, dynamic_partitions_requests=[namespace.target.build_add_request(new)])


def find_changed_lists(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.SensorResult | dg.SkipReason:
    """Decides a tick of ``path_lists``."""
    # an index that is built in this home grows only if a person agrees
    published = [crawl for crawl in _harvested(context.instance, namespace) if not index_is_built(crawl)]
    digests = {crawl: changed_list_digest(workspace, crawl) for crawl in published[:_NEWEST_CRAWLS]}
    changed = {crawl: digest for crawl, digest in digests.items() if digest is not None}
    if not changed:
        return dg.SkipReason("no path list of the newest crawls has changed")
    return dg.SensorResult(
        # Dagster does not run a key again, so each content of a list is harvested once
        run_requests=[
            dg.RunRequest(run_key=f"list:{crawl}:{digest[:16]}", partition_key=crawl)
            for crawl, digest in changed.items()
        ]
    )


def _harvested(instance: dg.DagsterInstance, namespace: HomeNamespace) -> list[str]:
    """Returns the harvested crawls that are partitions, the newest first: ids begin with the year."""
    harvested = instance.get_materialized_partitions(namespace.key("row_groups"))
    return sorted(harvested.intersection(namespace.crawl_keys(instance)), reverse=True)


def find_due_partitions(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.SensorResult | dg.SkipReason:
    """Decides a tick of ``backfill_missing``. The lake says what is missing or stale, Dagster what is recorded, in
    progress, or failed."""
    instance, settings, now = context.instance, workspace.settings, _now()
    watched = watched_targets(workspace, namespace)
    # runs read the stored definitions, so a set that changed since the last tick of watch_list counts from now on
    workspace.register_targets(watched.targets)
    registered = set(namespace.target_keys(instance))
    slugs = [target.slug for target in watched.targets if target.slug in registered]
    crawls = _harvested(instance, namespace)
    report = assess_staleness(workspace, crawls, slugs, now)
    keys = [partition_key(*pair) for pair in report.pairs]
    statuses = (instance.get_status_by_partition(namespace.key(LAST), keys, namespace.pairs) if keys else None) or {}
    notes = [watched.note] if watched.note is not None else []
    wanted_pairs = select_wanted(report, select_crawls(crawls, settings.crawls), statuses)
    if is_agreed(settings):
        wanted_pairs += sorted(((old.crawl, old.target) for old in report.reparse_costs), reverse=True)
    elif report.reparse_costs:
        cost = describe_cost(settings, report.reparse_costs)
        notes.append(f"{cost}. To have them parsed: {advise('automation reparse', yes=True)}")
    runs = instance.get_runs(dg.RunsFilter(job_name=namespace.qualify("extract_targets"), statuses=list(UNFINISHED)))
    busy = {split_key(key) for run in runs for key in read_listed_keys(run, namespace)}
    busy |= {split_key(key) for key, status in statuses.items() if status is dg.AssetPartitionStatus.IN_PROGRESS}
    pairs = [pair for pair in dict.fromkeys(wanted_pairs) if pair not in report.waiting]
    failures = _update_failures(context, namespace, {*pairs})
    decision = decide_backfill(
        [pair for pair in pairs if pair not in busy],
        report.due,
        failures,
        newest=crawls[0] if crawls else "",
        now=now,
        bounds=Bounds(
            _MAX_PARTITIONS,
            _MAX_RUNS - sum(KIND_TAG in run.tags for run in runs),
            MAX_PARTITIONS_PER_RUN,
        ),
    )
    trouble = find_source_trouble(workspace, decision.runs[0].pairs[0][0]) if decision.runs else None
    started = () if trouble is not None else decision.runs
    notes = [*_describe_tick(decision, sum(pair in busy for pair in pairs), trouble), *notes]
    context.log.info("; ".join(notes))
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(
                run_key=f"{now:%Y%m%dT%H%M}:{hashlib.sha256(repr(run.pairs).encode()).hexdigest()[:16]}",
                run_config=listed_config(namespace, [partition_key(*pair) for pair in run.pairs]),
                tags={KIND_TAG: run.kind, "dagster/priority": _PRIORITY[run.kind]},
            )
            for run in started
        ],
        skip_reason=None if started else "; ".join(notes),
        cursor=_write_cursor(now, failures),
    )


def select_wanted(
    report: StalenessReport,
    crawls: Iterable[str],
    statuses: Mapping[str, dg.AssetPartitionStatus | None],
) -> list[Pair]:
    """Returns the pairs of ``crawls`` that are not recorded, then those of any crawl that were recorded and have to be
    made again, each group with the newest crawl first."""
    selected = set(crawls)
    status = {pair: statuses.get(partition_key(*pair)) for pair in report.pairs}
    made_statuses = (dg.AssetPartitionStatus.MATERIALIZED, dg.AssetPartitionStatus.IN_PROGRESS)
    missing = [pair for pair in report.pairs if pair[0] in selected and status[pair] not in made_statuses]
    repeated = [
        pair
        for pair in report.pairs
        if pair in report.due
        or status[pair] is dg.AssetPartitionStatus.FAILED
        or (status[pair] in made_statuses and pair in report.stale)
    ]
    return missing + repeated


def listed_config(namespace: HomeNamespace, keys: Iterable[str]) -> dict[str, Any]:
    """Returns the configuration of a run of ``extract_targets``."""
    return {"ops": {namespace.qualify("extract_listed"): {"config": {"partitions": group_by_crawl(keys)}}}}


def read_listed_keys(run: dg.DagsterRun, namespace: HomeNamespace) -> list[str]:
    """Returns the partitions in the configuration of a run; none for a run of another job."""
    ops: Any = run.run_config.get("ops", {})
    partitions = ops.get(namespace.qualify("extract_listed"), {}).get("config", {}).get("partitions", {})
    return listed_keys(partitions)


def _update_failures(
    context: dg.SensorEvaluationContext, namespace: HomeNamespace, wanted: set[Pair]
) -> dict[Pair, Failures]:
    """Returns the failures of ``wanted`` pairs: those of the cursor, and those of the sensor's runs that ended since.

    A run that was ended by an error of all partitions (a full disk, a source that refuses) counts for none of them. A
    killed process counts for all: one of them may be the cause.
    """
    cursor: dict[str, Any] = json.loads(context.cursor) if context.cursor else {"at": 0.0, "failures": {}}
    failures = {
        split_key(key): Failures(times, datetime.fromtimestamp(last, UTC))
        for key, (times, last) in cursor["failures"].items()
    }
    ended = context.instance.get_run_records(
        dg.RunsFilter(
            statuses=[dg.DagsterRunStatus.FAILURE],
            tags={"dagster/sensor_name": namespace.qualify("backfill_missing")},
            updated_after=datetime.fromtimestamp(cursor["at"], UTC),
        ),
        limit=_MAX_READ_RUNS,
    )
    ended_runs = []
    for record in ended:
        reason, failed = _read_run_failure(context.instance, record.dagster_run.run_id)
        keys = failed or ([] if reason else read_listed_keys(record.dagster_run, namespace))
        ended_runs.append((datetime.fromtimestamp(record.end_time or 0, UTC), [*map(split_key, keys)]))
    return count_failures(failures, sorted(ended_runs, key=lambda run: run[0]), wanted)


def _write_cursor(now: datetime, failures: Mapping[Pair, Failures]) -> str:
    counts = {partition_key(*pair): (failed.times, failed.last.timestamp()) for pair, failed in failures.items()}
    return json.dumps({"at": now.timestamp(), "failures": counts})


def _read_run_failure(instance: dg.DagsterInstance, run_id: str) -> tuple[str, dict[str, str]]:
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    return read_failure([entry.dagster_event for entry in entries if entry.dagster_event is not None])


def _describe_tick(decision: BackfillDecision, busy: int, trouble: str | None) -> list[str]:
    """Describes for a person what is started and what waits."""
    started = sum(len(run.pairs) for run in decision.runs)
    texts = [
        (started and trouble is not None, f"{trouble}; {format_count(started, 'partition', 'wait')} for the source"),
        (busy, f"{format_count(busy, 'due partition', 'are')} queued or running"),
        (decision.remaining, f"{format_count(decision.remaining, 'partition', 'wait')} for a later tick"),
        (decision.delayed, f"{format_count(len(decision.delayed), 'partition')} failed, to be tried again later"),
        (
            decision.abandoned,
            f"{format_count(len(decision.abandoned), 'partition')} failed {MAX_FAILURES} times or more in a row, and "
            f"are tried again after a week: "
            f"{list_first([partition_key(*pair) for pair in decision.abandoned], 5)}. Their runs show the reason",
        ),
    ]
    sentences = [text for applies, text in texts if applies]
    return sentences or ["no partition has to be run"]


def find_unpublished(
    context: dg.SensorEvaluationContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.RunRequest | dg.SkipReason:
    """Decides a tick of ``publication``."""
    lag = find_publication_lag(workspace)
    if lag is None:
        return dg.SkipReason("cc.duckdb is up to date")
    instance, minutes, publish = context.instance, workspace.settings.publish_every, namespace.qualify("publish")
    unfinished = [run for run in instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED))) if namespace.owns(run)]
    # a command publishes without a run
    if is_being_published(workspace.settings) or any(run.job_name == publish for run in unfinished):
        return dg.SkipReason("another run is publishing cc.duckdb now")
    if unfinished and not lag.longer_than(minutes):
        return dg.SkipReason(
            f"runs are in flight, and cc.duckdb is less than {minutes:g} minutes old (CC_PIPELINE_PUBLISH_EVERY)"
        )
    # Dagster does not run a key again: a state that could not be published is tried again in the next hour
    return dg.RunRequest(run_key=f"{lag.state}:{_now():%Y-%m-%dT%H}")


def report_failed_run(context: dg.RunStatusSensorContext, namespace: HomeNamespace) -> None:
    """Reports a failed run of this home in the log and to the webhook."""
    run = context.dagster_run
    if not namespace.owns(run):
        return
    reason, failed = _read_run_failure(context.instance, run.run_id)
    partitions = read_listed_keys(run, namespace) or [
        key for name, key in run.tags.items() if name in ("dagster/partition", "dagster/asset_partition_range_start")
    ]
    event = {
        "event": "run failed",
        "job": run.job_name,
        "run_id": run.run_id,
        "kind": run.tags.get(KIND_TAG, ""),
        "partitions": partitions[:_MAX_NAMED_PARTITIONS],
        # a run without a failed step was ended from outside: its process was killed, or a person cancelled it
        "reason": (reason or context.dagster_event.message or "")[:_MAX_REASON_LENGTH],
        "failed_partitions": [
            {"partition": key, "reason": text[:_MAX_PARTITION_REASON_LENGTH]}
            for key, text in [*failed.items()][:_MAX_NAMED_PARTITIONS]
        ],
        "failed_partitions_count": len(failed),
    }
    partitions_text = f" ({list_first(partitions, 3)})" if partitions else ""
    context.log.error(f"run {run.run_id} of {run.job_name}{partitions_text} failed: {event['reason']}")
    _notify(context.log, namespace.load_settings(), event)


def _notify(log: logging.Logger, settings: Settings, event: Mapping[str, object]) -> None:
    problem = post_event(settings.webhook, event)
    if problem is not None:
        log.warning(f"the event was not sent to the webhook (CC_PIPELINE_WEBHOOK): {problem}")


#: Of each sensor its name, the seconds between ticks, the job that it launches, what decides a tick, and a description.
_SENSORS: Final[Sequence[tuple[str, int, str | None, Callable[..., Any], str]]] = (
    (
        "new_crawls", _SIX_HOURS, "harvest_crawl", find_new_crawls,
        "Registers crawls as partitions and harvests those of CC_PIPELINE_CRAWLS once they are published. Failed "
        "harvests are repeated once a day.",
    ),
    (
        "watch_list", 60, None, register_watched,
        "Registers the targets of domains.txt as partitions. The sensor backfill_missing extracts them.",
    ),
    (
        "path_lists", 86_400, "harvest_crawl", find_changed_lists,
        "Harvests the newest crawls again if their path lists have changed, once for each new content.",
    ),
    (
        "backfill_missing", 1_800, "extract_targets", find_due_partitions,
        "Extracts missing pages of watched targets from the selected crawls, repairs partitions that failed, and "
        "fetches again what the source did not give.",
    ),
    (
        "publication", 60, "publish", find_unpublished,
        "Publishes cc.duckdb when it is behind: at most every CC_PIPELINE_PUBLISH_EVERY minutes, or when all runs have "
        "ended.",
    ),
)  # fmt: skip
