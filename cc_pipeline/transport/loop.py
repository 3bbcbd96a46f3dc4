"""An event loop on its own thread, which runs many requests while the caller takes their results one by one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import importlib.util
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
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

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.get())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of ``work``; an interruption of the waiting thread cancels it."""
        future = self.submit(work)
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
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("it waits for something")


def _new_loop() -> asyncio.AbstractEventLoop:
    """Returns uvloop's loop if it is installed (it is optional and has no Windows build), else the standard one."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    fast: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    return fast


In = TypeVar("In")
Out = TypeVar("Out")


#: The cost of an ended request, its result, and its error.
_Outcome = tuple[int, Out | None, BaseException | None]


class Stream(Generic[In, Out]):
    """Runs ``work`` in ``loop`` for each request. Results come in the order they are ready.

    ``cost`` returns the number of bytes a request may bring. ``memory_bound`` limits the bytes of requests that run or
    whose results wait to be taken (one request may always run). The caller's thread draws requests as they are needed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Callable[[In], Awaitable[Out]],
        cost: Callable[[In], int],
        window: int,
        memory_bound: int,
    ) -> None:
        self._loop, self._work, self._cost = loop, work, cost
        self._window, self._memory_bound = window, memory_bound
        self._outcomes: queue.SimpleQueue[_Outcome[Out]] = queue.SimpleQueue()
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, requests: Iterable[In]) -> Iterator[Out]:
        """Yields the results, and raises the errors of ``work``; leaving early cancels requests in flight."""
        source = iter(requests)
        # the window is topped up again after a quarter of it was taken, so that the link never runs dry
        portion = max(1, self._window // 4)
        waiting = held_bytes = 0
        next_request = next(source, None)
        try:
            while True:
                batch: list[In] = []
                while next_request is not None and waiting < self._window:
                    cost = self._cost(next_request)
                    if held_bytes and held_bytes + cost > self._memory_bound:
                        break
                    batch.append(next_request)
                    waiting += 1
                    held_bytes += cost
                    next_request = next(source, None)
                if batch:
                    self._loop.call_soon_threadsafe(self._start, batch)
                if not waiting:
                    return
                for cost, result, error in self._take_outcomes(portion):
                    waiting -= 1
                    if error is not None:
                        raise error
                    yield result  # type: ignore[misc]  # a result is there whenever there is no error
                    held_bytes -= cost
        finally:
            # a loop that was closed before this generator was collected has ended its tasks itself
            if (waiting or self._tasks) and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._cancel)

    def _take_outcomes(self, max_count: int) -> list[_Outcome[Out]]:
        """Waits for an outcome, and returns those that are there."""
        outcomes = [self._outcomes.get()]
        while len(outcomes) < max_count:
            try:
                outcomes.append(self._outcomes.get_nowait())
            except queue.Empty:
                break
        return outcomes

    def _start(self, batch: list[In]) -> None:
        for request in batch:
            task = self._loop.create_task(self._run_request(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    async def _run_request(self, request: In) -> None:
        cost = self._cost(request)
        try:
            result = await self._work(request)
        except BaseException as error:
            self._outcomes.put((cost, None, error))
            if not isinstance(error, Exception):
                raise
        else:
            self._outcomes.put((cost, result, None))
