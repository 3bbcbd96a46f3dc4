"""Where a capture of today stands in the 2012 vocabulary (docs/formats.md is the table)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from cc_pipeline.documents.headers import (
    DEFAULT_MIME,
    header,
    header_list,
    headers_map,
    original_length,
    split_content_type,
    was_gzip,
)
from cc_pipeline.documents.html.urls import resolver
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.documents.schemas import PARSER, PARSER_VERSION

#: Reasons of ours, for what could not happen in 2012; the others are the 2012 crawler's own words.
Failure = Literal["Missing", "Quarantined", "ParseFailed"]

_WARC_NAME = re.compile(r"(\d{14})-\d{14}-(\d{5})\.warc\.gz\Z|CC-MAIN-(\d{14})\d*-(\d{5})-[^/]*\.warc\.gz\Z")
_ARC_NAME = re.compile(r"/(\d{10,})/(\d{10,})_(\d+)\.arc\.gz\Z|/(\d{10,})_(\d+)\.arc\.gz\Z")
_SEGMENT = re.compile(r"/(\d{10,})(?:\.\d+)?/")


class Verdict(NamedTuple):
    """``failure_reason`` and ``failure_detail`` are ``None`` exactly on SUCCESS."""

    disposition: Literal["SUCCESS", "FAILURE"]
    failure_reason: str | None
    failure_detail: str | None


def judge(url: str, http_status: int | None, redirect_to: str | None) -> Verdict:
    """The verdict on a readable response by its status."""
    if http_status is None:
        return Verdict("FAILURE", "NoData", f"URL:{url} returned no readable status line")
    if 200 <= http_status <= 299:
        return Verdict("SUCCESS", None, None)
    if redirect_to is not None:
        return Verdict("FAILURE", "RedirectFailed", f"Redirect Location:{redirect_to}")
    return Verdict("FAILURE", "InvalidResponseCode", f"URL:{url} returned invalid responseCode:{http_status}")


def is_robots_txt(page: PageInput) -> bool:
    """Whether a capture is a robots.txt: the 2012 documents had none, and its row has no content."""
    if page.subset == "robotstxt":
        return True
    path = page.url.partition("://")[2].partition("/")[2]
    return path.partition("?")[0] == "robots.txt"


def page_keys(page: PageInput) -> dict[str, Any]:
    """The key and provenance columns of a capture's rows."""
    return {
        "crawl": page.crawl,
        "subset": page.subset,
        "target": page.target,
        "url": page.url,
        "url_surtkey": page.url_surtkey,
        "fetch_time": page.fetch_time,
        "fetch_status": page.fetch_status if page.fetch_status is not None else page.http_status,
        "content_digest": page.content_digest,
        "warc_filename": page.warc_filename,
        "warc_record_offset": page.warc_record_offset,
        "warc_record_length": page.warc_record_length,
        "domain": page.domain,
        "parser": PARSER,
        "parser_version": PARSER_VERSION,
        "source_kind": page.source_kind,
        "source_file": page.source_file or page.warc_filename,
    }


def exchange_row(page: PageInput) -> dict[str, Any]:
    """The metadata every readable response has: verdict, exchange, sizes, pointer. No content."""
    status = page.http_status
    location = header(page.http_headers, "location")
    redirected = status is not None and 300 <= status <= 399 and location
    redirect_to = resolver(page.url)(location)[0] if redirected and location else None
    verdict = judge(page.url, status, redirect_to)
    mime, _ = split_content_type(header(page.http_headers, "content-type"))
    size = len(page.payload)
    gzipped = was_gzip(page.http_headers)
    declared = original_length(page.http_headers)
    downloaded = declared if gzipped and declared is not None and page.truncated is None else size
    row: dict[str, Any] = {
        "attempt_time": page.fetch_time,
        **verdict._asdict(),
        "redirect_to": redirect_to,
        "server_ip": page.server_ip,
        "http_result": status,
        "http_headers": headers_map(page.http_headers, page.http_status_line),
        "http_header_list": header_list(page.http_headers),
        "content_len": declared if declared is not None else size,
        "mime_type": mime or DEFAULT_MIME,
        "download_size": downloaded,
        "archiveInfo": archive_info(page),
    }
    if page.truncated is not None:
        row["download_truncated"] = True
        row["truncated_reason"] = page.truncated
    if gzipped:
        row["content_is_gzip"] = True
        row["gunzip_content_len"] = size
    if (origin := page.redirect_from) is not None:
        row["redirect_from"] = {
            "source_url": origin.source_url,
            "http_result": origin.http_result,
            "server_ip": origin.server_ip,
            "http_headers": headers_map(origin.http_headers, origin.http_status_line),
        }
    return row


def failed_page(page: PageInput, failure: Failure, detail: str | None) -> ParsedPage:
    """The one metadata row of a capture that could not be fetched, verified or parsed.

    ``page`` may be all keys and no payload. ``detail`` is the stage's reason, for instance
    ``digest_mismatch: ...``.
    """
    row: dict[str, Any] = {
        "attempt_time": page.fetch_time,
        "disposition": "FAILURE",
        "failure_reason": failure,
        "failure_detail": detail or failure.lower(),
        "archiveInfo": archive_info(page),
    }
    if page.http_status is not None:
        row = {**exchange_row(page), **row}
    return ParsedPage(page_keys(page), row)


def archive_info(page: PageInput) -> dict[str, int | None] | None:
    """The archive pointer in the numbers of 2012: segment, the file's date in milliseconds and its number, read
    off the file's name; offset and length of the record."""
    name = page.warc_filename
    if name is None and page.warc_record_offset is None:
        return None
    segment, date, part = _name_numbers(name or "")
    if page.warc_segment and (digits := page.warc_segment.partition(".")[0]).isdigit():
        segment = int(digits)
    return {
        "arcSourceSegmentId": segment,
        "arcFileDate": date,
        "arcFileParition": part,
        "arcFileOffset": page.warc_record_offset,
        "compressedSize": page.warc_record_length,
    }


def _name_numbers(name: str) -> tuple[int | None, int | None, int | None]:
    found = _SEGMENT.search(name)
    segment = int(found.group(1)) if found else None
    if arc := _ARC_NAME.search(name):
        date, part = (arc.group(2), arc.group(3)) if arc.group(2) else (arc.group(4), arc.group(5))
        return segment, int(date), int(part)
    if warc := _WARC_NAME.search(name):
        stamp, part = (warc.group(1), warc.group(2)) if warc.group(1) else (warc.group(3), warc.group(4))
        return segment, _milliseconds(stamp), int(part)
    return segment, None, None


def _milliseconds(stamp: str) -> int | None:
    try:
        return int(datetime.strptime(stamp, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return None
