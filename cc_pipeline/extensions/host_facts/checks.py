"""The checks of datasets that the user added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cc_pipeline.checks.check import Check, check

if TYPE_CHECKING:
    from cc_pipeline.checks.scope import CheckResult, Scope
    from cc_pipeline.workspace.workspace import Workspace


def dataset_checks(datasets: Iterable[str]) -> list[Check]:
    """A check of the asset of each named dataset."""
    from cc_pipeline.extensions.host_facts.folders import asset_of

    return [_make_check(dataset, asset_of(dataset)) for dataset in datasets]


def _make_check(dataset: str, asset: str) -> Check:
    @check(asset, step="annotation_checks")
    def can_be_read(workspace: Workspace, _: Scope) -> CheckResult:
        """The files of the dataset can be read."""
        from cc_pipeline.extensions.host_facts.dataset_check import annotation_verdict

        return annotation_verdict(workspace, dataset)

    return can_be_read
