"""The driver's side: tasks are planned and handed out, and what came is put together for one commit a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cc_pipeline.engines.spark.politeness import refuse_impolite
from cc_pipeline.stages.engine import Fetched, ToFetch, ToParse
from cc_pipeline.stages.workspace import Workspace

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True)
class SparkEngine:
    """Fetches and parses in the tasks of a Spark application, whose driver this process is.

    ``workers`` is how many executors there may be at most: each sends its even share of the source's budget.
    ``partitions`` and ``captures`` are what one job, and one commit a table, is about.

    Raises ``UserInputError`` for an application that would not be polite (``politeness.refuse_impolite``).
    """

    spark_context: SparkContext
    workers: int
    partitions: int = 10_000
    captures: int = 2_000_000

    def __post_init__(self) -> None:
        refuse_impolite(self.spark_context, self.workers)

    def fetch(self, workspace: Workspace, asked: ToFetch) -> Fetched:
        raise NotImplementedError

    def parse(self, workspace: Workspace, asked: ToParse) -> None:
        raise NotImplementedError
