"""One worker process of a parse, seen from both sides."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawValue
from typing import Any

import pyarrow as pa

from cc_pipeline.documents.mapping import failed_page
from cc_pipeline.documents.options import ParseOptions
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.tables import to_record_batches
from cc_pipeline.errors import DataFault

Input = PageInput | ParsedPage
Read = Callable[[Any], Input]
_END_SECONDS = 5.0

# forkserver: a copy of a process with threads (Dagster's, a transport's) may hang, and a fresh one is slow to start
_CONTEXT = multiprocessing.get_context("forkserver")


def rows_of(
    items: Sequence[Any], options: ParseOptions, read: Read, broken: Mapping[int, str], position: Any
) -> dict[str, pa.RecordBatch]:
    """The rows of some items. ``broken`` are places not to be parsed again; ``position`` is told where we are."""
    pages: list[ParsedPage] = []
    inputs: list[Input] = []
    for place, item in enumerate(items):
        if position is not None:
            position.value = place
        page = read(item)
        inputs.append(page)
        if isinstance(page, ParsedPage):
            pages.append(page)
            continue
        if place in broken:
            # nothing of it is looked at again
            pages.append(failed_page(replace(page, http_status=None), "ParseFailed", broken[place]))
            continue
        try:
            pages.append(parse_page(page, options))
        except DataFault as fault:
            pages.append(failed_page(page, "ParseFailed", fault.reason))
    try:
        return to_record_batches(pages)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return to_record_batches([_fit_for_tables(page, source) for page, source in zip(pages, inputs, strict=True)])


def _fit_for_tables(page: ParsedPage, source: Input) -> ParsedPage:
    """The page, or a row that says why its values fit no column."""
    try:
        to_record_batches([page])
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if isinstance(source, PageInput):
            return failed_page(replace(source, http_status=None, fetch_status=None), "ParseFailed", str(error))
        raise
    return page


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


class Worker:
    """A process that parses the batches it is sent, one at a time."""

    def __init__(self, options: ParseOptions, read: Read) -> None:
        self._position = RawValue("q", -1)
        self._seen: tuple[int, float] = (-1, time.monotonic())
        _CONTEXT.set_forkserver_preload([__name__])  # imported once, not in every worker
        self.connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=_serve, args=(theirs, self._position, options, read), name="parser", daemon=True
        )
        self._process.start()
        theirs.close()

    def send(self, items: Sequence[Any], broken: Mapping[int, str]) -> None:
        """Starts a batch; a worker that is gone is noticed when its answer is awaited."""
        self._position.value = -1
        self._seen = (-1, time.monotonic())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send((items, dict(broken)))

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
        return int(self._position.value)

    def stuck_for(self, now: float) -> float:
        """Seconds at the same item."""
        position = self.position
        if position != self._seen[0]:
            self._seen = (position, now)
        return now - self._seen[1]

    def cause_of_death(self) -> str:
        """Why the process ended, in words."""
        self._process.join(_END_SECONDS)
        code = self._process.exitcode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"parser process ended by {signal.Signals(-code).name}"
        return f"parser process ended with code {code}"

    def end(self) -> None:
        """Ends the process, whatever it is doing."""
        self.connection.close()
        self._process.kill()
        self._process.join(_END_SECONDS)


def _serve(link: Connection, position: Any, options: ParseOptions, read: Read) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    _bound_memory(options.limits.memory_bytes)
    with contextlib.suppress(EOFError, OSError):
        while True:
            items, broken = link.recv()
            link.send(pack(rows_of(items, options, read, broken, position)))


def _bound_memory(limit: int) -> None:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
