"""What travels between a worker process and its parent: two slots of shared memory, one batch in each.

A batch of pages is megabytes, more than a socket holds, so that its sender waits until the other side reads: a parent
would stand still beside a busy worker, a worker beside a busy parent. So bytes lie in memory files that both have open,
and only their length goes over the socket. Two slots let a worker find its next batch ready when it has ended one.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from cc_pipeline.documents.page import PageInput, ParsedPage

Input = PageInput | ParsedPage
Read = Callable[[Any], Input]

#: How a position is written: the place of an item in its batch, -1 before the first.
POSITION = struct.Struct("=q")
#: Batches a worker has at most: the one it is at, and the next.
SLOTS = 2
#: Bytes a slot keeps for the next batch; what is beyond is given back once it has been read.
_KEPT = 64 << 20


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


def put(slot: int, data: bytes | memoryview) -> int:
    """Writes ``data`` from the slot's begin; gives its length. Raises ``OSError`` where memory ends."""
    view = memoryview(data).cast("B")
    at = 0
    while at < len(view):
        at += os.pwrite(slot, view[at:], at)
    return len(view)


def take(slot: int, length: int) -> bytes:
    """What ``put`` wrote."""
    data = bytearray(length)
    view = memoryview(data)
    at = 0
    while at < length:
        read = os.preadv(slot, [view[at:]], at)
        if not read:
            raise EOFError("a slot holds less than was put into it")
        at += read
    if length > _KEPT:
        os.ftruncate(slot, 0)
    return data  # type: ignore[return-value]  # as good as bytes to all who read it, and not copied again


def pack(batches: Mapping[str, pa.RecordBatch]) -> dict[str, bytes]:
    """Record batches as Arrow streams."""
    packed = {}
    for table, batch in batches.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        packed[table] = sink.getvalue().to_pybytes()
    return packed


def unpack(packed: Mapping[str, bytes]) -> dict[str, pa.RecordBatch]:
    """The reverse of ``pack``."""
    return {table: pa.ipc.open_stream(data).read_next_batch() for table, data in packed.items()}
