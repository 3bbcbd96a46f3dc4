"""Runs the main job again and again, each time killed (SIGKILL) at its next commit; a program of the tests.

``python -m cc_pipeline_tests.defs.killed_runs SOURCE HOME CRAWL TARGET`` forks a fresh process for each run from one
that has imported everything, so that a kill costs a second and not ten. It dies when its second commit is about to be
written: each run gets exactly one commit further. Prints how many runs it took until one came through.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from typing import Any

import dagster as dg

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.launcher import Launcher
from cc_pipeline.lake.lake import Lake
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace

_MOST_RUNS = 60


def main(source: str, home: str, crawl: str, targets: str) -> None:
    """Forks runs until one ends by itself."""
    with tempfile.TemporaryDirectory() as folder:
        # what an instance imports when it is first opened would cost each run a second
        dg.DagsterInstance.local_temp(folder).dispose()
    for run in range(1, _MOST_RUNS):
        child = os.fork()
        if child == 0:
            _run(source, home, crawl, targets)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            if os.WEXITSTATUS(status):
                sys.exit(f"run {run} failed by itself")
            sys.stdout.write(f"{run}\n")
            return
    sys.exit("no run came through")


def _run(source: str, home: str, crawl: str, targets: str) -> None:
    _die_at_second_commit()
    with open_workspace(load_settings({}, source=source, home=home)) as workspace, Launcher(workspace) as launcher:
        launcher.list_crawls()
        launcher.harvest([crawl])
        list(launcher.extract([crawl], [parse_target(text) for text in targets.split(",")]))
        launcher.publish()


def _die_at_second_commit() -> None:
    replace: Any = Lake.replace_slices
    commits = 0

    def dying(*arguments: Any, **named: Any) -> None:
        nonlocal commits
        if commits:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*arguments, **named)
        commits += 1

    Lake.replace_slices = dying


if __name__ == "__main__":
    main(*sys.argv[1:])
