"""One worker process of a parse, as its parent sees it.

``multiprocessing`` is not used: its processes import the parent's main program again, which costs seconds under
Dagster and runs a script without a guard a second time.

The process reads hostile input, so it may be taken over. It has no secret (``children.py``), and none of its answers
is unpickled: they are numbers and Arrow streams, which are validated.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import pickle
import signal
import socket
import struct
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cc_pipeline import children
from cc_pipeline.documents.page import PageInput, ParsedPage, ParseOptions
from cc_pipeline.documents.schemas import SCHEMAS

Input = PageInput | ParsedPage
#: Makes a page of an item; the finished row of a failure, from the item's keys alone, if its reason is given.
Read = Callable[[Any, str | None], Input]
RecordBatches = dict[str, pa.RecordBatch]

#: The format of a position: the index of an item in its batch, -1 before the first.
POSITION = struct.Struct("=q")
#: The parent's message about a batch in a slot: the slot and the bytes in it.
BATCH = struct.Struct("=qq")
#: The process's message about rows in a slot: the slot and the bytes of each table, in the order of ``SCHEMAS``.
ROWS = struct.Struct(f"={1 + len(SCHEMAS)}q")
#: Batches a worker has at most: the one it parses, and the next.
SLOTS = 2
#: Bytes a slot keeps for the next batch; a larger slot is truncated once it has been read.
_KEPT_BYTES = 64 << 20

#: Bytes of a process besides its data: the libraries of the parsers.
_MEMORY_OF_CODE = 256 << 20
#: Checks, one after the other, at which a process has used no processor time since the first: it will not answer.
_IDLE_CHECKS = 120
#: Seconds to wait for a process that was killed or closed its link.
_END_SECONDS = 5.0
_PROGRAM = "cc_pipeline.documents.batch.serve"


def open_slot() -> int:
    """Returns a file descriptor of memory; of an unnamed file if the system has no ``memfd_create``."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("batch")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def put(slot: int, data: bytes | pa.Buffer) -> int:
    """Writes ``data`` at the slot's beginning; returns its length. Raises ``OSError`` if memory is exhausted."""
    view = memoryview(data).cast("B")
    position = 0
    while position < len(view):
        position += os.pwrite(slot, view[position:], position)
    return len(view)


def take(slot: int, length: int) -> pa.Buffer:
    """Returns the ``length`` bytes that ``put`` wrote, in Arrow's memory: it is mostly reused, and not zeroed first."""
    data = pa.allocate_buffer(length)
    view = memoryview(data)
    position = 0
    while position < length:
        read = os.preadv(slot, [view[position:]], position)
        if not read:
            raise EOFError("a slot holds less than was put into it")
        position += read
    if length > _KEPT_BYTES:
        os.ftruncate(slot, 0)
    return data


def pack(slot: int, batches: Mapping[str, pa.RecordBatch]) -> list[int]:
    """Writes record batches into a slot as Arrow streams, one after the other; returns the length of each."""
    lengths = []
    sink = pa.BufferOutputStream()
    for table in SCHEMAS:
        begin = sink.tell()
        with pa.ipc.new_stream(sink, batches[table].schema) as writer:
            writer.write_batch(batches[table])
        lengths.append(sink.tell() - begin)
    put(slot, sink.getvalue())
    return lengths


def unpack(slot: int, lengths: Sequence[int], max_bytes: int, pages: int) -> RecordBatches:
    """Reads back what ``pack`` wrote. The other process may be hostile, so all is checked: raises ``ValueError`` unless
    the slot has the rows of the first of so many ``pages``, in at most ``max_bytes``."""
    if min(lengths) < 0 or sum(lengths) > min(max_bytes, os.fstat(slot).st_size):
        raise ValueError("the lengths of the tables are impossible")
    data = take(slot, sum(lengths))
    batches, begin = {}, 0
    try:
        for (table, schema), length in zip(SCHEMAS.items(), lengths, strict=True):
            stream = pa.ipc.open_stream(data.slice(begin, length))
            if not stream.schema.equals(schema):
                raise ValueError(f"rows of {table} have other columns")
            batches[table] = stream.read_next_batch()
            batches[table].validate(full=True)
            begin += length
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise ValueError(f"rows of {table} cannot be read: {error}") from error
    if not min(1, pages) <= batches[next(iter(SCHEMAS))].num_rows <= pages:
        raise ValueError("there are rows of other pages")
    return batches


class Task:
    """Items for one worker, and the rows of the first of them once they are here. ``is_retry``: the only item has ended
    a worker."""

    def __init__(self, items: Sequence[Any], *, is_retry: bool = False) -> None:
        self.items = items
        self.is_retry = is_retry
        self.is_waiting = True
        self.rows: RecordBatches | None = None


def make_failed_page(item: Any, read: Read, reason: str) -> ParsedPage:
    """Returns the finished page of an item that cannot be parsed."""
    page = read(item, reason)
    assert isinstance(page, ParsedPage), "a reader makes the row of a failure"
    return page


class Worker:
    """A process that parses the batches it is sent, in their order. It holds two at most."""

    def __init__(self, options: ParseOptions, read: Read) -> None:
        self._options = options
        self._read = read
        self._link, child_link = socket.socketpair()
        self._slots = [open_slot() for _ in range(SLOTS)]
        #: The unfinished batches, the oldest first, and the numbers of slots in the order of their use.
        self.tasks: deque[Task] = deque()
        self._numbers = deque(range(SLOTS))
        self._fault = ""
        with tempfile.TemporaryFile() as shared, child_link:
            shared.write(POSITION.pack(-1))
            shared.flush()
            self._position = mmap.mmap(shared.fileno(), POSITION.size)
            passed = (child_link.fileno(), shared.fileno(), *self._slots)
            command = children.python_command(
                _PROGRAM, options.limits.memory_bytes, *passed, needed_modules=[read.__module__]
            )
            self._process = children.start(
                command, children.neutral_environment(), pass_fds=passed, stdin=subprocess.DEVNULL, cwd=os.sep
            )
        self._idle_checks = 0
        self._progress: object = None

    def fileno(self) -> int:
        """Returns the file descriptor that is readable once an answer has come or the process has ended."""
        return self._link.fileno()

    def send(self, task: Task) -> None:
        """Sends a batch, which is parsed after the previous one. There must be room for it (``SLOTS``). ``receive``
        notices a dead worker."""
        if not self.tasks:
            POSITION.pack_into(self._position, 0, -1)
        number = self._numbers[len(self.tasks)]
        self.tasks.append(task)
        task.is_waiting = False
        batch = pickle.dumps((self._options, self._read, task.items), pickle.HIGHEST_PROTOCOL)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._link.sendall(BATCH.pack(number, put(self._slots[number], batch)))

    def receive(self) -> Task | None:
        """Returns the oldest batch with rows of its first items; ``None`` if the process has ended, or its answer is
        invalid. Does not wait: call it when ``fileno`` is readable."""
        try:
            message = self._link.recv(ROWS.size, socket.MSG_DONTWAIT)
        except OSError:
            return None
        if not message:
            return None
        task = self.tasks[0]
        try:
            number, *lengths = ROWS.unpack(message)
            if number != self._numbers[0]:
                raise ValueError("it belongs to another batch")
            task.rows = unpack(self._slots[number], lengths, self._options.limits.memory_bytes, len(task.items))
        except (struct.error, ValueError, EOFError, OSError) as error:
            self._fault = f"parser process gave an invalid answer: {error}"
            return None
        self._numbers.rotate(-1)
        return self.tasks.popleft()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def position(self) -> int:
        """Index of the item that is being parsed, in the oldest batch; -1 before the first."""
        (place,) = POSITION.unpack_from(self._position, 0)
        return int(place)

    def find_fault(self) -> str:
        """Returns the reason why a process that is at work has to end, or an empty text. Called again and again."""
        memory, processor_time = children.usage_of(self._process.pid)
        if memory > self._options.limits.memory_bytes + _MEMORY_OF_CODE:
            return self._too_much_memory
        progress = (self.position, processor_time)
        self._idle_checks = self._idle_checks + 1 if processor_time and progress == self._progress else 0
        self._progress = progress
        return "parser process waits for ever" if self._idle_checks >= _IDLE_CHECKS else ""

    def cause_of_death(self) -> str:
        """Returns the reason why the process ended, or has to end, as text."""
        if self._fault:
            return self._fault
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        code = self._process.returncode
        if code == errno.ENOMEM:
            return self._too_much_memory
        if code == -signal.SIGXCPU:
            return f"more than {self._options.limits.seconds:g} s of processor time"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"parser process ended by {signal.Signals(-code).name}"
        return f"parser process ended with code {code}"

    @property
    def _too_much_memory(self) -> str:
        return f"more than {self._options.limits.memory_bytes:,} bytes of memory"

    def end(self) -> None:
        """Kills the process and frees its slots. Its batches wait for another process."""
        for task in self.tasks:
            task.is_waiting = True
        self._link.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._position.close()
        for slot in self._slots:
            os.close(slot)
