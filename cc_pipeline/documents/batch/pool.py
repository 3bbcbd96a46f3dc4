"""Parsing over the cores of the machine: batches of pages in, Arrow record batches out, in order.

Parsers are C code that can loop, exhaust memory or end the process on hostile input, so they run in supervised
worker processes. A worker that dies, or waits for ever, is replaced. The page that it was at is parsed again in a fresh
one, by itself: the machine may have ended the first. If that ends too, the page becomes a row with that error. No clock
but the processor's decides about a page. Rows travel as Arrow streams, not as Python objects, and a worker gets its
next batch before it has finished one.
"""

from __future__ import annotations

import atexit
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from cc_pipeline.documents.batch.worker import SLOTS, Input, Read, Worker
from cc_pipeline.documents.document2012.json import failed_page
from cc_pipeline.documents.page import PageInput, ParsedPage, ParseOptions
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.processes import usable_cores

#: A process with more bytes of memory is not kept: a large page made it grow.
_MAX_MEMORY = 512 << 20

_lock = threading.Lock()
_workers: list[Worker] = []
#: The purpose of the workers: the process that started them, the options and the reader.
_purpose: list[object] = []

T = TypeVar("T")
RecordBatches = dict[str, pa.RecordBatch]

#: Batches that are held per worker at any time; bounds memory.
_AHEAD_PER_WORKER = 3
#: Seconds between two checks of workers that do not answer.
_WATCH_SECONDS = 0.5
#: Workers that may end before their first page, one after the other. After that many the fault is this machine's.
_FRUITLESS_STARTS = 3
#: Workers that a page may end. After the first it is parsed once more.
_DEATHS = 2


def take(max_workers: int, options: ParseOptions, read: Read) -> list[Worker]:
    """Returns at most ``max_workers`` waiting workers with these options and reader. Ends those with others."""
    with _lock:
        _only([os.getpid(), options, read])
        alive = [worker for worker in _workers if worker.alive]
        _workers[:] = alive[max_workers:]
        return alive[:max_workers]


def keep(worker: Worker, options: ParseOptions, read: Read) -> bool:
    """Keeps an idle worker for the next call. Returns whether it is kept; if not, its owner ends it."""
    with _lock:
        _only([os.getpid(), options, read])
        if not worker.alive or worker.memory > _MAX_MEMORY or len(_workers) >= usable_cores():
            return False
        _workers.append(worker)
        return True


def start_early(options: ParseOptions, read: Read) -> None:
    """Starts a worker for the next call with the same ``options`` and ``read``, unless one waits: it imports the
    parsers while the caller does something else. Raises ``OSError``."""
    with _lock:
        _only([os.getpid(), options, read])
        if not any(worker.alive for worker in _workers):
            _workers[:] = [Worker(options, read)]


def end() -> None:
    """Ends all waiting workers."""
    with _lock:
        _only([])


def _only(purpose: list[object]) -> None:
    if _purpose == purpose:
        return
    if _purpose[:1] == [os.getpid()]:  # in a fork they belong to the parent
        for worker in _workers:
            worker.end()
    _workers.clear()
    _purpose[:] = purpose


atexit.register(end)


def identity(page: PageInput, failure: str | None = None) -> Input:
    """Returns the page: the default ``read``, for items that are page inputs already."""
    if failure is None:
        return page
    # without a status no header is read
    return failed_page(replace(page, http_status=None, fetch_status=None), "ParseFailed", failure)


def parse_batches(
    batches: Iterable[Sequence[T]], options: ParseOptions, workers: int, read: Read = identity
) -> Iterator[RecordBatches]:
    """Yields the rows of the items of ``batches``, in their order: a dictionary (table name to record batch) for each
    batch, and several for one with large pages.

    ``read`` makes a ``PageInput``, or a ready ``ParsedPage``, out of an item; with the reason of a failure a page that
    says so. It runs in the worker and must be a function that other processes can import, so none of the main program.
    ``workers`` processes are started, one at least. At most three batches a worker are held at any time. Raises
    ``EnvironmentFault`` if worker processes cannot start; a page never raises.
    """
    pool = _Pool(options, max(1, workers), read)
    try:
        yield from pool.run(batches)
    finally:
        pool.close()


def _readable(workers: Sequence[Worker]) -> set[Worker]:
    """Returns the workers that have answered or ended; waits up to ``_WATCH_SECONDS`` for one."""
    with selectors.DefaultSelector() as watched:
        for worker in workers:
            watched.register(worker, selectors.EVENT_READ, worker)
        return {key.data for key, _ in watched.select(_WATCH_SECONDS)}


class _Task:
    """Items for one worker; their rows, once they are here; and how many workers its only item has ended."""

    def __init__(self, items: Sequence[Any], deaths: int = 0) -> None:
        self.items = items
        self.deaths = deaths
        self.is_sent = False
        self.rows: RecordBatches | None = None


class _Pool:
    def __init__(self, options: ParseOptions, workers: int, read: Read) -> None:
        self._options = options
        self._read = read
        waiting_workers = take(workers, options, read)
        self._workers: list[Worker] = waiting_workers + [
            Worker(options, read) for _ in range(workers - len(waiting_workers))
        ]
        #: All tasks whose rows were not given yet, in their order; and the unfinished ones of each worker.
        self._tasks: list[_Task] = []
        self._sent: dict[Worker, deque[_Task]] = {worker: deque() for worker in self._workers}
        self._fruitless_starts = 0
        self._checked_at = time.monotonic()

    def run(self, batches: Iterable[Sequence[Any]]) -> Iterator[RecordBatches]:
        remaining_batches = iter(batches)
        while self._send(remaining_batches):
            rows = self._tasks[0].rows
            if rows is None:
                self._wait()
            else:
                del self._tasks[0]
                yield rows

    def _send(self, batches: Iterator[Sequence[Any]]) -> bool:
        """Gives tasks, old and new ones, to workers with room. Returns whether any task is left."""
        while (worker := min(self._workers, key=lambda process: process.load)).load < SLOTS:
            task = self._find_task(batches)
            if task is None:
                break
            task.is_sent = True
            self._sent[worker].append(task)
            worker.send(task.items)
        return bool(self._tasks)

    def _find_task(self, batches: Iterator[Sequence[Any]]) -> _Task | None:
        for task in self._tasks:
            if not task.is_sent and task.rows is None:
                return task
        if len(self._tasks) >= len(self._workers) * _AHEAD_PER_WORKER or (items := next(batches, None)) is None:
            return None
        self._tasks.append(_Task(items))
        return self._tasks[-1]

    def _wait(self) -> None:
        busy = [worker for worker, tasks in self._sent.items() if tasks]
        ready = _readable(busy)
        now = time.monotonic()
        checks = now - self._checked_at >= _WATCH_SECONDS
        if checks:
            self._checked_at = now
        for worker in busy:
            if worker in ready:
                rows = worker.receive()
                if rows is None:
                    self._replace(worker, worker.cause_of_death())
                else:
                    self._accept(self._sent[worker].popleft(), rows)
            elif checks and (fault := worker.find_fault()):
                self._replace(worker, fault)

    def _accept(self, task: _Task, rows: RecordBatches) -> None:
        """Keeps rows. Those of the last items may be missing, which are a task of their own then."""
        task.rows = rows
        self._fruitless_starts = 0
        parsed_items = rows["page_metadata"].num_rows
        if parsed_items < len(task.items):
            self._tasks.insert(self._tasks.index(task) + 1, _Task(task.items[parsed_items:]))

    def _replace(self, worker: Worker, cause: str) -> None:
        """Ends a worker. Its tasks go to others; the page that it was at becomes a task of its own."""
        task, *others = self._sent.pop(worker)
        position = worker.position
        self._workers.remove(worker)
        worker.end()
        for other in (task, *others):
            other.is_sent = False
        if 0 <= position < len(task.items):
            self._isolate(task, position, cause)
        else:
            self._fruitless_starts += 1
            if self._fruitless_starts >= _FRUITLESS_STARTS:
                raise EnvironmentFault(
                    f"parser processes end before they parse a page ({cause})",
                    "Check how much memory is free, and the limits given to the parser",
                )
        fresh = Worker(self._options, self._read)
        self._workers.append(fresh)
        self._sent[fresh] = deque()

    def _isolate(self, task: _Task, position: int, cause: str) -> None:
        """Divides a task at the page that ended its worker. A page that has ended as many as it may is a row."""
        items, place = task.items, self._tasks.index(task)
        page = _Task(items[position : position + 1], task.deaths + 1)
        if page.deaths == _DEATHS:
            failed_page = self._read(page.items[0], cause)
            assert isinstance(failed_page, ParsedPage), "a reader makes the row of a failure"
            page.rows = to_record_batches([failed_page])
        parts = (_Task(items[:position]), page, _Task(items[position + 1 :]))
        self._tasks[place : place + 1] = [part for part in parts if part.items]

    def close(self) -> None:
        """Keeps the idle workers for the next call; ends the others."""
        for worker in self._workers:
            if self._sent[worker] or not keep(worker, self._options, self._read):
                worker.end()
