"""The outcome of each capture of a run: exactly one, from a stored, an adopted or a fetched record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import NO_STATUS, RECORD_KEY_NAMES
from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.records.range_plan import FIRST_READ, MAX_RECORD_BYTES, longer
from cc_pipeline.records.schema import FILLED_COLUMNS, OUTCOME_COLUMNS, RECORD_SCHEMA
from cc_pipeline.records.segments import Row
from cc_pipeline.records.verification import PARSER, VerificationResult

#: The WARC file and the offset in it: the name of a capture within its crawl.
Name = tuple[str, int]

#: Values for an index row without a location, since the key columns of the table are never null.
NO_LOCATION = {"warc_filename": "", "warc_record_offset": -1, "warc_record_length": 0}
#: Reasons that depend on our options or code, so that the verdict may change: such final outcomes are not kept.
_REPEATABLE_VERDICTS = ("bad_plan", "digest_mismatch")
#: A reason that follows from the index alone, whatever the source gives.
_NO_PLACE = "bad_plan"
#: Rows held as Python objects at a time; bounds memory.
_BATCH = 5_000


class Outcomes:
    """``first_rows`` maps each distinct (file, offset) of ``captures`` to its first row; ``by_name`` has the outcomes
    so far."""

    def __init__(self, captures: pa.Table) -> None:
        self.first_rows: dict[Name, int] = {}
        self.by_name: dict[Name, Row] = {}
        self.columns: dict[str, list[Any]] = {name: _values(captures.column(name)) for name in RECORD_KEY_NAMES}
        self._rows = captures.num_rows
        self._rounds: dict[Name, int] = {}
        self._previous: dict[Name, Row] = {}
        self._lost_now: set[Name] = set()
        self._grown: dict[Name, int] = {}
        #: Captures that kept their previous outcome because nothing better came.
        self.unchanged = 0
        for row in range(captures.num_rows):
            self.first_rows.setdefault(self.name(row), row)

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

    def take(self, rows: Iterable[Row], usable: Callable[[Row], bool], stays: Callable[[Row], bool]) -> int:
        """Takes the outcome of ``rows`` that are ``usable`` and have stored bytes or are final; returns for how many
        captures.

        Of the other rows it stores the number of rounds, and the rows that ``stays`` accepts.
        These stay if nothing better comes. A loss that was recorded with another length is ignored.
        """
        taken_count = 0
        for row in rows:
            name = (row["warc_filename"], row["warc_record_offset"])
            outcome = self.by_name.get(name)
            # a record that any target has counts, even if another target lost it
            is_better = outcome is not None and outcome["outcome"] != "fetched" and row["outcome"] == "fetched"
            if name not in self.first_rows or (outcome and not is_better) or self._is_of_other_bytes(row, name):
                continue
            if row.get("is_final") is False:
                self._rounds[name] = max(self._rounds.get(name, 0), row.get("unsuccessful_runs") or 0)
            if not usable(row) or (row["stored_file"] is None and not row.get("is_final")):
                if stays(row):
                    self._previous[name] = self._stored_outcome(row)
                continue
            self.by_name[name] = self._stored_outcome(row)
            taken_count += outcome is None
        return taken_count

    def _is_of_other_bytes(self, row: Row, name: Name) -> bool:
        """Whether the row is a loss that was recorded with another length: it says nothing about the capture now."""
        index_length, stored_length = (
            self.columns["warc_record_length"][self.first_rows[name]],
            row.get("warc_record_length"),
        )
        return (
            row["outcome"] != "fetched" and None not in (index_length, stored_length) and index_length != stored_length
        )

    @staticmethod
    def _stored_outcome(row: Row) -> Row:
        return {key: _plain(row.get(key)) for key in (*OUTCOME_COLUMNS, *FILLED_COLUMNS)}

    def set_aside(self, row: int, outcome: Row, *, settled: bool) -> bool:
        """Gives the capture in ``row`` an outcome that is not ``fetched``, and returns whether it did. A previous
        outcome stays if the new one is not final, or if the previous record was good."""
        name = self.name(row)
        previous = self._previous.get(name)
        if self.is_good(row):
            return False
        if previous is not None and (not settled or previous["outcome"] == "fetched"):
            self.unchanged += self.by_name.get(name) is not previous
            self.by_name[name] = previous
            return False
        self.by_name[name] = outcome | {"is_final": settled}
        if settled and outcome["reason"] != _NO_PLACE:
            self._lost_now.add(name)
        return True

    @property
    def lost_now(self) -> int:
        """The number of captures that this run found lost, and that :meth:`reopen` would make pending again."""
        return len(self._not_good_now())

    def reopen(self) -> None:
        """Makes the captures pending that this run found lost."""
        for name in self._not_good_now():
            self.by_name[name] = self._previous.get(name) or self.by_name[name] | {"is_final": False}
        self._lost_now.clear()

    def _not_good_now(self) -> list[Name]:
        return [name for name in self._lost_now if self.by_name[name]["outcome"] != "fetched"]

    def has_new_bytes(self, row: int) -> bool:
        """Whether this run has kept bytes of the capture in ``row``, good or bad."""
        name = self.name(row)
        outcome = self.by_name.get(name)
        return outcome is not None and outcome["outcome"] != "missing" and outcome is not self._previous.get(name)

    def is_good(self, row: int) -> bool:
        """Whether the capture in ``row`` is fetched."""
        outcome = self.by_name.get(self.name(row))
        return outcome is not None and outcome["outcome"] == "fetched"

    def lose(self, row: int, reason: str, detail: str, attempts: int, *, settled: bool) -> None:
        """Makes the capture in ``row`` missing, unless its bytes were kept or a previous outcome stays."""
        if not self.has_new_bytes(row):
            self.set_aside(row, _outcome("missing", reason, detail, attempts), settled=settled)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields one row per capture, in their order (``RECORD_SCHEMA``). Their ``unsuccessful_runs`` do not count this
        run yet."""
        for start in range(0, self._rows, _BATCH):
            rows = [self._row(row) for row in range(start, min(start + _BATCH, self._rows))]
            yield pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)

    def _row(self, row: int) -> Row:
        name = self.name(row)
        values: Row = {key: self.columns[key][row] for key in RECORD_KEY_NAMES}
        outcome = self.by_name[name]
        for key in OUTCOME_COLUMNS:
            values[key] = outcome[key]
        if values["is_final"] is False:
            values["unsuccessful_runs"] = self._rounds.get(name, 0)
        values["fetch_time"] = _plain(values["fetch_time"])
        if values["fetch_status"] == NO_STATUS:
            values["fetch_status"] = None
        for key in FILLED_COLUMNS:
            if values[key] is None:
                values[key] = outcome[key]
        for key, nothing in NO_LOCATION.items():
            if values[key] is None:
                values[key] = nothing
        return values


def is_settled(row: Row) -> bool:
    """Whether a stored row is a final loss whose verdict would be the same now."""
    return bool(row.get("is_final")) and row["reason"] not in _REPEATABLE_VERDICTS


def with_this_round(records: pa.RecordBatch) -> pa.RecordBatch:
    """Counts a run in which the source gave something in the ``unsuccessful_runs`` of pending captures.

    Whether it did is known only at the end of the run, when most rows are in a spill file.
    """
    place = RECORD_SCHEMA.get_field_index("unsuccessful_runs")
    is_open = pc.fill_null(pc.invert(records.column("is_final")), False)
    rounds = records.column(place)
    return records.set_column(
        place, RECORD_SCHEMA.field(place), pc.if_else(is_open, pc.add(rounds, pa.scalar(1, rounds.type)), rounds)
    )


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


def outcome_of(verdict: VerificationResult, attempts: int) -> Row:
    """Returns the outcome columns of a record: fetched, or quarantined with the verdict's reason."""
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
    row: Row = dict.fromkeys((*OUTCOME_COLUMNS, *FILLED_COLUMNS))
    row |= {"outcome": word, "reason": reason, "detail": detail, "attempts": attempts}
    row |= {"fetched_at": _milliseconds(datetime.now(UTC)), "parser": PARSER}
    return row


def _plain(value: Any) -> Any:
    return _milliseconds(value) if isinstance(value, datetime) else value


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
