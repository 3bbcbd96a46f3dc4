"""One engine at work, in a process of its own: a run's records, then its pages, each timed. For ``bench_engine``.

    python -m benchmarks.engine_runs local SETTINGS.json
    python -m benchmarks.engine_runs spark SETTINGS.json     started with the variables of a cluster

Captures are located already. What it found out is written as JSON to the file that SETTINGS names.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from cc_pipeline.extraction.run import Made, extract
from cc_pipeline.extraction.slice import PAGE_TABLES
from cc_pipeline.settings import load_settings
from cc_pipeline.stages.workspace import open_workspace

STEPS: dict[str, tuple[str, ...]] = {"fetch": ("records",), "parse": tuple(PAGE_TABLES)}
_EMPTY_TASKS = 200


def _all_made(made: Iterable[Made]) -> None:
    for one in made:
        if one.error is not None:
            raise one.error


def local(asked: dict[str, Any]) -> dict[str, float]:
    """The seconds of each step by this machine's own processes."""
    settings = load_settings({f"CC_PIPELINE_{name}": text for name, text in asked["settings"].items()})
    with open_workspace(settings) as workspace:
        return _steps(lambda tables: _all_made(extract(workspace, _wanted(asked), tables)))


def _steps(run: Callable[[Collection[str]], None]) -> dict[str, float]:
    """The seconds of each step. What processors did meanwhile is seen from outside, between the lines."""
    found = {}
    for step, tables in STEPS.items():
        _tell(step, "begins")
        began = time.perf_counter()
        run(tables)
        found[step] = time.perf_counter() - began
        _tell(step, "ended")
    return found


def spark(asked: dict[str, Any]) -> dict[str, float]:
    """The seconds of each step by executors, of starting, and of an empty task."""
    from pyspark import SparkConf, SparkContext  # a local run has none

    from cc_pipeline.engines.spark.run import run_job  # needs it

    workers = int(asked["workers"])
    found: dict[str, float] = {}
    started = time.perf_counter()
    conf = SparkConf().setMaster(asked["master"]).setAppName("bench-engine")
    conf = conf.set("spark.executor.instances", str(workers)).set("spark.cores.max", str(workers))
    conf = conf.set("spark.speculation", "false").set("spark.ui.showConsoleProgress", "false")
    context = SparkContext(conf=conf)
    found["context"] = time.perf_counter() - started

    def empty(tasks: int) -> float:
        began = time.perf_counter()
        context.parallelize(range(tasks), tasks).map(lambda number: number).count()
        return time.perf_counter() - began

    found["first_task"] = empty(workers)
    found["empty_task"] = empty(_EMPTY_TASKS) / _EMPTY_TASKS

    def run(tables: Collection[str]) -> None:
        _all_made(run_job(context, asked["settings"], _wanted(asked), tables, workers))

    found |= _steps(run)
    context.stop()
    return found


def _tell(step: str, what: str) -> None:
    """Lets the benchmark read the processors' clocks: it answers with a line."""
    sys.stdout.write(f"{step} {what}\n")
    sys.stdout.flush()
    sys.stdin.readline()


def _wanted(asked: dict[str, Any]) -> list[tuple[str, str]]:
    return [(crawl, slug) for crawl, slug in asked["wanted"]]


def main() -> None:
    """Runs one engine."""
    asked = json.loads(Path(sys.argv[2]).read_text("utf-8"))
    found = {"local": local, "spark": spark}[sys.argv[1]](asked)
    Path(asked["result"]).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
