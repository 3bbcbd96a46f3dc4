"""Deletes Dagster's old runs; the states of their partitions are recorded again from the lake."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import dagster as dg

from cc_pipeline import progress
from cc_pipeline.defs.home_namespace import TABLES, HomeNamespace
from cc_pipeline.defs.lake_records import SOURCE_TABLES, restore_records
from cc_pipeline.defs.recording import logged_progress
from cc_pipeline.workspace.workspace import Workspace

#: The age at which the logs of sensors and schedules are deleted.
_TICK_LOG_AGE: Final = timedelta(days=5)
#: The assets whose records come back from the lake. A run that made another one is kept.
_RESTORED: Final = frozenset(
    {"crawls", "index_manifest", "index_footers", "row_groups", "site_policies", "warehouse", *TABLES, *SOURCE_TABLES}
)


@dataclass(frozen=True, slots=True)
class TrimReport:
    """Numbers of deleted ``runs``, and of partitions that were ``restored``: recorded again."""

    runs: int
    restored: int


def trim_history(
    instance: dg.DagsterInstance, workspace: Workspace, namespace: HomeNamespace, *, now: datetime | None = None
) -> TrimReport:
    """Deletes runs that ended more than ``CC_PIPELINE_HISTORY_DAYS`` ago (failed ones twice as long) with their events
    and output, and records again what only they had recorded.

    SQLite gives the id of a deleted event to the next one if it was the highest, and cursors rely on ids: an event has
    to be newer than the deleted runs, such as the start of the run that calls this.
    """
    now = now or datetime.now(UTC)
    runs, deleted = 0, set[tuple[dg.AssetKey, str]]()
    for run in list(_old_runs(instance, timedelta(days=workspace.settings.history_days), now)):
        if _can_be_restored(run):
            progress.report("old runs", runs, None)
            deleted |= _find_recorded(instance, run.run_id)
            instance.delete_run(run.run_id)
            _delete_files(instance, run.run_id)
            runs += 1
    _delete_tick_logs(instance, now - _TICK_LOG_AGE)
    return TrimReport(runs, restore_records(instance, workspace, namespace, deleted))


def _find_recorded(instance: dg.DagsterInstance, run_id: str) -> set[tuple[dg.AssetKey, str]]:
    """Returns the partitions that a run recorded, by asset."""
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    events = [entry.dagster_event for entry in entries]
    return {(event.asset_key, event.partition) for event in events if event and event.asset_key and event.partition}


def _old_runs(instance: dg.DagsterInstance, age: timedelta, now: datetime) -> Iterator[dg.DagsterRun]:
    ages = {dg.DagsterRunStatus.SUCCESS: age, dg.DagsterRunStatus.CANCELED: age, dg.DagsterRunStatus.FAILURE: 2 * age}
    for status, days in ages.items():
        yield from instance.get_runs(dg.RunsFilter(statuses=[status], updated_before=now - days))


def _can_be_restored(run: dg.DagsterRun) -> bool:
    return all(key.path[-1] in _RESTORED for key in run.asset_selection or ())


def _delete_files(instance: dg.DagsterInstance, run_id: str) -> None:
    """Deletes files that ``delete_run`` leaves: the output of a run, and SQLite's file of its events."""
    folder = Path(instance.root_directory)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    shutil.rmtree(folder / "storage" / run_id, ignore_errors=True)
    for ending in ("db", "db-wal", "db-shm"):
        (folder / "history" / "runs" / f"{run_id}.{ending}").unlink(missing_ok=True)


def _delete_tick_logs(instance: dg.DagsterInstance, oldest: datetime) -> None:
    """Deletes the logs of old ticks on this disk: Dagster deletes the ticks and leaves their logs."""
    for path in (Path(instance.root_directory) / "storage" / "__repository__").rglob("*.*"):
        if path.stat().st_mtime < oldest.timestamp():
            path.unlink(missing_ok=True)


def job(namespace: HomeNamespace) -> dg.JobDefinition:
    """Returns the job that deletes old runs of the whole instance, so only the single home of an instance has it."""

    @dg.op(pool="history", required_resource_keys={namespace.resource})
    def forget_old_runs(context: dg.OpExecutionContext) -> None:
        with logged_progress(context.log):
            report = trim_history(context.instance, namespace.workspace(context), namespace)
        context.add_output_metadata({"runs deleted": report.runs, "partitions recorded again": report.restored})

    @dg.job(name="trim_history")
    def trim() -> None:
        """Deletes Dagster's runs older than CC_PIPELINE_HISTORY_DAYS; the states of partitions are kept. For the
        schedule history."""
        forget_old_runs()

    return trim
