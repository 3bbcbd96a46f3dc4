"""Starts a job on Spark with spark-submit and waits for its end, through Dagster Pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import dagster as dg
from dagster_pipes import PIPES_PROTOCOL_VERSION, PIPES_PROTOCOL_VERSION_FIELD

from cc_pipeline.engines.spark.messages import Mailbox, Payload
from cc_pipeline.engines.spark.readiness import LOCAL, spark_submit
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.settings import Settings

#: Seconds that a driver has to end in order, when it is asked to.
_ORDERLY: Final = 10.0
#: Characters of a driver's log that an error shows.
_SHOWN: Final = 2_000
#: What a cluster calls our jobs.
_NAME: Final = "cc_pipeline"
#: What to do about a job that ended badly.
AGAIN: Final = "Run it again: what was committed stays, and is not done twice."


class Messages(dg.PipesBlobStoreMessageReader):
    """Messages of a job, from its mailbox. Ours go to ``told`` at once, while the job runs; Dagster would keep them
    until its end, and each of them for as long as the run lasts."""

    def __init__(self, mail: Mailbox) -> None:
        super().__init__(interval=0)
        self.told: SimpleQueue[Payload] = SimpleQueue()
        self._mail = mail
        self._finished = False

    @property
    def expected_writer_count(self) -> int:
        """One driver. Dagster's own says so with a warning that it may change."""
        return 1

    def finish(self) -> None:
        """Says that the job has ended. What it has sent is read; Dagster would wait ten seconds more for a farewell."""
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
        others = []
        for line in chunk.decode().splitlines():
            message = json.loads(line)
            if message["method"] == "report_custom_message":
                self.told.put(message["params"]["payload"])
            else:
                others.append(line)
        # nothing at all would be taken for a chunk that is not there yet
        return "\n".join(others) or "\n"

    def no_messages_debug_text(self) -> str:
        return f"They would have come through s3://{self._mail.bucket}/{self._mail.prefix}."


@dataclass(frozen=True)
class Start:
    """What a job is started with: the run that it is for, what it is asked for, how that and its messages travel."""

    context: dg.AssetExecutionContext
    extras: Mapping[str, Any]
    injector: dg.PipesContextInjector
    reader: Messages


def job_file() -> Path:
    """The program of the job."""
    found = find_spec("cc_pipeline.engines.spark.job")
    assert found is not None and found.origin is not None
    return Path(found.origin)


def polite(workers: int) -> dict[str, str]:
    """Spark's own settings that keep at most ``workers`` processes at work, whatever the cluster manager: each may
    spend its share of the source's budget, so more of them would spend more than that. A task of a fetch that is run
    twice at the same time asks twice, so Spark does not do that to see which is faster."""
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
    """A driver on this host, in a session of its own: whoever ends this process ends what it has started.

    ``log`` is for what the driver writes; ``kept_open`` is an open file that it keeps open, and with it the lock on it,
    also when this process is killed.
    """

    def __init__(self, settings: Settings, log: Path, kept_open: int) -> None:
        self.address = settings.spark_master
        self._settings = settings
        self._log = log
        self._kept_open = kept_open
        self._lock = threading.Lock()
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, start: Start) -> None:
        """Starts the job and waits for its end. Raises ``EnvironmentFault`` when it ended badly."""
        with dg.open_pipes_session(start.context, start.injector, start.reader, dict(start.extras)) as session:
            started = self._start(session.get_bootstrap_env_vars())
            status = started.wait() if started is not None else 0
            # where Java alone was killed, the driver's Python would go on
            self._signal(signal.SIGKILL)
            start.reader.finish()
        if status and not self._stopped:
            words = self._log.read_text("utf-8", "replace")[-_SHOWN:].strip()
            raise EnvironmentFault(
                f"the Spark job at {self.address} ended with status {status} before it was done",
                f"{AGAIN} The end of its driver's log:\n{words}",
            )

    def _start(self, pipes: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        settings = self._settings
        endpoint = ["--endpoint", settings.lake_endpoint] if settings.lake_endpoint else []
        command = [
            *(str(spark_submit()), "--master", settings.spark_master, "--name", _NAME),
            *(word for one in polite(settings.spark_workers).items() for word in ("--conf", "=".join(one))),
            # where its mailbox is; all else lies in there
            *(str(job_file()), *endpoint, "--region", settings.s3_region),
        ]
        # the driver runs what this process runs; what workers run is Spark's own PYSPARK_PYTHON
        environment = {**os.environ, **pipes, "PYSPARK_DRIVER_PYTHON": sys.executable}
        if settings.spark_master.startswith(LOCAL):
            environment.setdefault("PYSPARK_PYTHON", sys.executable)
        with self._lock, self._log.open("wb") as log:
            if not self._stopped:
                self._process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(self._kept_open,),
                )
        return self._process

    def stop(self) -> None:
        """Ends the job, from another thread; does nothing when it has ended. One that is not started yet never is."""
        with self._lock:
            self._stopped = True
        process = self._process
        if process is None or process.poll() is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            process.wait(_ORDERLY)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """To the driver and all it has started: the group has the id of its first process."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
