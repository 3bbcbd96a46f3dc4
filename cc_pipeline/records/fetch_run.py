"""One fetch run over the captures of a crawl: it sends the requests that the captures' states ask for
(``capture_states.py``), has the answers verified, and stores the records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from cc_pipeline.processes import usable_cores
from cc_pipeline.records.capture_states import Arrival, CaptureStates, Halt
from cc_pipeline.records.orders import Order
from cc_pipeline.records.outcomes import Outcomes
from cc_pipeline.records.segments import Row, SegmentWriter
from cc_pipeline.records.source_state import SourceState
from cc_pipeline.records.verification import ExpectedRecord, VerificationResult, verify_record
from cc_pipeline.records.wrap import wrap_member
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.named_files import NamedPlaces
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: Records being verified at a time, per thread; bounds their memory.
_PENDING_PER_THREAD: Final = 4
#: More threads than this would be idle: fetching and storing are one thread each.
_MAX_THREADS: Final = 4

#: ``(captures done, captures in all, bytes read)``.
Progress = Callable[[int, int, int], None]


@contextmanager
def open_verifier_pool(threads: int | None) -> Iterator[tuple[Executor | None, int]]:
    """Opens an executor with ``threads`` threads for verifying records; yields it with the number of records that may
    wait in it.

    0 is the caller's own thread (no executor): with few cores, another one costs more than it saves. ``None`` leaves
    one core for fetching and one for storing.
    """
    workers = max(0, min(_MAX_THREADS, usable_cores() - 2)) if threads is None else threads
    if not workers:
        yield None, 0
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="cc-pipeline-verify") as pool:
        yield pool, workers * _PENDING_PER_THREAD


class FetchRun:
    """Gives every distinct (file, offset) among captures one outcome, group by group (:meth:`fetch_group`).

    ``reused`` captures had a stored outcome, ``adopted`` ones that of a killed run. ``fetched`` counts the good records
    read so far. ``source`` has what was learned of the source.

    Fetching runs in the transport's thread, storing in the caller's. If there are enough cores, a few threads inflate
    and compute digests (both release the interpreter's lock).
    """

    def __init__(
        self,
        transport: Transport | NamedPlaces,
        order: Order,
        writer: SegmentWriter,
        progress: Progress | None,
        planned_count: int,
        files: int,
        halt: Halt | None = None,
    ) -> None:
        """``planned_count`` distinct captures are to come, of so many ``files`` (0: they are seen in the first group).
        ``halt`` is asked before each range is."""
        options = order.options
        self.reused = self.adopted = self.fetched = 0
        self.source = SourceState(options.give_up_after, files, gave_good_record=options.source_gave_good_record)
        self._transport, self._order, self._writer = transport, order, writer
        self._progress, self._halt = progress, halt
        self._planned_count, self._finished_count, self._bytes = planned_count, 0, 0
        self._addresses: dict[str, str] = {}

    def fetch_group(self, captures: pa.Table, stored_rows: Iterable[Row], journaled_rows: Iterable[Row]) -> Outcomes:
        """Reads and stores the records of new captures that no stored row settles. Returns the outcomes of all. Raises
        ``EnvironmentFault`` if the disk fails."""
        order = self._order
        states = CaptureStates(
            captures, order.crawl, order.options, order.ask_time, self.source, self._store, self._halt
        )
        reused, adopted = states.reuse(stored_rows, journaled_rows)
        with open_verifier_pool(order.options.examiners) as (pool, max_pending):
            for requests in states.passes():
                self._send(requests, states, pool, max_pending)
        states.finish()
        self._ask_for_proof(states)
        self.reused, self.adopted = self.reused + reused, self.adopted + adopted
        self.fetched += states.fetched
        self._finished_count += len(states.outcomes.by_name)
        return states.outcomes

    def _ask_for_proof(self, states: CaptureStates) -> None:
        """Asks the source for records that it gave before: where it gives none of them, no capture counts as lost."""
        for answer in self._transport.read_many(states.proof_ranges()):
            if isinstance(answer, RangeBytes):
                assert isinstance(answer.tag, ExpectedRecord)
                if verify_record(answer.data, answer.tag).reason is None:
                    self.source.note_good_record(answer.key)

    def _send(
        self, requests: Iterator[ByteRange], states: CaptureStates, pool: Executor | None, max_pending: int
    ) -> None:
        """Sends the requests of one pass, and adds their answers and the verdicts on them."""
        pending: deque[tuple[Arrival, Future[VerificationResult]]] = deque()
        for answer in self._transport.read_many(requests):
            if not isinstance(answer, RangeFault):
                self._bytes += len(answer.data)
            for arrival in states.add_answer(answer):
                if pool is None:
                    states.add_verdict(arrival, self._verify(arrival))
                    continue
                pending.append((arrival, pool.submit(self._verify, arrival)))
                if len(pending) >= max_pending:
                    _add_verdict(states, *pending.popleft())
            while pending and pending[0][1].done():
                _add_verdict(states, *pending.popleft())
            self._report_progress(states)
        while pending:
            _add_verdict(states, *pending.popleft())
        self._report_progress(states)

    def _verify(self, arrival: Arrival) -> VerificationResult:
        return verify_record(arrival.data, arrival.expected)

    def _report_progress(self, states: CaptureStates) -> None:
        if self._progress is not None:
            finished_count = self._finished_count + len(states.outcomes.by_name)
            self._progress(finished_count, self._planned_count, self._bytes)

    def _store(self, kind: str, member: bytes, content: bytes, row: Row) -> None:
        if kind == "warc":
            member = wrap_member(member, content, self._address_of(row["warc_filename"]), row["warc_record_offset"])
        self._writer.add(kind, member, row)

    def _address_of(self, key: str) -> str:
        """The address of an archive file; files come one after the other."""
        if key not in self._addresses:
            self._addresses = {key: self._transport.url(key)}
        return self._addresses[key]


def _add_verdict(states: CaptureStates, arrival: Arrival, verdict: Future[VerificationResult]) -> None:
    states.add_verdict(arrival, verdict.result())
