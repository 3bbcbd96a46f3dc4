"""Readers, a backfill, publications, merges and a purge on one home at once, each in a process of its own: no lock is
refused, no file vanishes under a reader, nobody sees half a partition, and in the end everything is as if each had had
the home to itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.maintenance.stored_files import verify
from cc_pipeline_tests.defs.published import published_rows
from cc_pipeline_tests.maintenance import at_once
from cc_pipeline_tests.world import Bucket, extract, harvest, publish, workspace_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("killing"), pytest.mark.timeout(600)]

ROLES = ("backfill", "purge", "publish", "tidy", "read")
_WITHIN_SECONDS = 500


def test_everybody_at_once(bucket: Bucket, tmp_path: Path) -> None:
    targets = [parse_target(text) for text in at_once.COMES]
    alone, shared = workspace_of(bucket[0], tmp_path / "alone"), workspace_of(bucket[0], tmp_path / "home")
    for workspace, texts in ((alone, at_once.COMES), (shared, (at_once.GOES,))):
        for crawl in at_once.CRAWLS:
            harvest(workspace, crawl)
            extract(workspace, *texts, crawl=crawl)
        workspace.register_targets(targets)
        publish(workspace)
    with duckdb.connect(str(alone.settings.published_path), read_only=True) as connection:
        (tmp_path / "whole.json").write_text(json.dumps(at_once.counted(connection)), "utf-8")
    shared.close()

    times = run_all(bucket[0], shared.settings.home)
    assert times["backfill"] == len(at_once.COMES) * len(at_once.CRAWLS)
    # each was at it while others were
    assert min(times[role] for role in ("publish", "tidy", "read")) >= 2

    publish(shared)
    assert published_rows(shared.settings.home) == published_rows(alone.settings.home)
    assert shared.lake.read("records").num_rows == alone.lake.read("records").num_rows
    found = verify(shared.lake, shared.storage, None)
    assert (found.read > 0, found.damaged) == (True, {})


def run_all(source: Path, home: Path) -> dict[str, int]:
    """Starts a process for each role, and gives how often each did what it does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CC_PIPELINE_")}
    started = {
        role: subprocess.Popen(
            [sys.executable, "-m", "cc_pipeline_tests.maintenance.at_once", role, str(source), str(home)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for role in ROLES
    }  # fmt: skip
    deadline = time.monotonic() + _WITHIN_SECONDS
    said: dict[str, tuple[str, str]] = {}
    try:
        for role in ROLES:
            if role not in ("backfill", "purge"):
                (home.parent / "done").touch()
            said[role] = started[role].communicate(timeout=deadline - time.monotonic())
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    wrong = {role: said[role][1][-3_000:] for role in ROLES if started[role].returncode}
    assert wrong == {}
    return {role: int(out) for role, (out, _) in said.items()}
