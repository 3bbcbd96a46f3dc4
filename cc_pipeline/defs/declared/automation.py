"""The sensors and schedules. They ship stopped, unless whoever places the home has chosen otherwise. What they do in a
tick is in ``defs/automation/``."""

from collections.abc import Mapping
from typing import Any, Final

import dagster as dg

from cc_pipeline.defs.declared.bodies import later
from cc_pipeline.defs.placement import Placement

SIX_HOURS: Final = 6 * 3600


def sensors(at: Placement, jobs: Mapping[str, Any], assets: dg.AssetSelection) -> list[dg.SensorDefinition]:
    """All sensors of a home."""
    status = dg.DefaultSensorStatus.RUNNING if at.automation else dg.DefaultSensorStatus.STOPPED

    def sensor(place: str, job: str | None, seconds: int, description: str) -> dg.SensorDefinition:
        call = later(f"defs.automation.{place}")
        made: dg.SensorDefinition = dg.sensor(
            name=at.of(place.rpartition(".")[2]),
            job=jobs[job] if job is not None else None,
            minimum_interval_seconds=seconds,
            default_status=status,
            description=description,
            required_resource_keys={at.resource},
        )(lambda context, **_: call(context, at.workspace(context), at))
        return made

    def failed(context: dg.RunStatusSensorContext, **_: object) -> None:
        # a test gives what Dagster's own decorator would make of it
        found = context.for_run_failure() if not isinstance(context, dg.RunFailureSensorContext) else context
        later("defs.automation.sensors.failed_runs")(found, at.workspace(context), at)

    return [
        sensor(
            "sensors.new_crawls",
            "harvest_crawl",
            SIX_HOURS,
            "Registers crawls as partitions and harvests those of CC_PIPELINE_CRAWLS once they are published.",
        ),
        sensor(
            "sensors.watch_list",
            None,
            60,
            "Makes the targets of domains.txt partitions. The schedule backfill_missing extracts them.",
        ),
        sensor(
            "sensors.path_lists",
            "harvest_crawl",
            86_400,
            "Harvests the newest crawls again when their path lists name other files than when they were read.",
        ),
        sensor(
            "sensors.source_breaker",
            None,
            300,
            "Says when the source refuses so often that no request is sent to it; the backfill waits meanwhile.",
        ),
        sensor(
            "sensors.publication",
            "publish",
            60,
            "Publishes cc.duckdb when it is behind: CC_PIPELINE_PUBLISH_EVERY minutes at most, or when all ended.",
        ),
        dg.RunStatusSensorDefinition(
            at.of("failed_runs"),
            dg.DagsterRunStatus.FAILURE,
            failed,
            minimum_interval_seconds=60,
            description="Says in the log, and to CC_PIPELINE_WEBHOOK, which run failed and why; once for each run.",
            default_status=status,
            required_resource_keys={at.resource},
        ),
        # for assets without partitions, which say themselves when they are due (``crawls``). Over crawl × target such
        # conditions cost seconds a tick, and ask for nothing or for all at once: there the schedule does it
        dg.AutomationConditionSensorDefinition(
            # Dagster's own name is that of a sensor for all assets that no other has, which ours would replace
            "default_automation_condition_sensor" if at.alone else at.of("conditions"),
            target=assets,
            default_status=status,
            minimum_interval_seconds=300,
        ),
    ]


def schedules(at: Placement, jobs: Mapping[str, Any]) -> list[dg.ScheduleDefinition]:
    """All schedules of a home, but for that of the instance's history."""
    status = dg.DefaultScheduleStatus.RUNNING if at.automation else dg.DefaultScheduleStatus.STOPPED
    # who calls a sensor or a schedule by itself gives it its resources a second time
    call = later("defs.automation.schedules.backfill_missing")

    @dg.schedule(
        name=at.of("backfill_missing"),
        job=jobs["extract_targets"],
        cron_schedule="*/30 * * * *",
        default_status=status,
        description="Extracts watched targets from the chosen crawls where they are missing, an hour of work at "
        "a time.",
        required_resource_keys={at.resource},
    )
    def backfill_missing(context: dg.ScheduleEvaluationContext, **_: object) -> Any:
        return call(context, at.workspace(context), at)

    return [
        backfill_missing,
        dg.ScheduleDefinition(
            name=at.of("weekly_checks"),
            job=jobs["check_everything"],
            cron_schedule="0 5 * * 0",
            default_status=status,
            description="Checks the whole lake every Sunday, after upkeep.",
        ),
        dg.ScheduleDefinition(
            name=at.of("weekly_upkeep"),
            job=jobs["upkeep"],
            cron_schedule="0 4 * * 0",
            default_status=status,
            description="Runs upkeep every Sunday.",
        ),
    ]


def history(at: Placement, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """The schedule that deletes old runs of the whole instance."""

    @dg.schedule(
        name=at.of("history"),
        job=job,
        cron_schedule="20 * * * *",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Once a day deletes runs older than CC_PIPELINE_HISTORY_DAYS, ten minutes at a time.",
    )
    def history(context: dg.ScheduleEvaluationContext) -> Any:
        return later("defs.automation.history.history")(context, at)

    return history
