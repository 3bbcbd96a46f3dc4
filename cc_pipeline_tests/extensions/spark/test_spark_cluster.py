"""The cluster that other tests use: one of its workers can be lost, with all that it has started."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cc_pipeline_tests.extensions.spark.spark_cluster import GROUP, SparkCluster

pytestmark = [pytest.mark.process, pytest.mark.xdist_group(GROUP)]


def test_what_was_started_is_gone_with_its_worker(cluster: SparkCluster) -> None:
    cluster.add_worker("spare")
    process = cluster._started["spare"].pid
    assert cluster.workers[-1] == "spare"
    cluster.kill("spare")
    assert "spare" not in cluster.workers
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and Path(f"/proc/{process}").exists():
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
