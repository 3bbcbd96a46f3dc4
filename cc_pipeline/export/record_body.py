"""The body of a stored record without content codings, as the parser reads it."""

from __future__ import annotations

from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.documents.body import uncoded
from cc_pipeline.documents.page import Headers


def content_headers(record: ArchivedRecord) -> Headers:
    """Returns the headers that describe the body."""
    return record.record_headers if record.record_type == "resource" else record.http_headers


def read_body(record: ArchivedRecord, max_bytes: int) -> bytes:
    """Returns the body without content codings, at most ``max_bytes`` of a coded one."""
    # Common Crawl's ARC files keep the headers of codings that it removed
    in_arc = record.container == "arc"
    return uncoded(record.payload, content_headers(record), max_bytes, set(), archived_decoded=in_arc)
