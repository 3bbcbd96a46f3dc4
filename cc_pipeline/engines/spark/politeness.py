"""Which Spark applications may not fetch: those of which nobody can say how often they would ask the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cc_pipeline.errors import UserInputError

if TYPE_CHECKING:
    from pyspark import SparkContext

_YES: Final = "true"


def refuse_impolite(spark_context: SparkContext, workers: int) -> None:
    """Raises ``UserInputError`` for an application that may have more than ``workers`` executors, which share the
    source's budget evenly, or that speculates: it would ask a slow source twice for the same."""
    conf = spark_context.getConf()
    if workers < 1:
        raise UserInputError(
            "the number of Spark workers is not known, so none would know its share of the source's budget; "
            "set CC_PIPELINE_SPARK_WORKERS to the largest number of executors the application may have"
        )
    if _is_on(spark_context, "spark.speculation"):
        raise UserInputError(
            "spark.speculation is on: a slow source would be asked twice for the same. Set spark.speculation=false"
        )
    if _is_on(spark_context, "spark.dynamicAllocation.enabled"):
        # without a number there is no bound
        most = conf.get("spark.dynamicAllocation.maxExecutors", "")
        name = "spark.dynamicAllocation.maxExecutors"
    else:
        most, name = conf.get("spark.executor.instances", "0"), "spark.executor.instances"
    if not (most or "").isdecimal() or int(most or 0) > workers:
        raise UserInputError(
            f"the application may have {most or 'any number of'} executors, and the source's budget is shared by "
            f"{workers}. Set {name} to {workers}, or CC_PIPELINE_SPARK_WORKERS to as many as there may be"
        )


def _is_on(spark_context: SparkContext, name: str) -> bool:
    # Spark takes TRUE for true
    return (spark_context.getConf().get(name, "") or "").strip().lower() == _YES


def refuse_crowded(spark_context: SparkContext, workers: int) -> None:
    """Raises ``UserInputError`` where the application has more than ``workers`` executors now. A standalone cluster
    gives it as many as there is room for, whatever number was asked for."""
    # pyspark has no public word for it; the driver is among them
    here = int(spark_context._jsc.sc().getExecutorMemoryStatus().size()) - 1
    if here > workers:
        raise UserInputError(
            f"the application has {here} executors, and the source's budget is shared by {workers}. Bound it (of a "
            f"standalone cluster: spark.cores.max), or set CC_PIPELINE_SPARK_WORKERS to {here}"
        )
