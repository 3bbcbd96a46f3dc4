"""Counts asks: the requests for a capture that failed in a way that speaks for a loss. A capture is lost after three
asks on three days; until then it is pending."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.records.schema import COUNTS, RECORD_SCHEMA
from cc_pipeline.transport.faults import handling_of

#: Asks that make a capture lost.
ASKS_UNTIL_LOST: Final = 3
#: The least time between two asks that count.
ASK_INTERVAL: Final = timedelta(hours=20)
#: The reason of an index row that cannot be: such a capture is lost at once.
BAD_PLAN: Final = "bad_plan"


def can_count(reason: str, last_ask_at: datetime | None, ask_time: datetime) -> bool:
    """Whether a request at ``ask_time`` that failed for ``reason`` is an ask, if the source is sound. ``last_ask_at``
    is the time of the last ask; a time in the future is no time."""
    is_due = last_ask_at is None or last_ask_at > ask_time or ask_time - last_ask_at >= ASK_INTERVAL
    return handling_of(reason).counts and is_due


def count_asks(rows: pa.RecordBatch, ask_time: datetime, *, is_source_sound: bool) -> pa.RecordBatch:
    """Returns ``rows`` (``ANSWERED_SCHEMA``) as rows of ``records``, after the asks of a fetch at ``ask_time`` were
    counted, unless the source is not sound (``is_source_sound``).

    Whether it is sound is known only at the end of a fetch, when most rows are in a spill file.
    """
    counts, records = rows.column(COUNTS.name), rows.select(RECORD_SCHEMA.names)
    if not is_source_sound or not pc.any(counts).as_py():
        return records
    ask_counts = pc.add(records.column("asks"), counts.cast(pa.int32()))
    is_lost = pc.and_(counts, pc.greater_equal(ask_counts, ASKS_UNTIL_LOST))
    replaced = {
        "outcome": pc.if_else(is_lost, "lost", records.column("outcome")),
        "asks": ask_counts,
        "last_ask_at": pc.if_else(counts, pa.scalar(ask_time, TIMESTAMP), records.column("last_ask_at")),
    }
    columns = [replaced.get(name, records.column(name)) for name in RECORD_SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
