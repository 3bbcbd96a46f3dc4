"""Evaluates all checks over the whole lake without Dagster, for a terminal: the same as the job
``check_everything``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cc_pipeline.checks.asset_checks import CHECKS
from cc_pipeline.checks.check import Check
from cc_pipeline.checks.finding import Finding
from cc_pipeline.checks.scope import Scope
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extension import extensions

if TYPE_CHECKING:
    from cc_pipeline.checks.check import Verdict
    from cc_pipeline.workspace.workspace import Workspace

#: The level of a finding, by the severity of a check's result.
LEVELS: Final = {"ok": "ok", "warn": "note", "error": "bad"}


def find_checks() -> list[Check]:
    """Returns the checks of the core, then those of extensions."""
    return [*CHECKS, *(check for extension in extensions() for check in extension.checks())]


def evaluate_checks(workspace: Workspace) -> Iterator[Finding]:
    """Yields a finding for each check of the lake or the home; checks of Dagster's instance are not evaluated. A check
    that raises is a finding too."""
    for check in find_checks():
        if check.verdict is not None:
            yield evaluate_check(workspace, f"{check.asset}: {check.name}", check.verdict)


def evaluate_check(workspace: Workspace, topic: str, verdict: Verdict) -> Finding:
    """The finding of one check over the whole lake."""
    try:
        check_result = verdict(workspace, Scope())
    except Exception as error:  # any error: the other checks are still evaluated
        reason = str(error) if isinstance(error, CcPipelineError) else repr(error)
        return Finding("bad", topic, f"the check of {topic} failed, so its state is not known: {reason}")
    return Finding(LEVELS[check_result.severity], topic, check_result.message, check_result.advice)
