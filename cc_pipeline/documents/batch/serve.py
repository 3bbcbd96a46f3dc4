"""The program of a worker process. Its arguments: LIMIT LINK POSITION SLOT...

LIMIT is the bytes of data the process may hold. The others are inherited file descriptors: LINK a socket to the
parent, POSITION a file of eight bytes that both map, SLOTs the memory in which batches come and rows go (worker.py).
Ends when the parent does, or after a minute without a batch.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import math
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence

from cc_pipeline.documents.batch.rows import rows_of
from cc_pipeline.documents.batch.worker import BATCH, POSITION, ROWS, pack, take

#: Objects made before Python looks for cycles: a page makes thousands, and none of them in cycles.
_GC_EVERY = 50_000
#: Seconds without a batch after which the process ends.
_IDLE_SECONDS = 60.0


def serve(link: socket.socket, position: mmap.mmap, slots: Sequence[int]) -> None:
    """Parses batch after batch until the parent closes the link. A message is a slot and the length of the batch in it;
    the answer is the same slot and the lengths of the tables that are now in it."""

    def begin_page(place: int) -> None:
        POSITION.pack_into(position, 0, place)
        bound(resource.RLIMIT_CPU, math.ceil(time.process_time() + options.limits.seconds))

    link.settimeout(_IDLE_SECONDS)
    with contextlib.suppress(OSError):
        while message := link.recv(BATCH.size):
            number, length = BATCH.unpack(message)
            POSITION.pack_into(position, 0, -1)
            options, read, items = pickle.loads(take(slots[number], length))
            link.sendall(ROWS.pack(number, *pack(slots[number], rows_of(items, options, read, begin_page))))


def bound(kind: int, limit: int) -> None:
    """Makes the system refuse more of a resource than ``limit``, if it can. macOS does not bound memory: the parent
    checks the process there (worker.py)."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))


def main() -> None:
    """Serves the parent named by the arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    limit, link, position, *slots = map(int, sys.argv[1:])
    bound(resource.RLIMIT_DATA, limit)
    bound(resource.RLIMIT_FSIZE, limit)
    gc.freeze()
    gc.set_threshold(_GC_EVERY)
    try:
        serve(socket.socket(fileno=link), mmap.mmap(position, POSITION.size), slots)
    except MemoryError:
        os._exit(errno.ENOMEM)
