"""The order of evidence that docs/documents.md tells of, row by row: of a page with all that a table names from a row
on, that row decides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cc_pipeline_tests.conformance.responses import READERS, URL, Response, answer, observe

_DOCS = Path(__file__).parents[2] / "docs" / "documents.md"
_FOUND_HTML = [("WARC-Identified-Payload-Type", "text/html")]
_RSS = "<rss version='2.0'><channel><title>feed</title></channel></rss>"
_HTML = "<!DOCTYPE html><title>page</title><p>One."
_JSON_LD = "<script type='application/ld+json'>{{'@type':'Article',{}}}</script>"


def _json_ld(members: str) -> str:
    return _JSON_LD.format(members).replace("{'", '{"').replace("':'", '":"').replace("','", '","').replace("'}", '"}')


#: What a row of a table puts into a page, and what the page says where nothing stands above it.
_TITLES = [
    (_json_ld("'headline':'a','name':'b'"), "a"),
    (_json_ld("'name':'b'"), "b"),
    ("<meta name='DC.title' content='c'>", "c"),
    ("<meta property='og:title' content='d'>", "d"),
    ("<meta name='twitter:title' content='e'>", "e"),
    ("<title>The bridge at noon | Site</title>", "The bridge at noon"),
]
_DATES = [
    (_json_ld("'datePublished':'2024-01-01'"), "2024-01-01"),
    ("<meta property='article:published_time' content='2024-01-02'>", "2024-01-02"),
    ("<meta name='dc.date' content='2024-01-03'>", "2024-01-03"),
    (
        "<div itemscope itemtype='https://schema.org/Article'>"
        "<meta itemprop='datePublished' content='2024-01-04'></div>",
        "2024-01-04",
    ),
    ("<time class='published' datetime='2024-01-06'>x</time>", "2024-01-06"),
    ("<h1>The bridge</h1><time datetime='2024-01-07'>x</time>", "2024-01-07"),
]
_CANONICAL = [("<link rel='canonical' href='/a'>", "https://www.example.com/a"), ("", "https://www.example.com/b")]


def _page(*parts: str) -> dict[str, object]:
    block = answer("".join(parts), "text/html; charset=utf-8", 'Link: </b>; rel="canonical"')
    return observe(READERS["a stored member"](Response(block)))


def _told(heading: str) -> int:
    """How many rows the docs' table below a heading has."""
    section = _DOCS.read_text(encoding="utf-8").partition(f"**{heading}**")[2]
    table = section.partition("\n\n|")[2].partition("\n\n")[0]
    return len(re.findall(r"^\| \d+ \|", f"|{table}", re.MULTILINE))


@pytest.mark.parametrize(
    ("heading", "name", "rows"),
    [("Title", "title", _TITLES), ("Date", "published", _DATES), ("Canonical address", "canonical", _CANONICAL)],
)
def test_the_first_that_is_there_decides(heading: str, name: str, rows: list[tuple[str, str]]) -> None:
    for at, (_, right) in enumerate(rows):
        # the first behind all others, so that it is not by their order in the page; a page has one article
        behind = [part for part, _ in reversed(rows[at + 1 :]) if "ld+json" not in part]
        found = _page(*behind, rows[at][0])[name]
        assert str(found).removesuffix(" 00:00:00+00:00") == right, rows[at]
    assert _told(heading) == len(rows)


def test_a_day_in_the_address_is_no_date_of_publication() -> None:
    for markup, right in ((_DATES[0][0], "2024-01-01 00:00:00+00:00"), ("<p>One.", "None")):
        page = Response(answer(markup), "https://www.example.com/2023/05/06/bridge")
        assert str(observe(READERS["a stored member"](page))["published"]) == right


def test_types() -> None:
    def decided(body: str, content_type: str | None, *, is_found: bool) -> tuple[object, object, object]:
        response = Response(answer(body, content_type), fields=_FOUND_HTML if is_found else ())
        seen = observe(READERS["a stored member"](response))
        return seen["kind"], seen["type_from"], seen["flags"]

    rows = [
        (decided(_RSS, "text/plain", is_found=True), ("feed", "bytes", None)),
        (decided(_HTML, "application/x-httpd-php", is_found=True), ("html", "archive", ["type_mismatch"])),
        (decided(_HTML, "text/plain", is_found=True), ("html", "archive", ["type_mismatch"])),
        (decided("One.", "text/html", is_found=False), ("html", "header", None)),
        (decided(_HTML, "*/*", is_found=True), ("html", "archive", None)),
        (decided(_HTML, None, is_found=False), ("html", "bytes", None)),
    ]
    assert [found for found, _ in rows] == [right for _, right in rows]
    assert _told("Type") == len(rows)


def test_charsets() -> None:
    text = "größe €"
    body = f"<title>{text}</title><p>{'Die Größe der Brücke über den Fluß. ' * 5}"
    xml, meta = "<?xml version='1.0' encoding='{}'?>", "<meta charset='{}'>"
    late = f"<style>{'a' * 5_000}</style>"
    rows = [
        (b"\xef\xbb\xbf" + (meta.format("cp1252") + body).encode(), "text/html; charset=cp1252"),
        ((meta.format("utf-8") + body).encode("cp1252"), "text/html; charset=cp1252"),
        ((xml.format("iso-8859-15") + meta.format("utf-8") + body).encode("iso-8859-15"), "text/html"),
        ((meta.format("iso-8859-15") + body).encode("iso-8859-15"), "text/html"),
        (body.encode("utf-16-le"), "text/html"),
        (body.encode("cp1252"), "text/html"),
    ]
    late_meta = ((late + meta.format("iso-8859-15") + body).encode("iso-8859-15"), "text/html")
    for data, content_type in (*rows, late_meta):
        assert observe(READERS["a stored member"](Response(answer(data, content_type))))["title"] == text
    assert _told("Charset") == len(rows) + 1


def test_addresses() -> None:
    for base, right in (("<base href='/b/'>", "https://www.example.com/b/x"), ("", "https://www.example.com/dir/x")):
        assert _page(base, "<a href=x>x</a>")["links"] == [right]
    assert URL == "https://www.example.com/dir/page.html"
    feed = "<feed xmlns='http://www.w3.org/2005/Atom'{}><entry><link href='x'/></entry></feed>"
    for attribute, header, right in (
        (" xml:base='http://a.example/'", "/c/", "http://a.example/x"),
        ("", "/c/", "https://www.example.com/c/x"),
        ("", None, "https://www.example.com/dir/x"),
    ):
        lines = [f"Content-Location: {header}"] if header else []
        block = answer(feed.format(attribute), "application/atom+xml", *lines)
        assert observe(READERS["a stored member"](Response(block)))["item_links"] == [right]
