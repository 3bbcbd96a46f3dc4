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
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import pyarrow as pa

from cc_pipeline.documents.page import PageInput, ParsedPage, ParseOptions

Input = PageInput | ParsedPage
Read = Callable[[Any], Input]

#: How a position is written: the place of an item in its batch, -1 before the first.
POSITION = struct.Struct("=q")
#: Batches a worker has at most: the one it is at, and the next.
SLOTS = 2
#: Bytes a slot keeps for the next batch; what is beyond is given back once it has been read.
_KEPT = 64 << 20

#: Seconds to wait for a process that was killed or closed its link.
_END_SECONDS = 5.0
_PROGRAM = "cc_pipeline.documents.batch.serve"


class Broken(NamedTuple):
    """An item that ended its worker: how the last one ended, and how many."""

    cause: str
    times: int


def open_slot() -> int:
    """A file descriptor of memory; of an unnamed file where the system has no such."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("batch")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def put(slot: int, data: bytes | pa.Buffer) -> int:
    """Writes ``data`` from the slot's begin; gives its length. Raises ``OSError`` where memory ends."""
    view = memoryview(data).cast("B")
    at = 0
    while at < len(view):
        at += os.pwrite(slot, view[at:], at)
    return len(view)


def take(slot: int, length: int) -> pa.Buffer:
    """What ``put`` wrote, in Arrow's memory: it has been used before mostly, and is not zeroed first."""
    data = pa.allocate_buffer(length)
    view = memoryview(data)
    at = 0
    while at < length:
        read = os.preadv(slot, [view[at:]], at)
        if not read:
            raise EOFError("a slot holds less than was put into it")
        at += read
    if length > _KEPT:
        os.ftruncate(slot, 0)
    return data


def pack(slot: int, batches: Mapping[str, pa.RecordBatch]) -> dict[str, int]:
    """Writes record batches into a slot as Arrow streams, one behind the other; gives the length of each."""
    lengths = {}
    sink = pa.BufferOutputStream()
    for table, batch in batches.items():
        begin = sink.tell()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        lengths[table] = sink.tell() - begin
    put(slot, sink.getvalue())
    return lengths


def unpack(slot: int, lengths: Mapping[str, int]) -> dict[str, pa.RecordBatch]:
    """The reverse of ``pack``."""
    data = take(slot, sum(lengths.values()))
    ends = accumulate(lengths.values())
    streams = (data.slice(end - length, length) for end, length in zip(ends, lengths.values(), strict=True))
    return {table: pa.ipc.open_stream(stream).read_next_batch() for table, stream in zip(lengths, streams, strict=True)}


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

    def receive(self) -> dict[str, pa.RecordBatch] | None:
        """The rows of the oldest batch it has, ``None`` where the process is gone."""
        try:
            slot, lengths = self.connection.recv()
            answer = unpack(self._slots[slot], lengths)
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
