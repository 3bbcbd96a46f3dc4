"""The command line evaluates the checks that Dagster does, and one that breaks takes no other along."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.checks import evaluate
from cc_pipeline.checks.check import Check
from cc_pipeline.checks.scope import CheckResult, Scope
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import Bucket, extract, harvest, publish, workspace_of


def test_a_sound_home_has_a_finding_for_each_check_that_looks_at_the_lake(bucket: Bucket, tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    harvest(workspace)
    extract(workspace, "example.com")
    publish(workspace)
    findings = {finding.topic: finding for finding in evaluate.evaluate_checks(workspace)}
    checks = evaluate.find_checks()
    assert set(findings) == {f"{check.asset}: {check.name}" for check in checks if check.verdict is not None}
    assert findings["records: ledger_balances"].level == "ok"
    assert not [finding for finding in findings.values() if finding.level == "bad"]
    page = next(Path(name) for name in workspace.lake.pin("page_text").files)
    page.unlink()
    again = {finding.topic: finding for finding in evaluate.evaluate_checks(workspace)}
    assert again["warehouse: rows_as_in_the_lake"].level == "bad"


def test_a_check_that_breaks_is_a_finding(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(workspace: Workspace, scope: Scope) -> CheckResult:
        raise ValueError("no such column")

    check = Check(asset="records", name="odd", description="Odd.", verdict=broken)
    monkeypatch.setattr(evaluate, "find_checks", lambda: [check])
    [finding] = evaluate.evaluate_checks(workspace_of(bucket[0], tmp_path))
    assert (finding.level, finding.topic) == ("bad", "records: odd")
    assert "no such column" in finding.text
