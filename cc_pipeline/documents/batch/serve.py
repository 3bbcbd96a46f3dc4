"""The program of a worker process: ``python -m cc_pipeline.documents.batch.serve LINK POSITION LIMIT``.

LINK and POSITION are inherited file descriptors: a socket to the parent and a file of eight bytes that both map;
LIMIT is the bytes of data the process may hold. Ends when the parent does.
"""

from __future__ import annotations

import contextlib
import mmap
import signal
import struct
import sys
from multiprocessing.connection import Connection

from cc_pipeline.documents.batch.rows import pack, rows_of

#: How a position is written: the place of an item in its batch, -1 before the first.
POSITION = struct.Struct("=q")


def serve(link: Connection, position: mmap.mmap) -> None:
    """Parses batch after batch until the parent closes the link."""

    def at(place: int) -> None:
        POSITION.pack_into(position, 0, place)

    with contextlib.suppress(EOFError, OSError):
        options, read = link.recv()
        while True:
            items, broken = link.recv()
            link.send(pack(rows_of(items, options, read, broken, at)))


def _bound_memory(limit: int) -> None:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    _bound_memory(int(sys.argv[3]))
    serve(Connection(int(sys.argv[1])), mmap.mmap(int(sys.argv[2]), POSITION.size))
