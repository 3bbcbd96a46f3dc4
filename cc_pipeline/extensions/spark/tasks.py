"""The work of a worker: one task of a fetch or of a parse, from its plan to stored files, rows and a result.

All inputs and results of a task are plain values. Files have the name of the attempt, so a repeated task writes other
files, and only those in the driver's results are committed.
"""

from __future__ import annotations

import pickle
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import CAPTURE_ORDER
from cc_pipeline.errors import CcPipelineError, EnvironmentFault
from cc_pipeline.extensions.spark.code_check import check_processes, describe_process
from cc_pipeline.extensions.spark.plans import Plans
from cc_pipeline.extensions.spark.task_workspace import open_task_workspace, storage_in
from cc_pipeline.extraction.fetch_counts import Tally
from cc_pipeline.extraction.parsed_pages import build_parse_options, spill_pages
from cc_pipeline.lake.files import WrittenRows, write_rows
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.records.ask_counts import count_asks
from cc_pipeline.records.fetch import Planned, RecordsResult, fetch_planned
from cc_pipeline.records.file_leases import stop_note
from cc_pipeline.records.locations import LocationCollector
from cc_pipeline.records.orders import Order, RecordOptions
from cc_pipeline.records.schema import ANSWERED_SCHEMA, COUNTS
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.workspace.workspace import Workspace, open_lake

#: Seconds between two checks. Until a stop is seen, a worker sends at most the requests of its rate in this time.
_CHECK_SECONDS: Final = 10.0

J = TypeVar("J", bound="Job")
D_co = TypeVar("D_co", covariant=True)
#: Adds to the progress of the job.
Count = Callable[[int], None]


class Halting:
    """Tells whether the fetch ``commit`` of a crawl was stopped; called before each range
    (``records.capture_states.Halt``).
    """

    def __init__(
        self, storage: RecordStorage, crawl: str, commit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._storage = storage
        self._key = stop_note(storage, crawl, commit)
        self._clock = clock
        self._next = float("-inf")
        self._is_settled = False
        self.stopped = False

    def __call__(self, is_refused: bool) -> bool:
        # A new refusal is published at once.
        due = self._clock() >= self._next or (is_refused and not self.stopped)
        if due and not self._is_settled and (is_refused or not self.stopped):
            self._next = self._clock() + _CHECK_SECONDS
            self.stopped = self.stopped or is_refused
            # If the lake does not answer, the next check retries.
            with suppress(CcPipelineError):
                if is_refused:
                    self._storage.transport.put(self._key, b"{}")
                    self._is_settled = True
                else:
                    self.stopped = self._is_settled = self._storage.transport.exists(self._key)
        return self.stopped


@dataclass(frozen=True)
class Job:
    """The common fields of all tasks of a job. ``commit`` is part of the names of their files, ``sent`` are the
    settings as texts, ``workers`` is the number of executors that share the source, ``tries`` is the number of
    attempts before the job fails, and ``driver`` describes the driver's code. Rows of a target get its number in
    ``generations``.
    """

    sent: Mapping[str, str]
    workers: int
    tries: int
    crawl: str
    commit: str
    driver: Mapping[str, Any]
    generations: Mapping[str, int]


@dataclass(frozen=True)
class FetchJob(Job):
    """The common fields of a fetch, see :class:`~cc_pipeline.extraction.engine.FetchRequest`."""

    options: RecordOptions
    plan: str
    ask_time: datetime


@dataclass(frozen=True, slots=True)
class Written:
    """Rows of the records table as files, and the tally of their slices."""

    rows: WrittenRows
    tally: Tally


@dataclass(frozen=True, slots=True)
class FetchTaskResult:
    """The result of a fetch task. If there are asks, it writes its rows twice: whether asks count is decided by all
    tasks. ``rows_by_choice`` has the rows by whether they are counted.
    """

    result: RecordsResult
    rows: int
    rows_by_choice: Mapping[bool, Written]


@dataclass(frozen=True, slots=True)
class ParseTaskResult:
    """The result of a parse task: the rows of each page table, as files."""

    rows: dict[str, WrittenRows]
    pages: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The error of a task's last attempt, sent as an error and not as a text of Java's.

    Its cause tells whether all targets would fail (``extraction/failure_isolation.py``); pickling an error alone would
    lose it."""

    error: Exception
    cause: Exception | None


@dataclass(frozen=True)
class Task(Generic[J, D_co]):
    """A function over numbers of plans, for ``mapPartitions``."""

    work: Callable[[J, int, Count], D_co]
    job: J
    count: Count

    def __call__(self, numbers: Iterable[int]) -> Iterator[D_co | Failed]:
        for number in numbers:
            try:
                # A worker may have started after the check of all workers, to replace a lost one.
                check_processes([describe_process()], self.job.driver)
                yield self.work(self.job, number, self.count)
            except Exception as error:
                # Spark repeats the task. After the last attempt, the error goes to the driver.
                if _attempt() + 1 < self.job.tries:
                    raise
                yield _failed(error)


def _attempt() -> int:
    """The number of earlier attempts at this task."""
    # A Spark worker has loaded pyspark already; other processes do not need it.
    spark = sys.modules.get("pyspark")
    task_context = None if spark is None else spark.TaskContext.get()
    return 0 if task_context is None else int(task_context.attemptNumber())


def fetch_task(job: FetchJob, number: int, count: Count) -> FetchTaskResult:
    """Fetches the captures of plan ``number``, stores their records and writes their rows. Raises
    ``EnvironmentFault``."""
    with (
        open_task_workspace(job.sent, job.workers) as workspace,
        workspace.scratch_folder("fetch") as folder,
    ):
        storage = storage_in(workspace, folder / "spool")
        captures, held_rows, leftover_rows = Plans(storage, job.crawl, job.commit).read(number)
        places = LocationCollector()
        places.add(captures)
        located_places = places.places()
        rows = OrderedRows(ANSWERED_SCHEMA, CAPTURE_ORDER, folder)
        name = _name(job, number)
        result = fetch_planned(
            Planned(captures.to_batches(), located_places, held_rows.to_batches(), leftover_rows.to_batches()),
            Order(job.crawl, name, job.plan, job.options, job.ask_time),
            workspace.archives(job.crawl),
            storage,
            keep=rows.add,
            halt=Halting(storage, job.crawl, job.commit),
        )
        has_asks = any(pc.any(batch.column(COUNTS.name)).as_py() for batch in rows.batches())
        uncounted = _write(workspace, job, partial(_count_rows, rows, job, False), name)
        counted = (
            _write(workspace, job, partial(_count_rows, rows, job, True), f"{name}-counted") if has_asks else uncounted
        )
    count(len(located_places))
    return FetchTaskResult(result, rows.rows, {False: uncounted, True: counted})


def parse_task(job: Job, number: int, count: Count) -> ParseTaskResult:
    """Parses the records of plan ``number`` and writes the rows of all page tables. Raises ``EnvironmentFault``."""
    with open_task_workspace(job.sent, job.workers) as workspace, workspace.scratch_folder("parse") as folder:
        storage = storage_in(workspace, folder / "spool")
        [records] = Plans(storage, job.crawl, job.commit).read(number)
        # Another process parses: a hostile page that kills it must not kill the worker, and with it the job.
        pages = spill_pages(
            records.to_batches(), storage, build_parse_options(workspace.settings), 1, folder, lambda page_count: None
        )
        name = _name(job, number)
        rows = {table: _write_table(workspace, job, table, opened(), name) for table, opened in pages.items()}
    count(records.num_rows)
    assert rows.keys() == set(PAGE_TABLES)
    return ParseTaskResult(rows, records.num_rows)


def _name(job: Job, number: int) -> str:
    """A name for the files of this attempt. It contains the job's name, so the job's lease protects all of them."""
    return f"{job.commit}-{number:06d}-{uuid.uuid4().hex[:12]}"


def _count_rows(rows: OrderedRows, job: FetchJob, is_source_sound: bool) -> Iterator[pa.RecordBatch]:
    return (count_asks(batch, job.ask_time, is_source_sound=is_source_sound) for batch in rows.batches())


def _write(workspace: Workspace, job: Job, rows: Callable[[], Iterator[pa.RecordBatch]], name: str) -> Written:
    tally = Tally()

    def seen() -> Iterator[pa.RecordBatch]:
        for batch in rows():
            tally.add(batch)
            yield batch

    return Written(_write_table(workspace, job, "records", seen(), name), tally)


def _write_table(
    workspace: Workspace, job: Job, table: str, batches: Iterable[pa.RecordBatch], name: str
) -> WrittenRows:
    """Writes rows to files of a table, which the driver appends. Reads no log."""
    lake = open_lake(workspace.settings)
    return write_rows(lake, table, job.crawl, batches, job.generations, name=name, is_sorted=False)


def _failed(error: Exception) -> Failed:
    """``error`` in a form that can be pickled, with its traceback."""
    error.add_note("".join(traceback.format_exception(error)))
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else None
    return Failed(_portable(error), None if cause is None else _portable(cause))


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an error of a library may fail in any way when it is pickled
        return EnvironmentFault(f"a worker failed: {error!r}", "Look at the log of the job.")
    return error
