"""Payloads of records without their HTTP transfer and content codings."""

from __future__ import annotations

from cc_pipeline.archive.members import DEFAULT_LIMIT
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.codings import DecodedPayload, dechunked, dechunked_prefix, decoded


def decoded_payload(record: ArchivedRecord, limit: int = DEFAULT_LIMIT) -> DecodedPayload:
    """The record's payload without the codings its HTTP headers name, at most ``limit`` bytes. Never raises."""
    return decoded(record.payload, record.http_headers, limit)


__all__ = ["DecodedPayload", "dechunked", "dechunked_prefix", "decoded_payload"]
