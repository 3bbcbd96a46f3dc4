"""Worker processes that wait for the next call.

Starting one takes half a second of a processor, and a run parses slice after slice, most of them small. So workers stay
for a while after a call and serve the next one that wants the same. They end when their parent does, or by themselves
when nothing has come for a minute (serve.py).
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any

from cc_pipeline.documents.batch.worker import Worker
from cc_pipeline.documents.page import ParseOptions

#: Bytes of memory with which a process is not kept: a large page has left it so.
_MOST_MEMORY = 512 << 20

_lock = threading.Lock()
_workers: list[Worker] = []
#: What they are for: the process that started them, the options and the reader.
_wanted: list[object] = []


def take(many: int, options: ParseOptions, read: Callable[..., Any]) -> list[Worker]:
    """At most ``many`` of the waiting workers that do what is wanted. Those that do something else are ended."""
    with _lock:
        _only([os.getpid(), options, read])
        alive = [worker for worker in _workers if worker.alive]
        _workers[:] = alive[many:]
        return alive[:many]


def keep(worker: Worker, options: ParseOptions, read: Callable[..., Any]) -> bool:
    """Whether a worker that has nothing to do is kept; otherwise its owner ends it."""
    with _lock:
        _only([os.getpid(), options, read])
        if not worker.alive or worker.memory > _MOST_MEMORY or len(_workers) >= len(os.sched_getaffinity(0)):
            return False
        _workers.append(worker)
        return True


def end() -> None:
    """Ends all that wait."""
    with _lock:
        _only([])


def _only(wanted: list[object]) -> None:
    if _wanted == wanted:
        return
    if _wanted[:1] == [os.getpid()]:  # in a fork they are another's
        for worker in _workers:
            worker.end()
    _workers.clear()
    _wanted[:] = wanted


atexit.register(end)
