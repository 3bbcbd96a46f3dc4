"""One worker process of a parse, as its parent sees it.

A process of its own kind rather than ``multiprocessing``'s: those import the parent's main program again, which
costs seconds under Dagster and runs a script without a guard a second time.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from cc_pipeline.documents.batch.rows import Read
from cc_pipeline.documents.batch.serve import POSITION
from cc_pipeline.documents.page import ParseOptions

#: Seconds to wait for a process that was killed or closed its link.
_END_SECONDS = 5.0
_PROGRAM = "cc_pipeline.documents.batch.serve"


class Worker:
    """A process that parses the batches it is sent, one at a time."""

    def __init__(self, options: ParseOptions, read: Read) -> None:
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as shared, theirs:
            shared.write(POSITION.pack(-1))
            shared.flush()
            self._position = mmap.mmap(shared.fileno(), POSITION.size)
            passed = (theirs.fileno(), shared.fileno())
            command = [sys.executable, "-m", _PROGRAM, *map(str, passed), str(options.limits.memory_bytes)]
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            self._process = subprocess.Popen(
                command, pass_fds=passed, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
            )
        self.connection = Connection(ours.detach())
        self._seen: tuple[int, float] = (-1, time.monotonic())
        self._send((options, read))

    def send(self, items: Sequence[Any], broken: Mapping[int, str]) -> None:
        """Starts a batch; a worker that is gone is noticed when its answer is awaited."""
        POSITION.pack_into(self._position, 0, -1)
        self._seen = (-1, time.monotonic())
        self._send((items, dict(broken)))

    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def receive(self) -> dict[str, bytes] | None:
        """The rows of the batch, ``None`` where the process is gone."""
        try:
            answer: dict[str, bytes] = self.connection.recv()
        except (EOFError, OSError):
            return None
        return answer

    @property
    def position(self) -> int:
        """The item it is at, -1 before the first."""
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
