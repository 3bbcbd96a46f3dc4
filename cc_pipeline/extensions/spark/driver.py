"""The driver of a job: plans tasks, runs them on at most as many executors as share the source's budget, and combines
their results for one commit a table.
"""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.addresses import scheme_of
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, PlaceFault, UserInputError
from cc_pipeline.extensions.spark.code_check import describe_process
from cc_pipeline.extensions.spark.plans import Plans, fetch_plans, parse_plans, stored_plans, task_sizes
from cc_pipeline.extensions.spark.task_workspace import read_job_settings
from cc_pipeline.extensions.spark.tasks import (
    Failed,
    FetchJob,
    FetchTaskResult,
    Job,
    Task,
    fetch_task,
    parse_task,
)
from cc_pipeline.extraction.engine import FetchRequest, FetchResult, ParseRequest
from cc_pipeline.extraction.fetch_counts import SliceFetchCounts, Tally
from cc_pipeline.extraction.run import PartitionResult, extract
from cc_pipeline.lake.files import WrittenRows, join_rows, write_rows
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import PAGE_TABLES, Slice
from cc_pipeline.records.fetch import KilledRunRecords, RecordsResult
from cc_pipeline.records.file_leases import lease, stop_note
from cc_pipeline.records.schema import PARSED_SCHEMA
from cc_pipeline.records.storage import JOURNAL_SUFFIX, STORED, RecordStorage
from cc_pipeline.settings.reading import as_texts
from cc_pipeline.workspace.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

J = TypeVar("J", bound=Job)
D = TypeVar("D")
#: Seconds between two progress reports.
_PROGRESS_SECONDS: Final = 1.0
#: Spark's default number of attempts at a task.
_DEFAULT_TRIES: Final = "4"

_TRUE_TEXT: Final = "true"


def run_on_spark(
    spark_context: SparkContext,
    work: Callable[[J, int, Callable[[int], None]], D],
    job: J,
    plans: int,
    stage: str,
    total: int,
) -> list[D]:
    """Returns the results of ``work`` for each of the ``plans``, in their order. ``total`` is the final count of all
    tasks together.

    Raises the error of a task's last attempt; ``EnvironmentFault`` if Spark repeatedly loses tasks, ``PlaceFault`` if
    the application has ended.
    """
    if not plans:
        return []
    counter = spark_context.accumulator(0)
    group = f"{stage} {job.crawl} {uuid.uuid4().hex[:8]}"
    # A cancelled task is not interrupted: it ends by itself and closes its files.
    spark_context.setJobGroup(group, f"{stage} of {job.crawl}: {total:,} captures", interruptOnCancel=False)
    numbers = spark_context.parallelize(range(plans), plans)
    with _report_progress(counter, stage, total):
        try:
            task_results = numbers.mapPartitions(Task(work, job, counter.add)).collect()
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
    for task_result in task_results:
        if isinstance(task_result, Failed):
            raise task_result.error from task_result.cause
    return task_results


def tries_of(spark_context: SparkContext) -> int:
    """The number of attempts at a task before Spark fails the job."""
    master = spark_context.master
    if master.startswith("local") and not master.startswith("local-cluster"):
        # local[cores, tries]
        text = master.partition(",")[2].rstrip("] ").strip()
        return int(text) if text.isdecimal() else 1
    return int(spark_context.getConf().get("spark.task.maxFailures", _DEFAULT_TRIES) or _DEFAULT_TRIES)


@contextmanager
def _report_progress(counter: Accumulator[int], stage: str, total: int) -> Iterator[None]:
    has_ended = threading.Event()

    def report_until_end() -> None:
        while not has_ended.wait(_PROGRESS_SECONDS):
            # A repeated task counts twice, so the sum is limited to the total.
            progress.report(stage, min(counter.value, total), total, "on Spark")

    reporter = threading.Thread(target=report_until_end, name="cc-pipeline-progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        has_ended.set()
        reporter.join()
    progress.report(stage, total, total, "on Spark")


def _has_ended(spark_context: SparkContext) -> bool:
    # pyspark has no public function for it.
    java = getattr(spark_context, "_jsc", None)
    try:
        return java is None or bool(java.sc().isStopped())
    except Exception:  # the gateway to Java has ended too
        return True


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage())
    return text.strip().partition("\n")[0]


def check_executor_settings(spark_context: SparkContext, workers: int) -> None:
    """Raises ``UserInputError`` for an application that may have more than ``workers`` executors, because these share
    the source's budget evenly, and for an application that speculates, because a slow source would get the same
    requests twice.
    """
    conf = spark_context.getConf()
    if workers < 1:
        raise UserInputError(
            "the number of Spark workers is not set, so a worker does not know its share of the request rate; "
            "set CC_PIPELINE_SPARK_WORKERS to the largest number of executors the application may have"
        )
    if _is_setting_true(spark_context, "spark.speculation"):
        raise UserInputError(
            "spark.speculation is on: a slow source would get the same requests twice. Set spark.speculation=false"
        )
    if _is_setting_true(spark_context, "spark.dynamicAllocation.enabled"):
        # Without a number, there is no limit.
        max_executors = conf.get("spark.dynamicAllocation.maxExecutors", "")
        name = "spark.dynamicAllocation.maxExecutors"
    else:
        max_executors, name = conf.get("spark.executor.instances", "0"), "spark.executor.instances"
    if not (max_executors or "").isdecimal() or int(max_executors or 0) > workers:
        raise UserInputError(
            f"the application may have {max_executors or 'any number of'} executors, but the request rate is divided "
            f"among {workers}. Set {name} to {workers}, or CC_PIPELINE_SPARK_WORKERS to as many as there may be"
        )


def _is_setting_true(spark_context: SparkContext, name: str) -> bool:
    # Spark also accepts TRUE.
    return (spark_context.getConf().get(name, "") or "").strip().lower() == _TRUE_TEXT


def check_executor_count(spark_context: SparkContext, workers: int) -> None:
    """Raises ``UserInputError`` if the application has more than ``workers`` executors now. A standalone cluster gives
    it as many as fit, whatever number was requested.
    """
    # pyspark has no public function for it. The result includes the driver.
    executors = int(spark_context._jsc.sc().getExecutorMemoryStatus().size()) - 1
    if executors > workers:
        raise UserInputError(
            f"the application has {executors} executors, but the request rate is divided among {workers}. Limit them "
            f"(standalone cluster: spark.cores.max), or set CC_PIPELINE_SPARK_WORKERS to {executors}"
        )


@dataclass(frozen=True)
class SparkEngine:
    """Fetches and parses in the tasks of a Spark application whose driver is this process. A task has access to the
    lake and the source, and no home. Raises ``UserInputError`` for an application that would exceed the source's budget
    (:func:`check_executor_settings`).

    ``workers`` is the maximum number of executors: each sends its even share of the source's budget. ``partitions`` and
    ``captures`` are the maximum of one job, and of one commit a table, except for a single larger partition. They limit
    the resources of the driver: captures on its disk (some 360 bytes each, and some 600 bytes a record to parse), 20 to
    40 bytes of memory for each location, and the results of tasks: some 750 bytes for each target in each task, at
    worst (every capture of a task is another target's) 0.8 GB for a million captures.

    Only the driver reads journals of killed runs, stored records and leases. A task gets the part that it needs.
    """

    spark_context: SparkContext
    workers: int
    partitions: int = 10_000
    captures: int = 1_000_000

    def __post_init__(self) -> None:
        check_executor_settings(self.spark_context, self.workers)

    def fetch(self, workspace: Workspace, request: FetchRequest) -> FetchResult:
        check_executor_count(self.spark_context, self.workers)
        _refuse_local_files(request)
        storage, crawl, commit = workspace.storage, request.crawl, request.order.commit
        leftovers = KilledRunRecords(storage, crawl, request.places, request.scratch)
        request.on_adopted_files(leftovers.files)
        cutter = fetch_plans(
            request.captures.batches(),
            request.reusable_records.rows.batches(),
            leftovers.rows.batches(),
            *self._task_size(request.captures, "warc_record_length"),
        )
        # A task has one core, however many cores its host has.
        options = replace(request.order.options, examiners=0)
        job_fields = self._common(workspace, crawl, commit, request.generations)
        job = FetchJob(**job_fields, options=options, plan=request.order.plan, ask_time=request.order.ask_time)
        try:
            with stored_plans(Plans(storage, crawl, commit), cutter) as plans:
                task_results = run_on_spark(
                    self.spark_context, fetch_task, job, plans.count, "fetch", len(request.places)
                )
        finally:
            # A note that cannot be deleted is removed with the lease of this fetch.
            with suppress(CcPipelineError):
                storage.transport.delete(stop_note(storage, crawl, commit))
        return _merge_task_results(storage, request, leftovers, task_results)

    def parse(self, workspace: Workspace, request: ParseRequest) -> dict[str, WrittenRows]:
        storage, crawl, commit = workspace.storage, request.crawl, uuid.uuid4().hex
        # Sorted by location, so that adjacent records are read together.
        rows = OrderedRows(PARSED_SCHEMA, STORED[:2], request.folder)
        for batch in request.records:
            rows.add(batch)
        cutter = parse_plans(rows.batches(), *self._task_size(rows, "stored_length"))
        job = Job(**self._common(workspace, crawl, commit, request.generations))
        # The lease protects the plans of this job from a sweep.
        with lease(storage, crawl, commit, [*request.generations]) as file_lease:
            file_lease.hold(())
            with stored_plans(Plans(storage, crawl, commit), cutter) as plans:
                task_results = run_on_spark(self.spark_context, parse_task, job, plans.count, "parse", rows.rows)
            return {
                table: join_rows(
                    [
                        *(task_result.rows[table] for task_result in task_results),
                        write_rows(
                            workspace.lake, table, crawl, request.reusable_pages.rows(table), request.generations,
                            name=f"{commit}-kept",
                        ),
                    ]
                )
                for table in PAGE_TABLES
            }  # fmt: skip

    def _common(self, workspace: Workspace, crawl: str, commit: str, generations: Mapping[str, int]) -> dict[str, Any]:
        return {
            "sent": as_texts(workspace.settings),
            "workers": self.workers,
            "tries": tries_of(self.spark_context),
            "crawl": crawl,
            "commit": commit,
            "driver": describe_process(),
            "generations": dict(generations),
        }

    def _task_size(self, rows: OrderedRows, length: str) -> tuple[int, int]:
        """Bytes and rows of a task, such that every core has work."""
        size = sum(pc.sum(batch.column(length)).as_py() or 0 for batch in rows.batches())
        slots = max(self.workers, int(self.spark_context.defaultParallelism))
        return task_sizes(size, rows.rows, slots)


def _refuse_local_files(request: FetchRequest) -> None:
    """Raises ``UserInputError`` for records in files of this machine, which a worker cannot read."""
    local_files = [name for name in request.places.files if name is not None and scheme_of(name) == "file"]
    if local_files:
        raise UserInputError(
            f"{request.crawl} has records in {len(local_files):,} files of this machine, e.g. {local_files[0]}, which "
            "Spark's workers do not see; fetch them with the engine local"
        )


def _merge_task_results(
    storage: RecordStorage, request: FetchRequest, leftovers: KilledRunRecords, task_results: Sequence[FetchTaskResult]
) -> FetchResult:
    results = [task_result.result for task_result in task_results]
    outcomes: Counter[str] = Counter()
    for records_result in results:
        outcomes.update(records_result.outcomes)
    files = frozenset(file for records_result in results for file in records_result.files)
    result = RecordsResult(
        reused=sum(records_result.reused for records_result in results),
        adopted=sum(records_result.adopted for records_result in results),
        requests=sum(records_result.requests for records_result in results),
        bytes=sum(records_result.bytes for records_result in results),
        files=tuple(sorted(files)),
        stored=frozenset().union(*(records_result.stored for records_result in results)),
        settled=leftovers.settled(
            files | _files_of_all_attempts(storage, request.crawl, request.order.commit), request.read_table_places
        ),
        fetched=sum(records_result.fetched for records_result in results),
        source_gave_good_record=any(records_result.source_gave_good_record for records_result in results),
        outcomes=outcomes,
    )

    def count_slices(is_source_sound: bool) -> Mapping[Slice, SliceFetchCounts]:
        tally = Tally()
        for task_result in task_results:
            tally.include(task_result.rows_by_choice[is_source_sound].tally)
        return tally.count_slices(request.slices)

    return FetchResult(
        result,
        sum(task_result.rows for task_result in task_results),
        count_slices,
        lambda is_source_sound: join_rows(
            task_result.rows_by_choice[is_source_sound].rows for task_result in task_results
        ),
    )


def _files_of_all_attempts(storage: RecordStorage, crawl: str, commit: str) -> frozenset[str]:
    """The stored files of this fetch that have journals, including those of repeated attempts.

    A lost attempt may have stored records twice: no row names them, and a sweep deletes them after their journal is
    gone.
    """
    journals = storage.journals(crawl)
    return frozenset(key.removesuffix(JOURNAL_SUFFIX) for key in journals if f"-{commit}-" in key)


#: A callback for progress: ``(stage, done, total, detail)``.
OnProgress = Callable[[str, int, int | None, str], None]


def run_job(
    spark_context: SparkContext,
    settings: Mapping[str, str],
    partitions: Sequence[tuple[str, str]],
    tables: Collection[str],
    workers: int,
    on_progress: OnProgress = lambda stage, done, total, detail: None,
) -> Iterator[PartitionResult]:
    """Makes ``tables`` of the located ``partitions`` (crawl, slug), and yields each partition when it is done.

    ``settings`` are texts by the names of their variables without the prefix (``LAKE``, ``SOURCE``, …). Credentials
    come from the environment of driver and workers. The driver's home is a temporary folder. ``workers`` is the maximum
    number of executors that fetch at the same time.

    Raises ``UserInputError`` for a job that would exceed the source's budget (see :class:`SparkEngine`), and as
    :func:`~cc_pipeline.extraction.run.extract` does.
    """
    with tempfile.TemporaryDirectory(prefix="cc-pipeline-") as folder:
        job_settings = read_job_settings(settings, Path(folder).resolve())
        engine = SparkEngine(spark_context, workers)
        with open_workspace(job_settings) as workspace, progress.progress_to(on_progress):
            yield from extract(workspace, partitions, tables, engine)
