"""The outcome of each capture of a run: exactly one, from a stored, an adopted or a fetched record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import NO_STATUS, RECORD_KEY_NAMES
from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.records.ask_counts import can_count
from cc_pipeline.records.range_plan import FIRST_READ, MAX_RECORD_BYTES, longer
from cc_pipeline.records.schema import ANSWERED_SCHEMA, COUNTS, FILLED_COLUMNS, OUTCOME_COLUMNS
from cc_pipeline.records.segments import Row
from cc_pipeline.records.storage import STORED
from cc_pipeline.records.verification import PARSER, VerificationResult

#: The WARC file and the offset in it: the name of a capture within its crawl.
Name = tuple[str, int]

#: Values for an index row without a location, since the key columns of the table are never null.
NO_LOCATION: Final = {"warc_filename": "", "warc_record_offset": -1, "warc_record_length": 0}
#: The columns of captures that are read row by row.
_READ_COLUMNS: Final = (
    "warc_filename", "warc_record_offset", "warc_record_length", "archive_format", "url", "url_surtkey",
    "content_digest",
)  # fmt: skip
#: The columns of a record that another target can take over.
_RECORD_COLUMNS: Final = (*OUTCOME_COLUMNS, *FILLED_COLUMNS)
#: Rows of a batch; bounds memory.
_BATCH: Final = 5_000


class Outcomes:
    """``first_rows`` maps each distinct (file, offset) of ``captures`` to its first row; ``by_name`` has the outcomes
    so far, without their nulls. ``ask_time`` is the time of the asks."""

    def __init__(self, captures: pa.Table, ask_time: datetime) -> None:
        self.first_rows: dict[Name, int] = {}
        self.by_name: dict[Name, Row] = {}
        self.columns: dict[str, list[Any]] = {name: _values(captures.column(name)) for name in _READ_COLUMNS}
        self._captures, self._ask_time = captures, ask_time
        #: The stored rows of captures that are not fetched.
        self._unfetched: dict[Name, Row] = {}
        self._grown: dict[Name, int] = {}
        names = zip(self.columns["warc_filename"], self.columns["warc_record_offset"], strict=True)
        for row, name in enumerate(names):
            self.first_rows.setdefault(name, row)

    def name(self, row: int) -> Name:
        """Returns the name of the capture in ``row``."""
        return self.columns["warc_filename"][row], self.columns["warc_record_offset"][row]

    def length(self, row: int) -> int:
        """Returns the bytes to read of the record in ``row``: its length, or the current guess."""
        index_length = self.columns["warc_record_length"][row]
        return self._grown.get(self.name(row), FIRST_READ) if index_length is None else int(index_length)

    def grows(self, row: int) -> bool:
        """Raises the guess for a record in ``row`` of unknown length. Returns whether more of it can be read."""
        length = self.length(row)
        if self.columns["warc_record_length"][row] is not None or length >= MAX_RECORD_BYTES:
            return False
        self._grown[self.name(row)] = longer(length)
        return True

    def rows_to_fetch(self) -> list[int]:
        """Returns the rows, one for each capture, that have no outcome yet."""
        return [row for name, row in self.first_rows.items() if name not in self.by_name]

    def take(self, rows: Iterable[Row], usable: Callable[[Row], bool]) -> int:
        """Takes the records among ``rows`` that are ``usable``, and returns for how many captures. Of captures that are
        not fetched it notes the row with the most asks, whichever target asked."""
        count_before = len(self.by_name)
        for row in rows:
            name = (row["warc_filename"], row["warc_record_offset"])
            if name not in self.first_rows or not usable(row):
                continue
            if row["outcome"] == "fetched":
                self.by_name.setdefault(name, _select(row, _RECORD_COLUMNS))
            elif not self._is_of_other_bytes(row, name):
                noted_row = self._unfetched.get(name)
                if noted_row is None or _ask_rank(row) > _ask_rank(noted_row):
                    self._unfetched[name] = _select(row, OUTCOME_COLUMNS)
        return len(self.by_name) - count_before

    def keep_lost(self) -> int:
        """Makes captures lost that any target lost; returns how many."""
        lost = {
            name: row for name, row in self._unfetched.items() if row["outcome"] == "lost" and name not in self.by_name
        }
        self.by_name |= lost
        return len(lost)

    def _is_of_other_bytes(self, row: Row, name: Name) -> bool:
        """Whether the row was recorded with another length: it says nothing about the capture now."""
        index_length = self.columns["warc_record_length"][self.first_rows[name]]
        return None not in (index_length, row["warc_record_length"]) and index_length != row["warc_record_length"]

    def was_requested(self, row: int) -> bool:
        """Whether the capture in ``row`` was requested in vain in an earlier run."""
        stored_row = self._unfetched.get(self.name(row))
        return stored_row is not None and stored_row["attempts"] > 0

    def is_good(self, row: int) -> bool:
        """Whether the capture in ``row`` is fetched."""
        outcome = self.by_name.get(self.name(row))
        return outcome is not None and outcome["outcome"] == "fetched"

    @property
    def has_countable_failures(self) -> bool:
        """Whether a request of this run is an ask, if the source is sound."""
        return any(outcome.get(COUNTS.name) for outcome in self.by_name.values())

    def fail(self, row: int, reason: str, detail: str | None, attempts: int, *, counts: bool) -> Row | None:
        """Notes that the capture in ``row`` was requested in vain: it is pending. Stored bytes of earlier answers stay,
        and so does a lost row (then the result is ``None``). ``counts``: the failure is of this capture."""
        name = self.name(row)
        stored_row = self._unfetched.get(name, {})
        if self.is_good(row) or stored_row.get("outcome") == "lost":
            self.by_name.setdefault(name, stored_row)
            return None
        outcome = _outcome("pending", reason, detail, attempts)
        bytes_of = self.by_name.get(name) or stored_row
        outcome |= {column: bytes_of[column] for column in STORED if column in bytes_of}
        outcome |= {column: stored_row[column] for column in ("asks", "last_ask_at") if column in stored_row}
        outcome[COUNTS.name] = counts and can_count(reason, _time(outcome.get("last_ask_at")), self._ask_time)
        outcome["warc_filename"], outcome["warc_record_offset"] = name
        self.by_name[name] = outcome
        return outcome

    def skip(self, row: int, reason: str, detail: str) -> None:
        """Notes that the capture in ``row`` was not requested: what is known of it stays, or it is pending."""
        name = self.name(row)
        self.by_name[name] = self._unfetched.get(name) or _outcome("pending", reason, detail, 0)

    def lose(self, row: int, reason: str, detail: str) -> None:
        """Makes the capture in ``row`` lost at once."""
        self.by_name[self.name(row)] = _outcome("lost", reason, detail, 0)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields one row per capture, in their order (``ANSWERED_SCHEMA``). The asks of this run are not counted
        yet."""
        names = zip(self.columns["warc_filename"], self.columns["warc_record_offset"], strict=True)
        outcomes = [self.by_name[name] for name in names]
        for start in range(0, len(outcomes), _BATCH):
            captures = self._captures.slice(start, _BATCH).combine_chunks()
            yield _build_batch(captures, outcomes[start : start + _BATCH])


def _build_batch(captures: pa.Table, outcomes: list[Row]) -> pa.RecordBatch:
    """Returns rows of captures with their outcomes, which fill in what the index does not have."""
    columns = []
    for field in ANSWERED_SCHEMA:
        name = field.name
        if name in RECORD_KEY_NAMES:
            column = captures.column(name).cast(field.type)
            if name == "fetch_status":
                column = pc.if_else(pc.equal(column, NO_STATUS), None, column)
            if name in FILLED_COLUMNS and column.null_count:
                column = pc.coalesce(column, pa.array([outcome.get(name) for outcome in outcomes], field.type))
            if name in NO_LOCATION and column.null_count:
                column = column.fill_null(NO_LOCATION[name])
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        else:
            nothing = _NOTHING.get(name)
            column = pa.array([outcome.get(name, nothing) for outcome in outcomes], field.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=ANSWERED_SCHEMA)


#: Values of columns that an outcome need not have.
_NOTHING: Final = {"asks": 0, COUNTS.name: False}


def _select(row: Row, names: Iterable[str]) -> Row:
    return {name: _plain(row[name]) for name in names if row.get(name) is not None}


def _ask_rank(row: Row) -> tuple[bool, int, int]:
    return row["outcome"] == "lost", row.get("asks") or 0, _plain(row.get("last_ask_at")) or 0


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Returns the values of a column as Python objects; equal strings are one object."""
    if not pa.types.is_string(column.type):
        return column.to_pylist()
    encoded = column.combine_chunks().dictionary_encode()
    texts = [*encoded.dictionary.to_pylist(), None]
    return [texts[number] for number in encoded.indices.fill_null(len(texts) - 1).to_pylist()]


def columns_of_url(url: str) -> Row:
    """Returns the URL columns of a capture without a URL, from the record's own URL."""
    columns = host_columns(url)
    domain = columns["url_host_registered_domain"] or columns["url_host_name"] or None
    return {"url": url, "url_surtkey": surt_key(url), "domain": domain}


def columns_of_verdict(verdict: VerificationResult, attempts: int) -> Row:
    """Returns the outcome columns of a good record."""
    row = _outcome("fetched", None, verdict.detail, attempts)
    row["digest_check"] = verdict.digest_check
    row["warc_record_length"] = len(verdict.member)
    record = verdict.record
    if record is not None:
        row |= {
            "record_type": record.record_type,
            "payload_length": len(record.payload),
            "truncated": record.truncated,
            "fetch_time": _plain(record.fetch_time),
            "fetch_status": record.http_status,
            # a revisit has no payload of its own to name
            "content_digest": None if record.record_type == "revisit" else record.payload_digest,
            "content_mime_type": record.declared_mime,
        }
    return row


def _outcome(word: str, reason: str | None, detail: str | None, attempts: int) -> Row:
    return {
        "outcome": word, "reason": reason, "detail": detail, "attempts": attempts,
        "fetched_at": int(time.time() * 1000), "parser": PARSER,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Returns a time as milliseconds, as journals have it, and any other value as it is."""
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
