"""Pages of our own in a lake, as the parse stage leaves them, for tests of what is made from parsed pages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cc_pipeline.documents.document2012.json import failed_page
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.lake.slice import PARSE, Slice
from cc_pipeline.lake.slices import commit_stage
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.closing import closed_later

CRAWL, TARGET = "CC-MAIN-2024-22", "example.com"
_FOLDER = f"crawl-data/{CRAWL}/segments/1715971057516.1/warc"
_HTML = (
    "<html><head><title>Pagé {n}</title><meta name=description content='about {n}'></head>"
    "<body><p>Some words of page {n}.</p><a href='/next/{n}' rel=next class='x y'>on</a></body></html>"
)
_FEED = (
    "<rss version='2.0'><channel><title>Feed {n}</title><link>http://www.example.com/</link><description>all"
    "</description><item><title>First</title><link>http://www.example.com/i</link><guid>g{n}</guid>"
    "<pubDate>Sat, 18 May 2024 01:58:10 GMT</pubDate><description>&lt;a href='/x'&gt;x&lt;/a&gt;</description>"
    "</item></channel></rss>"
)


def make_workspace(home: Path, source: Path | None = None) -> Workspace:
    """A workspace whose source is an empty folder, unless one is given."""
    bucket = source or home / "bucket"
    bucket.mkdir(parents=True, exist_ok=True)
    return closed_later(Workspace(load_settings({}, source=str(bucket), home=str(home / "home"))))


def page(number: int, target: str = TARGET) -> ParsedPage:
    """HTML, feeds, images, redirects, pages not found and missing captures, by ``number``."""
    kind = number % 7
    keys = PageInput(
        crawl=CRAWL,
        subset="warc",
        target=target,
        url=f"http://www.example.com/{number}?ü=1",
        payload=b"",
        fetch_time=datetime(2024, 5, 18, 1, 58, 10, tzinfo=UTC),
        warc_filename=f"{_FOLDER}/CC-MAIN-20240517233122-20240518023122-0000{number % 3}.warc.gz",
        warc_record_offset=1_000_000 - number * 11,
        warc_record_length=423,
        domain="example.com",
    )
    if kind == 6:
        return failed_page(keys, "Missing", "not_found: 404")
    answers = {
        3: (301, "text/html", "Moved"),
        4: (404, "text/html", "<title>no</title>"),
        5: (200, "image/png", "\x89PNG"),
        2: (200, "application/rss+xml", _FEED.format(n=number)),
    }
    status, mime, body = answers.get(kind, (200, "text/html; charset=utf-8", _HTML.format(n=number)))
    headers = [("Content-Type", mime), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
    if status == 301:
        headers.append(("Location", "/elsewhere"))
    known = {name: getattr(keys, name) for name in PageInput.__dataclass_fields__}
    answered = PageInput(
        **known
        | {
            "payload": body.encode(),
            "http_status": status,
            "fetch_status": status,
            "http_status_line": f"HTTP/1.1 {status} OK",
            "http_headers": tuple(headers),
            "server_ip": "203.0.113.7",
        }
    )
    return parse_page(answered)


def commit_pages(workspace: Workspace, pages: list[ParsedPage], target: str = TARGET) -> None:
    """Commits ``pages`` as the slice of ``target``, in their order."""
    rows = {table: [batch] for table, batch in to_record_batches(pages).items()}
    commit_stage(workspace.lake, PARSE, {Slice(CRAWL, target): {"records": "1"}}, rows)
