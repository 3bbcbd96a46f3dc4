"""The check of reports names those of another publication."""

from __future__ import annotations

import os
from pathlib import Path

from cc_pipeline.checks.scope import CheckResult, Scope
from cc_pipeline.extensions.reports.checks import as_published
from cc_pipeline.extensions.reports.page import report_path
from cc_pipeline_tests.world import Bucket, workspace_of

SITE = "example.com"


def test_reports_of_another_publication_are_named(bucket: Bucket, tmp_path: Path) -> None:
    home = workspace_of(bucket[0], tmp_path)

    def verdict() -> CheckResult:
        assert as_published.verdict is not None
        return as_published.verdict(home, Scope())

    assert verdict().passed
    home.settings.published_path.touch()
    path = report_path(home.settings, SITE)
    path.parent.mkdir(parents=True)
    path.write_text("<p>", "utf-8")
    assert verdict().passed
    for hours, severity in ((1, "ok"), (30, "warn")):
        then = home.settings.published_path.stat().st_mtime - hours * 3_600
        os.utime(path, (then, then))
        assert verdict().severity == severity
    assert SITE in verdict().message
