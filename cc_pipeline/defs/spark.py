"""Partitions made by a job on Spark, recorded in the Dagster run as they are done."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from queue import Empty
from typing import Final

import dagster as dg

from cc_pipeline import interruption, progress
from cc_pipeline.commoncrawl.crawls import LOCAL
from cc_pipeline.defs.partitions import ENGINE_TAG, JOB_TAG
from cc_pipeline.defs.spark_launch import AGAIN, Messages, SparkSubmit, Start
from cc_pipeline.engines.spark.messages import Facts, Failed, Inbox, Payload, Progress, Refused, mailbox_in, s3_client
from cc_pipeline.engines.spark.readiness import refuse_unready
from cc_pipeline.errors import EnvironmentFault, disk_trouble
from cc_pipeline.extraction.run import Made, current, extract
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.locks import locked
from cc_pipeline.settings.reading import as_texts
from cc_pipeline.transport.budget import EVERY_HOST, lent, openings, take_over
from cc_pipeline.workspace.workspace import Workspace

_CAPTURES: Final = "captures"
#: The file in the home that a job has locked.
_LOCK: Final = "spark.lock"
#: Seconds between two looks at the signals that this process got.
_LOOK: Final = 0.5
#: Seconds that the thread of a job has to end after the job.
_ENDING: Final = 30.0

_Key = tuple[str, str]


def made_on_spark(
    context: dg.AssetExecutionContext, workspace: Workspace, wanted: Sequence[_Key], tables: Collection[str]
) -> Iterator[Made]:
    """As :func:`cc_pipeline.extraction.run.extract`: captures are located in this process, which has the home and its
    catalog; records and pages are made by one job on the cluster of the settings.

    Partitions that nothing would change get no job; no job is started where none is left. Raises ``UserInputError`` and
    ``EnvironmentFault`` where no job can be started, and when one ends badly; what it had made until then was given.
    """
    refuse_unready(workspace.settings)
    later = [table for table in tables if table != _CAPTURES]
    located: dict[_Key, Made] = {}
    left = list(dict.fromkeys(wanted))
    try:
        if _CAPTURES in tables:
            left = []
            for made in extract(workspace, wanted, [_CAPTURES]):
                if made.error is not None or not later:
                    yield made
                else:
                    key = made.crawl, made.slug
                    located[key] = made
                    left.append(key)
        for made in _later(context, workspace, left, later):
            first = located.pop((made.crawl, made.slug), None)
            yield made if first is None else replace(made, reports={**first.reports, **made.reports})
    except Exception as error:
        # captures that were located stay, and are told of
        for made in located.values():
            yield replace(made, error=error)
        raise


def _later(
    context: dg.AssetExecutionContext, workspace: Workspace, left: Sequence[_Key], tables: Sequence[str]
) -> Iterator[Made]:
    """Records and pages: of those that would stay as they are here, of the others by a job."""
    by_crawl: dict[str, list[str]] = {}
    for crawl, slug in left:
        by_crawl.setdefault(crawl, []).append(slug)
    same = {(crawl, slug) for crawl, slugs in by_crawl.items() for slug in current(workspace, crawl, slugs)}
    if same:
        yield from extract(workspace, [key for key in left if key in same], tables)
    if asked := [key for key in left if key not in same]:
        yield from _by_job(context, workspace, asked, tables)


def _by_job(
    context: dg.AssetExecutionContext, workspace: Workspace, asked: Sequence[_Key], tables: Sequence[str]
) -> Iterator[Made]:
    settings = workspace.settings
    missing = dict.fromkeys(asked)
    if set(tables) & set(PAGE_TABLES):
        # the job's home goes with it, and rows are made with the settings of this one
        workspace.choose()
    with (
        _only_job(settings.home) as lock,
        _shares_lent(workspace, asked) if "records" in tables else nullcontext(),
        workspace.scratch_folder("spark") as folder,
        _job(context, workspace, asked, tables, folder, lock) as job,
    ):
        for made in job.partitions(context):
            missing.pop((made.crawl, made.slug), None)
            yield made
        job.settle()
    if missing:
        raise EnvironmentFault(
            f"the Spark job at {settings.spark_master} said nothing of {len(missing):,} of {len(asked):,} partitions",
            AGAIN,
        )


@contextmanager
def _only_job(home: Path) -> Iterator[int]:
    """Waits until no other job of this home runs, and gives the open file whose lock says so: workers share the whole
    of the source's budget, so those of two jobs would spend twice of it."""

    def waiting() -> None:
        interruption.check()
        progress.report("wait for another job on Spark", 0, 1, "")

    with ExitStack() as held:
        with disk_trouble(home / _LOCK):
            lock = held.enter_context(locked(home / _LOCK, waiting=waiting))
        yield lock.fileno()


def _shares_lent(workspace: Workspace, asked: Sequence[_Key]) -> AbstractContextManager[None]:
    """While a job may fetch, its workers have their shares of the budget that all processes of this home have; where
    requests are leased, all of them ask for theirs."""
    if workspace.settings.leases:
        return nullcontext()
    hosts = set(workspace.transport.hosts)
    if any(crawl.startswith(LOCAL) for crawl, _ in asked):
        # files that a person named lie anywhere
        hosts.add(EVERY_HOST)
    return lent(workspace.settings.budget_path, hosts, workspace.settings.spark_workers)


class _Job:
    """A job that runs: a thread waits for its end, and its messages come here."""

    def __init__(self, launcher: SparkSubmit, reader: Messages, thread: threading.Thread, budget: Path) -> None:
        self._launcher = launcher
        self._reader = reader
        self._thread = thread
        self._budget = budget
        self.error: Exception | None = None
        self._told: Exception | None = None

    def partitions(self, context: dg.AssetExecutionContext) -> Iterator[Made]:
        """Each partition when the job tells it; progress and facts go where they belong."""
        inbox = Inbox()
        while (payload := self._next()) is not None:
            match inbox.read(payload):
                case Made() as made:
                    yield made
                case Progress(stage, done, total, detail):
                    progress.report(stage, done, total, detail)
                case Failed(error):
                    self._told = error
                case Refused(closed):
                    take_over(self._budget, closed)
                case Facts(values):
                    for name, value in values.items():
                        context.log.info(f"{name}: {value}")

    def _next(self) -> Payload | None:
        """The next message; ``None`` when the job has ended and there is none left."""
        while True:
            interruption.check()
            running = self._thread.is_alive()
            try:
                return self._reader.told.get(timeout=_LOOK) if running else self._reader.told.get_nowait()
            except Empty:
                if not running:
                    return None

    def settle(self) -> None:
        """Raises what the job ended with, if it did not end well: what it said itself, else what its place said."""
        if error := self._told or self.error:
            raise error

    def end(self) -> None:
        """Ends the job, if it runs, and waits for its thread."""
        if self._thread.is_alive():
            self._launcher.stop()
            self._reader.finish()
            self._thread.join(_ENDING)


@contextmanager
def _job(
    context: dg.AssetExecutionContext,
    workspace: Workspace,
    asked: Sequence[_Key],
    tables: Sequence[str],
    folder: Path,
    lock: int,
) -> Iterator[_Job]:
    """Starts a job, and has it ended when the block ends, however that is. A driver on this host has ``lock`` too."""
    # heavy, and for these runs only
    from dagster_aws.pipes import PipesS3ContextInjector  # noqa: PLC0415

    settings = workspace.settings
    client = s3_client(settings.lake_endpoint, settings.s3_region)
    mail = mailbox_in(client, settings.lake, f"{context.run.run_id}-{secrets.token_hex(4)}")
    launcher = SparkSubmit(settings, folder / "driver.log", lock)
    reader = Messages(mail)
    extras = {
        "settings": as_texts(replace(settings, accept_losses=tuple(sorted(workspace.accepted_losses)))),
        "wanted": [list(key) for key in asked],
        "tables": list(tables),
        "workers": settings.spark_workers,
        "closed": [asdict(one) for one in openings(settings.budget_path)],
        "bucket": mail.bucket,
        "alive": mail.alive,
    }
    injector = PipesS3ContextInjector(bucket=mail.bucket, client=client, key_prefix=f"{mail.prefix}/")

    def run() -> None:
        try:
            launcher.run(Start(context, extras, injector, reader))
        except Exception as error:
            job.error = error

    thread = threading.Thread(target=run, name="job on Spark", daemon=True)
    job = _Job(launcher, reader, thread, settings.budget_path)
    with mail.open():
        context.log.info(
            f"{len(asked):,} partitions go to {settings.spark_workers} Spark workers at {launcher.address}"
        )
        job._thread.start()
        try:
            yield job
        finally:
            job.end()
            tags = {ENGINE_TAG: "spark", JOB_TAG: launcher.address}
            context.instance.add_run_tags(context.run.run_id, tags)
