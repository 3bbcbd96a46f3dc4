"""Asset checks in Dagster (``checks/check.py``): a step evaluates those of the partitions that it made, and the job
``check_everything`` all of them over the whole lake."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import dagster as dg

from cc_pipeline.checks.check import Check
from cc_pipeline.checks.evaluate import find_checks
from cc_pipeline.checks.scope import CheckResult, Scope
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.metadata import escape_markdown
from cc_pipeline.defs.partitions import split_key
from cc_pipeline.defs.recording import describe_error, event_partition
from cc_pipeline.extraction.slice_selection import find_part_slices
from cc_pipeline.lake.slice import Slice
from cc_pipeline.workspace.workspace import Workspace

#: The partition definition of the checks over each unit (``HomeNamespace``).
_PARTITIONS: Final = {"partition": "pairs", "crawl": "crawl"}
_ADVICE: Final = "Fix what the reason names, then materialize this partition again"


def checks_of(assets: Collection[str]) -> list[Check]:
    """Returns the checks of some assets."""
    return [check for check in find_checks() if check.asset in assets]


def make_specs(namespace: HomeNamespace, assets: Collection[str]) -> list[dg.AssetCheckSpec]:
    """Returns the specs of the checks of some assets, for the step that makes them."""
    with warnings.catch_warnings():
        # partitioned checks are a preview; tests cover them
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(
                check.name,
                asset=namespace.key(check.asset),
                description=check.description,
                blocking=check.blocking,
                partitions_def=getattr(namespace, _PARTITIONS[check.unit]) if check.unit in _PARTITIONS else None,
            )
            for check in checks_of(assets)
        ]


def evaluate_partitions(
    namespace: HomeNamespace,
    workspace: Workspace,
    log: logging.Logger,
    checks: Iterable[Check],
    made_keys: Collection[str],
    reasons: Mapping[str, str] = {},
) -> Iterator[dg.AssetCheckEvaluation]:
    """Evaluates checks for the partitions that a step or command has made. ``reasons`` are those of the failed
    partitions, by key."""
    for unit, group in groupby(checks, lambda check: check.unit):
        slices = _find_slices(workspace, unit, made_keys)
        for check in group:
            if check.verdict is None:
                yield from _evaluate_failures(namespace, check, made_keys, reasons)
            elif made_keys or unit == "whole":
                yield from evaluations(namespace, check, judge(workspace, log, check, Scope(slices)), made_keys)


def as_results(evaluations: Iterable[dg.AssetCheckEvaluation]) -> Iterator[dg.AssetCheckResult]:
    """Yields evaluations as results, for a step of one partition, or of none, that has an output for each check."""
    for evaluation in evaluations:
        yield dg.AssetCheckResult(
            passed=evaluation.passed,
            asset_key=evaluation.asset_key,
            check_name=evaluation.check_name,
            metadata=evaluation.metadata,
            severity=evaluation.severity,
            description=evaluation.description,
        )


def evaluate_everything(
    namespace: HomeNamespace, workspace: Workspace, log: logging.Logger
) -> Iterator[dg.AssetCheckEvaluation]:
    """Evaluates all checks over the whole lake. A check over partitions has an evaluation for each wrong one."""
    for check in find_checks():
        if check.verdict is not None:
            result = judge(workspace, log, check, Scope())
            yield from evaluations(namespace, check, result, result.wrong)


def judge(workspace: Workspace, log: logging.Logger, check: Check, scope: Scope) -> CheckResult:
    """Returns the result of a check; one that raises has failed: its partitions are made, and stay so."""
    assert check.verdict is not None
    try:
        return check.verdict(workspace, scope)
    except Exception as error:
        log.error(f"the check {check.name} failed with an error", exc_info=error)
        reason = f"the check failed with an error, so its result is not known: {describe_error(error)}"
        return CheckResult(check.name, "error", reason)


def evaluations(
    namespace: HomeNamespace, check: Check, result: CheckResult, keys: Collection[str]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yields the result of a check as Dagster records it: one evaluation for each partition of ``keys``, or a single
    one for a check that is not over partitions."""
    if check.unit not in _PARTITIONS:
        yield _evaluation(namespace, check, result)
        return
    # a check that fails and names no partition is about all of them
    wrong = {*result.wrong} if result.wrong else set(keys if not result.passed else ())
    right = CheckResult(check.name, "ok", result.message if result.passed else "ok")
    for key in keys:
        yield _evaluation(
            namespace, check, result if key in wrong or (result.passed and len(keys) == 1) else right, key
        )


def _evaluate_failures(
    namespace: HomeNamespace, check: Check, made_keys: Collection[str], reasons: Mapping[str, str]
) -> Iterator[dg.AssetCheckEvaluation]:
    for key in made_keys:
        yield _evaluation(namespace, check, CheckResult(check.name, "ok", "made"), key)
    for key, reason in reasons.items():
        problem, _, advice = reason.partition("\n")
        yield _evaluation(namespace, check, CheckResult(check.name, "warn", problem, advice=advice or _ADVICE), key)


def _evaluation(
    namespace: HomeNamespace, check: Check, result: CheckResult, key: str | None = None
) -> dg.AssetCheckEvaluation:
    severity = dg.AssetCheckSeverity.ERROR if result.severity == "error" else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckEvaluation(
        asset_key=namespace.key(check.asset),
        check_name=check.name,
        passed=result.passed,
        severity=severity,
        description=escape_markdown("\n".join(filter(None, (result.message, str(result.advice))))),
        metadata=dict(result.metrics),
        blocking=check.blocking,
        partition=event_partition(key)[0] if key is not None else None,
    )


def _find_slices(workspace: Workspace, unit: str, keys: Collection[str]) -> Sequence[Slice] | None:
    """Returns the slices of partitions; ``None`` for a check that is not over partitions."""
    if unit == "partition":
        return find_part_slices(workspace, [Slice(*split_key(key)) for key in keys])
    return [Slice(crawl) for crawl in keys] if unit == "crawl" else None
