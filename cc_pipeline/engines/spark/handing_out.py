"""Tasks on Spark: numbers of plans through ``mapPartitions``, with progress, and with errors as they were."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from cc_pipeline import progress
from cc_pipeline.engines.spark.work import Failed, Job, Task
from cc_pipeline.errors import EnvironmentFault, PlaceFault

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

J = TypeVar("J", bound=Job)
D = TypeVar("D")
#: Seconds between two words of progress.
_TOLD_EVERY: Final = 1.0
#: How often Spark runs a task unless it is told otherwise.
_TRIES: Final = "4"


def on_spark(
    spark_context: SparkContext,
    work: Callable[[J, int, Callable[[int], None]], D],
    job: J,
    plans: int,
    stage: str,
    total: int,
) -> list[D]:
    """What ``work`` gives for each of the ``plans``, in their order. ``total`` is what all tasks count together.

    Raises what a task raised when it was tried for the last time; ``EnvironmentFault`` where Spark loses tasks again
    and again, ``PlaceFault`` where the application has ended.
    """
    if not plans:
        return []
    counter = spark_context.accumulator(0)
    group = f"{stage} {job.crawl} {uuid.uuid4().hex[:8]}"
    # no interruption: a task that is cancelled ends by itself, with its files closed
    spark_context.setJobGroup(group, f"{stage} of {job.crawl}: {total:,} captures", interruptOnCancel=False)
    numbers = spark_context.parallelize(range(plans), plans)
    with _telling(counter, stage, total):
        try:
            found = numbers.mapPartitions(Task(work, job, counter.add)).collect()
        except BaseException as error:
            if _has_ended(spark_context):
                raise PlaceFault(
                    "the Spark application has ended", "Look at the log of its driver, then run it again."
                ) from error
            spark_context.cancelJobGroup(group)
            if not isinstance(error, Exception):
                raise
            raise EnvironmentFault(
                f"Spark could not run a task of {stage} {job.crawl}: {_first_line(error)}",
                "Look at the logs of its executors: they may have had too little memory. What was fetched is kept.",
            ) from error
    for one in found:
        if isinstance(one, Failed):
            raise one.error from one.cause
    return found


def slots_of(spark_context: SparkContext) -> int:
    """Tasks that run at the same time, as far as Spark knows."""
    return int(spark_context.defaultParallelism)


def tries_of(spark_context: SparkContext) -> int:
    """How often a task is run before Spark gives a job up."""
    master = spark_context.master
    if master.startswith("local") and not master.startswith("local-cluster"):
        # local[cores, tries]
        text = master.partition(",")[2].rstrip("] ").strip()
        return int(text) if text.isdecimal() else 1
    return int(spark_context.getConf().get("spark.task.maxFailures", _TRIES) or _TRIES)


@contextmanager
def _telling(counter: Accumulator[int], stage: str, total: int) -> Iterator[None]:
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(_TOLD_EVERY):
            # what a task that is run again counts twice is never more than all
            progress.report(stage, min(counter.value, total), total, "on Spark")

    teller = threading.Thread(target=tell, name="cc-pipeline-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
    progress.report(stage, total, total, "on Spark")


def _has_ended(spark_context: SparkContext) -> bool:
    # pyspark has no public word for it
    java = getattr(spark_context, "_jsc", None)
    try:
        return java is None or bool(java.sc().isStopped())
    except Exception:  # the gateway to Java is gone too
        return True


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage())
    return text.strip().partition("\n")[0]
