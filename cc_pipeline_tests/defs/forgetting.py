"""Deleting history in a run, as the schedule does, on some day to come."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from cc_pipeline.defs.history import TrimReport, trim_run_history

#: How long runs are kept here.
DAYS = 30
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def forgotten(instance: dg.DagsterInstance, days_later: float = 100, **options: float) -> TrimReport:
    """What :func:`trim_run_history` says in a run, so many days from now."""
    said: list[TrimReport] = []

    @dg.op
    def forgets(context: dg.OpExecutionContext) -> None:
        said.append(
            trim_run_history(context.instance, DAYS, now=datetime.now(UTC) + timedelta(days=days_later), **options)
        )

    @dg.job
    def forgetting() -> None:
        forgets()

    forgetting.execute_in_process(instance=instance, run_config=QUIET)
    return said[0]
