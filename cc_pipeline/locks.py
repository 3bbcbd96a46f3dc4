"""Locks between the processes of a host. A lock ends with its process, however that ends.

Work that hosts must not do at the same time needs leases on the lake, which expire (``maintenance/maintain.py``: one
home at a time; ``records/file_leases.py``: many fetches, each with the files that it uses)."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from cc_pipeline.errors import EnvironmentFault

#: Maximum seconds by which the clocks of two machines may differ.
MAX_CLOCK_SKEW: Final = 900.0
#: Seconds between two attempts to get a lock.
_POLL_SECONDS: Final = 0.1


def is_plausible(moment: float, now: float) -> bool:
    """Whether ``moment`` (seconds since the epoch, as ``now``) is plausible as a time in the past. A later one is from
    a wrong clock and must be ignored."""
    return moment <= now + MAX_CLOCK_SKEW


class LockTimeout(EnvironmentFault):
    """Another process of this host has a lock, and this process stopped waiting for it."""


@contextmanager
def locked(path: Path, timeout: float | None = None, waiting: Callable[[], object] | None = None) -> Iterator[TextIO]:
    """Holds a lock of this host on ``path`` while the block runs, and yields the open file: processes that inherit it
    hold the lock too.

    Waits at most ``timeout`` seconds, and calls ``waiting`` between attempts. Raises ``LockTimeout`` if another process
    still has the lock then, ``OSError`` if the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    until = None if timeout is None else time.monotonic() + timeout
    with path.open("w") as handle:
        while True:
            try:
                # without a timeout the process queues for the lock, so that none starves
                queues = timeout is None and waiting is None
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if queues else fcntl.LOCK_NB))
                break
            except BlockingIOError:
                if until is not None and time.monotonic() > until:
                    raise LockTimeout(
                        f"another process has locked {path} for more than {timeout:.0f} seconds",
                        "Wait until the other process has finished, then run the command again.",
                    ) from None
                if waiting is not None:
                    waiting()
                time.sleep(_POLL_SECONDS)
        yield handle
