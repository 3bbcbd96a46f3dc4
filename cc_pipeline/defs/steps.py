"""What the steps over partitions share: a step without outputs records its partitions one by one, evaluates their
checks, and hands on to the steps of the same run that depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import dagster as dg

from cc_pipeline.defs.checks import checks_of, evaluate_partitions
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.partitions import read_run_keys
from cc_pipeline.defs.recording import Events, PartitionLog, logged_progress, materialization

StepEvents: TypeAlias = Iterator[
    dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.MaterializeResult[None] | dg.AssetCheckResult
]


def run_step(
    context: dg.AssetExecutionContext,
    namespace: HomeNamespace,
    assets: Sequence[str],
    make: Callable[[PartitionLog, list[str]], Events],
) -> StepEvents:
    """Calls ``make`` with the partitions of the run: it yields their records, and notes their failures in the log.
    Then evaluates the selected checks of ``assets``.

    Raises ``dg.Failure`` if partitions failed, after all others were made.
    """
    log, keys = PartitionLog(namespace, context.log), read_run_keys(context)
    selected = [asset for asset in assets if namespace.key(asset) in context.selected_asset_keys]
    if selected:
        with logged_progress(context.log):
            yield from make(log, keys)
    else:  # a person executes checks alone
        log.described.update((key, {}) for key in keys)
    names = {key.name for key in context.selected_asset_check_keys}
    checks = [check for check in checks_of(assets) if check.name in names]
    workspace = namespace.workspace(context)
    evaluations = list(evaluate_partitions(namespace, workspace, context.log, checks, log.made_keys, log.reasons))
    yield from evaluations
    log.raise_failures()
    if has_dependents(context):
        for asset in selected:
            yield from _hand_on(context, log, asset)
        for check in (check for check in checks if check.blocking):
            passed = all(evaluation.passed for evaluation in evaluations if evaluation.check_name == check.name)
            yield dg.AssetCheckResult(asset_key=namespace.key(check.asset), check_name=check.name, passed=passed)


def has_dependents(context: dg.AssetExecutionContext) -> bool:
    """Whether other steps of the run depend on this one. Dagster would skip them, since it has no outputs."""
    inputs = [dependency for inputs in context.job_def.dependencies.values() for dependency in inputs.values()]
    return any(node.node == context.op_def.name for dependency in inputs for node in dependency.get_node_dependencies())


def _hand_on(context: dg.AssetExecutionContext, log: PartitionLog, asset: str) -> StepEvents:
    """Yields an output, on which the next steps of the run wait. It records every partition of the run once more, so it
    comes only if all of them were made; and with one version, so partitions with several are recorded again."""
    key, described = log.namespace.key(asset), {name: description[asset] for name, description in log.described.items()}
    versions = {version for _, version in described.values()}
    version: Any = versions.pop() if len(versions) == 1 else None
    for name, (metadata, _) in described.items():
        context.add_asset_metadata(dict(metadata), key, partition_key=name)
    yield dg.MaterializeResult(asset_key=key, data_version=None if version is None else dg.DataVersion(version))
    if versions:
        yield from (materialization(key, name, *description) for name, description in described.items())
