"""Finds the crawl × target partitions that are requested and not made yet, and those that failed and were not made
since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import dagster as dg

from cc_pipeline.defs.declared.collected_parts import asset_name
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.internals import open_backfills
from cc_pipeline.defs.partitions import KIND_TAG, MADE_TAG, partition_key
from cc_pipeline.defs.run_notes import Pair, op_config, ordered_keys, read_tried, run_partitions

#: The assets over crawl × target, the last made first: a run has made a partition when it has recorded the first of
#: these that it selects.
EXTRACTED: Final = ("page_metadata", "page_text", "page_links", "feed_items", "records", "captures")
#: The job that selects all of them. Each run of the UI's own job has its selection.
_EXTRACT_JOB: Final = "extract_domain"
UNFINISHED: Final = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_RETRY_TAG: Final = "dagster/retry_number"
#: The time after which a run that was created, has no event and was given to nobody counts as orphaned: its creator
#: failed or was killed. Planning a run over a range takes minutes, but writes events.
ORPHAN_AGE: Final = timedelta(minutes=10)
#: The time for which failures are remembered.
FAILURE_MEMORY: Final = timedelta(days=7)
#: The most failed runs that are read, the newest first. Schedules start far fewer in ``FAILURE_MEMORY``.
_MAX_FAILED_RUNS: Final = 1_000

#: The ended runs that the pace is computed from.
_MAX_MEASURED_RUNS: Final = 50
#: With more keys, all partitions of an asset are read, which is one simple query.
_MAX_NAMED_KEYS: Final = 2_000
#: The events of one query.
_EVENTS_PER_QUERY: Final = 1_000


@dataclass(frozen=True, slots=True)
class ActivePartitions:
    """The partitions in flight. ``pairs`` (crawl, domain) are in unfinished runs, or in open backfills that have not
    started them yet.

    ``runs`` are the unfinished runs by kind (``partitions.KINDS``; ``""`` for runs without that tag, which a person
    started).
    """

    pairs: frozenset[Pair]
    runs: Mapping[str, int]

    @property
    def is_busy(self) -> bool:
        """Whether anything is in flight."""
        return bool(self.pairs or self.runs)


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """A partition that was not made since it failed: ``times`` in a row, first at ``since``, last at ``last`` in the
    run ``run_id``. After that, ``unreached`` runs that should have made it ended before they tried it, the last one at
    ``unreached_last``. If ``times`` is 0, it never failed itself, and the other fields are those of such runs."""

    times: int
    since: datetime
    last: datetime
    run_id: str
    unreached: int = 0
    unreached_last: datetime | None = None


def find_in_flight(
    instance: dg.DagsterInstance, namespace: HomeNamespace = OWN_HOME, *, exclude_made: bool = False
) -> ActivePartitions:
    """Returns the partitions in flight: in a process or a queue, without orphaned runs (:func:`find_orphaned_runs`).
    ``exclude_made`` also leaves out runs that have made all their partitions (``MADE_TAG``), and these partitions."""
    pairs: set[Pair] = set()
    made_pairs: set[Pair] = set()
    runs: dict[str, int] = defaultdict(int)
    unfinished = [
        run
        for run in instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED)))
        if find_extracted_assets(run, namespace)
    ]
    if any(run.status is dg.DagsterRunStatus.NOT_STARTED for run in unfinished):
        orphaned_ids = {run.run_id for run in find_orphaned_runs(instance)}
        unfinished = [run for run in unfinished if run.run_id not in orphaned_ids]
    pairs_by_run = run_partitions(instance, unfinished, namespace=namespace)
    for run in unfinished:
        if exclude_made and run.tags.get(MADE_TAG) == run.run_id:
            made_pairs.update(pairs_by_run[run.run_id])
            continue
        pairs.update(pairs_by_run[run.run_id])
        runs[run.tags.get(KIND_TAG, "")] += 1
    asset_keys = {namespace.key(asset).to_user_string(): namespace.key(asset) for asset in EXTRACTED}
    for backfill in open_backfills(instance):
        open_keys = {
            key
            for asset, keys in backfill.remaining.items()
            if asset in asset_keys and keys
            for key in keys - _recorded_since(instance, asset_keys[asset], keys, backfill.event_cursor)
        }
        if backfill.job == namespace.qualify(_EXTRACT_JOB):
            open_keys = set(backfill.partitions) - _find_ended_keys(instance, namespace, backfill.id)
        # a backfill notices the end of a run only later
        pairs.update(pair for pair in _pairs(open_keys) if pair not in made_pairs)
    return ActivePartitions(frozenset(pairs), dict(runs))


def find_orphaned_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Returns orphaned runs: created, and never to be queued or started (``ORPHAN_AGE``).

    PostgreSQL keeps a run whose tags it refused. Dagster counts the retries of a run by a tag, so it would retry such a
    run for ever.
    """
    cutoff = datetime.now(UTC) - ORPHAN_AGE
    old = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.NOT_STARTED], created_before=cutoff))
    return [run for run in old if is_silent(instance, run)]


def is_silent(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether neither a run nor its launcher has written an event for ``ORPHAN_AGE``."""
    newest = instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
    since = (datetime.now(UTC) - ORPHAN_AGE).timestamp()
    return all(record.event_log_entry.timestamp < since for record in newest)


def find_unresolved_failures(
    instance: dg.DagsterInstance, namespace: HomeNamespace = OWN_HOME, *, now: datetime | None = None
) -> dict[Pair, FailureHistory]:
    """Returns the partitions that failed in any run during the remembered time before ``now`` and were not made since.

    A failed run counts for its partitions that were not recorded after it began: a run that continues after a failed
    partition records the others, and a partition that was made later, in any way, is no failure any more. Partitions
    that the run never tried, because it ended early, have not failed: they are returned with ``times`` 0. Keys in a
    list that are not partitions, or not any more, are left out, since nobody can make them.
    """
    since = (now or datetime.now(UTC)) - FAILURE_MEMORY
    lately = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], created_after=since)
    records = [
        record
        for record in instance.get_run_records(lately, limit=_MAX_FAILED_RUNS)
        if find_extracted_assets(record.dagster_run, namespace)
    ]
    if not records:
        return {}
    # a run that continues another leaves out the partitions that the first one recorded
    first = {
        record.dagster_run.run_id: record.dagster_run.root_run_id or record.dagster_run.run_id for record in records
    }
    run_starts = _read_run_starts(instance, {*first, *first.values()}, since)
    crawls, targets = ordered = ordered_keys(instance, namespace)
    current_keys = {*crawls}, {*targets}
    pairs_by_run = {
        run_id: [(crawl, target) for crawl, target in pairs if crawl in current_keys[0] and target in current_keys[1]]
        for run_id, pairs in run_partitions(
            instance, [record.dagster_run for record in records], ordered, namespace
        ).items()
    }
    tried_by_run = read_tried(instance, pairs_by_run)
    latest = _read_last_records(
        instance,
        namespace,
        {find_extracted_assets(record.dagster_run, namespace)[0] for record in records},
        pairs_by_run.values(),
    )
    # newest run first
    failures: dict[Pair, FailureHistory] = {}
    missed: dict[Pair, FailureHistory] = {}
    for record in records:
        run = record.dagster_run
        last_records, place = latest[find_extracted_assets(run, namespace)[0]], run_starts.get(first[run.run_id], 0)
        ended = datetime.fromtimestamp(record.end_time, UTC) if record.end_time else record.create_timestamp
        # a retry of the daemon is the same failure: the process of its run was lost
        increment = 0 if _RETRY_TAG in run.tags else 1
        tried = tried_by_run.get(run.run_id)
        for pair in pairs_by_run[run.run_id]:
            # a run without an event of its own began before everything
            if last_records.get(f"{pair[0]}|{pair[1]}", -1) > place:
                continue
            # a run without a note is of an earlier version, or never began
            was_tried = record.start_time is not None if tried is None else pair in tried
            if not was_tried and pair in failures:
                continue
            kind = failures if was_tried else missed
            newest = kind.get(pair, FailureHistory(0, ended, ended, run.run_id))
            kind[pair] = replace(newest, times=newest.times + increment, since=ended)
    # for some partitions, the run that was retried is too old to be read
    failures = {pair: replace(failed, times=max(1, failed.times)) for pair, failed in failures.items()}
    for pair, since_then in missed.items():
        failed = failures.get(pair, replace(since_then, times=0))
        failures[pair] = replace(failed, unreached=max(1, since_then.times), unreached_last=since_then.last)
    return failures


def read_recorded_partitions(
    instance: dg.DagsterInstance, asset: str, namespace: HomeNamespace = OWN_HOME
) -> dict[Pair, int]:
    """Returns the partitions of ``asset`` that were ever recorded, with the position of the last record in the event
    log."""
    positions = instance.get_latest_storage_id_by_partition(
        namespace.key(asset), dg.DagsterEventType.ASSET_MATERIALIZATION
    )
    split = ((key.partition("|"), position) for key, position in positions.items())
    return {(crawl, domain): position for (crawl, _, domain), position in split}


def find_recorded_keys(
    instance: dg.DagsterInstance, asset: str, keys: AbstractSet[str], namespace: HomeNamespace = OWN_HOME
) -> set[str]:
    """Returns the partitions among ``keys`` (crawl × target) of ``asset`` that were recorded and that no run has
    planned since: if that run failed, Dagster shows them as failed. Dagster's own partition status costs twenty times
    as much, since it reads the runs too."""
    recorded_ids, planned_ids = (
        instance.get_latest_storage_id_by_partition(namespace.key(asset), kind, _limit_keys(keys))
        for kind in (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    )
    return {key for key in keys & recorded_ids.keys() if planned_ids.get(key, -1) < recorded_ids[key]}


def read_ended_runs(instance: dg.DagsterInstance, namespace: HomeNamespace = OWN_HOME) -> list[tuple[float, int]]:
    """Returns seconds and partitions of the newest successful runs that made all of ``EXTRACTED``. Runs that only
    fetched or only parsed have another pace."""
    records = [
        record
        for job in ("extract_targets", "extract_domain")
        for record in instance.get_run_records(
            dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS], job_name=namespace.qualify(job)),
            limit=_MAX_MEASURED_RUNS,
        )
        if find_extracted_assets(record.dagster_run, namespace) == EXTRACTED
    ]
    pairs_by_run = run_partitions(instance, [record.dagster_run for record in records], namespace=namespace)
    return [
        (record.end_time - record.start_time, len(pairs_by_run[record.dagster_run.run_id]))
        for record in records
        if record.end_time is not None and record.start_time is not None
    ]


def find_extracted_assets(run: dg.DagsterRun, namespace: HomeNamespace = OWN_HOME) -> tuple[str, ...]:
    """Returns the assets of ``EXTRACTED`` that a run makes, in that order; none for a run of other assets."""
    if run.job_name == namespace.qualify("extract_targets"):
        tables = (op_config(run, namespace) or {}).get("tables")
        return tuple(asset for asset in EXTRACTED if not tables or asset in tables)
    # runs of the command line have an empty selection where others have none
    if not run.asset_selection:
        return EXTRACTED if run.job_name == namespace.qualify(_EXTRACT_JOB) else ()
    selected = {asset_name(namespace, key) for key in run.asset_selection}
    return tuple(asset for asset in EXTRACTED if asset in selected)


def _pairs(keys: Iterable[str]) -> Iterable[Pair]:
    for key in keys:
        crawl, separator, domain = key.partition("|")
        if separator:
            yield crawl, domain


def _recorded_since(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: AbstractSet[str], event_cursor: int | None
) -> AbstractSet[str]:
    """Returns the keys that the daemon will find recorded at its next check. Before its first check nothing was
    launched."""
    if event_cursor is None:
        return frozenset()
    return instance.get_latest_storage_id_by_partition(
        asset, dg.DagsterEventType.ASSET_MATERIALIZATION, _limit_keys(keys), after_cursor=event_cursor
    ).keys()


def _find_ended_keys(instance: dg.DagsterInstance, namespace: HomeNamespace, backfill: str) -> set[str]:
    """Returns the partitions of a job's backfill whose runs have ended."""
    ended = [status for status in dg.DagsterRunStatus if status not in UNFINISHED]
    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}, statuses=ended))
    return {
        partition_key(*pair) for pairs in run_partitions(instance, runs, namespace=namespace).values() for pair in pairs
    }


def _read_last_records(
    instance: dg.DagsterInstance,
    namespace: HomeNamespace,
    assets: Collection[str],
    partitions: Iterable[Sequence[Pair]],
) -> dict[str, Mapping[str, int]]:
    """Returns the last record of each partition by asset, as its position in the event log."""
    keys = {"|".join(pair) for pairs in partitions for pair in pairs}
    if not keys:
        return {asset: {} for asset in assets}
    return {
        asset: instance.get_latest_storage_id_by_partition(
            namespace.key(asset), dg.DagsterEventType.ASSET_MATERIALIZATION, _limit_keys(keys)
        )
        for asset in assets
    }


def _limit_keys(keys: AbstractSet[str]) -> set[str] | None:
    return set(keys) if len(keys) <= _MAX_NAMED_KEYS else None


def _read_run_starts(instance: dg.DagsterInstance, runs: Collection[str], since: datetime) -> dict[str, int]:
    """Returns the position in the event log at which each of ``runs`` (created after ``since``) began, or ended if it
    never began.

    Positions can be compared with those of materializations. Times could not, if the clock of a machine was set.
    """
    run_ids = set(runs)
    positions: dict[str, int] = {}
    for kind in (dg.DagsterEventType.RUN_START, dg.DagsterEventType.RUN_FAILURE):
        cursor = None
        while run_ids - positions.keys():
            event_filter = dg.RunStatusChangeRecordsFilter(kind, after_timestamp=since.timestamp())
            page = instance.fetch_run_status_changes(event_filter, limit=_EVENTS_PER_QUERY, cursor=cursor)
            for status_change in page.records:
                if status_change.run_id in run_ids:
                    positions.setdefault(status_change.run_id, status_change.storage_id)
            cursor = page.cursor
            if not page.has_more:
                break
    return positions
