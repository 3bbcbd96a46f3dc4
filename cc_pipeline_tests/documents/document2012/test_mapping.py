"""The mapping table of docs/formats.md, and the "Available" column of the 2012 document."""

from __future__ import annotations

import pytest

from cc_pipeline.documents.document2012.json import archive_info, failed_page, metadata_object
from cc_pipeline.documents.page import ParsedPage
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page

ON_FAILURE = {"failure_reason", "failure_detail"}
ON_SUCCESS = {"server_ip", "http_result", "http_headers", "content_len", "mime_type", "download_size"}

PAGES: dict[str, ParsedPage] = {
    "200 HTML": parse_page(page("<p>x")),
    "200 feed": parse_page(page("<rss><channel/></rss>", mime="application/rss+xml")),
    "200 other type": parse_page(page(b"\x00", mime="image/png")),
    "200 empty body": parse_page(page(b"")),
    "200 truncated": parse_page(page("<p>x", truncated="length")),
    "robots.txt": parse_page(page("User-agent: *", mime="text/plain", subset="robotstxt")),
    "3xx with Location": parse_page(page(http_status=301, headers=(("Location", "/new"),), subset="crawldiagnostics")),
    "3xx without Location": parse_page(page(http_status=304, subset="crawldiagnostics")),
    "4xx": parse_page(page("<p>gone", http_status=404, subset="crawldiagnostics")),
    "5xx": parse_page(page("<p>oops", http_status=503, subset="crawldiagnostics")),
    "no status line": parse_page(page("x", http_status=None)),
    "not fetched": failed_page(page(http_status=None), "Missing", "not fetched; see the ledger"),
    "breaks a parser": failed_page(page("x"), "ParseFailed", "elements nested deeper than 10000"),
}


@pytest.mark.parametrize("case", sorted(PAGES))
def test_a_document_has_the_fields_of_its_disposition(case: str) -> None:
    row = PAGES[case].metadata
    document = metadata_object(row, PAGES[case].links)
    there, missing = (ON_SUCCESS, ON_FAILURE) if row["disposition"] == "SUCCESS" else (ON_FAILURE, ON_SUCCESS)
    assert there | {"attempt_time", "disposition"} <= document.keys()
    assert not missing & document.keys()
    assert all((row.get(name) is not None) == (there is ON_FAILURE) for name in ON_FAILURE)


def test_failures_keep_what_is_known_in_the_columns() -> None:
    gone = PAGES["4xx"].metadata
    assert gone["failure_detail"].endswith(" returned invalid responseCode:404")
    assert (gone["http_result"], gone["server_ip"]) == (404, "192.0.2.7")
    assert "content" not in gone
    assert PAGES["4xx"].text is None
    moved = PAGES["3xx with Location"].metadata
    assert moved["redirect_to"] == "https://www.example.com/new"
    assert moved["failure_detail"] == "Redirect Location:https://www.example.com/new"
    assert PAGES["not fetched"].metadata["failure_detail"] == "not fetched; see the ledger"


_SEGMENTS = "crawl-data/X/segments"


@pytest.mark.parametrize(
    ("name", "segment", "numbers"),
    [
        ("parse-output/segment/1341690147253/1341708194671_12.arc.gz", None, (1341690147253, 1341708194671, 12)),
        ("crawl-002/2010/01/07/18/1262876244253_18.arc.gz", None, (None, 1262876244253, 18)),
        (
            f"{_SEGMENTS}/1368696381249/warc/CC-MAIN-20130516092621-00000-ip-10-60-113-184.ec2.internal.warc.gz",
            None,
            (1368696381249, 1368696381000, 0),
        ),
        (
            f"{_SEGMENTS}/1715971057216.39/robotstxt/CC-MAIN-20240517233122-20240518023122-00899.warc.gz",
            "1715971057216.39",
            (1715971057216, 1715988682000, 899),
        ),
        ("crawl-data/odd.warc.gz", None, (None, None, None)),
        ("crawl-data/12345678901234567890/99999999999999999999_8.arc.gz", "9" * 20, (None, None, None)),
        (f"crawl-data/1368696381249/1368696381249_{'9' * 20}.arc.gz", None, (1368696381249, None, None)),
        ("crawl-data/CC-MAIN-20249999999999-20240518023122-00899.warc.gz", None, (None, None, 899)),
    ],
)
def test_archive_info_is_read_off_the_file_name(
    name: str, segment: str | None, numbers: tuple[int | None, ...]
) -> None:
    info = archive_info(page(warc_filename=name, warc_segment=segment))
    assert info is not None
    assert (info["arcSourceSegmentId"], info["arcFileDate"], info["arcFileParition"]) == numbers
