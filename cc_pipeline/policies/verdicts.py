"""The verdict on what was read of robots.txt."""

from __future__ import annotations

from typing import Final

from cc_pipeline.checks.scope import Scope, joined
from cc_pipeline.checks.verdict import CheckResult
from cc_pipeline.lake.slice import POLICIES, Slice
from cc_pipeline.workspace.workspace import Workspace

_NAME: Final = "each_capture_once"


def site_policies_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Whether each slice has each robots.txt capture once, and the lines of each body that was read."""
    lake = workspace.lake
    slices = POLICIES.here(lake) if scope.slices is None else scope.slices
    verdicts = []
    for one in slices:
        rows = lake.read("site_policies", Slice(one.crawl, one.target).where, ["robots"])["robots"].to_pylist()
        twice = len(rows) - len(set(rows))
        if twice:
            key = f"{one.crawl}|{one.target}"
            said = f"{key}: {twice:,} robots.txt captures stand twice; read them again: cc-pipeline policies"
            verdicts.append(CheckResult(_NAME, "error", said, wrong=(key,)))
    if verdicts:
        return joined(_NAME, verdicts)
    return CheckResult(_NAME, "ok", f"{len(slices):,} partitions have each robots.txt capture once")
