"""One worker process of a parse, as its parent sees it.

A process of its own kind rather than ``multiprocessing``'s: those import the parent's main program again, which
costs seconds under Dagster and runs a script without a guard a second time.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from cc_pipeline.documents.batch.slots import POSITION, SLOTS, Broken, Read, open_slot, put, take
from cc_pipeline.documents.page import ParseOptions

#: Seconds to wait for a process that was killed or closed its link.
_END_SECONDS = 5.0
_PROGRAM = "cc_pipeline.documents.batch.serve"


class Worker:
    """A process that parses the batches it is sent, in their order, of which it holds two at most."""

    def __init__(self, options: ParseOptions, read: Read) -> None:
        ours, theirs = socket.socketpair()
        self._slots = [open_slot() for _ in range(SLOTS)]
        self._free = list(range(SLOTS))
        with tempfile.TemporaryFile() as shared, theirs:
            shared.write(POSITION.pack(-1))
            shared.flush()
            self._position = mmap.mmap(shared.fileno(), POSITION.size)
            passed = (theirs.fileno(), shared.fileno(), *self._slots)
            command = [sys.executable, "-m", _PROGRAM, str(options.limits.memory_bytes), *map(str, passed)]
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            self._process = subprocess.Popen(
                command, pass_fds=passed, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
            )
        self.connection = Connection(ours.detach())
        self._seen: tuple[int, float] = (-1, time.monotonic())
        self._send((options, read))

    def send(self, items: Sequence[Any], broken: Mapping[int, Broken]) -> None:
        """Gives a batch, to be begun when the one before it has ended. There must be room for it (``load``). A worker
        that is gone is noticed when its answer is awaited."""
        if self.load == 0:
            POSITION.pack_into(self._position, 0, -1)
            self._seen = (-1, time.monotonic())
        slot = self._free.pop(0)
        self._send((slot, put(self._slots[slot], pickle.dumps((items, dict(broken)), pickle.HIGHEST_PROTOCOL))))

    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def receive(self) -> dict[str, bytes] | None:
        """The rows of the oldest batch it has, ``None`` where the process is gone."""
        try:
            slot, length = self.connection.recv()
            answer: dict[str, bytes] = pickle.loads(take(self._slots[slot], length))
        except (EOFError, OSError):
            return None
        self._free.append(slot)
        self._seen = (-1, time.monotonic())
        return answer

    @property
    def load(self) -> int:
        """Batches it has."""
        return SLOTS - len(self._free)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def memory(self) -> int:
        """Bytes the process holds, 0 where the system does not say."""
        try:
            with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * mmap.PAGESIZE
        except (OSError, ValueError, IndexError):
            return 0

    @property
    def position(self) -> int:
        """The item of the oldest batch it is at, -1 before the first."""
        (place,) = POSITION.unpack_from(self._position, 0)
        return int(place)

    def stuck_for(self, now: float) -> float:
        """Seconds at the same item."""
        position = self.position
        if position != self._seen[0]:
            self._seen = (position, now)
        return now - self._seen[1]

    def cause_of_death(self) -> str:
        """Why the process ended, in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        code = self._process.returncode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"parser process ended by {signal.Signals(-code).name}"
        return f"parser process ended with code {code}"

    def end(self) -> None:
        """Ends the process, whatever it is doing."""
        self.connection.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._position.close()
        for slot in self._slots:
            os.close(slot)
