"""The sensors and schedules. They ship stopped, unless whoever places the home has chosen otherwise. What they do in a
tick is in ``defs/automation/``."""

from typing import Final

from cc_pipeline.defs.declarations import Schedule, Sensor

SIX_HOURS: Final = 6 * 3600
_TICKS: Final = "cc_pipeline.defs.automation"

SENSORS: Final = (
    Sensor(
        function=f"{_TICKS}.sensors.new_crawls",
        job="harvest_crawl",
        seconds=SIX_HOURS,
        description="Registers crawls as partitions and harvests those of CC_PIPELINE_CRAWLS once they are published.",
    ),
    Sensor(
        function=f"{_TICKS}.sensors.watch_list",
        seconds=60,
        description="Makes the targets of domains.txt partitions. The schedule backfill_missing extracts them.",
    ),
    Sensor(
        function=f"{_TICKS}.sensors.path_lists",
        job="harvest_crawl",
        seconds=86_400,
        description="Harvests the newest crawls again when their path lists name other files than when they were read.",
    ),
    Sensor(
        function=f"{_TICKS}.sensors.source_breaker",
        seconds=300,
        description="Says when the source refuses so often that no request is sent to it; the backfill waits "
        "meanwhile.",
    ),
    Sensor(
        function=f"{_TICKS}.sensors.publication",
        job="publish",
        seconds=60,
        description="Publishes cc.duckdb when it is behind: CC_PIPELINE_PUBLISH_EVERY minutes at most, or when all "
        "ended.",
    ),
    Sensor(
        function=f"{_TICKS}.sensors.failed_runs",
        seconds=60,
        description="Says in the log, and to CC_PIPELINE_WEBHOOK, which run failed and why; once for each run.",
        is_of_failed_runs=True,
    ),
)

SCHEDULES: Final = (
    Schedule(
        name="backfill_missing",
        job="extract_targets",
        cron="*/30 * * * *",
        description="Extracts watched targets from the chosen crawls where they are missing, an hour of work at a "
        "time.",
        function=f"{_TICKS}.schedules.backfill_missing",
    ),
    Schedule(
        name="weekly_checks",
        job="check_everything",
        cron="0 5 * * 0",
        description="Checks the whole lake every Sunday, after upkeep.",
    ),
    Schedule(name="weekly_upkeep", job="upkeep", cron="0 4 * * 0", description="Runs upkeep every Sunday."),
)
#: Of the job ``trim_history``, which only a home with an instance for itself has.
HISTORY: Final = Schedule(
    name="history",
    job="trim_history",
    cron="20 * * * *",
    description="Once a day deletes runs older than CC_PIPELINE_HISTORY_DAYS, ten minutes at a time.",
    function=f"{_TICKS}.history.history",
)
