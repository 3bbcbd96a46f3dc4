"""The checks of the datasets that a person added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cc_pipeline.checks.check import Check, check

if TYPE_CHECKING:
    from cc_pipeline.checks.scope import CheckResult, Scope
    from cc_pipeline.workspace.workspace import Workspace


def dataset_checks(assets: Iterable[tuple[str, str]]) -> list[Check]:
    """A check of each dataset's asset; ``assets`` are the names of both."""
    return [_of(dataset, asset) for dataset, asset in assets]


def _of(dataset: str, asset: str) -> Check:
    @check(asset, step="annotation_checks")
    def can_be_read(workspace: Workspace, _: Scope) -> CheckResult:
        """The files of the dataset can be read."""
        from cc_pipeline.hostfacts.verdicts import annotation_verdict

        return annotation_verdict(workspace, dataset)

    return can_be_read
