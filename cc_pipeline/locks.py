"""Locks among the processes of a host: they end with whoever holds them, however that ends.

Work that hosts must not do at a time has leases on the lake, which run out by themselves (``upkeep/upkeep.py``: one
home at a time; ``records/leases.py``: many fetches, each of which says what it counts on).
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from cc_pipeline.errors import EnvironmentFault

#: Seconds by which the clocks of two machines may differ.
SKEW: Final = 900.0
#: Seconds between two looks at a lock.
_LOOK_AGAIN: Final = 0.1


def has_come(moment: float, now: float) -> bool:
    """Whether ``moment`` (seconds since the epoch, like ``now``) can be when something was written: a later one is of a
    clock that was wrong, and says nothing."""
    return moment <= now + SKEW


class LockHeld(EnvironmentFault):
    """Another process of this host holds a lock, and this one did not wait for it any longer."""


@contextmanager
def locked(path: Path, patience: float | None = None, waiting: Callable[[], object] | None = None) -> Iterator[TextIO]:
    """Holds a lock of this host on ``path`` while the block runs, and gives the open file: processes that inherit it
    hold it too.

    Waits for it, at most ``patience`` seconds, and calls ``waiting`` between looks. Raises ``LockHeld`` when another
    process still has it then, ``OSError`` where there can be no such file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    until = None if patience is None else time.monotonic() + patience
    with path.open("w") as handle:
        while True:
            try:
                # who has nothing else to do queues, so that nobody starves
                queues = patience is None and waiting is None
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if queues else fcntl.LOCK_NB))
                break
            except BlockingIOError:
                if until is not None and time.monotonic() > until:
                    raise LockHeld(
                        f"another process has held {path} for more than {patience:.0f} seconds",
                        "Wait until it is done, then run this again.",
                    ) from None
                if waiting is not None:
                    waiting()
                time.sleep(_LOOK_AGAIN)
        yield handle
