"""From planned captures to stored, verified records: every capture gets exactly one outcome.

Nothing here raises for what the source has or lacks: that becomes a row. What does raise (``EnvironmentFault``)
leaves everything fetched so far in complete segments, which the next run adopts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.fetch_plan import Coalescing, PlannedRange, plan_ranges, usable
from cc_pipeline.extraction.record_check import PARSER, Examined, Promise, examine
from cc_pipeline.extraction.record_heads import segment_head
from cc_pipeline.extraction.record_schema import RECORD_SCHEMA
from cc_pipeline.extraction.record_segments import DEFAULT_ROTATION, Row, SegmentWriter, adopt, forget_journals
from cc_pipeline.extraction.record_shelf import RecordShelf
from cc_pipeline.extraction.record_wrap import unwrap_member, wrap_member
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: ``(captures done, captures in all, bytes read)``.
Progress = Callable[[int, int, int], None]

_KEY_COLUMNS = (
    "crawl",
    "subset",
    "target",
    "url",
    "url_surtkey",
    "fetch_time",
    "fetch_status",
    "content_digest",
    "content_mime_type",
    "warc_filename",
    "warc_record_offset",
    "warc_record_length",
    "domain",
    "archive_format",
)
#: Columns that say what became of a capture, whichever target asked for it.
_FATE_COLUMNS = tuple(name for name in RECORD_SCHEMA.names if name not in _KEY_COLUMNS)
#: Columns a record may fill where the index has nothing (the ARC years).
_FILLED = ("fetch_time", "fetch_status", "content_digest", "content_mime_type")
_BATCH = 5_000


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """``fail_on_digest``: a payload that is not the one the index promises is quarantined instead of noted.

    ``tries`` is how often bytes that are not the promised record are asked for before they are believed.
    ``give_up_after`` ranges in a row without one answer, the run stops: the place is in trouble, not the data.
    ``retry_quarantined`` asks again for captures already in quarantine. ``rotation`` is in bytes.
    """

    fail_on_digest: bool = False
    tries: int = 3
    give_up_after: int = 25
    retry_quarantined: bool = False
    rotation: int = DEFAULT_ROTATION
    coalescing: Coalescing = field(default_factory=Coalescing)
    software: str = "cc_pipeline/0.1"


@dataclass(frozen=True, slots=True)
class RecordsResult:
    """``table`` has one row per capture asked for (``RECORD_SCHEMA``, the captures' order).

    ``reused`` captures were held before, ``adopted`` ones came from a killed run's segments. ``requests`` and
    ``bytes`` were spent on the source. ``files`` are the new complete files, ``settled`` those whose every record
    is in the table (or was before). ``unreached`` counts missing captures that only the environment kept away:
    worth another run. Call ``settle`` once the table is committed.
    """

    table: pa.Table
    reused: int
    adopted: int
    requests: int
    bytes: int
    seconds: float
    files: tuple[str, ...]
    settled: tuple[str, ...]
    unreached: int
    outcomes: Mapping[str, int]


def fetch_records(
    captures: pa.Table,
    transport: Transport,
    shelf: RecordShelf,
    *,
    crawl: str,
    commit: str,
    held: pa.Table | None = None,
    options: RecordOptions | None = None,
    plan: str = "",
    progress: Progress | None = None,
) -> RecordsResult:
    """Fetches, verifies and stores the captures (``CAPTURE_SCHEMA`` and ``target``) of one crawl.

    ``commit`` names the new files and must be unused; ``plan`` (a digest) goes into their warcinfo. ``held`` are
    rows of the records table for this crawl, of any target: what they hold is not fetched again. Raises
    ``EnvironmentFault`` when the source or the disk gives out.
    """
    run = _Run(captures, transport, shelf, crawl, options or RecordOptions(), progress)
    info = {
        "software": run.options.software,
        "format": "WARC File Format 1.0",
        "description": f"Records of {crawl}, extracted from Common Crawl",
        "isPartOf": crawl,
        "plan": plan,
        "source": transport.source,
    }
    writer = SegmentWriter(
        shelf, crawl, commit, lambda kind, name: segment_head(kind, name, info), run.options.rotation
    )
    started = time.monotonic()
    requests, read = transport.stats.requests, transport.stats.bytes
    reused = run.take(_held_rows(held), adopted=False)
    left = list(adopt(shelf, crawl))
    adopted = run.take(left, adopted=True)
    try:
        run.fetch(writer)
    finally:
        writer.close()
    table = run.table()
    known = run.wanted.keys() | {(row["warc_filename"], row["warc_record_offset"]) for row in _held_rows(held)}
    others = {row["stored_file"] for row in left if (row["warc_filename"], row["warc_record_offset"]) not in known}
    mine = {row["stored_file"] for row in left} | set(writer.files)
    return RecordsResult(
        table=table,
        reused=reused,
        adopted=adopted,
        requests=transport.stats.requests - requests,
        bytes=transport.stats.bytes - read,
        seconds=time.monotonic() - started,
        files=tuple(writer.files),
        settled=tuple(sorted(mine - others)),
        unreached=run.unreached,
        outcomes=Counter(table.column("outcome").to_pylist()),
    )


def settle(shelf: RecordShelf, result: RecordsResult) -> None:
    """Says that the result's rows are in the lake, so that no later run needs to adopt them.

    Files of a killed run that also hold records of other targets wait until those are in the lake too.
    """
    forget_journals(shelf, result.settled)


def read_stored(shelf: RecordShelf, row: Mapping[str, Any]) -> bytes:
    """The stored bytes of a row: a gzip member of one record as its source had it, or what was quarantined.

    Raises ``DataFault`` where the stored file has no such bytes.
    """
    stored = shelf.read(row["stored_file"], row["stored_offset"], row["stored_length"])
    return unwrap_member(stored) if row["outcome"] == "fetched" and row["archive_format"] == "warc" else stored


class _Run:
    """What is known so far about each distinct (file, offset) among the captures."""

    def __init__(
        self,
        captures: pa.Table,
        transport: Transport,
        shelf: RecordShelf,
        crawl: str,
        options: RecordOptions,
        progress: Progress | None,
    ) -> None:
        self.captures = captures
        self.transport = transport
        self.crawl = crawl
        self.options = options
        self.progress = progress
        self.columns: dict[str, list[Any]] = {name: captures.column(name).to_pylist() for name in _KEY_COLUMNS}
        self.fates: dict[tuple[str, int], Row] = {}
        self.wanted: dict[tuple[str, int], int] = {}
        for row in range(captures.num_rows):
            self.wanted.setdefault(self._name(row), row)
        self.etags: dict[str, Counter[str | None]] = {}
        self.silent = 0
        self.unreached = 0
        self.bytes = 0

    def _name(self, row: int) -> tuple[str, int]:
        return self.columns["warc_filename"][row], self.columns["warc_record_offset"][row]

    def take(self, rows: Iterable[Row], *, adopted: bool) -> int:
        """Uses what is stored already; says how many captures that settles."""
        taken = 0
        for row in rows:
            name = (row["warc_filename"], row["warc_record_offset"])
            if name not in self.wanted or name in self.fates or row["stored_file"] is None:
                continue
            if row["outcome"] == "fetched" or (
                row["outcome"] == "quarantined" and not (self.options.retry_quarantined and not adopted)
            ):
                self.fates[name] = {key: _plain(row[key]) for key in (*_FATE_COLUMNS, *_FILLED)}
                taken += 1
        return taken

    def fetch(self, writer: SegmentWriter) -> None:
        rows = [row for name, row in self.wanted.items() if name not in self.fates]
        for row in rows:
            key, offset = self._name(row)
            length = self.columns["warc_record_length"][row]
            if not usable(key, offset, length):
                self._settle(row, "missing", "bad_plan", f"offset {offset}, length {length} of {key!r}", 0)
        rows = [row for row in rows if self._name(row) not in self.fates]
        ranges = plan_ranges(self.captures, self.options.coalescing, rows)
        seen: dict[int, bytes] = {}
        for attempt in range(1, self.options.tries + 1):
            if not ranges:
                return
            again: list[int] = []
            last = attempt == self.options.tries
            requests = (ByteRange(planned.key, planned.offset, planned.length, None, planned) for planned in ranges)
            for outcome in self.transport.read_many(requests):
                planned = outcome.tag
                assert isinstance(planned, PlannedRange)
                if isinstance(outcome, RangeFault):
                    self._failed(outcome, planned, again)
                else:
                    self._arrived(outcome, planned, again, writer, seen, attempt, last)
                if self.progress is not None:
                    self.progress(len(self.fates), len(self.wanted), self.bytes)
            # whatever went wrong in company is asked for alone, so that it takes no good record with it
            ranges = [
                PlannedRange(self._name(row)[0], self._name(row)[1], self.columns["warc_record_length"][row], (row,))
                for row in sorted(again, key=self._name)
            ]

    def _failed(self, fault: RangeFault, planned: PlannedRange, again: list[int]) -> None:
        if fault.kind is FaultKind.BREAKER_OPEN:
            raise fault
        environment = fault.kind in ENVIRONMENT_KINDS
        self.silent = self.silent + 1 if environment else 0
        if self.silent >= self.options.give_up_after:
            raise EnvironmentFault(
                f"{self.silent} ranges in a row of {self.transport.source} could not be read, the last one because "
                f"of {fault.kind.value} ({fault.detail})",
                "What is complete is kept: run again later and it goes on from there",
            ) from fault
        if not environment and len(planned.rows) > 1:
            again.extend(planned.rows)
            return
        for row in planned.rows:
            self.unreached += environment
            self._settle(row, "missing", fault.kind.value, fault.detail, fault.attempts)

    def _arrived(
        self,
        got: RangeBytes,
        planned: PlannedRange,
        again: list[int],
        writer: SegmentWriter,
        seen: dict[int, bytes],
        attempt: int,
        last: bool,
    ) -> None:
        self.silent = 0
        self.bytes += len(got.data)
        if not self._same_object(got):
            if not last:
                again.extend(planned.rows)
                return
            for row in planned.rows:
                self._settle(row, "missing", FaultKind.CHANGED_OBJECT.value, f"ETag {got.etag} is new", attempt)
            return
        for row in planned.rows:
            start = self.columns["warc_record_offset"][row] - planned.offset
            length = self.columns["warc_record_length"][row]
            data = got.data if len(got.data) == length else got.data[start : start + length]
            verdict = examine(data, self._promise(row), fail_on_digest=self.options.fail_on_digest)
            # the same bad bytes twice are what the source has; different ones were damaged on the way
            if verdict.reason is not None and not last and seen.get(row) != data:
                seen[row] = data
                again.append(row)
                continue
            seen.pop(row, None)
            self._store(row, verdict, data, writer, got.attempts + attempt - 1)

    def _same_object(self, got: RangeBytes) -> bool:
        known = self.etags.get(got.key)
        if known is None:
            known = self.etags[got.key] = Counter()
        known[got.etag] += 1
        return len(known) == 1 or known[got.etag] > max(n for etag, n in known.items() if etag != got.etag)

    def _promise(self, row: int) -> Promise:
        columns = self.columns
        return Promise(
            crawl=self.crawl,
            archive_format=columns["archive_format"][row],
            key=columns["warc_filename"][row],
            offset=columns["warc_record_offset"][row],
            length=columns["warc_record_length"][row],
            url=columns["url"][row],
            surtkey=columns["url_surtkey"][row],
            digest=columns["content_digest"][row],
        )

    def _store(self, row: int, verdict: Examined, data: bytes, writer: SegmentWriter, attempts: int) -> None:
        key, offset = self._name(row)
        fate = _fate("fetched" if verdict.reason is None else "quarantined", verdict.reason, verdict.detail, attempts)
        record = verdict.record
        fate["digest_check"] = verdict.digest_check
        if record is not None:
            fate |= {
                "record_type": record.record_type,
                "payload_length": len(record.payload),
                "truncated": record.truncated,
                "fetch_time": _plain(record.fetch_time),
                "fetch_status": record.http_status,
                # a revisit has no payload of its own to name
                "content_digest": None if record.record_type == "revisit" else record.payload_digest,
                "content_mime_type": record.declared_mime,
            }
        fate |= {"warc_filename": key, "warc_record_offset": offset}
        kind = self.columns["archive_format"][row]
        if verdict.reason is not None:
            writer.add("raw", data, fate)
        elif kind == "arc":
            writer.add("arc", verdict.member, fate)
        else:
            source = self.transport.store.url(key)
            writer.add("warc", wrap_member(verdict.member, verdict.content, source, offset), fate)
        self.fates[key, offset] = fate

    def _settle(self, row: int, outcome: str, reason: str, detail: str, attempts: int) -> None:
        self.fates[self._name(row)] = _fate(outcome, reason, detail, attempts)

    def table(self) -> pa.Table:
        """One row per capture, batch by batch so that no second copy of everything is made."""
        batches = []
        for start in range(0, self.captures.num_rows, _BATCH):
            rows = [self._row(row) for row in range(start, min(start + _BATCH, self.captures.num_rows))]
            batches.append(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
        return pa.Table.from_batches(batches, schema=RECORD_SCHEMA)

    def _row(self, row: int) -> Row:
        values: Row = {name: self.columns[name][row] for name in _KEY_COLUMNS}
        fate = self.fates[self._name(row)]
        for name in _FATE_COLUMNS:
            values[name] = fate[name]
        values["fetch_time"] = _plain(values["fetch_time"])
        for name in _FILLED:
            if values[name] is None:
                values[name] = fate[name]
        return values


def _fate(outcome: str, reason: str | None, detail: str | None, attempts: int) -> Row:
    fate: Row = dict.fromkeys((*_FATE_COLUMNS, *_FILLED))
    fate |= {"outcome": outcome, "reason": reason, "detail": detail, "attempts": attempts}
    fate |= {"fetched_at": _milliseconds(datetime.now(UTC)), "parser": PARSER}
    return fate


def _held_rows(held: pa.Table | None) -> Iterable[Row]:
    if held is None:
        return
    for batch in held.to_batches(max_chunksize=_BATCH):
        yield from batch.to_pylist()


def _plain(value: Any) -> Any:
    return _milliseconds(value) if isinstance(value, datetime) else value


def _milliseconds(when: datetime) -> int:
    return int(when.timestamp() * 1000)
