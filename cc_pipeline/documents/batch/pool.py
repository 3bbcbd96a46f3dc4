"""Parsing over the cores of the machine: batches of pages in, Arrow record batches out, in order.

Parsers are C code that can loop, exhaust memory or end the process on hostile input, so they run in supervised
worker processes. A worker that dies, or stays on one page too long, is replaced. The new worker reads only the
beginning of that page; if it ends too, the page becomes a row with that error. Rows travel as Arrow streams, not as
Python objects, and a worker gets its next batch before it has finished one.
"""

from __future__ import annotations

import atexit
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from cc_pipeline.documents.batch.worker import SLOTS, Broken, Input, Worker
from cc_pipeline.documents.page import PageInput, ParseOptions
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
#: Bytes of a process besides its data: the libraries of the parsers.
_MEMORY_OF_CODE = 256 << 20
#: Seconds between two checks of workers that do not answer.
_WATCH_SECONDS = 0.5
#: Seconds a worker may take before its first page. It imports the parsers in that time.
_START_SECONDS = 120.0
#: Workers that may end before the first page of the same batch. After that many the fault is this machine's.
_FRUITLESS_STARTS = 3


def take(max_workers: int, options: ParseOptions, read: Callable[..., Any]) -> list[Worker]:
    """Returns at most ``max_workers`` waiting workers with these options and reader. Ends those with others."""
    with _lock:
        _only([os.getpid(), options, read])
        alive = [worker for worker in _workers if worker.alive]
        _workers[:] = alive[max_workers:]
        return alive[:max_workers]


def keep(worker: Worker, options: ParseOptions, read: Callable[..., Any]) -> bool:
    """Keeps an idle worker for the next call. Returns whether it is kept; if not, its owner ends it."""
    with _lock:
        _only([os.getpid(), options, read])
        if not worker.alive or worker.memory > _MAX_MEMORY or len(_workers) >= usable_cores():
            return False
        _workers.append(worker)
        return True


def start_early(options: ParseOptions, read: Callable[..., Any]) -> None:
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


def identity(page: PageInput) -> Input:
    """Returns the page: the default ``read``, for items that are page inputs already."""
    return page


def parse_batches(
    batches: Iterable[Sequence[T]],
    options: ParseOptions,
    workers: int,
    read: Callable[[T], Input] = identity,  # type: ignore[assignment]  # only right for T = PageInput
) -> Iterator[RecordBatches]:
    """Yields one dictionary (table name to record batch) per batch of ``batches``, in their order.

    ``read`` makes a ``PageInput``, or a ready ``ParsedPage``, out of an item. It runs in the worker and must be a
    function that other processes can import, so none of the main program. ``workers`` processes are started, one at
    least. At most three batches a worker are held at any time. Raises ``EnvironmentFault`` if worker processes cannot
    start; a page never raises.
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
    """A batch that is being parsed: its number, its items, and the items that broke a worker, with the cause."""

    def __init__(self, number: int, items: Sequence[object]) -> None:
        self.number = number
        self.items = items
        self.broken: dict[int, Broken] = {}
        self.fruitless = 0


class _Pool:
    def __init__(self, options: ParseOptions, workers: int, read: Callable[[T], Input]) -> None:
        self._options = options
        self._read = read
        waiting_workers = take(workers, options, read)
        self._workers: list[Worker] = waiting_workers + [
            Worker(options, read) for _ in range(workers - len(waiting_workers))
        ]
        self._tasks: dict[Worker, deque[_Task]] = {worker: deque() for worker in self._workers}
        self._results: dict[int, RecordBatches] = {}
        self._checked_at = time.monotonic()

    def run(self, batches: Iterable[Sequence[T]]) -> Iterator[RecordBatches]:
        source = enumerate(batches)
        max_batches = len(self._workers) * _AHEAD_PER_WORKER
        next_number = 0
        exhausted = False
        while True:
            while not exhausted and self._count_batches() < max_batches:
                worker = min(self._workers, key=lambda process: process.load)
                if worker.load >= SLOTS:
                    break
                number, items = next(source, (-1, ()))
                if number < 0:
                    exhausted = True
                else:
                    self._give(worker, _Task(number, items))
            if next_number in self._results:
                yield self._results.pop(next_number)
                next_number += 1
            elif any(self._tasks.values()):
                self._wait()
            else:
                return

    def _count_batches(self) -> int:
        return len(self._results) + sum(map(len, self._tasks.values()))

    def _give(self, worker: Worker, task: _Task) -> None:
        self._tasks[worker].append(task)
        worker.send(task.items, task.broken)

    def _wait(self) -> None:
        busy = [worker for worker, tasks in self._tasks.items() if tasks]
        ready = _readable(busy)
        limits, now = self._options.limits, time.monotonic()
        checks_memory = now - self._checked_at >= _WATCH_SECONDS
        if checks_memory:
            self._checked_at = now
        for worker in busy:
            if worker in ready:
                answer = worker.receive()
                if answer is None:
                    self._replace(worker, worker.cause_of_death())
                else:
                    self._results[self._tasks[worker].popleft().number] = answer
            elif worker.stuck_for(now) > (limits.seconds if worker.position >= 0 else _START_SECONDS):
                self._replace(worker, f"no end after {limits.seconds:g} s")
            elif checks_memory and worker.memory > limits.memory_bytes + _MEMORY_OF_CODE:
                self._replace(worker, f"more than {limits.memory_bytes:,} bytes of memory")

    def _replace(self, worker: Worker, cause: str) -> None:
        """Ends a worker and gives its tasks to a new one; the page it was at is marked as broken."""
        tasks = self._tasks.pop(worker)
        task, position = tasks[0], worker.position
        previous_break = task.broken.get(position)
        worker.end()
        if 0 <= position < len(task.items) and (previous_break is None or previous_break.times == 1):
            task.broken[position] = Broken(cause, 1 if previous_break is None else 2)
        else:
            task.fruitless += 1
            if task.fruitless >= _FRUITLESS_STARTS:
                self._workers.remove(worker)
                raise EnvironmentFault(
                    f"parser processes end before they parse a page ({cause})",
                    "Check how much memory is free, and the limits given to the parser",
                )
        fresh = Worker(self._options, self._read)
        self._workers[self._workers.index(worker)] = fresh
        self._tasks[fresh] = deque()
        for waiting_task in tasks:
            self._give(fresh, waiting_task)

    def close(self) -> None:
        """Keeps the idle workers for the next call; ends the others."""
        for worker in self._workers:
            if self._tasks.get(worker) or not keep(worker, self._options, self._read):
                worker.end()
