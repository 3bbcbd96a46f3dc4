"""The steps that evaluate checks, one for several checks. This module is loaded with the definitions of a home; the
evaluation is in ``check_runs.py``."""

from collections.abc import Iterable, Sequence
from typing import Final

import dagster as dg

from cc_pipeline.checks.check import Check
from cc_pipeline.defs.declared.late_loading import load_later
from cc_pipeline.defs.home_namespace import HomeNamespace

#: The name of the check that reads failed partitions from the instance.
LEFT_FAILED: Final = "no_failed_partitions"


def check_steps(namespace: HomeNamespace, checks: Iterable[Check]) -> list[dg.AssetChecksDefinition]:
    """Returns all checks of a home, with one step for several: each step of a run costs more than most checks."""
    by_step: dict[str, list[Check]] = {}
    for check in checks:
        by_step.setdefault(check.step, []).append(check)
    return [
        _make_left_failed_check(namespace),
        *(_make_step(namespace, name, group) for name, group in by_step.items()),
    ]


def check_key(namespace: HomeNamespace, check: Check) -> dg.AssetCheckKey:
    """Returns the key of a check in Dagster."""
    return dg.AssetCheckKey(namespace.key(check.asset), check.name)


def _make_left_failed_check(namespace: HomeNamespace) -> dg.AssetChecksDefinition:
    # on a rarely made asset: a check of a table would be a step of every run over its partitions
    @dg.asset_check(
        asset=namespace.key("warehouse"),
        name=LEFT_FAILED,
        description="Each partition that failed in any run of the last week was materialized since.",
    )
    def no_failed_partitions(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        check_result: dg.AssetCheckResult = load_later("cc_pipeline.defs.checks.check_runs.left_failed_result")(
            context.instance, namespace
        )
        return check_result

    return no_failed_partitions


def _make_step(namespace: HomeNamespace, name: str, group: Sequence[Check]) -> dg.AssetChecksDefinition:
    specs = [
        dg.AssetCheckSpec(check.name, asset=namespace.key(check.asset), description=check.description)
        for check in group
    ]

    @dg.multi_asset_check(
        name=namespace.qualify(name), specs=specs, can_subset=True, required_resource_keys={namespace.resource}
    )
    def run_checks(context: dg.AssetCheckExecutionContext) -> Iterable[dg.AssetCheckResult]:
        yield from load_later("cc_pipeline.defs.checks.check_runs.results")(context, namespace, group)

    return run_checks
