"""What two checks say of partitions that were left failed: they ask the instance, and not the lake."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg

from cc_pipeline.automation.due import MOST_FAILURES
from cc_pipeline.checks.scope import some
from cc_pipeline.checks.verdict import CheckResult
from cc_pipeline.defs.automation.flight import REMEMBERED, Failed, flight, left_failed
from cc_pipeline.defs.metadata import as_table
from cc_pipeline.defs.partitions import partition_key
from cc_pipeline.defs.placement import OURS, Placement
from cc_pipeline.defs.run_notes import Pair

#: Partitions that the check names.
_SHOWN = 50
_MINUTE = "%Y-%m-%d %H:%M"


def none_left_failed(
    instance: dg.DagsterInstance, at: Placement, run_id: str, failing: Collection[str] = ()
) -> CheckResult:
    """Warns of partitions that failed in whoever's run; those ``failing`` (keys) do it now, in the run ``run_id``."""
    name = "none_left_failed"
    failed = {pair: one for pair, one in left_failed(instance, at).items() if one.times}
    for key in failing:
        _add(failed, key, run_id)
    if not failed:
        return CheckResult(name, "ok", "no partition was left failed")
    keys = ["|".join(pair) for pair in failed]
    worst = max(failed.values(), key=lambda one: one.times)
    message = (
        f"{len(keys):,} partitions failed and were not made since ({some(keys)}), one of them {worst.times:,} times, "
        f"last in the run {worst.run_id}. Look at its error, then materialize them again"
    )
    return CheckResult(name, "warn", message, {"partitions": len(keys)})


def _add(failed: dict[Pair, Failed], key: str, run_id: str) -> None:
    """The run that fails now is not yet among those that have."""
    crawl, found, domain = key.partition("|")
    if found:
        now = datetime.now(UTC)
        before = failed.get((crawl, domain), Failed(0, now, now, run_id))
        failed[crawl, domain] = replace(before, times=before.times + 1, last=now, run_id=run_id)


def left_failed_result(instance: dg.DagsterInstance, at: Placement = OURS) -> dg.AssetCheckResult:
    """Warns of partitions that failed or were not tried, and will be, and fails for those that were tried often enough.
    Those that are in flight now are being tried."""
    going_on = flight(instance, at).pairs
    left = {pair: one for pair, one in left_failed(instance, at).items() if pair not in going_on}
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
            **({"partitions": _partitions((pair, one.times, one) for pair, one in worst)} if failed else {}),
            **({"not tried": _partitions((pair, one.unreached, one) for pair, one in longest)} if waiting else {}),
            "looked at": f"{datetime.now(UTC):{_MINUTE}} UTC",
        },
    )


def _partitions(rows: Iterable[tuple[Pair, int, Failed]]) -> dg.MetadataValue:
    cells = (
        (partition_key(*pair), times, f"{one.since:{_MINUTE}}", f"{one.last:{_MINUTE}}", one.run_id)
        for pair, times, one in rows
    )
    return as_table(["partition", "times", "first", "last", "run"], cells)


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
