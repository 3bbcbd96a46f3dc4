"""The upkeep job: compaction and deletion of superseded files. Its schedule ships stopped.

Belongs here: when upkeep runs. Not here: what is old (extraction/stage_upkeep).
"""

import dagster as dg

from cc_pipeline.defs.resources import Pipeline
from cc_pipeline.extraction.stage_upkeep import keep_up


@dg.op(pool="warehouse")
def tidy_tables(context: dg.OpExecutionContext, pipeline: Pipeline) -> None:
    """Merges small files, publishes what results, and deletes files no reader can still need."""
    report = keep_up(pipeline.workspace())
    context.add_output_metadata(
        {
            "files merged": sum(report.merged.values()),
            "files deleted": sum(report.deleted.values()),
            "scratch folders deleted": report.scratch_folders,
        }
    )


@dg.job(description="Merges small files of the tables, publishes, and deletes superseded files after a week.")
def upkeep() -> None:
    """One op: the order of its steps matters."""
    tidy_tables()


weekly_upkeep = dg.ScheduleDefinition(
    name="weekly_upkeep",
    job=upkeep,
    cron_schedule="0 4 * * 0",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Runs upkeep every Sunday.",
)
