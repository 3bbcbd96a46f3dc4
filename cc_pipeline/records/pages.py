"""The parsers' input, from rows of ``records`` and their stored bytes.

This runs in parser processes, which import only the parsers of this package: importing the stages would delay the first
page of each run by three quarters of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.http import first_values, media_type
from cc_pipeline.capture_columns import KEY_NAMES
from cc_pipeline.documents.document2012.json import failed_page
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.errors import DataFault

Row = Mapping[str, Any]

#: Columns that a page takes from its row of ``records``.
_KEYS = (*KEY_NAMES, "archive_format")


def page_of(item: tuple[Row, bytes | None], failure: str | None = None) -> PageInput | ParsedPage:
    """Returns the page to parse for one row of ``records`` and its stored bytes (``None``: missing or unreadable).

    For a capture that was not fetched, whose bytes are missing, or whose page has a ``failure``, it returns a finished
    page that says so, because every row of ``records`` gets exactly one row of ``page_metadata``.
    """
    row, member = item
    keys = PageInput(payload=b"", **{key: row[key] for key in _KEYS})
    if failure is not None:
        return failed_page(keys, "ParseFailed", failure)
    bare = replace(keys, http_status=row["fetch_status"])
    if row["outcome"] != "fetched" or member is None:
        # why is in the ledger: it may change with each request, and the page is not made anew for that
        is_lost = row["outcome"] == "fetched"
        return failed_page(bare, "Missing", "its stored bytes are gone" if is_lost else "not fetched; see the ledger")
    read = arc.read_record if row["archive_format"] == "arc" else warc.read_record
    try:
        record = read(member, row["stored_file"], row["stored_offset"])
    except DataFault as fault:
        return failed_page(bare, "ParseFailed", fault.reason)
    return replace(
        bare,
        payload=record.payload,
        http_status=record.http_status,
        http_status_line=record.http_status_line,
        http_headers=record.http_headers,
        server_ip=record.server_ip,
        truncated=record.truncated,
        mime_detected=media_type(first_values(record.record_headers).get("warc-identified-payload-type")),
        record_headers=record.record_headers,
        record_type=record.record_type,
    )
