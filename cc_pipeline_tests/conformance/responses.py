"""A response, the readers that bring it to the parser, and what its rows say by short names."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.capture_columns import KEY_NAMES
from cc_pipeline.documents.page import ParsedPage
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.records.pages import page_of
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import Fields
from cc_pipeline_tests.documents.pages import WHEN

URL = "https://www.example.com/dir/page.html"


@dataclass(frozen=True, slots=True)
class Response:
    """What a server answered and, in ``fields``, what the crawler wrote into the WARC record beside it. ``record`` is
    the record's type and that of its block."""

    block: bytes
    url: str = URL
    fields: Fields = ()
    record: tuple[str, str] = ("response", "application/http; msgtype=response")

    def as_warc(self) -> bytes:
        """One uncompressed record."""
        about = [
            ("WARC-Type", self.record[0]),
            ("WARC-Date", "2024-05-18T01:02:03Z"),
            ("WARC-Record-ID", "<urn:uuid:00000000-0000-0000-0000-000000000046>"),
            ("Content-Type", self.record[1]),
            ("WARC-Target-URI", self.url),
        ]
        return builders.warc(self.block, [*about, *self.fields])

    def as_arc(self) -> bytes:
        """One uncompressed ARC record, which has no place for ``fields``."""
        return builders.arc(self.block, url=self.url, date="20240518010203")


def answer(body: bytes | str, content_type: str | None = "text/html; charset=utf-8", *headers: str) -> bytes:
    """A response with status 200; ``headers`` are whole lines."""
    lines = ["HTTP/1.1 200 OK", *([f"Content-Type: {content_type}"] if content_type is not None else []), *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body.encode() if isinstance(body, str) else body)


class Has(str):
    """An expected text that the value is to contain."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Case:
    """``report`` is where the trouble was told: a public thread, or the paragraph of a standard. ``about`` says what is
    odd of the response; ``expected`` are values by the names of ``observe``."""

    report: str
    about: str
    response: Response
    expected: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.report} {self.about}"


def case(report: str, about: str, block: bytes, *, url: str = URL, fields: Fields = (), **expected: Any) -> Case:
    """A line of a kind."""
    return Case(report, about, Response(block, url, fields), expected)


def resource(report: str, about: str, block: bytes, content_type: str, kind: str = "resource", **expected: Any) -> Case:
    """The same of a record without an HTTP header."""
    return Case(report, about, Response(block, URL, (), (kind, content_type)), expected)


#: A function from a response to its page: how its record lies in a file, and which reader takes it out.
Reader = Callable[[Response], ParsedPage]


def _parsed(member: bytes, archive_format: str, url: str) -> ParsedPage:
    row = dict.fromkeys(KEY_NAMES) | {
        "crawl": "CC-MAIN-2024-22", "subset": "warc", "url": url, "fetch_time": WHEN, "fetch_status": 200,
        "archive_format": archive_format, "outcome": "fetched", "stored_file": "stored", "stored_offset": 0,
    }  # fmt: skip
    page = page_of((row, member))
    return page if isinstance(page, ParsedPage) else parse_page(page)


def _stored_member(response: Response) -> ParsedPage:
    return _parsed(builders.member(response.as_warc()), "warc", response.url)


def _several_members(response: Response) -> ParsedPage:
    record = response.as_warc()
    half = len(record) // 2
    return _parsed(builders.members([record[:half], record[half:]]), "warc", response.url)


def _out_of_a_file(response: Response) -> ParsedPage:
    beside = builders.response(b"beside", url="http://beside.example/")
    stream = io.BytesIO(beside + response.as_warc() + beside)
    found = [each for each in warc.iter_located(stream, "file") if not isinstance(each, Exception)]
    record: ArchivedRecord = found[1].record
    assert (len(found), record.url) == (3, response.url)
    return _parsed(response.as_warc(), "warc", response.url)


def _arc_member(response: Response) -> ParsedPage:
    return _parsed(builders.member(response.as_arc()), "arc", response.url)


def _out_of_an_arc(response: Response) -> ParsedPage:
    data = builders.filedesc() + response.as_arc() + builders.arc(b"beside", url="http://beside.example/")
    found = [each for each in arc.iter_located(data, "file") if not isinstance(each, Exception)]
    assert [each.record.url for each in found][-2:] == [response.url, "http://beside.example/"]
    return _parsed(response.as_arc(), "arc", response.url)


#: Readers of records with the fields of WARC, and of those without.
READERS: dict[str, Reader] = {
    "a stored member": _stored_member,
    "a record over two members": _several_members,
    "an uncompressed file": _out_of_a_file,
}
BARE_READERS: dict[str, Reader] = {"a stored ARC member": _arc_member, "an uncompressed ARC file": _out_of_an_arc}


def observe(page: ParsedPage) -> dict[str, Any]:
    """Values of a page's rows, as its tables have them, by short names."""
    tables = {name: batch.to_pylist() for name, batch in to_record_batches([page]).items()}
    [metadata] = tables["page_metadata"]
    text = tables["page_text"][0] if tables["page_text"] else {}
    links, items = tables["page_links"], tables["feed_items"]
    return {
        "title": text.get("title"),
        "text": text.get("text"),
        "main": text.get("main_content"),
        "kind": text.get("text_type"),
        "json_ld_types": text.get("json_ld_types"),
        "author": metadata["author"],
        "canonical": metadata["canonical_url"],
        "charset": metadata["charset_detected"],
        "failure": metadata["failure_reason"],
        "flags": metadata["flags"],
        "published": metadata["published"],
        "redirect_to": metadata["redirect_to"],
        "refresh": (metadata["refresh"] or {}).get("url"),
        "status": metadata["http_result"],
        "type_from": metadata["type_from"],
        "languages": [(each["hreflang"], each["url"]) for each in metadata["alternates"] or ()],
        "pictures": [link["link_url"] for link in links if link["attribute"] == "srcset"],
        "links": [link["link_url"] for link in links if link["type"] in ("a", "url", "sitemap")],
        "locs": [link["link_url"] for link in links if link["type"] in ("url", "sitemap")],
        "item_titles": [item["title"] for item in items],
        "item_links": [item["link"] for item in items],
        "item_dates": [item["published"] or item["updated"] for item in items],
        "item_authors": [[each["name"] for each in item["authors"] or ()] for item in items],
        "item_content": [item["content"] for item in items],
    }  # fmt: skip


def differences(page: ParsedPage, expected: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is found and what is right, where they differ."""
    found = observe(page)
    return {
        name: (found[name], right)
        for name, right in expected.items()
        if not (right in (found[name] or "") if isinstance(right, Has) else found[name] == right)
    }
