"""One run over the captures of a crawl: what is known so far about each of them."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import SOFTWARE
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.keys import RECORD_KEY_NAMES
from cc_pipeline.records.check import KNOWN_BAD_DIGESTS, PARSER, Examined, Promise, examine
from cc_pipeline.records.plan import Coalescing, PlannedRange, plan_ranges, usable
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.records.segments import DEFAULT_ROTATION, Row, SegmentWriter
from cc_pipeline.records.wrap import wrap_member
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

P = ParamSpec("P")
T = TypeVar("T")
#: ``(captures done, captures in all, bytes read)``.
Progress = Callable[[int, int, int], None]
#: The WARC file and the offset in it: what names a capture within its crawl.
Name = tuple[str, int]

#: Columns that say what became of a capture, whichever target asked for it.
_OUTCOME_COLUMNS = tuple(name for name in RECORD_SCHEMA.names if name not in RECORD_KEY_NAMES)
#: Columns a record may fill where the index has nothing (the ARC years).
_FILLED = ("fetch_time", "fetch_status", "content_digest", "content_mime_type")
#: Values for an index row that names no place, since the key columns of the table are never null.
_NOWHERE = {"warc_filename": "", "warc_record_offset": -1, "warc_record_length": 0}
#: Rows that are Python objects at a time; bounds memory.
_BATCH = 5_000


#: Records being examined at a time, per thread; bounds what they hold in memory.
_AHEAD = 4


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How records are fetched. ``fail_on_digest``: a payload whose digest is not the index's goes to quarantine;
    otherwise the difference is only noted.

    ``tries`` is how often bytes that are not the promised record are requested. After ``give_up_after`` ranges in a row
    without an answer the run stops, because then the source fails and not the data. ``retry_quarantined`` fetches
    captures again that are in quarantine. ``rotation`` is the size of a stored file in bytes. ``examiners`` is how many
    threads inflate and check (0: the caller's own); ``None`` leaves one core for fetching and one for storing.
    """

    fail_on_digest: bool = False
    tries: int = 3
    give_up_after: int = 25
    retry_quarantined: bool = False
    rotation: int = DEFAULT_ROTATION
    examiners: int | None = None
    coalescing: Coalescing = field(default_factory=Coalescing)
    software: str = SOFTWARE


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Bytes of one capture, and the verdict on them when it is there."""

    row: int
    data: bytes
    attempts: int
    verdict: Future[Examined]


class _Here(Executor):
    """Does the work at once in the caller's thread. With few cores, handing it to a thread costs more than it saves."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class FetchRun:
    """``fetch`` gives every distinct (file, offset) among the captures one outcome; ``table`` makes the rows of them.

    Fetching happens in the transport's thread, storing in the caller's, and where there are cores for it,
    inflating and digests in a few threads here (both give up the interpreter's lock).
    """

    def __init__(
        self,
        captures: pa.Table,
        transport: Transport,
        crawl: str,
        options: RecordOptions,
        progress: Progress | None,
    ) -> None:
        self.options = options
        self.unreached = 0
        self.wanted: dict[Name, int] = {}
        self._captures = captures
        self._transport = transport
        self._crawl = crawl
        self._progress = progress
        self._columns: dict[str, list[Any]] = {name: captures.column(name).to_pylist() for name in RECORD_KEY_NAMES}
        self._outcomes: dict[Name, Row] = {}
        for row in range(captures.num_rows):
            self.wanted.setdefault(self._name(row), row)
        self._etags: dict[str, Counter[str | None]] = {}
        self._bad: dict[int, bytes] = {}
        self._again: list[int] = []
        self._last_try = False
        self._silent = 0
        self._bytes = 0

    def _name(self, row: int) -> Name:
        return self._columns["warc_filename"][row], self._columns["warc_record_offset"][row]

    def take_held(self, held: pa.Table | None) -> int:
        """Uses rows of the records table, of any target; says how many captures that settles."""
        if held is None or not held.num_rows:
            return 0
        files = pa.array(sorted({file for file, _ in self.wanted if file is not None}), pa.string())
        mine = held.filter(pc.is_in(held.column("warc_filename"), value_set=files))
        return sum(self.take(batch.to_pylist()) for batch in mine.to_batches(max_chunksize=_BATCH))

    def take(self, rows: Iterable[Row], *, adopted: bool = False) -> int:
        """Uses what is stored already; says how many captures that settles."""
        taken = 0
        for row in rows:
            name = (row["warc_filename"], row["warc_record_offset"])
            if name not in self.wanted or name in self._outcomes or row["stored_file"] is None:
                continue
            if row["outcome"] == "quarantined" and self.options.retry_quarantined and not adopted:
                continue
            if self._judged_otherwise(row):
                continue
            self._outcomes[name] = {key: _plain(row[key]) for key in (*_OUTCOME_COLUMNS, *_FILLED)}
            taken += 1
        return taken

    def _judged_otherwise(self, row: Row) -> bool:
        """Whether a digest that does not match was treated differently from what ``fail_on_digest`` says now."""
        if self.options.fail_on_digest and self._crawl not in KNOWN_BAD_DIGESTS:
            return bool(row["outcome"] == "fetched" and row["digest_check"] == "mismatch")
        return bool(row["reason"] == "digest_mismatch")

    def fetch(self, writer: SegmentWriter) -> None:
        """Reads and stores the captures that are still wanted. Raises ``EnvironmentFault`` when source or disk fail."""
        rows = [row for name, row in self.wanted.items() if name not in self._outcomes]
        for row in rows:
            key, offset = self._name(row)
            length = self._columns["warc_record_length"][row]
            if not usable(key, offset, length):
                self._lose(row, "bad_plan", f"offset {offset}, length {length} of {key!r}", 0)
        ranges = plan_ranges(
            self._captures, self.options.coalescing, [row for row in rows if self._name(row) not in self._outcomes]
        )
        examiners = self.options.examiners
        workers = max(0, min(4, _cores() - 2)) if examiners is None else examiners
        with ThreadPoolExecutor(workers, thread_name_prefix="cc-pipeline-examine") if workers else _Here() as pool:
            for attempt in range(1, self.options.tries + 1):
                if not ranges:
                    return
                self._again, self._last_try = [], attempt == self.options.tries
                self._pass(ranges, attempt, writer, pool, max(1, workers * _AHEAD))
                # a record that failed in a shared range is requested alone, so that good neighbours do not fail with it
                ranges = [
                    PlannedRange(*self._name(row), self._columns["warc_record_length"][row], (row,))
                    for row in sorted(self._again, key=self._name)
                ]

    def _pass(
        self,
        ranges: Sequence[PlannedRange],
        attempt: int,
        writer: SegmentWriter,
        pool: Executor,
        ahead: int,
    ) -> None:
        arrivals: deque[_Arrival] = deque()
        requests = (ByteRange(planned.key, planned.offset, planned.length, None, planned) for planned in ranges)
        for outcome in self._transport.read_many(requests):
            planned = outcome.tag
            assert isinstance(planned, PlannedRange)
            if isinstance(outcome, RangeFault):
                self._failed(outcome, planned)
            elif self._is_same_object(outcome, planned, attempt):
                for row in planned.rows:
                    arrivals.append(self._examine(row, outcome, planned, attempt, pool))
                    if len(arrivals) >= ahead:
                        self._conclude(arrivals.popleft(), writer)
            while arrivals and arrivals[0].verdict.done():
                self._conclude(arrivals.popleft(), writer)
            if self._progress is not None:
                self._progress(len(self._outcomes), len(self.wanted), self._bytes)
        while arrivals:
            self._conclude(arrivals.popleft(), writer)
        if self._progress is not None:
            self._progress(len(self._outcomes), len(self.wanted), self._bytes)

    def _failed(self, fault: RangeFault, planned: PlannedRange) -> None:
        if fault.kind is FaultKind.BREAKER_OPEN:
            raise fault
        environment = fault.kind in ENVIRONMENT_KINDS
        self._silent = self._silent + 1 if environment else 0
        if self._silent >= self.options.give_up_after:
            raise EnvironmentFault(
                f"{self._silent} ranges in a row of {self._transport.source} could not be read, the last one because "
                f"of {fault.kind.value} ({fault.detail})",
                "What is complete is kept: run again later and it goes on from there",
            ) from fault
        if not environment and len(planned.rows) > 1 and not self._last_try:
            self._again.extend(planned.rows)
            return
        for row in planned.rows:
            self.unreached += environment
            self._lose(row, fault.kind.value, fault.detail, fault.attempts)

    def _is_same_object(self, got: RangeBytes, planned: PlannedRange, attempt: int) -> bool:
        """Whether the object's ETag is the one that most of its answers had. If not, its rows wait for another try, or
        become ``missing`` after the last one."""
        self._silent = 0
        self._bytes += len(got.data)
        known = self._etags.get(got.key)
        if known is None:
            known = self._etags[got.key] = Counter()
        known[got.etag] += 1
        if len(known) == 1 or known[got.etag] > max(count for etag, count in known.items() if etag != got.etag):
            return True
        if not self._last_try:
            self._again.extend(planned.rows)
            return False
        for row in planned.rows:
            self._lose(row, FaultKind.CHANGED_OBJECT.value, f"ETag {got.etag} is new", attempt)
        return False

    def _examine(self, row: int, got: RangeBytes, planned: PlannedRange, attempt: int, pool: Executor) -> _Arrival:
        columns = self._columns
        start = columns["warc_record_offset"][row] - planned.offset
        length = columns["warc_record_length"][row]
        data = got.data if len(got.data) == length else got.data[start : start + length]
        promise = Promise(
            crawl=self._crawl,
            archive_format=columns["archive_format"][row],
            key=columns["warc_filename"][row],
            offset=columns["warc_record_offset"][row],
            length=length,
            url=columns["url"][row],
            surtkey=columns["url_surtkey"][row],
            digest=columns["content_digest"][row],
        )
        verdict = pool.submit(examine, data, promise, fail_on_digest=self.options.fail_on_digest)
        return _Arrival(row, data, got.attempts + attempt - 1, verdict)

    def _conclude(self, arrival: _Arrival, writer: SegmentWriter) -> None:
        row, data, verdict = arrival.row, arrival.data, arrival.verdict.result()
        if verdict.reason is not None:
            # the same bad bytes twice mean that the source has them; different ones were damaged on the way
            mark = hashlib.blake2b(data, digest_size=16).digest()
            if not self._last_try and self._bad.get(row) != mark:
                self._bad[row] = mark
                self._again.append(row)
                return
        key, offset = self._name(row)
        outcome = _outcome_of(verdict, arrival.attempts) | {"warc_filename": key, "warc_record_offset": offset}
        if verdict.reason is not None:
            writer.add("raw", data, outcome)
        elif self._columns["archive_format"][row] == "arc":
            writer.add("arc", verdict.member, outcome)
        else:
            source = self._transport.store.url(key)
            writer.add("warc", wrap_member(verdict.member, verdict.content, source, offset), outcome)
        self._outcomes[key, offset] = outcome

    def _lose(self, row: int, reason: str, detail: str, attempts: int) -> None:
        self._outcomes[self._name(row)] = _outcome("missing", reason, detail, attempts)

    def table(self) -> pa.Table:
        """One row per capture, in the captures' order (``RECORD_SCHEMA``)."""
        batches = []
        for start in range(0, self._captures.num_rows, _BATCH):
            rows = [self._row(row) for row in range(start, min(start + _BATCH, self._captures.num_rows))]
            batches.append(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
        return pa.Table.from_batches(batches, schema=RECORD_SCHEMA)

    def _row(self, row: int) -> Row:
        values: Row = {name: self._columns[name][row] for name in RECORD_KEY_NAMES}
        outcome = self._outcomes[self._name(row)]
        for name in _OUTCOME_COLUMNS:
            values[name] = outcome[name]
        values["fetch_time"] = _plain(values["fetch_time"])
        for name in _FILLED:
            if values[name] is None:
                values[name] = outcome[name]
        for name, nothing in _NOWHERE.items():
            if values[name] is None:
                values[name] = nothing
        return values


def _outcome_of(verdict: Examined, attempts: int) -> Row:
    outcome = _outcome("fetched" if verdict.reason is None else "quarantined", verdict.reason, verdict.detail, attempts)
    outcome["digest_check"] = verdict.digest_check
    record = verdict.record
    if record is not None:
        outcome |= {
            "record_type": record.record_type,
            "payload_length": len(record.payload),
            "truncated": record.truncated,
            "fetch_time": _plain(record.fetch_time),
            "fetch_status": record.http_status,
            # a revisit has no payload of its own to name
            "content_digest": None if record.record_type == "revisit" else record.payload_digest,
            "content_mime_type": record.declared_mime,
        }
    return outcome


def _outcome(word: str, reason: str | None, detail: str | None, attempts: int) -> Row:
    row: Row = dict.fromkeys((*_OUTCOME_COLUMNS, *_FILLED))
    row |= {"outcome": word, "reason": reason, "detail": detail, "attempts": attempts}
    row |= {"fetched_at": _milliseconds(datetime.now(UTC)), "parser": PARSER}
    return row


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _plain(value: Any) -> Any:
    return _milliseconds(value) if isinstance(value, datetime) else value


def _milliseconds(when: datetime) -> int:
    return int(when.timestamp() * 1000)
