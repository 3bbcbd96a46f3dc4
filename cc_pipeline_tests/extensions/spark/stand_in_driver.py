"""Run in the place of ``spark-submit``: the job's own program with this machine's engine and no Spark at all.

All around the job is real: its mailbox on S3, Dagster Pipes, its messages and its end. What it is to do beside its work
is in ``STAND_IN``: ``raises`` an error that is nobody's, ``dies`` after the first partition, ``hangs`` after it.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cc_pipeline.errors import PlaceFault
from cc_pipeline.extensions.spark import code_check as worker_facts
from cc_pipeline.extensions.spark import job
from cc_pipeline.extraction.run import PartitionResult, extract
from cc_pipeline.progress import progress_to
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace


class _Context:
    version, master, applicationId = "none", "stand-in", "stand-in-1"

    def __init__(self, appName: str) -> None:
        del appName

    def __enter__(self) -> _Context:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def run_job(
    context: object,
    settings: dict[str, str],
    wanted: list[tuple[str, str]],
    tables: list[str],
    workers: int,
    told: Any,
) -> Iterator[PartitionResult]:
    assert workers == 2
    how = os.environ.get("STAND_IN", "")
    with tempfile.TemporaryDirectory() as home:
        own = {f"CC_PIPELINE_{name}": value for name, value in settings.items()}
        with open_workspace(load_settings(own, home=home)) as workspace, progress_to(told):
            for number, made in enumerate(extract(workspace, wanted, tables)):
                yield made
                if number == 0 and how:
                    Path(os.environ["STAND_IN_MARK"]).write_text(str(os.getpid()))
                    if how == "raises":
                        raise PlaceFault("the lake is full", "Free some space")
                    if how == "dies":
                        time.sleep(3)  # Pipes sends what was told once a second
                        os.kill(os.getpid(), signal.SIGKILL)
                    time.sleep(600)


def _install(name: str, **content: object) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module


if __name__ == "__main__":
    _install("pyspark", SparkContext=_Context)
    _install("cc_pipeline.extensions.spark.driver", run_job=run_job)
    worker_facts.check_worker_processes = lambda context, workers: None
    program = next(at for at, text in enumerate(sys.argv) if text.endswith("extensions/spark/job.py"))
    sys.exit(job.main(sys.argv[program + 1 :]))
