"""From rows of ``records`` and their stored bytes to the rows of parsed pages. Runs in worker processes too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.documents.mapping import failed_page
from cc_pipeline.documents.options import ParseOptions
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.tables import to_record_batches
from cc_pipeline.errors import DataFault

Row = Mapping[str, Any]

_KEYS = (
    "crawl", "subset", "target", "url", "url_surtkey", "fetch_time", "fetch_status", "content_digest",
    "warc_filename", "warc_record_offset", "warc_record_length", "domain", "archive_format",
)  # fmt: skip


def parse_rows(
    rows: Sequence[Row], members: Sequence[bytes | None], options: ParseOptions
) -> dict[str, pa.RecordBatch]:
    """One record batch per table for ``rows`` of ``records``, in their order.

    ``members`` are the stored bytes of each row, ``None`` where nothing is stored or they cannot be read. Every row
    gets exactly one row of ``page_metadata``, whatever became of its capture.
    """
    pages = [_page(row, member, options) for row, member in zip(rows, members, strict=True)]
    return to_record_batches(pages)


def _page(row: Row, member: bytes | None, options: ParseOptions) -> ParsedPage:
    bare = PageInput(payload=b"", http_status=row["fetch_status"], **{key: row[key] for key in _KEYS})
    if row["outcome"] != "fetched" or member is None:
        reason = ": ".join(part for part in (row["reason"], row["detail"]) if part) or "its stored bytes are gone"
        return failed_page(bare, "Quarantined" if row["outcome"] == "quarantined" else "Missing", reason)
    try:
        return parse_page(_input(row, _record(row, member)), options)
    except DataFault as fault:
        return failed_page(bare, "ParseFailed", fault.reason)


def _record(row: Row, member: bytes) -> ArchivedRecord:
    read = arc.read_record if row["archive_format"] == "arc" else warc.read_record
    return read(member, row["stored_file"], row["stored_offset"])


def _input(row: Row, record: ArchivedRecord) -> PageInput:
    return PageInput(
        payload=record.payload,
        http_status=record.http_status,
        http_status_line=record.http_status_line,
        http_headers=record.http_headers,
        server_ip=record.server_ip,
        truncated=record.truncated,
        mime_detected=_identified(record),
        record_headers=record.record_headers,
        **{key: row[key] for key in _KEYS},
    )


def _identified(record: ArchivedRecord) -> str | None:
    return next((v for name, v in record.record_headers if name.lower() == "warc-identified-payload-type"), None)
