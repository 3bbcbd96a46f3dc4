"""From rows of ``records`` and their stored bytes to what the parsers take.

This runs in parser processes, which import nothing else of ours but the parsers: with the stages, each run would wait
three quarters of a second longer for its first page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.documents.legacy2012.mapping import failed_page
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.errors import DataFault
from cc_pipeline.keys import KEY_NAMES

Row = Mapping[str, Any]

#: Columns that a page takes from its row of ``records``.
_KEYS = (*KEY_NAMES, "archive_format")


def page_of(item: tuple[Row, bytes | None]) -> PageInput | ParsedPage:
    """The page to parse for one row of ``records`` and its stored bytes (``None``: there are none, or unreadable).

    For a capture that was not fetched, or whose bytes are gone, this is a finished page that says so, because every
    row of ``records`` gets exactly one row of ``page_metadata``.
    """
    row, member = item
    bare = PageInput(payload=b"", http_status=row["fetch_status"], **{key: row[key] for key in _KEYS})
    if row["outcome"] != "fetched" or member is None:
        reason = ": ".join(part for part in (row["reason"], row["detail"]) if part) or "its stored bytes are gone"
        return failed_page(bare, "Quarantined" if row["outcome"] == "quarantined" else "Missing", reason)
    try:
        return _input(row, _record(row, member))
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
