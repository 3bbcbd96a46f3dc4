"""Where records are inflated and their digests computed: in a few threads, or at once where there are few cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: Records being examined at a time, per thread; bounds what they hold in memory.
_AHEAD: Final = 4
#: More threads than this find nothing to do: fetching and storing are one thread each.
_MOST: Final = 4


class _Here(Executor):
    """Does the work at once in the caller's thread. With few cores, handing it to a thread costs more than it saves."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@contextmanager
def examining(threads: int | None) -> Iterator[tuple[Executor, int]]:
    """An executor for ``threads`` threads, and how many records may wait in it.

    0 is the caller's own thread; ``None`` leaves one core for fetching and one for storing.
    """
    workers = max(0, min(_MOST, _cores() - 2)) if threads is None else threads
    with ThreadPoolExecutor(workers, thread_name_prefix="cc-pipeline-examine") if workers else _Here() as pool:
        yield pool, max(1, workers * _AHEAD)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
