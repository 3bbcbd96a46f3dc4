"""The shape of the ``records`` table: one row per planned capture, with exactly one outcome.

A capture is named by (crawl, warc_filename, warc_record_offset). ``ledger`` and ``quarantine`` are views of
this table, so the words below are its closed vocabulary; those of ``reason`` are listed in docs/faults.md.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import KEY_NAMES, RECORD_KEY_COLUMNS, RECORD_KEY_NAMES, TIMESTAMP
from cc_pipeline.columns import Column, schema_of

#: The outcome of a planned capture. ``fetched``: bytes read, verified and stored. ``pending``: the record did not come
#: yet. ``lost``: it did not come at three asks (``asks.py``).
OUTCOMES: tuple[str, ...] = ("fetched", "pending", "lost")

#: The result of comparing the payload with the index's digest (or the record's own one if the index has none).
#: ``absent``: neither has one. ``unchecked``: the payload is truncated or there is no payload to check.
DIGEST_CHECKS: tuple[str, ...] = ("match", "mismatch", "absent", "unchecked")

RECORD_COLUMNS: Final = (
    *RECORD_KEY_COLUMNS,
    # what became of it
    Column("outcome", pa.string(), "fetched, pending or lost: exactly one per planned capture", nullable=False),
    Column("reason", pa.string(), "Why it was not fetched at the last request; a closed list (docs/faults.md)"),
    Column("detail", pa.string(), "The reason in words, with figures"),
    Column(
        "digest_check", pa.string(), "Payload compared with the expected digest: match, mismatch, absent or unchecked"
    ),
    # what the record is
    Column("record_type", pa.string(), "WARC record type, or arc"),
    Column("payload_length", pa.int64(), "Bytes of the body as archived"),
    Column("truncated", pa.string(), "Why the archive cut the body; null for a complete one"),
    # where its bytes are: file relative to the lake's root, offset and length of an exact gzip member. For a capture
    # that is not fetched, these are the last bytes that were not its record
    Column("stored_file", pa.string(), "File of the stored bytes, relative to the lake's root"),
    Column("stored_offset", pa.int64(), "Byte at which the stored gzip member begins"),
    Column("stored_length", pa.int64(), "Bytes of the stored gzip member"),
    # how it was had
    Column("attempts", pa.int32(), "Requests that were sent for it", nullable=False),
    Column("fetched_at", TIMESTAMP, "Time of our fetch"),
    Column("parser", pa.string(), "Program that read the record"),
    # for captures that are not fetched
    Column(
        "asks", pa.int32(), "Requests, at least 20 hours apart, that spoke for a loss; three make it", nullable=False
    ),
    Column("last_ask_at", TIMESTAMP, "Time of the last of them"),
)
RECORD_SCHEMA: Final = schema_of(RECORD_COLUMNS)
#: Columns with the outcome of a capture, whichever target requested it.
OUTCOME_COLUMNS: Final = tuple(name for name in RECORD_SCHEMA.names if name not in RECORD_KEY_NAMES)
#: Columns that a record fills if the index has no value (the ARC years), or the user named only a location.
FILLED_COLUMNS: Final = (
    "fetch_time", "fetch_status", "content_digest", "content_mime_type", "url", "url_surtkey", "domain",
    "warc_record_length",
)  # fmt: skip
#: Whether the failed request of this fetch is an ask, if the source is sound: a column of rows that are not committed
#: yet.
COUNTS: Final = pa.field("counts", pa.bool_(), nullable=False)
ANSWERED_SCHEMA: Final = RECORD_SCHEMA.append(COUNTS)
#: The columns of the records table that decide whether and how a row is reused.
HELD_SCHEMA: Final = pa.schema(
    [RECORD_SCHEMA.field(name) for name in ("warc_filename", "warc_record_offset", *FILLED_COLUMNS, *OUTCOME_COLUMNS)]
)
#: The columns that a parse reads: where the bytes are, and the columns that its page repeats.
PARSED_SCHEMA: Final = pa.schema(
    [
        RECORD_SCHEMA.field(name)
        for name in (*KEY_NAMES, "archive_format", "outcome", "stored_file", "stored_offset", "stored_length")
    ]
)
