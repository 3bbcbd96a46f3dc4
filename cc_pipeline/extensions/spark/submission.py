"""Runs a Spark job for partitions, and records them in the Dagster run as they are done."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import dagster as dg
from dagster_pipes import PIPES_PROTOCOL_VERSION, PIPES_PROTOCOL_VERSION_FIELD, PipesContextData

from cc_pipeline import children, interruption, progress
from cc_pipeline.defs.partitions import ENGINE_TAG, StepContext
from cc_pipeline.errors import EnvironmentFault, disk_trouble
from cc_pipeline.extensions.spark.messages import (
    Failed,
    Inbox,
    Mailbox,
    Payload,
    Progress,
    mailbox_in,
    s3_client,
)
from cc_pipeline.extensions.spark.readiness import LOCAL as LOCAL_MASTER
from cc_pipeline.extensions.spark.readiness import check_ready, spark_submit
from cc_pipeline.extensions.spark.settings import SparkSettings
from cc_pipeline.extraction.crawl_plan import find_current_targets
from cc_pipeline.extraction.run import PartitionResult, extract
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.locks import locked
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.settings.reading import as_texts
from cc_pipeline.workspace.workspace import Workspace

_CAPTURES: Final = "captures"
#: The warning at the beginning of each run's log.
EXPERIMENTAL: Final = (
    "The engine spark is experimental: the driver runs on this host, without Spark Connect; the lake has to be on S3; "
    "and it was never run on a paid cluster."
)
#: The file in the home that a job locks.
_LOCK: Final = "spark.lock"
#: Seconds between two checks for signals to this process.
_POLL_SECONDS: Final = 0.5
#: Maximum seconds for the thread of a job to end after the job.
_THREAD_END_SECONDS: Final = 30.0

_Key = tuple[str, str]


def extract_on_spark(
    context: StepContext, workspace: Workspace, partitions: Sequence[_Key], tables: Collection[str]
) -> Iterator[PartitionResult]:
    """Extracts partitions like :func:`cc_pipeline.extraction.run.extract`. Captures are located in this process, which
    has the home and its catalog; records and pages are made by one job on the cluster of the settings.

    Unchanged partitions get no job. Raises ``UserInputError`` and ``EnvironmentFault`` if no job can be started, or if
    it fails; partitions that were finished before were yielded.
    """
    check_ready(workspace.settings)
    later_tables = [table for table in tables if table != _CAPTURES]
    located_results: dict[_Key, PartitionResult] = {}
    remaining = list(dict.fromkeys(partitions))
    try:
        if _CAPTURES in tables:
            remaining = []
            for partition_result in extract(workspace, partitions, [_CAPTURES]):
                if partition_result.error is not None or not later_tables:
                    yield partition_result
                else:
                    key = partition_result.crawl, partition_result.slug
                    located_results[key] = partition_result
                    remaining.append(key)
        for partition_result in _make_records_and_pages(context, workspace, remaining, later_tables):
            located_result = located_results.pop((partition_result.crawl, partition_result.slug), None)
            yield (
                partition_result
                if located_result is None
                else replace(partition_result, reports={**located_result.reports, **partition_result.reports})
            )
    except Exception as error:
        # Located captures remain, and are reported.
        for partition_result in located_results.values():
            yield replace(partition_result, error=error)
        raise


def _make_records_and_pages(
    context: StepContext, workspace: Workspace, remaining: Sequence[_Key], tables: Sequence[str]
) -> Iterator[PartitionResult]:
    """Makes records and pages: unchanged partitions are yielded here, all others are made by a job."""
    by_crawl: dict[str, list[str]] = {}
    for crawl, slug in remaining:
        by_crawl.setdefault(crawl, []).append(slug)
    unchanged = {
        (crawl, slug) for crawl, slugs in by_crawl.items() for slug in find_current_targets(workspace, crawl, slugs)
    }
    if unchanged:
        yield from extract(workspace, [key for key in remaining if key in unchanged], tables)
    if for_job := [key for key in remaining if key not in unchanged]:
        yield from _make_by_job(context, workspace, for_job, tables)


def _make_by_job(
    context: StepContext, workspace: Workspace, partitions: Sequence[_Key], tables: Sequence[str]
) -> Iterator[PartitionResult]:
    settings = workspace.settings
    missing = dict.fromkeys(partitions)
    if set(tables) & set(PAGE_TABLES):
        # The job has a temporary home, and makes rows with the settings of this home.
        workspace.choose()
    with (
        _lock_job(settings.home) as lock,
        _job(context, workspace, partitions, tables, lock) as job,
    ):
        for partition_result in job.partitions():
            missing.pop((partition_result.crawl, partition_result.slug), None)
            yield partition_result
        job.settle()
    if missing:
        raise EnvironmentFault(
            f"the Spark job at {settings.settings_of(SparkSettings).master} reported no result of {len(missing):,} "
            f"of {len(partitions):,} partitions",
            RUN_AGAIN,
        )


@contextmanager
def _lock_job(home: Path) -> Iterator[int]:
    """Waits until no other job of this home runs, and yields the descriptor of the lock file. Workers share the whole
    budget of the source, so two jobs would spend it twice.
    """

    def waiting() -> None:
        interruption.check()
        progress.report_busy_home()

    with ExitStack() as stack:
        with disk_trouble(home / _LOCK):
            lock = stack.enter_context(locked(home / _LOCK, waiting=waiting))
        progress.end_wait()
        yield lock.fileno()


class _Job:
    """A running job: a thread waits for its end, and its messages arrive here."""

    def __init__(self, launcher: SparkSubmit, reader: Messages, thread: threading.Thread) -> None:
        self._launcher = launcher
        self._reader = reader
        self._thread = thread
        self.error: Exception | None = None
        self._reported_error: Exception | None = None

    def partitions(self) -> Iterator[PartitionResult]:
        """Yields each finished partition, and forwards progress."""
        inbox = Inbox()
        while (payload := self._next()) is not None:
            match inbox.read(payload):
                case PartitionResult() as partition_result:
                    yield partition_result
                case Progress(stage, done, total, detail):
                    progress.report(stage, done, total, detail)
                case Failed(error):
                    self._reported_error = error

    def _next(self) -> Payload | None:
        """The next message; ``None`` if the job has ended and no message is left."""
        while True:
            interruption.check()
            running = self._thread.is_alive()
            try:
                return (
                    self._reader.payloads.get(timeout=_POLL_SECONDS) if running else self._reader.payloads.get_nowait()
                )
            except Empty:
                if not running:
                    return None

    def settle(self) -> None:
        """Raises the error of a failed job: the error that it reported, else that of its process."""
        if error := self._reported_error or self.error:
            raise error

    def end(self) -> None:
        """Stops the job, if it runs, and waits for its thread."""
        if self._thread.is_alive():
            self._launcher.stop()
            self._reader.finish()
            self._thread.join(_THREAD_END_SECONDS)


@contextmanager
def _job(
    context: StepContext,
    workspace: Workspace,
    partitions: Sequence[_Key],
    tables: Sequence[str],
    lock: int,
) -> Iterator[_Job]:
    """Starts a job, and stops it at the end of the block. A driver on this host inherits ``lock``, and its log is kept
    with the run.
    """
    # a slow import, for these runs only
    from dagster_aws.pipes import PipesS3ContextInjector  # noqa: PLC0415

    settings = workspace.settings
    client = s3_client(settings.lake_endpoint, settings.s3_region)
    mailbox = mailbox_in(client, settings.lake, f"{context.run.run_id}-{secrets.token_hex(4)}")
    log = driver_log(context, mailbox)
    launcher = SparkSubmit(settings, log, lock)
    reader = Messages(mailbox)
    extras = {
        "settings": as_texts(settings),
        "wanted": [list(key) for key in partitions],
        "tables": list(tables),
        "workers": settings.settings_of(SparkSettings).workers,
        "bucket": mailbox.bucket,
        "alive": mailbox.sign_of_life_key,
    }
    injector = PipesS3ContextInjector(bucket=mailbox.bucket, client=client, key_prefix=f"{mailbox.prefix}/")

    def run() -> None:
        try:
            launcher.run(Start(context, extras, injector, reader))
        except Exception as error:
            job.error = error

    thread = threading.Thread(target=run, name="job on Spark", daemon=True)
    job = _Job(launcher, reader, thread)
    with mailbox.open():
        context.log.warning(EXPERIMENTAL)
        context.log.info(
            f"{format_count(len(partitions), 'partition', 'are')} sent to {extras['workers']} Spark workers at "
            f"{launcher.address}. The log of the driver: {log}"
        )
        job._thread.start()
        try:
            yield job
        finally:
            job.end()
            context.instance.add_run_tags(context.run.run_id, {ENGINE_TAG: "spark"})


def driver_log(context: StepContext, mail: Mailbox) -> Path:
    """A new file for the log of a driver, in a folder of Dagster's instance that is deleted with the run."""
    folder = Path(context.instance.root_directory) / "storage" / context.run.run_id
    with disk_trouble(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # A retried step has another mailbox.
    return folder / f"spark_driver-{mail.prefix.rpartition('-')[2]}.log"


#: Maximum seconds for a driver to end after SIGTERM.
_DRIVER_END_SECONDS: Final = 10.0
#: Characters of a driver's log in an error.
_MAX_LOG_CHARACTERS: Final = 2_000
#: The name of our jobs on a cluster.
_NAME: Final = "cc_pipeline"
#: The advice for a failed job.
RUN_AGAIN: Final = "Run it again: committed work is kept and not repeated."


class Messages(dg.PipesBlobStoreMessageReader):
    """Reads messages of a job from its mailbox. Our messages go to ``payloads`` at once, while the job runs; Dagster
    would deliver them only at its end, and keep each for the whole run."""

    def __init__(self, mail: Mailbox) -> None:
        super().__init__(interval=0)
        self.payloads: SimpleQueue[Payload] = SimpleQueue()
        self._mail = mail
        self._finished = False

    @property
    def expected_writer_count(self) -> int:
        """One driver. Dagster's property warns that it may change."""
        return 1

    def finish(self) -> None:
        """Marks the job as ended. Its messages are still read, without Dagster's wait of ten seconds for a final
        message.
        """
        self._finished = True

    @contextmanager
    def get_params(self) -> Iterator[dict[str, Any]]:
        yield {"bucket": self._mail.bucket, "key_prefix": f"{self._mail.prefix}/messages"}

    def messages_are_readable(self, params: Mapping[str, Any]) -> bool:
        return True

    def download_messages_chunk(self, index: int, params: Mapping[str, Any]) -> str | None:
        finished = self._finished
        chunk = self._mail.read(f"{params['key_prefix']}/{index}.json")
        if chunk is None:
            closed = {PIPES_PROTOCOL_VERSION_FIELD: PIPES_PROTOCOL_VERSION, "method": "closed", "params": None}
            return json.dumps(closed) if finished else None
        dagster_lines = []
        for line in chunk.decode().splitlines():
            message = json.loads(line)
            if message["method"] == "report_custom_message":
                self.payloads.put(message["params"]["payload"])
            else:
                dagster_lines.append(line)
        # Dagster takes an empty chunk for one that does not exist yet.
        return "\n".join(dagster_lines) or "\n"

    def no_messages_debug_text(self) -> str:
        return f"The job sends its messages through s3://{self._mail.bucket}/{self._mail.prefix}."


@dataclass(frozen=True)
class Start:
    """The input of a job: its run, its arguments, and the channels of arguments and messages."""

    context: StepContext
    extras: Mapping[str, Any]
    injector: dg.PipesContextInjector
    reader: Messages


@contextmanager
def _open_session(start: Start) -> Iterator[dg.PipesSession]:
    """Opens a Pipes session like ``dg.open_pipes_session``, which also requires an output for each asset of a step. Our
    steps have none, because each partition is recorded by an event.
    """
    handler = dg.PipesMessageHandler(start.context, start.reader)
    context_data: PipesContextData = {
        "asset_keys": None,
        "code_version_by_asset_key": None,
        "provenance_by_asset_key": None,
        "partition_key": None,
        "partition_key_range": None,
        "partition_time_window": None,
        "run_id": start.context.run.run_id,
        "job_name": start.context.run.job_name,
        "retry_number": start.context.retry_number,
        "extras": dict(start.extras),
    }
    with start.injector.inject_context(context_data) as injected, handler.handle_messages() as read:
        yield dg.PipesSession(
            context_data=context_data,
            message_handler=handler,
            context_injector_params=injected,
            message_reader_params=read,
            context=start.context,
        )


def job_file() -> Path:
    """The program of the job."""
    spec = find_spec("cc_pipeline.extensions.spark.job")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def executor_limits(workers: int) -> dict[str, str]:
    """Spark settings that limit a job to ``workers`` processes on any cluster manager, because each spends its share of
    the source's budget. Speculation is off, because a task that runs twice sends its requests twice.
    """
    count = str(workers)
    return {
        "spark.cores.max": count,
        "spark.executor.cores": "1",
        "spark.task.cpus": "1",
        "spark.executor.instances": count,
        "spark.dynamicAllocation.maxExecutors": count,
        "spark.speculation": "false",
    }


class SparkSubmit:
    """A driver on this host, in a session of its own: ending this process ends all processes of the driver.

    ``log`` is the file of the driver's output, which is kept. ``kept_open`` is an open file that the driver inherits
    with its lock, so that the lock remains if this process is killed.
    """

    def __init__(self, settings: Settings, log: Path, kept_open: int) -> None:
        self.address = settings.settings_of(SparkSettings).master
        self._settings = settings
        self._log = log
        self._kept_open = kept_open
        self._lock = threading.Lock()
        self._stopped = False
        self._process: children.Process | None = None

    def run(self, start: Start) -> None:
        """Starts the job and waits for its end. Raises ``EnvironmentFault`` if it failed."""
        with _open_session(start) as session:
            started = self._start(session.get_bootstrap_env_vars())
            status = started.wait() if started is not None else 0
            # If only Java was killed, the driver's Python would continue.
            self._signal(signal.SIGKILL)
            start.reader.finish()
        if status and not self._stopped:
            words = self._log.read_text("utf-8", "replace")[-_MAX_LOG_CHARACTERS:].strip()
            raise EnvironmentFault(
                f"the Spark job at {self.address} failed with status {status}",
                f"{RUN_AGAIN} The whole log of its driver is {self._log}, and ends with:\n{words}",
            )

    def _start(self, pipes: Mapping[str, str]) -> children.Process | None:
        settings = self._settings
        endpoint = ["--endpoint", settings.lake_endpoint] if settings.lake_endpoint else []
        command = [
            *(str(spark_submit()), "--master", settings.settings_of(SparkSettings).master, "--name", _NAME),
            *(
                word
                for spark_option in executor_limits(settings.settings_of(SparkSettings).workers).items()
                for word in ("--conf", "=".join(spark_option))
            ),
            # Files in a worker's folder are data, not modules.
            *("--conf", "spark.executorEnv.PYTHONSAFEPATH=1"),
            # The location of the mailbox, which has all other arguments.
            *(str(job_file()), *endpoint, "--region", settings.s3_region),
        ]
        # The driver runs this process' Python. Spark's own PYSPARK_PYTHON is that of the workers.
        environment = children.whole_environment({**pipes, "PYSPARK_DRIVER_PYTHON": sys.executable})
        if settings.settings_of(SparkSettings).master.startswith(LOCAL_MASTER):
            environment.setdefault("PYSPARK_PYTHON", sys.executable)
        with self._lock, self._log.open("wb") as log:
            if not self._stopped:
                self._process = children.start(
                    command,
                    environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(self._kept_open,),
                )
        return self._process

    def stop(self) -> None:
        """Stops the job, from another thread; no effect after its end. A job that has not started yet never starts."""
        with self._lock:
            self._stopped = True
        process = self._process
        if process is None or process.poll() is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            process.wait(_DRIVER_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """Signals the driver and all its processes: the group has the id of its first process."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
