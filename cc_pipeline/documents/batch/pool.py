"""Parsing over the cores of the machine: batches of pages in, Arrow record batches out, in order.

Parsers are C code that can loop, exhaust memory or end the process on hostile input, so they run in supervised
worker processes. A worker that dies, or waits for ever, is replaced. The page that it was at is parsed again, alone in
a fresh one: the machine may have ended the first. If that ends too, the page becomes a row with that error. Rows travel
as Arrow streams, not as Python objects, and a worker gets its next batch before it has finished one.
"""

from __future__ import annotations

import atexit
import os
import selectors
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cc_pipeline.documents.batch.worker import SLOTS, Read, RecordBatches, Task, Worker, make_failed_page
from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.processes import usable_cores

_lock = threading.Lock()
_workers: list[Worker] = []
#: The purpose of the workers: the process that started them, the options and the reader.
_purpose: list[object] = []

#: Batches that are held per worker at any time; bounds memory.
_AHEAD_PER_WORKER = 3
#: Seconds between two checks of workers that do not answer.
_WATCH_SECONDS = 0.5
#: Workers that may end before their first page, one after the other. After that many the fault is this machine's.
_FRUITLESS_STARTS = 3


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
        if not worker.alive or len(_workers) >= usable_cores():
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


def parse_batches(
    batches: Iterable[Sequence[Any]], options: ParseOptions, workers: int, read: Read
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


class _Pool:
    def __init__(self, options: ParseOptions, workers: int, read: Read) -> None:
        self._options = options
        self._read = read
        self._workers = take(workers, options, read)
        self._workers += [Worker(options, read) for _ in range(workers - len(self._workers))]
        #: The tasks whose rows were not given yet, in their order.
        self._tasks: list[Task] = []
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
        while len((worker := min(self._workers, key=lambda process: len(process.tasks))).tasks) < SLOTS:
            task = next((task for task in self._tasks if task.is_waiting), None)
            if task is None:
                items = next(batches, None) if len(self._tasks) < len(self._workers) * _AHEAD_PER_WORKER else None
                if items is None:
                    break
                task = Task(items)
                self._tasks.append(task)
            if not worker.tasks and not worker.alive:
                worker = self._renew(worker)  # it ends after a while without a batch
            worker.send(task)
        return bool(self._tasks)

    def _wait(self) -> None:
        busy = [worker for worker in self._workers if worker.tasks]
        ready = _readable(busy)
        now = time.monotonic()
        checks = now - self._checked_at >= _WATCH_SECONDS
        if checks:
            self._checked_at = now
        for worker in busy:
            if worker in ready:
                task = worker.receive()
                if task is None:
                    self._replace(worker, worker.cause_of_death())
                else:
                    self._accept(task)
            elif checks and (fault := worker.find_fault()):
                self._replace(worker, fault)

    def _accept(self, task: Task) -> None:
        """Makes the items that have no rows yet a task of their own."""
        assert task.rows is not None, "it was parsed"
        self._fruitless_starts = 0
        if rest := task.items[task.rows["page_metadata"].num_rows :]:
            self._tasks.insert(self._tasks.index(task) + 1, Task(rest))

    def _replace(self, worker: Worker, cause: str) -> None:
        """Ends a worker. Its tasks wait for others, but for the page that it was at."""
        task, position = worker.tasks[0], worker.position
        self._renew(worker)
        if 0 <= position < len(task.items):
            self._isolate(task, position, cause)
            return
        self._fruitless_starts += 1
        if self._fruitless_starts >= _FRUITLESS_STARTS:
            raise EnvironmentFault(
                f"parser processes end before they parse a page ({cause})",
                "Check how much memory is free, and the limits given to the parser",
            )

    def _renew(self, worker: Worker) -> Worker:
        """Ends a worker and returns another one, the newest from now on."""
        self._workers.remove(worker)
        worker.end()
        self._workers.append(Worker(self._options, self._read))
        return self._workers[-1]

    def _isolate(self, task: Task, position: int, cause: str) -> None:
        """Makes a page that ended its worker a task of the newest worker, or a row if it was that already."""
        page = Task(task.items[position : position + 1], is_retry=True)
        if task.is_retry:
            page.is_waiting = False
            page.rows = to_record_batches([make_failed_page(page.items[0], self._read, cause)])
        else:
            self._workers[-1].send(page)
        parts = (Task(task.items[:position]), page, Task(task.items[position + 1 :]))
        place = self._tasks.index(task)
        self._tasks[place : place + 1] = [part for part in parts if part.items]

    def close(self) -> None:
        """Keeps the idle workers for the next call; ends the others."""
        for worker in self._workers:
            if worker.tasks or not keep(worker, self._options, self._read):
                worker.end()
