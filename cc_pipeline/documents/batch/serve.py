"""The program of a worker process: ``python -m cc_pipeline.documents.batch.serve LIMIT LINK POSITION SLOT...``.

LIMIT is the bytes of data the process may hold. The others are inherited file descriptors: LINK a socket to the
parent, POSITION a file of eight bytes that both map, SLOTs the memory in which batches come and rows go (worker.py).
Ends when the parent does, or when nothing has come for a minute.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import pickle
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

from cc_pipeline.documents.batch.rows import rows_of
from cc_pipeline.documents.batch.worker import POSITION, pack, take

#: Objects made before Python looks for cycles: a page makes thousands, and none of them in cycles.
_GC_EVERY = 50_000
#: Seconds without a batch after which the process ends.
_IDLE_SECONDS = 60.0


def serve(link: Connection, position: mmap.mmap, slots: Sequence[int]) -> None:
    """Parses batch after batch until the parent closes the link. A message is a slot and the length of what is in it;
    the answer the same slot and the lengths of the tables that now lie there."""

    def at(place: int) -> None:
        POSITION.pack_into(position, 0, place)

    with contextlib.suppress(EOFError, OSError):
        options, read = link.recv()
        while link.poll(_IDLE_SECONDS):
            number, length = link.recv()
            at(-1)
            items, broken = pickle.loads(take(slots[number], length))
            link.send((number, pack(slots[number], rows_of(items, options, read, broken, at))))


def _bound_memory(limit: int) -> None:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    _bound_memory(int(sys.argv[1]))
    gc.freeze()
    gc.set_threshold(_GC_EVERY)
    inherited = [int(number) for number in sys.argv[2:]]
    serve(Connection(inherited[0]), mmap.mmap(inherited[1], POSITION.size), inherited[2:])
