"""Fetching the captures of a table, with the rows in a table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.records.ask_counts import count_asks
from cc_pipeline.records.fetch import Planned, RecordsResult, fetch_records
from cc_pipeline.records.locations import PLACE_NAME, LocationCollector
from cc_pipeline.records.orders import Order, RecordOptions
from cc_pipeline.records.schema import HELD_SCHEMA, RECORD_SCHEMA
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.client import Transport

#: The time of the first ask, where a test says no other.
FIRST_ASK = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Fetched(RecordsResult):
    """The result, and a row for each capture in the order of the captures (of their places where they are worked on in
    groups)."""

    table: pa.Table


def fetch_table(
    captures: pa.Table,
    transport: Transport,
    storage: RecordStorage,
    *,
    crawl: str,
    commit: str,
    held: pa.Table | None = None,
    options: RecordOptions | None = None,
    ask_time: datetime = FIRST_ASK,
    in_table: Callable[[], Iterable[pa.RecordBatch]] | None = None,
) -> Fetched:
    """``fetch_records`` of a table, with the asks counted where the source gave a good record; ``held`` are rows of
    ``records`` in any order."""
    found = LocationCollector()
    found.add(captures)
    kept: list[pa.RecordBatch] = []
    with tempfile.TemporaryDirectory() as folder:
        rows = OrderedRows(HELD_SCHEMA, PLACE_NAME, Path(folder))
        if held is not None:
            rows.add(held.select(HELD_SCHEMA.names))
        result = fetch_records(
            Planned(captures.to_batches(), found.places(), rows.batches()),
            Order(crawl, commit, options=options or RecordOptions(), ask_time=ask_time),
            transport,
            storage,
            keep=kept.append,
            scratch=Path(folder),
            in_table=in_table,
        )
    done = [count_asks(batch, ask_time, is_source_sound=result.source_gave_good_record) for batch in kept]
    values = {field.name: getattr(result, field.name) for field in fields(RecordsResult)}
    return Fetched(**values, table=pa.Table.from_batches(done, schema=RECORD_SCHEMA))
