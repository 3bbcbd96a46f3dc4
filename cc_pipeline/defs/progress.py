"""Progress of stages in a run's log, at most every few seconds.

Belongs here: the bridge from stages to Dagster's log. Not here: progress bars (command line).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from cc_pipeline.extraction import progress

_EVERY_SECONDS = 5.0


@contextmanager
def logged_progress(log: dg.DagsterLogManager) -> Iterator[None]:
    """Writes progress to the run's log, unless someone at a terminal watches already."""
    if progress.someone_watches():
        yield
        return
    last: dict[str, float] = {}

    def sink(stage: str, done: int, total: int | None, detail: str) -> None:
        now = time.monotonic()
        if now - last.get(stage, 0.0) >= _EVERY_SECONDS:
            last[stage] = now
            of = f" of {total:,}" if total is not None else ""
            log.info(f"{stage}: {done:,}{of} {detail}".rstrip())

    with progress.progress_to(sink):
        yield
