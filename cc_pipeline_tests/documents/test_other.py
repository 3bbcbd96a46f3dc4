"""Plain text, JSON, XML, sitemaps and PDF: what becomes of them, and of what is broken in them."""

from __future__ import annotations

import json
import time
import zlib
from itertools import count
from typing import Any

import pytest

from cc_pipeline.documents.page import Limits, ParsedPage, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline_tests.documents.pages import page


def parsed(payload: bytes | str, mime: str, limits: Limits | None = None, **more: Any) -> ParsedPage:
    found = parse_page(page(payload, mime=mime, **more), ParseOptions(limits=limits or Limits()))
    assert to_record_batches([found])["page_text"].num_rows == (found.text is not None)
    return found


def text_of(payload: bytes | str, mime: str, limits: Limits | None = None, **more: Any) -> tuple[Any, ...]:
    found = parsed(payload, mime, limits, **more)
    row = found.text or {}
    return row.get("text_type"), row.get("text"), row.get("main_content"), found.metadata["flags"]


def test_plain_text_keeps_its_lines() -> None:
    row = parsed("One  line of this text.\n\nAnother line.\n", "text/plain").text
    assert row is not None
    assert (row["text"], row["main_content"]) == (
        "One line of this text. Another line.",
        "One  line of this text.\n\nAnother line.",
    )
    assert (row["text_type"], row["quality"]["words"], len(row["content_minhash"])) == ("text", 7, 64)
    assert text_of("a" * 50, "text/plain", Limits(text_chars=9)) == ("text", "a" * 9, "a" * 9, ["text_cut"])
    assert parsed(" \n ", "text/plain").text is None
    assert parsed("var a = 1", "application/javascript").text is None
    assert parsed("User-agent: *", "text/plain", url="https://example.com/robots.txt").text is None


def test_json_gives_its_strings_in_order() -> None:
    value = {"id": 3, "title": "One", "body": ["two", {"deep": "three\nfour"}], "last": "five", "none": None}
    assert text_of(json.dumps(value), "application/json") == ("json", "One two three four five", None, None)
    assert text_of('{"a": "b"', "application/json; charset=utf-8")[::3] == ("text", ["json_invalid"])
    assert text_of('{"@type": "Thing"}', "application/ld+json")[:2] == ("json", "Thing")
    assert text_of("[" * 200_000, "application/json")[::3] == ("text", ["json_invalid"])


def test_a_page_labelled_as_a_feed_is_read_as_a_page() -> None:
    found = parsed("<!DOCTYPE html><html><title>T</title><a href=x>one<br>two</a></html>", "application/rss+xml")
    assert found.text is not None
    assert (found.text["text"], found.links[0].href, found.metadata["flags"]) == ("T one two", "x", ["feed_unreadable"])


def test_documents_of_very_many_values_are_read_without_a_tree_of_them() -> None:
    few = Limits(elements=50)
    value = json.dumps([{"name": "a\u00e4"}, {"name": 'say "b"'}, *([] for _ in range(60))])
    assert text_of(value, "application/json", few) == ("json", 'a\u00e4 say "b"', None, ["elements_cut"])
    found = text_of("<r>" + "<a>one</a>" * 200 + "</r>", "application/xml", few)
    assert (found[0], found[1].split(), found[3]) == ("xml", ["one"] * found[1].count("one"), ["elements_cut"])
    assert 40 <= found[1].count("one") <= 60
    whole = "<urlset>" + "<url><loc>https://example.com/</loc></url>" * 24 + "</urlset>"
    assert len(parsed(whole, "text/xml", few).links) == 24
    assert parsed(whole, "text/xml", few).metadata["flags"] is None


def test_xml_gives_its_character_data() -> None:
    assert text_of("<a><b>One</b> two<c x='y'/></a>", "application/xml") == ("xml", "One two", None, None)
    assert text_of("<a><b>One</a>", "text/xml")[3] in (["xml_malformed"], ["xml_unreadable"])
    assert text_of("no markup at all", "text/xml")[:2] == ("text", "no markup at all")
    assert text_of("no feed", "application/rss+xml")[::3] == ("text", ["feed_unreadable"])


SITEMAP = """<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
 xmlns:xhtml="http://www.w3.org/1999/xhtml" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
<url><loc> https://example.com/a?x=1&amp;y=2 </loc><lastmod>2024-05-01</lastmod><priority>0.8</priority>
<xhtml:link rel="alternate" hreflang="de" href="https://example.com/de/a"/>
<image:image><image:loc>https://cdn.example.net/i.png</image:loc></image:image></url>
<url><loc>/b</loc></url><url></url></urlset>"""


def test_the_entries_of_a_sitemap_are_links() -> None:
    found = parsed(SITEMAP, "application/xml")
    assert [(link.type, link.url, link.attributes, link.domain, link.item_index) for link in found.links] == [
        ("url", "https://example.com/a?x=1&y=2", {"lastmod": "2024-05-01", "priority": "0.8"}, "example.com", 0),
        ("link", "https://example.com/de/a", {"rel": "alternate", "hreflang": "de"}, "example.com", 0),
        ("image", "https://cdn.example.net/i.png", {}, "example.net", 0),
        ("url", "https://www.example.com/b", {}, "example.com", 1),
    ]
    assert found.text is not None
    assert found.text["text_type"] == "sitemap"
    index = "<sitemapindex><sitemap><loc>https://example.com/s.xml.gz</loc></sitemap></sitemapindex>"
    assert [(link.type, link.href) for link in parsed(index, "text/xml").links] == [
        ("sitemap", "https://example.com/s.xml.gz")
    ]
    cut = parsed(SITEMAP, "text/xml", Limits(sitemap_links=2))
    assert (len(cut.links), cut.metadata["flags"]) == (2, ["links_cut"])
    half = parsed(SITEMAP[: SITEMAP.index("<url><loc>/b") + 3], "text/xml")
    assert (len(half.links) >= 1, half.metadata["flags"]) == (True, ["xml_malformed"])


def pdf(pages: list[str], title: str = "A title", *, deflate: bool = False) -> bytes:
    """A PDF file of some pages with a line or several each."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, lines in enumerate(pages):
        shown = " T* ".join(f"({line}) Tj" for line in lines.split("\n"))
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET"
        bodies.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {5 + 2 * number} 0 R >>"
        )
        if deflate:
            stream = zlib.compress(stream.encode()).decode("latin-1")
        coding = " /Filter /FlateDecode" if deflate else ""
        bodies.append(f"<< /Length {len(stream)}{coding} >>\nstream\n{stream}\nendstream")
    bodies.append(f"<< /Title ({title}) /Author (An author) >>")
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = (
        f"trailer\n<< /Size {len(bodies) + 1} /Root 1 0 R /Info {len(bodies)} 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    )
    return out + f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


PDF = pdf(["First line of page one\nSecond line", "Page two"])


@pytest.mark.parametrize("mime", ["application/pdf", "application/octet-stream"])
def test_a_pdf_file_gives_its_pages(mime: str) -> None:
    found = parsed(PDF, mime)
    assert found.text is not None
    assert found.text["main_content"].split("\n") == ["First line of page one", "Second line", "Page two"]
    assert (found.text["title"], found.text["author"], found.text["text_type"]) == ("A title", "An author", "pdf")
    assert found.text["main_content_extractor"].startswith("pypdfium2 ")
    assert found.metadata["flags"] is None


def test_bounds_of_pdf_files() -> None:
    assert text_of(PDF, "application/pdf", Limits(pdf_pages=1))[1:] == (
        *("First line of page one Second line", "First line of page one\nSecond line"),
        ["text_cut"],
    )
    assert text_of(PDF, "application/pdf", Limits(text_chars=10))[1::2] == ("First line", ["text_cut"])


def test_a_pdf_file_is_whole_however_late_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour between any two looks at a clock, as for a process that was stopped."""
    hours = count(0, 3_600)
    for clock in ("monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, clock, lambda: float(next(hours)))
    assert text_of(PDF, "application/pdf")[2:] == ("First line of page one\nSecond line\nPage two", None)


def test_pages_that_draw_too_much_are_left_out_and_said_so() -> None:
    """PDFium takes 28 s and 3 GB for a file of 30 KB whose only page is this one a hundred times as long."""
    file = pdf(["one", "\n".join(["word word word"] * 30_000), "three"], deflate=True)
    assert len(file) < 10_000
    assert text_of(file, "application/pdf")[2:] == ("one\nthree", ["text_cut"])
    whole = pdf(["one", "two"], deflate=True)
    assert text_of(whole, "application/pdf")[2:] == ("one\ntwo", None)


def test_cut_and_broken_pdf_files_say_so() -> None:
    assert text_of(PDF, "application/pdf", truncated="length")[3] == ["pdf_truncated"]
    half = parsed(PDF[: PDF.index(b"xref")], "application/pdf")
    assert "pdf_truncated" in half.metadata["flags"]
    assert half.metadata["disposition"] == "SUCCESS"
    for broken in (b"%PDF-1.4 nothing", PDF[:60], b"%PDF-1.7\n" + bytes(range(256)) * 40):
        found = parsed(broken, "application/pdf")
        assert set(found.metadata["flags"]) == {"pdf_truncated", "pdf_unreadable"}
        assert found.text is None
    assert parsed(b"GIF89a", "application/pdf").text is None


def test_no_cut_of_a_file_breaks_the_reader() -> None:
    for end in range(0, len(PDF), 37):
        assert parsed(PDF[:end], "application/pdf").metadata["disposition"] == "SUCCESS"
