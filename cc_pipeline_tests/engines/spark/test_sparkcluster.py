"""The cluster that other tests use: its workers run what they are told with our Python, and one of them can be lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cc_pipeline_tests.sparkcluster import GROUP, SparkCluster

pytestmark = pytest.mark.xdist_group(GROUP)

JOB = """
import json, os, sys, time
from pyspark import SparkContext
with SparkContext(appName="look") as context:
    def who(rows):
        time.sleep(0.2)
        yield os.getcwd(), sys.executable
    folders = set()
    while len(folders) < 2:
        folders |= {tuple(one) for one in context.parallelize(range(4), 4).mapPartitions(who).collect()}
    print(json.dumps(sorted(folders)))
"""


def test_two_workers_answer_each_from_a_folder_of_its_own(cluster: SparkCluster, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    program = Path(cluster.environment["SPARK_HOME"]) / "bin" / "spark-submit"
    done = subprocess.run(
        [program, "--master", cluster.address, job],
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # what Python warns of comes on the same stream
    folders = json.loads(done.stdout.splitlines()[-1])
    assert len(folders) == 2
    assert {python for _, python in folders} == {sys.executable}
    assert {Path(folder).parts[-3] for folder, _ in folders} == set(cluster.workers)


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
