"""Slots for requests in flight, shared by all processes of a user and kept by the kernel: one locked file each.

A killed process frees its slots, whatever the clock says. No call waits.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class Slots:
    """Up to ``count`` slots in ``folder``, one a request. Used by one thread at a time. Raises ``OSError``."""

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = [_open(folder / str(number)) for number in range(count)]
        self._free = list(range(count))
        self._queue = _open(folder / "queue")

    def take(self) -> int | None:
        """Takes a slot, and returns its number; ``None`` if other processes have all, or if this one has some and
        another one has none."""
        holds_no_slot = len(self._free) == len(self._files)
        if not holds_no_slot and self._is_queue_taken():
            return None
        for position, number in enumerate(self._free):
            if _lock(self._files[number], fcntl.LOCK_EX):
                del self._free[position]
                self.leave_queue()
                return number
        if holds_no_slot:
            _lock(self._queue, fcntl.LOCK_SH)
        return None

    def give_back(self, number: int) -> None:
        """Frees a slot of this process."""
        fcntl.flock(self._files[number], fcntl.LOCK_UN)
        self._free.append(number)

    def leave_queue(self) -> None:
        """Notes that no request of this process waits for a slot."""
        fcntl.flock(self._queue, fcntl.LOCK_UN)

    def close(self) -> None:
        """Frees all slots."""
        for descriptor in (*self._files, self._queue):
            os.close(descriptor)

    def _is_queue_taken(self) -> bool:
        """Whether a process without a slot waits for one."""
        if not _lock(self._queue, fcntl.LOCK_EX):
            return True
        fcntl.flock(self._queue, fcntl.LOCK_UN)
        return False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(descriptor: int, kind: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    return False
