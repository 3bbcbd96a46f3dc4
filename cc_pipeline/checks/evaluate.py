"""Evaluates all checks over the whole lake without Dagster, for a terminal: the same as the job
``check_everything``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from cc_pipeline.checks.asset_checks import CHECKS
from cc_pipeline.checks.check import Check
from cc_pipeline.checks.extensions import broken_findings
from cc_pipeline.checks.finding import Finding
from cc_pipeline.checks.scope import Scope
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extension import collect
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

if TYPE_CHECKING:
    from cc_pipeline.checks.check import Verdict

#: The level of a finding, by the severity of a check's result.
_LEVELS: Final = {"ok": "ok", "warn": "note", "error": "bad"}


def find_checks(settings: Settings) -> list[Check]:
    """Returns the checks of the core, then those of extensions, for a home with these settings."""
    return [
        *CHECKS,
        *(check for extension_checks in collect("checks", settings).values() for check in extension_checks),
    ]


def evaluate_checks(workspace: Workspace) -> Iterator[Finding]:
    """Yields a finding for each check of the lake or the home; checks of Dagster's instance are not evaluated. A check
    that raises is a finding too, and so is a broken extension, whose checks cannot be evaluated."""
    memo: dict[object, Any] = {}
    checks = find_checks(workspace.settings)
    yield from broken_findings()
    for check in checks:
        if check.verdict is not None:
            yield _evaluate(workspace, check, check.verdict, memo)


def _evaluate(workspace: Workspace, check: Check, verdict: Verdict, memo: dict[object, Any]) -> Finding:
    topic = f"{check.asset}: {check.name}"
    try:
        check_result = verdict(workspace, Scope(memo=memo))
    except Exception as error:  # any error: the other checks are still evaluated
        reason = str(error) if isinstance(error, CcPipelineError) else repr(error)
        return Finding("bad", topic, f"the check of {topic} failed, so its state is not known: {reason}")
    return Finding(_LEVELS[check_result.severity], topic, check_result.message, check_result.advice)
