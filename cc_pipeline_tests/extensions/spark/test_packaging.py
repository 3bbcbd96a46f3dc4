"""Workers have our wheel and nothing else of ours: no checkout on their path. What they run with is asked first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline import COMPILED
from cc_pipeline_tests.extensions.spark.spark_cluster import GROUP, SparkCluster

pytestmark = [pytest.mark.process, pytest.mark.xdist_group(GROUP)]

#: Asks workers of each Python that is named, in one application.
ASK = """
import json, sys
from pyspark import SparkContext
from cc_pipeline.extensions.spark.code_check import check_worker_processes, describe_process
from cc_pipeline.errors import EnvironmentFault
with SparkContext(appName="ask") as context:
    for context.pythonExec in sys.argv[1:]:
        try:
            check_worker_processes(context, 2)
            print(json.dumps(context.parallelize([0], 1).map(lambda _: describe_process()).first()))
        except EnvironmentFault as fault:
            print(json.dumps({"what": fault.problem, "advice": fault.advice}))
"""


def test_workers_use_the_wheel_with_its_compiled_parts_and_nothing_else(
    cluster: SparkCluster, wheel_python: Path, tmp_path: Path
) -> None:
    project = wheel_python.parents[2]
    twins = tmp_path / "twins" / wheel_python.relative_to(project)
    shutil.copytree(project, tmp_path / "twins", symlinks=True)
    for compiled in (tmp_path / "twins").rglob("*.so"):
        compiled.unlink()
    bare = Path(os.path.realpath(sys.executable))
    job = tmp_path / "ask.py"
    job.write_text(ASK)
    program = Path(cluster.environment["SPARK_HOME"]) / "bin" / "spark-submit"
    done = subprocess.run(
        [program, "--master", cluster.address, "--conf", "spark.cores.max=2", job, wheel_python, twins, bare],
        env=cluster.environment | {"PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    first, second, third = said
    assert Path(first["folder"]).is_relative_to(project)
    assert len(first["compiled"]) == len(COMPILED)
    # the same rows, many times slower
    assert "compiled parts are missing there" in second["what"]
    # a Python without the wheel says what it lacks
    assert "cc_pipeline" in third["what"]
    assert "make wheel" in third["advice"]
