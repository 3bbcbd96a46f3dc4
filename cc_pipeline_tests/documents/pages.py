"""Pages for tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cc_pipeline.documents.batch.worker import Input
from cc_pipeline.documents.document2012.json import failed_page
from cc_pipeline.documents.html.tables import Tables
from cc_pipeline.documents.html.tree import HtmlDocument, parse_html
from cc_pipeline.documents.page import Limits, PageInput

WHEN = datetime(2024, 5, 18, 1, 2, 3, 456_000, tzinfo=UTC)
WARC = "crawl-data/CC-MAIN-2024-22/segments/1715971057216.39/warc/CC-MAIN-20240517233122-20240518023122-00003.warc.gz"


def page(payload: bytes | str = b"", mime: str | None = "text/html; charset=utf-8", **more: Any) -> PageInput:
    """A capture of today with a 200 answer, unless ``more`` says otherwise. ``headers`` are added to its type's."""
    headers = ((("Content-Type", mime),) if mime is not None else ()) + tuple(more.pop("headers", ()))
    values: dict[str, Any] = {
        "crawl": "CC-MAIN-2024-22",
        "subset": "warc",
        "target": "example.com",
        "url": "https://www.example.com/dir/page.html?q=1",
        "url_surtkey": "com,example)/dir/page.html?q=1",
        "fetch_time": WHEN,
        "http_status": 200,
        "http_status_line": "HTTP/1.1 200 OK",
        "server_ip": "192.0.2.7",
        "warc_filename": WARC,
        "warc_record_offset": 1234,
        "warc_record_length": 567,
        "domain": "example.com",
    }
    return PageInput(
        payload=payload.encode() if isinstance(payload, str) else payload, **{**values, "http_headers": headers, **more}
    )


def identity(item: PageInput, failure: str | None = None) -> Input:
    """A reader of items that are pages already."""
    if failure is None:
        return item
    # without a status no header is read
    return failed_page(replace(item, http_status=None, fetch_status=None), "ParseFailed", failure)


def read(markup: str, url: str = "https://example.org/docs/page.html") -> HtmlDocument:
    """A page that was walked over, with its tables."""
    return parse_html(markup, url, Limits(), with_tables=True)


def tables_of(markup: str) -> Tables:
    """The tables of a page."""
    tables = read(markup).tables
    assert tables is not None
    return tables
