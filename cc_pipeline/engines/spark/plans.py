"""What a task is to do, as an object in the lake: ``records/<crawl>/plans/<job>/<number>.arrow``.

So a job costs its driver some hundred bytes a task, however many captures there are: they are written down task by task
and read by the worker, also by the second one of a task that is run again. The driver deletes them when the job has
ended; those of a driver that was killed go with a sweep of the crawl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final

import pyarrow as pa

from cc_pipeline.errors import CcPipelineError
from cc_pipeline.records.storage import PLANS, RecordStorage

#: Plans that are written at the same time.
_AT_ONCE: Final = 8
#: Bytes of a plan that is read at most.
_LARGEST: Final = 1 << 30
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


class Plans:
    """The plans of one job of a crawl. ``count`` is how many were written, numbered from 0."""

    def __init__(self, storage: RecordStorage, crawl: str, job: str) -> None:
        self._storage = storage
        self._prefix = f"{storage.folder(crawl)}/{PLANS}/{job}/"
        self.count = 0

    def write(self, plans: Iterable[Sequence[pa.Table]]) -> None:
        """Writes plans, each of some tables; few of them are held at a time. Raises ``EnvironmentFault``."""
        numbered = enumerate(plans, self.count)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while some := [(number, _packed(tables)) for number, tables in islice(numbered, _AT_ONCE)]:
                for _ in pool.map(lambda one: self._storage.transport.put(self._key(one[0]), one[1]), some):
                    self.count += 1

    def read(self, number: int) -> list[pa.Table]:
        """The tables of one plan. Raises ``EnvironmentFault``."""
        return _unpacked(self._storage.transport.read_all(self._key(number), _LARGEST).data)

    def delete(self) -> None:
        """Deletes what was written. What cannot be deleted stays for a sweep."""
        with suppress(CcPipelineError), ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda number: self._storage.transport.delete(self._key(number)), range(self.count)))

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:06d}.arrow"


@contextmanager
def written(mine: Plans, plans: Iterable[Sequence[pa.Table]]) -> Iterator[Plans]:
    """The plans of a job, in the lake until the end of the block."""
    try:
        mine.write(plans)
        yield mine
    finally:
        mine.delete()


def _packed(tables: Sequence[pa.Table]) -> bytes:
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _unpacked(data: bytes) -> list[pa.Table]:
    source = pa.BufferReader(data)
    found = []
    while source.tell() < len(data):
        found.append(pa.ipc.open_stream(source).read_all())
    return found
