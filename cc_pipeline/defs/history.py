"""Deletes runs that ended long ago, except those that wrote the newest record of an asset or partition.

``instance.delete_run`` deletes all events of a run, also the records that show what exists. So a run is kept whole
while one of its records is the newest of its partition, or is an input of a newest record.
"""

from __future__ import annotations

import json
import shutil
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg

from cc_pipeline import progress
from cc_pipeline.defs.declared.collected_parts import asset_name
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.internals import open_backfill_ids
from cc_pipeline.defs.notes import read_notes, write_notes
from cc_pipeline.defs.partition_runs import logged_progress
from cc_pipeline.defs.run_notes import delete_notes_of, delete_orphaned_notes
from cc_pipeline.workspace.workspace import Workspace

#: Seconds after which a trimming run deletes no further run; the next tick continues.
_MAX_SECONDS: Final = 600.0
_INTERVAL: Final = timedelta(hours=23)
#: The age at which the logs of sensors and schedules are deleted.
_TICK_LOG_AGE: Final = timedelta(days=5)
#: The note of the last trim: ``at`` (seconds since the epoch), and whether all was ``is_complete``.
_NOTE: Final = "cc_pipeline/history"
_SUCCESSFUL: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED)
_BACKFILL_TAG: Final = "dagster/backfill"
#: The tag in which Dagster stores the record of an input that another record was made of.
_POINTER_TAG: Final = "dagster/input_event_pointer/"
#: The records of one query.
_RECORDS_PER_QUERY: Final = 1_000


@dataclass(frozen=True, slots=True)
class TrimReport:
    """The result of a trim: deleted ``runs``, and old runs that were ``kept_runs``, since a record of theirs is the
    newest. ``is_complete``: nothing is left to delete."""

    runs: int
    kept_runs: int
    is_complete: bool


def trim_run_history(
    instance: dg.DagsterInstance, days: int, *, now: datetime | None = None, seconds: float = _MAX_SECONDS
) -> TrimReport:
    """Deletes runs that ended more than ``days`` ago (failed ones twice as long) with their events, logs and notes.

    Must be called in a run: SQLite reuses the id of a deleted event if it was the highest, and cursors rely on ids. The
    start event of the calling run has a higher one. After ``seconds`` the remaining runs are left to the next call.
    """
    now = now or datetime.now(UTC)
    old = _old_runs(instance, now - timedelta(days=days), now - 2 * timedelta(days=days))
    needed = needed_runs(instance) if old else set()
    open_backfills = open_backfill_ids(instance)
    deletable = [run for run in old if run.run_id not in needed and run.tags.get(_BACKFILL_TAG) not in open_backfills]
    # the time starts here, so that each call deletes some runs, however long the queries took
    deadline = time.monotonic() + seconds
    runs = 0
    for run in deletable:
        if time.monotonic() >= deadline:
            break
        progress.report("old runs", runs, len(deletable), "")
        instance.delete_run(run.run_id)
        delete_files(instance, run.run_id)
        delete_notes_of(instance, run.run_id)
        runs += 1
    delete_files(instance, ticks_before=now - _TICK_LOG_AGE)
    is_complete = runs == len(deletable)
    delete_orphaned_notes(instance)
    write_notes(instance, {_NOTE: json.dumps({"at": now.timestamp(), "done": is_complete})})
    return TrimReport(runs, len(old) - len(deletable), is_complete)


def needed_runs(instance: dg.DagsterInstance, namespace: HomeNamespace = OWN_HOME) -> set[str]:
    """Returns the runs that wrote the newest record of an asset or a partition, or an input of such a record.

    Partitions of ours that were deleted count for nothing.
    """
    is_current = _known_keys(instance, namespace)
    needed: set[str] = set()
    pointed: dict[str, set[int]] = defaultdict(set)
    for asset in instance.get_asset_keys():
        seen: set[str | None] = set()
        for record in _records(instance, asset):
            if record.partition_key in seen:
                continue
            seen.add(record.partition_key)
            if not asset_name(namespace, asset) or is_current(record.partition_key):
                needed.add(record.run_id)
                for name, place in _pointers(record):
                    pointed[name].add(place)
    for name, places in pointed.items():
        asset = dg.AssetKey.from_user_string(name)
        needed |= {
            record.run_id
            for record in _newest_at(_records(instance, asset), sorted(places))
            if not asset_name(namespace, asset) or is_current(record.partition_key)
        }
    return needed - {""}


def _known_keys(instance: dg.DagsterInstance, namespace: HomeNamespace) -> Callable[[str | None], bool]:
    """Returns a function that tells whether a key is a partition now. ``None``, of an asset without partitions, always
    is."""
    crawls, targets = {*namespace.crawl_keys(instance)}, {*namespace.target_keys(instance)}
    unpaired_keys = {None, *crawls, *targets, *instance.get_dynamic_partitions(namespace.qualify("source_file"))}

    def is_current(key: str | None) -> bool:
        crawl, of_pair, target = (key or "").partition("|")
        return crawl in crawls and target in targets if of_pair else key in unpaired_keys

    return is_current


def _pointers(record: dg.EventLogRecord) -> list[tuple[str, int]]:
    """Returns the assets that a record was made of, and the position of each one's record in the event log."""
    materialization = record.asset_materialization
    tags = (materialization.tags if materialization is not None else None) or {}
    pointer_tags = (
        (name.removeprefix(_POINTER_TAG), place) for name, place in tags.items() if name.startswith(_POINTER_TAG)
    )
    return [(name, int(place)) for name, place in pointer_tags if place.isdigit()]


def _newest_at(records: Iterable[dg.EventLogRecord], places: Sequence[int]) -> Iterator[dg.EventLogRecord]:
    """Yields the records (given from the newest) that were the newest of their partition at any of ``places`` in the
    event log. Dagster compares the version of an input there with its current version: without that record the input
    would look changed."""
    newer: dict[str | None, int] = {}
    for record in records:
        position = bisect_left(places, record.storage_id)
        newer_position = newer.get(record.partition_key)
        if position < len(places) and (newer_position is None or places[position] < newer_position):
            yield record
        newer[record.partition_key] = record.storage_id


def _records(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Iterator[dg.EventLogRecord]:
    """Yields all materializations of an asset, the newest first."""
    cursor = None
    while True:
        page = instance.fetch_materializations(asset, limit=_RECORDS_PER_QUERY, cursor=cursor)
        yield from page.records
        if not page.has_more:
            return
        cursor = page.cursor


def delete_files(instance: dg.DagsterInstance, run_id: str = "", *, ticks_before: datetime | None = None) -> None:
    """Deletes files that ``delete_run`` leaves: the output of a run, and SQLite's file of its events. ``ticks_before``
    also deletes older logs of ticks on this disk: Dagster deletes the ticks and leaves their logs."""
    folder = Path(instance.root_directory)
    if run_id:
        instance.compute_log_manager.delete_logs(prefix=[run_id])
        # the instance of a command stores no output, but that of a UI in the same home does
        shutil.rmtree(folder / "storage" / run_id, ignore_errors=True)
        for ending in ("db", "db-wal", "db-shm"):
            (folder / "history" / "runs" / f"{run_id}.{ending}").unlink(missing_ok=True)
    if ticks_before is not None:
        for path in (folder / "storage" / "__repository__").rglob("*.*"):
            if path.stat().st_mtime < ticks_before.timestamp():
                path.unlink(missing_ok=True)


def is_trimmed(instance: dg.DagsterInstance) -> bool:
    """Whether the last :func:`trim_run_history` left nothing."""
    return bool(_read_last_trim(instance).get("done"))


def is_recent(instance: dg.DagsterInstance) -> bool:
    """Whether the last :func:`trim_run_history` left nothing, and was less than a day ago."""
    last = _read_last_trim(instance)
    return bool(last.get("done")) and datetime.fromtimestamp(last["at"], UTC) > datetime.now(UTC) - _INTERVAL


def _read_last_trim(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    last_note: Mapping[str, Any] = json.loads(read_notes(instance, [_NOTE]).get(_NOTE, "{}"))
    return last_note


def _old_runs(instance: dg.DagsterInstance, ended_before: datetime, failed_before: datetime) -> list[dg.DagsterRun]:
    """Returns the runs that ended before these times, the oldest first."""
    filters = (
        dg.RunsFilter(statuses=list(_SUCCESSFUL), updated_before=ended_before),
        dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_before=failed_before),
    )
    return [
        record.dagster_run
        for run_filter in filters
        for record in instance.get_run_records(run_filter, order_by="update_timestamp", ascending=True)
    ]


def forget_old_runs(context: dg.OpExecutionContext, workspace: Workspace, namespace: HomeNamespace) -> None:
    """Deletes runs that are older than CC_PIPELINE_HISTORY_DAYS."""
    with logged_progress(context.log):
        report = trim_run_history(context.instance, workspace.settings.history_days)
    context.add_output_metadata(
        {"runs deleted": report.runs, "old runs kept, with the newest record of something": report.kept_runs}
    )
    if not report.is_complete:
        context.log.info("not all old runs were deleted in the time of one run: the next run deletes the others")
