"""An engine whose tasks run wherever the caller starts ``cc-pipeline task``: AWS Batch, Kubernetes jobs, another host.

It does not need Spark. The caller provides a function that starts a task. This process plans the tasks, writes each as
an object into the lake, reads the results, and commits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from cc_pipeline import interruption, progress
from cc_pipeline.commoncrawl.crawls import LOCAL
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.extensions.spark.driver import TaskEngine
from cc_pipeline.extensions.spark.task_json import read_result, task_document
from cc_pipeline.extensions.spark.tasks import Job
from cc_pipeline.extraction.engine import FetchRequest, FetchResult
from cc_pipeline.locks import locked
from cc_pipeline.records.storage import PLANS, RecordStorage
from cc_pipeline.transport.budget import EVERY_HOST, OpenBreaker, share_budget
from cc_pipeline.workspace.workspace import Workspace

#: The file of the home that a fetch by tasks locks.
LOCK: Final = "spark.lock"
#: Maximum bytes of a result.
_MAX_RESULT_BYTES: Final = 1 << 30


def result_address(task: str) -> str:
    """The address of a task's result, beside the task."""
    return f"{task.removesuffix('.json')}.result.json"


@dataclass(frozen=True)
class ExternalTaskEngine(TaskEngine):
    """Fetches and parses in processes that ``start`` starts.

    ``start`` is called with the address of a task, in at most ``workers`` threads. It runs ``cc-pipeline task ADDRESS``
    somewhere, waits for its end, and may retry. An exception of it ends the job. The source's rate is divided by
    ``workers``, unless the workers lease it. ``partitions`` and ``captures`` limit one commit, as for the engine on
    Spark.
    """

    start: Callable[[str], object]
    workers: int
    partitions: int = 10_000
    captures: int = 1_000_000
    refused: Callable[[tuple[OpenBreaker, ...]], object] = lambda closed: None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UserInputError(f"{self.workers} workers are too few; name 1 or more")

    def fetch(self, workspace: Workspace, request: FetchRequest) -> FetchResult:
        settings = workspace.settings
        hosts = set(workspace.transport.hosts)
        if request.crawl.startswith(LOCAL):
            # Files that the user named may be on any host.
            hosts.add(EVERY_HOST)

        def waiting() -> None:
            interruption.check()
            progress.report_busy_home()

        path = settings.home / LOCK
        with disk_trouble(path), locked(path, waiting=waiting), share_budget(settings.budget_path, hosts, self.workers):
            progress.end_wait()
            return super().fetch(workspace, request)

    @property
    def slots(self) -> int:
        return self.workers

    @property
    def tries(self) -> int:
        # The function that starts a task may retry it.
        return 1

    def run_tasks(self, workspace: Workspace, work: Any, job: Job, plans: int, stage: str, total: int) -> list[Any]:
        storage = workspace.storage
        keys = [f"{storage.folder(job.crawl)}/{PLANS}/{job.commit}/{number:06d}.json" for number in range(plans)]
        results_by_number: dict[int, Any] = {}
        pool = ThreadPoolExecutor(self.workers, "cc-pipeline-task")
        try:
            for number, key in enumerate(keys):
                storage.transport.put(key, task_document(stage, job, number))
            running: dict[Future[Any], int] = {
                pool.submit(self._run, storage, f"{workspace.settings.lake}/{key}", key, stage): number
                for number, key in enumerate(keys)
            }
            for future in as_completed(running):
                results_by_number[running[future]] = future.result()
                progress.report(
                    stage,
                    total * len(results_by_number) // plans,
                    total,
                    f"task {len(results_by_number):,} of {plans:,}",
                )
        finally:
            pool.shutdown(cancel_futures=True)
            with suppress(CcPipelineError):
                for key in keys:
                    storage.transport.delete(key)
                    storage.transport.delete(result_address(key))
        return [results_by_number[number] for number in range(plans)]

    def _run(self, storage: RecordStorage, address: str, key: str, stage: str) -> Any:
        try:
            self.start(address)
        except Exception as error:
            # The task's own error is more precise.
            self._result(storage, address, key, stage, error)
            raise
        return self._result(storage, address, key, stage)

    def _result(
        self, storage: RecordStorage, address: str, key: str, stage: str, cause: Exception | None = None
    ) -> Any:
        try:
            document = storage.transport.read_all(result_address(key), _MAX_RESULT_BYTES).data
        except CcPipelineError as error:
            raise EnvironmentFault(
                f"the task {address} ended and left no result: {cause or error}",
                "Look at the log of the process that was to run cc-pipeline task. What was fetched is kept.",
            ) from (cause or error)
        return read_result(stage, document)
