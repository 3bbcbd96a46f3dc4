"""A fetch killed at fifteen moments, while maintenance without grace and an overlapping fetch run beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline_tests.faultserver import FaultServerProcess
from cc_pipeline_tests.world import Bucket


@pytest.mark.process
@pytest.mark.xdist_group("killing")
def test_fifteen_kills_beside_maintenance_and_another_fetch_lose_nothing(bucket: Bucket, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CC_PIPELINE_")}
    with FaultServerProcess(bucket[0], latency=0.1) as server:
        done = subprocess.run(
            [sys.executable, "-m", "cc_pipeline_tests.maintenance.killing", str(tmp_path), server.url],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4_000:]
