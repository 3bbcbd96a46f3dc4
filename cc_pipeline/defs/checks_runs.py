"""The standing check of runs: which partitions were left failed.

Belongs here: what only the instance knows. Not here: checks of tables (checks).
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import dagster as dg

from cc_pipeline.defs.automation.flight import REMEMBERED, Failed, Pair, flight, left_failed
from cc_pipeline.defs.partitions import partition_key
from cc_pipeline.stages.automation.due import MOST_FAILURES

#: Partitions that the check names.
_SHOWN = 50
_MINUTE = "%Y-%m-%d %H:%M"


# on what is made seldom: a check of a table would be a step of every run over its partitions
@dg.asset_check(
    asset="warehouse",
    name="partitions_left_failed",
    description="No partition failed in the last week and was not made since, whoever asked for it.",
)
def partitions_left_failed(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Looks at runs of all jobs and backfills."""
    return verdict(context.instance)


def verdict(instance: dg.DagsterInstance) -> dg.AssetCheckResult:
    """Warns of partitions that failed or were not tried, and will be, and fails for those that were tried often enough.
    Those that are in flight now are being tried."""
    going_on = flight(instance).pairs
    left = {pair: one for pair, one in left_failed(instance).items() if pair not in going_on}
    failed = {pair: one for pair, one in left.items() if one.times}
    waiting = {pair: one for pair, one in left.items() if not one.times}
    untried = len(waiting)
    given_up = [pair for pair, one in failed.items() if one.times >= MOST_FAILURES]
    worst = sorted(failed.items(), key=lambda one: (-one[1].times, one[0]))[:_SHOWN]
    longest = sorted(waiting.items(), key=lambda one: (-one[1].unreached, one[0]))[:_SHOWN]
    return dg.AssetCheckResult(
        passed=not left,
        severity=dg.AssetCheckSeverity.ERROR if given_up else dg.AssetCheckSeverity.WARN,
        description=_said(len(failed), len(given_up), untried),
        metadata={
            "partitions left failed": len(failed),
            "tried often enough": len(given_up),
            "never tried": untried,
            **({"partitions": _table((pair, one.times, one) for pair, one in worst)} if failed else {}),
            **({"not tried": _table((pair, one.unreached, one) for pair, one in longest)} if waiting else {}),
            "looked at": f"{datetime.now(UTC):{_MINUTE}} UTC",
        },
    )


def _table(rows: Iterable[tuple[Pair, int, Failed]]) -> dg.MarkdownMetadataValue:
    cells = (
        (partition_key(*pair), times, f"{one.since:{_MINUTE}}", f"{one.last:{_MINUTE}}", one.run_id)
        for pair, times, one in rows
    )
    lines = "\n".join(f"| {' | '.join(map(str, row))} |" for row in cells)
    return dg.MetadataValue.md(f"| partition | times | first | last | run |\n|---|---|---|---|---|\n{lines}")


def _said(failed: int, given_up: int, untried: int) -> str:
    words = f"{failed:,} partitions failed and were not made since"
    if not failed:
        words = f"no partition failed in {REMEMBERED.days} days without being made since"
    if given_up:
        words += (
            f"; {given_up:,} of them failed {MOST_FAILURES} times in a row, so the schedule leaves them alone: see why "
            "in their runs, and run them by hand"
        )
    if untried:
        words += (
            f"; {untried:,} others were never tried, since their runs ended early: the schedule asks for them again"
        )
    return words
