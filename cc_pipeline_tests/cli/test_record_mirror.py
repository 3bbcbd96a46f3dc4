"""What ``plan`` and the summary of ``run`` say of Common Crawl's official mirror."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import Cli
from cc_pipeline_tests.recordmirror import FRESH, ensure_recent, front_and_mirror


@pytest.mark.process
def test_plan_and_the_summary_of_a_run_say_which_was_used(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_recent(tmp_path / "bucket")
    with front_and_mirror(tmp_path / "bucket", monkeypatch) as (front, mirror):
        named = mirror.url.rstrip("/")
        where = ("-c", FRESH, "--source", front.url, "--home", tmp_path / "home")
        assert "CC_PIPELINE_RECORD_MIRROR" not in cli("plan", "example.com", *where).told
        monkeypatch.setenv("CC_PIPELINE_RECORD_MIRROR", "yes")
        said = cli("plan", "example.com", *where)
        assert f"shared with {named} (CC_PIPELINE_RECORD_MIRROR)" in said.told + said.shown
        done = cli("run", "example.com", *where)
    assert done.status == 0, done.told
    summary = done.told + done.shown
    counts = re.search(
        rf"shared with the official mirror; answers received: (\d+) from {front.url.rstrip('/')}, (\d+) from {named}",
        summary,
    )
    assert counts is not None, summary
    assert all(int(count) > 0 for count in counts.groups())
