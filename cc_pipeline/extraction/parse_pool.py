"""Parsing over the cores of the machine, answers in the order of the tasks, a bounded number under way."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pyarrow as pa

from cc_pipeline.documents.options import ParseOptions
from cc_pipeline.extraction.parsing import parse_rows

Task = tuple[Sequence[dict[str, Any]], Sequence[bytes | None]]

#: Below this many records the seconds that starting processes takes are not worth it.
_WORTH_A_POOL = 600
_UNDER_WAY_PER_WORKER = 3


def parse_in_order(
    tasks: Iterable[Task], options: ParseOptions, workers: int, records: int
) -> Iterator[dict[str, pa.RecordBatch]]:
    """The batches of each task. ``workers`` of 0 means one per core; ``records`` is how many there are in all."""
    count = workers or len(os.sched_getaffinity(0))
    if count <= 1 or records < _WORTH_A_POOL:
        for rows, members in tasks:
            yield parse_rows(rows, members, options)
        return
    # forkserver: a forked copy of a process with threads (Dagster's, the transport's) may hang
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        waiting: deque[Future[dict[str, bytes]]] = deque()
        for rows, members in tasks:
            waiting.append(pool.submit(_work, rows, members, options))
            if len(waiting) >= count * _UNDER_WAY_PER_WORKER:
                yield _received(waiting.popleft().result())
        while waiting:
            yield _received(waiting.popleft().result())


def _work(rows: Sequence[dict[str, Any]], members: Sequence[bytes | None], options: ParseOptions) -> dict[str, bytes]:
    sent: dict[str, bytes] = {}
    for table, batch in parse_rows(rows, members, options).items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        sent[table] = sink.getvalue().to_pybytes()
    return sent


def _received(sent: dict[str, bytes]) -> dict[str, pa.RecordBatch]:
    return {table: pa.ipc.open_stream(data).read_next_batch() for table, data in sent.items()}
