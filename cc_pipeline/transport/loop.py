"""An event loop on a thread of its own, so that synchronous code can have many requests under way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import importlib.util
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Starts with the first use and ends with ``stop``. Thread-safe; a forked process needs one of its own."""

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
        """The result of ``work``; an interruption of the waiting thread cancels it."""
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


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed (it is optional and has no Windows build), else the standard one."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    fast: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    return fast
