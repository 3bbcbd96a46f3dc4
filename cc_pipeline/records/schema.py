"""The shape of the ``records`` table: one row per planned capture, with exactly one outcome.

A capture is named by (crawl, warc_filename, warc_record_offset). ``ledger`` and ``quarantine`` are views of
this table, so the words below are its closed vocabulary; those of ``reason`` are listed in docs/faults.md.
"""

from __future__ import annotations

import pyarrow as pa

from cc_pipeline.capture_columns import RECORD_KEY_FIELDS, TIMESTAMP

#: What became of a planned capture. ``fetched``: bytes read, verified and stored. ``quarantined``: bytes read
#: that are not the record the index promises; kept aside. ``missing``: no bytes could be read.
OUTCOMES: tuple[str, ...] = ("fetched", "quarantined", "missing")

#: Outcome of comparing the payload with the index's digest (or the record's own claim where the index has
#: none). ``absent``: neither has one. ``unchecked``: the payload is cut or there is no payload to check.
DIGEST_CHECKS: tuple[str, ...] = ("match", "mismatch", "absent", "unchecked")

RECORD_SCHEMA = pa.schema(
    [
        *RECORD_KEY_FIELDS,
        # what became of it
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("digest_check", pa.string()),
        # what the record is
        pa.field("record_type", pa.string()),
        pa.field("payload_length", pa.int64()),
        pa.field("truncated", pa.string()),
        # where its bytes are: file relative to the lake's root, offset and length of an exact gzip member
        pa.field("stored_file", pa.string()),
        pa.field("stored_offset", pa.int64()),
        pa.field("stored_length", pa.int64()),
        # how it was had
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("fetched_at", TIMESTAMP),
        pa.field("parser", pa.string()),
        # of captures that are not fetched: whether asking again cannot change it, and in how many runs they were asked
        # for while the source gave others. Of settled ones in quarantine, the second is null where nobody knows whether
        # two requests gave the same bytes
        pa.field("settled", pa.bool_()),
        pa.field("rounds", pa.int32()),
        # the place of the source that gave the bytes, without what lets somebody in
        pa.field("served_by", pa.string()),
    ]
)
