"""Asset checks: what the tables promise, reported beside the assets. They never block; commits enforce what must hold.

A check in a run over partitions looks at these alone, so it costs what they hold. The job ``check_everything`` looks at
the whole lake. Belongs here: turning verdicts into Dagster results. Not here: how a verdict is reached
(stages/reports/checks).
"""

from collections.abc import Iterable

import dagster as dg

from cc_pipeline.defs.partitions import KEYS_TAG, between, range_of, run_partitions
from cc_pipeline.index.catalog.checks import CheckResult
from cc_pipeline.stages.reports.checks import (
    index_complete_verdict,
    index_verdicts,
    ledger_verdict,
    locators_verdict,
    shortfall_verdict,
    stored_verdict,
)
from cc_pipeline.stages.sets.set_parts import part_slices
from cc_pipeline.stages.slice import Slice
from cc_pipeline.stages.workspace import Workspace


def _result(check: str, asset: str, verdicts: Iterable[CheckResult]) -> dg.AssetCheckResult:
    found = list(verdicts)
    worst = max(found, key=lambda verdict: ("ok", "warn", "error").index(verdict.severity), default=None)
    severity = dg.AssetCheckSeverity.ERROR if worst and worst.severity == "error" else dg.AssetCheckSeverity.WARN
    figures = {name: value for verdict in found for name, value in verdict.figures.items()} if len(found) == 1 else {}
    return dg.AssetCheckResult(
        passed=all(verdict.passed for verdict in found),
        check_name=check,
        asset_key=asset,
        severity=severity,
        description="\n".join(dict.fromkeys(verdict.message for verdict in found)) or "nothing to check",
        metadata=dict(figures),
    )


def _slices(context: dg.AssetCheckExecutionContext, workspace: Workspace) -> list[Slice] | None:
    """The slices of the partitions (crawl × domain) of the run; ``None`` for a run without any, which is about all."""
    instance = context.instance
    if KEYS_TAG not in context.run.tags and not any(range_of(context.run.tags)):
        return None
    crawls, domains = instance.get_dynamic_partitions("crawl"), instance.get_dynamic_partitions("domain")
    return part_slices(workspace, [Slice(*pair) for pair in run_partitions(context.run.tags, crawls, domains)])


def _crawls(context: dg.AssetCheckExecutionContext) -> list[str] | None:
    """The same for a run over crawls."""
    first, last = range_of(context.run.tags)
    if not first:
        return None
    ordered = context.instance.get_dynamic_partitions("crawl")
    return list(between(ordered, first, last))


_INDEX_CHECKS = {
    "coverage": "All index files of the path list are harvested.",
    "row_counts": "The row groups of a file have as many rows together as its footer says.",
    "plausible_rows": "A whole crawl has a number of rows like the other published crawls.",
    "statistics": "Every row group has key bounds.",
    "sortedness": "The key ranges of a file's row groups do not overlap.",
    "schema_drift": "Index files have the columns of the crawl before; every change is named.",
}


@dg.multi_asset_check(
    specs=[dg.AssetCheckSpec(name, asset="row_groups", description=text) for name, text in _INDEX_CHECKS.items()]
)
def index_checks(
    context: dg.AssetCheckExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> Iterable[dg.AssetCheckResult]:
    """Every check of the catalog over the crawls of the run."""
    verdicts = index_verdicts(workspace, _crawls(context))
    for name in _INDEX_CHECKS:
        yield _result(name, "row_groups", [verdict for verdict in verdicts if verdict.name == name])


@dg.asset_check(asset="records", description="In every partition: planned captures = fetched + quarantined + missing.")
def ledger_balances(
    context: dg.AssetCheckExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> dg.AssetCheckResult:
    """Counts captures and records of every partition of the run."""
    return _result("ledger_balances", "records", [ledger_verdict(workspace, _slices(context, workspace))])


@dg.asset_check(asset="records", description="The files of stored records are there, as long as their rows need them.")
def stored_files(context: dg.AssetCheckExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.AssetCheckResult:
    """Looks at each stored file once; in a run over everything, at one listing of each crawl's."""
    return _result("stored_files", "records", [stored_verdict(workspace, _slices(context, workspace))])


@dg.asset_check(asset="records", description="Every planned capture is here, or missing by name and for good.")
def nothing_missing(workspace: dg.ResourceParam[Workspace]) -> dg.AssetCheckResult:
    """Adds up what is not here, by whether asking again may bring it."""
    return _result("nothing_missing", "records", [shortfall_verdict(workspace.lake)])


@dg.asset_check(asset="captures", description="A second index has the same captures in a sample of partitions.")
def locators_agree(
    context: dg.AssetCheckExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> dg.AssetCheckResult:
    """Looks a few located partitions up again through another index."""
    return _result("locators_agree", "captures", [locators_verdict(workspace, _slices(context, workspace))])


@dg.asset_check(asset="captures", description="No partition lacks captures because index files could not be read.")
def index_complete(workspace: dg.ResourceParam[Workspace]) -> dg.AssetCheckResult:
    """Names the partitions that were located over holes in their index."""
    return _result("index_complete", "captures", [index_complete_verdict(workspace)])
