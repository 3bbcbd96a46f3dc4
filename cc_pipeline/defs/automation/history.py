"""History has an end: runs that ended long ago go, and what they say of the partitions that are there stays.

A run goes in an order in which a kill at any point leaves nothing wrong: what is newest in it becomes a record of no
run (it says the same, with the same place in the event log), then all else of it goes, its own row last. What a later
run supersedes of such records goes the next time.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import dagster as dg

from cc_pipeline import progress
from cc_pipeline.defs.automation.flight import UNFINISHED
from cc_pipeline.defs.internals import note, noted, open_backfill_ids
from cc_pipeline.defs.internals_history import (
    delete_backfills,
    delete_run,
    delete_superseded,
    delete_ticks,
    give_back,
    pointers,
    take_out_what_counts,
)
from cc_pipeline.defs.metadata import GROUP
from cc_pipeline.defs.partition_runs import logged_progress
from cc_pipeline.defs.placement import Placement
from cc_pipeline.defs.run_notes import delete_strays
from cc_pipeline.workspace.workspace import Workspace

#: Seconds after which a run that deletes begins no further step; the next tick goes on.
_SECONDS: Final = 600.0
#: Runs that are deleted together.
_RUNS_AT_ONCE: Final = 10
_EVERY: Final = timedelta(hours=23)
#: What sensors and schedules log stays for so long: Dagster deletes ticks after a week, and forgets their logs.
_LOGS_OF_TICKS: Final = timedelta(days=5)
#: A list that no run names is deleted when it was so for as long: the run may be about to be made.
_STRAY: Final = timedelta(hours=1)
#: What was done when: ``at`` (seconds since the epoch), whether all was ``done``, and ``strays``.
_NOTE: Final = "cc_pipeline/history"
_WELL: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED)
_BACKFILL_TAG: Final = "dagster/backfill"
#: Metadata that stays with a partition, in a line each, and how long a text of it may be.
_PLAIN: Final = (dg.IntMetadataValue, dg.FloatMetadataValue, dg.TextMetadataValue, dg.BoolMetadataValue)
_SHORT: Final = 200
#: Names of metadata that mean something to Dagster.
_DAGSTERS: Final = "dagster/"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Runs that were deleted, the records of theirs that stayed, superseded records and backfills that were deleted,
    and bytes that the disk got back. ``done`` is whether nothing is left to delete."""

    runs: int
    kept: int
    superseded: int
    backfills: int
    freed: int
    done: bool


def forget(
    instance: dg.DagsterInstance, days: int, *, now: datetime | None = None, seconds: float = _SECONDS
) -> Forgotten:
    """Deletes runs that ended more than ``days`` ago (failed ones twice as long) with their events, logs and notes;
    ticks and backfills of that age; records that newer ones superseded.

    To be called in a run (see ``internals_history``). After ``seconds`` it leaves the other runs to the next call.
    """
    now = now or datetime.now(UTC)
    before = now - timedelta(days=days)
    old = _old(before, now - 2 * timedelta(days=days))
    last = _last(instance)
    logs_since = datetime.fromtimestamp(last["at"], UTC) - _LOGS_OF_TICKS if last else None
    delete_ticks(instance, before, (logs_since, now - _LOGS_OF_TICKS))
    backfills = delete_backfills(instance, before)

    pointed = pointers(instance)
    runs = kept = 0
    total = sum(instance.get_runs_count(each) for each in old)
    held: set[str] = set()
    busy = open_backfill_ids(instance)
    done = False
    # from here: each call deletes some runs, however long the rest took
    until = time.monotonic() + seconds
    while not done and time.monotonic() < until:
        progress.report("old runs", runs, total, "")
        oldest = _oldest(instance, old, _RUNS_AT_ONCE + len(held))
        found = [run for run in oldest if run.run_id not in held]
        done = not found
        held |= {run.run_id for run in found if run.tags.get(_BACKFILL_TAG) in busy}
        some = [run for run in found if run.run_id not in held]
        kept += take_out_what_counts(instance, [run.run_id for run in some], pointed, shortened)
        for run in some:
            delete_run(instance, run)
        runs += len(some)
    superseded = delete_superseded(instance, before, pointed)
    strays = delete_strays(instance, last.get("strays", {}), (now - _STRAY).timestamp(), now.timestamp())
    # measuring what is free reads whole tables
    alone = bool(runs or superseded) and instance.get_runs_count(dg.RunsFilter(statuses=list(UNFINISHED))) <= 1
    freed = give_back(instance, alone=alone)
    note(instance, {_NOTE: json.dumps({"at": now.timestamp(), "done": done, "strays": strays})})
    return Forgotten(runs, kept, superseded, backfills, freed, done)


def is_trimmed(instance: dg.DagsterInstance) -> bool:
    """Whether the last :func:`forget` left nothing."""
    return bool(_last(instance).get("done"))


def _last(instance: dg.DagsterInstance) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(noted(instance, [_NOTE]).get(_NOTE, "{}"))
    return found


def _old(before: datetime, failed_before: datetime) -> list[dg.RunsFilter]:
    return [
        dg.RunsFilter(statuses=list(_WELL), updated_before=before),
        dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_before=failed_before),
    ]


def _oldest(instance: dg.DagsterInstance, old: Sequence[dg.RunsFilter], most: int) -> list[dg.DagsterRun]:
    return [
        record.dagster_run
        for each in old
        for record in instance.get_run_records(each, limit=most, order_by="update_timestamp", ascending=True)
    ]


def shortened(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, dg.MetadataValue]:
    """What stays of a partition's metadata: its row count and plain figures that are not 0, without previews, pictures,
    and what a group of partitions cost."""
    return {
        name: value
        for name, value in metadata.items()
        if name.startswith(_DAGSTERS) or (value.value and not name.startswith(GROUP))
        if isinstance(value, _PLAIN) and len(str(value.value)) <= _SHORT
    }


def forget_old_runs(context: dg.OpExecutionContext, workspace: Workspace, at: Placement) -> None:
    """Deletes runs, ticks and backfills that are older than CC_PIPELINE_HISTORY_DAYS."""
    with logged_progress(context.log):
        report = forget(context.instance, workspace.settings.history_days)
    context.add_output_metadata(
        {
            "runs deleted": report.runs,
            "records of partitions kept": report.kept,
            "superseded records deleted": report.superseded,
            "backfills deleted": report.backfills,
            "bytes given back": report.freed,
        }
    )
    if not report.done:
        context.log.info("more is left: the next run goes on")


def history(context: dg.ScheduleEvaluationContext, at: Placement) -> dg.RunRequest | dg.SkipReason:
    """One tick: asks for a run when the last one was a day ago, or left something."""
    instance = context.instance
    if instance.get_runs(dg.RunsFilter(job_name=at.of("trim_history"), statuses=list(UNFINISHED)), limit=1):
        return dg.SkipReason("old runs are being deleted")
    last = _last(instance)
    if last.get("done") and datetime.fromtimestamp(last["at"], UTC) > datetime.now(UTC) - _EVERY:
        return dg.SkipReason("old runs were deleted less than a day ago")
    return dg.RunRequest()
