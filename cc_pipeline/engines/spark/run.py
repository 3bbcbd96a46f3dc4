"""The body of the job that a Spark driver runs: apart from its program, which tells what cannot be imported."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cc_pipeline import progress
from cc_pipeline.engines.spark.ambient import settings_here
from cc_pipeline.engines.spark.engine import SparkEngine
from cc_pipeline.extraction.run import Made, extract
from cc_pipeline.transport.budget import Opening, take_over
from cc_pipeline.workspace.workspace import open_workspace

if TYPE_CHECKING:
    from pyspark import SparkContext

#: ``(stage, done, total, detail)``, as progress is told.
Told = Callable[[str, int, int | None, str], None]


def run_job(
    spark_context: SparkContext,
    settings: Mapping[str, str],
    wanted: Sequence[tuple[str, str]],
    tables: Collection[str],
    workers: int,
    told: Told = lambda stage, done, total, detail: None,
    closed: Collection[Opening] = (),
    refused: Callable[[tuple[Opening, ...]], object] = lambda closed: None,
) -> Iterator[Made]:
    """Makes ``tables`` of the partitions ``wanted`` (crawl, slug), which are located, and gives each when it is done.

    ``settings`` are texts by the names of their variables without the prefix (``LAKE``, ``SOURCE``, …); what lets
    somebody in comes from the environment of driver and workers. The driver's home is a folder that goes with the job.
    ``workers`` is how many executors may fetch at the same time at most. ``told`` is told progress.
    ``closed`` are the circuit breakers of whoever started the job: they bind its workers too. ``refused`` is told those
    that the job knows of after each fetch.

    Raises ``UserInputError`` for a job that would not be polite (see :class:`SparkEngine`), and as
    :func:`~cc_pipeline.extraction.run.extract` does.
    """
    with tempfile.TemporaryDirectory(prefix="cc-pipeline-") as folder:
        chosen = settings_here(settings, Path(folder).resolve())
        take_over(chosen.budget_path, closed)
        engine = SparkEngine(spark_context, workers, refused=refused)
        with open_workspace(chosen) as workspace, progress.progress_to(told):
            yield from extract(workspace, wanted, tables, engine)
