"""An event loop on its own thread, which runs many requests while the caller takes their results one by one."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop that starts with the first use and ends with ``stop``. Thread-safe; a forked process needs its
    own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    def get(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is not None:
            if self._process != os.getpid():
                # its thread was not copied by the fork: waiting for it would never end
                raise RuntimeError("this transport belongs to the parent process; open one after the fork")
            return loop
        with self._lock:
            if self._loop is None:
                self._loop = _new_loop()
                self._process = os.getpid()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="cc-pipeline-transport", daemon=True
                )
                self._thread.start()
            return self._loop

    @property
    def started(self) -> bool:
        return self._loop is not None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of ``work``; an interruption of the waiting thread cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self.get())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        leftover = asyncio.all_tasks(loop)
        for task in leftover:
            task.cancel()
        if leftover:
            loop.run_until_complete(asyncio.gather(*leftover, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of ``work``, which waits for nothing, in the caller's thread and without a loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("it waits for something")


def _new_loop() -> asyncio.AbstractEventLoop:
    """Returns uvloop's loop if it is installed (it is optional and has no Windows build), else the standard one."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    fast: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    return fast


Request = TypeVar("Request")
Outcome = TypeVar("Outcome")


class Stream(Generic[Request, Outcome]):
    """Runs ``work`` in ``loop`` for each request. Results come in the order they are ready.

    ``cost`` returns the number of bytes a request may bring. ``memory_bound`` limits the bytes of requests that run or
    whose results wait to be taken (one request may always run). The caller's thread draws requests as they are needed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Callable[[Request], Coroutine[Any, Any, Outcome]],
        cost: Callable[[Request], int],
        window: int,
        memory_bound: int,
    ) -> None:
        self._loop, self._work, self._cost = loop, work, cost
        self._window, self._memory_bound = window, memory_bound
        self._running: dict[asyncio.Task[Outcome], int] = {}
        # requests that ended, each with its cost; a portion wakes the caller's thread once
        self._ended: list[tuple[asyncio.Task[Outcome], int]] = []
        self._portions: queue.SimpleQueue[list[tuple[asyncio.Task[Outcome], int]]] = queue.SimpleQueue()

    def run(self, requests: Iterable[Request]) -> Iterator[Outcome]:
        """Yields the results, and raises the errors of ``work``; leaving early cancels requests in flight."""
        source = iter(requests)
        # the window is topped up again after a quarter of it was taken, so that the link never runs dry
        portion = max(1, self._window // 4)
        ready: deque[tuple[asyncio.Task[Outcome], int]] = deque()
        waiting = held_bytes = 0
        next_request = next(source, None)
        try:
            while True:
                batch: list[tuple[Request, int]] = []
                while next_request is not None and waiting < self._window:
                    cost = self._cost(next_request)
                    if held_bytes and held_bytes + cost > self._memory_bound:
                        break
                    batch.append((next_request, cost))
                    waiting += 1
                    held_bytes += cost
                    next_request = next(source, None)
                if batch:
                    self._loop.call_soon_threadsafe(self._start, batch)
                if not waiting:
                    return
                ready.extend(() if ready else self._portions.get())
                for _ in range(min(portion, len(ready))):
                    task, cost = ready.popleft()
                    waiting -= 1
                    yield task.result()
                    held_bytes -= cost
        finally:
            # a loop that was closed before this generator was collected has ended its tasks itself
            if (waiting or self._running) and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._cancel)

    def _start(self, batch: list[tuple[Request, int]]) -> None:
        for request, cost in batch:
            task = self._loop.create_task(self._work(request))
            self._running[task] = cost
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Outcome]) -> None:
        if not self._ended:
            self._loop.call_soon(self._hand_over)
        self._ended.append((task, self._running.pop(task)))
        if not task.cancelled():
            task.exception()  # or asyncio logs it if the caller has left

    def _hand_over(self) -> None:
        ended, self._ended = self._ended, []
        self._portions.put(ended)

    def _cancel(self) -> None:
        for task in tuple(self._running):
            task.cancel()
