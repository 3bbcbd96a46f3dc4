"""One capture in, its rows out."""

from __future__ import annotations

import gzip
import hashlib

import pytest

from cc_pipeline.documents.page import Limits, ParseOptions, RedirectSource
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.documents.pages import WARC, WHEN, page

HTML = """<!doctype html><html lang="en"><head><title> A  page </title>
<meta name="description" content="What it is about"><meta property="og:site_name" content="Example Site">
<meta property="og:image" content="/1.png"><meta property="og:image" content="/2.png">
<link rel="canonical" href="/canonical"><base href="/elsewhere/">
<script type="application/ld+json">{"@context": "https://schema.org", "@type": ["Article", "NewsArticle"]}</script>
<script src="app.js" type="text/javascript"></script></head>
<body><h1>Heading</h1><p>One <a href="sub/x.html#f" rel="nofollow" data-k="v">a <b>bold</b> link</a> and
<a href="#top">none</a> and <a href="">none either</a>.</p><img src="//cdn.example.net/i.png" alt="pic">
<noscript>no script</noscript><script>var hidden = 1;</script></body></html>"""


def test_html_row() -> None:
    parsed = parse_page(page(HTML))
    row = parsed.metadata
    assert row["disposition"] == "SUCCESS"
    assert row["failure_reason"] is None
    assert row["parsed_as"] == "html"
    assert row["attempt_time"] == WHEN
    assert row["md5"] == hashlib.md5(HTML.encode(), usedforsecurity=False).hexdigest()
    assert (row["mime_type"], row["charset_detected"], row["charset_detector"]) == ("text/html", "UTF-8", 0)
    assert row["content"]["type"] == "html-doc"
    assert row["content"]["title"] == " A  page "
    assert [tag["name"] for tag in row["content"]["meta_tags"]] == [
        "description",
        "og:site_name",
        "og:image",
        "og:image",
    ]
    assert row["http_headers"] == {"response": "HTTP/1.1 200 OK", "content-type": "text/html; charset=utf-8"}
    assert row["archiveInfo"] == {
        "arcSourceSegmentId": 1715971057216,
        "arcFileDate": 1715988682000,
        "arcFileParition": 3,
        "arcFileOffset": 1234,
        "compressedSize": 567,
    }
    assert parsed.keys["warc_filename"] == parsed.keys["source_file"] == WARC
    assert parsed.keys["fetch_status"] == 200


def test_links_resolve_against_the_base_element_in_document_order() -> None:
    links = parse_page(page(HTML)).links
    assert [(link.type, link.href, link.url) for link in links] == [
        ("link", "/canonical", "https://www.example.com/canonical"),
        ("script", "app.js", "https://www.example.com/elsewhere/app.js"),
        ("a", "sub/x.html#f", "https://www.example.com/elsewhere/sub/x.html#f"),
        ("img", "//cdn.example.net/i.png", "https://cdn.example.net/i.png"),
    ]
    anchor, image = links[2], links[3]
    assert anchor.text == "a bold link"
    assert anchor.attributes == {"rel": "nofollow", "data-k": "v"}
    assert (image.host, image.domain) == ("cdn.example.net", "example.net")


def test_text_row() -> None:
    text = parse_page(page(HTML)).text
    assert text is not None
    assert text["text"].startswith("A page What it is about Heading One a bold link")
    assert "hidden" not in text["text"]
    assert "no script" not in text["text"]
    assert (text["title"], text["description"], text["site_name"]) == ("A page", "What it is about", "Example Site")
    assert text["canonical_url"] == "https://www.example.com/canonical"
    assert text["html_lang"] == "en"
    assert [each["value"] for each in text["open_graph"]] == ["Example Site", "/1.png", "/2.png"]
    assert text["json_ld"] == ['{"@context":"https://schema.org","@type":["Article","NewsArticle"]}']
    assert text["json_ld_types"] == ["Article", "NewsArticle"]


@pytest.mark.parametrize("mime", ["image/png", "application/pdf", "video/mp4"])
def test_binary_types_have_a_digest_and_no_text(mime: str) -> None:
    parsed = parse_page(page(b"\x89PNG\r\n", mime=mime))
    assert parsed.metadata["disposition"] == "SUCCESS"
    assert parsed.metadata["md5"]
    assert "charset_detected" not in parsed.metadata
    assert parsed.text is None
    assert parsed.links == ()


def test_plain_text_has_simhash_and_no_content() -> None:
    row = parse_page(page("some plain text, long enough", mime="text/plain")).metadata
    assert row["text_simhash"] != 0
    assert "content" not in row


def test_missing_content_type_is_read_as_html() -> None:
    row = parse_page(page("<title>t</title>", mime=None)).metadata
    assert (row["mime_type"], row["parsed_as"]) == ("text/html", "html")


def test_robots_txt_has_a_row_without_content() -> None:
    for robots in (
        page("User-agent: *", mime="text/plain", subset="robotstxt"),
        page("<p>not really</p>", url="https://example.com/robots.txt"),
    ):
        parsed = parse_page(robots)
        assert parsed.metadata["disposition"] == "SUCCESS"
        assert parsed.metadata["md5"]
        assert "content" not in parsed.metadata
        assert parsed.text is None


def test_empty_body_has_no_digest() -> None:
    row = parse_page(page(b"")).metadata
    assert row["disposition"] == "SUCCESS"
    assert "md5" not in row


def test_gzip_sizes_come_from_the_renamed_headers() -> None:
    headers = (("X-Crawler-Content-Encoding", "gzip"), ("x-crawler-content-length", "321"), ("Content-Length", "16"))
    row = parse_page(page("<title>t</title>", headers=headers)).metadata
    assert row["content_is_gzip"] is True
    assert (row["download_size"], row["content_len"], row["gunzip_content_len"]) == (321, 321, 16)
    assert row["http_headers"]["content-length"] == "321"
    assert row["http_headers"]["content-encoding"] == "gzip"
    assert {"name": "Content-Length", "value": "16"} in row["http_header_list"]


def test_repeated_headers_keep_every_value() -> None:
    row = parse_page(
        page("x", headers=(("Vary", "A"), ("vary", "B"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")))
    ).metadata
    assert row["http_headers"]["vary"] == "A, B"
    assert row["http_headers"]["set-cookie"] == "a=1\nb=2"
    assert len(row["http_header_list"]) == 5


def test_redirect_from_is_carried_over() -> None:
    origin = RedirectSource(
        "http://example.com/", 301, "192.0.2.1", (("Location", "https://www.example.com/"),), "HTTP/1.1 301 M"
    )
    row = parse_page(page("x", redirect_from=origin)).metadata
    assert row["redirect_from"]["http_headers"] == {
        "response": "HTTP/1.1 301 M",
        "location": "https://www.example.com/",
    }


def test_limits_cut_and_say_so() -> None:
    limits = Limits(links=3, attributes=2, attribute_chars=10, text_chars=20, payload_bytes=5_000)
    many = "".join(f'<a href="{n}" one="1" two="2" three="3">{n}</a>' for n in range(10)) + "word " * 2000
    parsed = parse_page(page(many), ParseOptions(limits=limits))
    assert len(parsed.links) == 3
    assert set(parsed.metadata["flags"]) == {"payload_cut", "links_cut", "attributes_cut", "text_cut"}
    assert parsed.text is not None
    assert len(parsed.text["text"]) <= 20


@pytest.mark.parametrize("many", ["<div>x</div>", "<li>x", "<p>x", "<tr><td>x", "<br>x", '<img src="a">', "<option>x"])
def test_many_elements_side_by_side_are_no_nesting(many: str) -> None:
    assert parse_page(page(many * 10_000)).metadata["parsed_as"] == "html"


def test_an_exception_inside_a_parser_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("cc_pipeline.documents.parse.parse_html", broken)
    with pytest.raises(DataFault, match="KeyError") as caught:
        parse_page(page("<p>x"))
    assert (caught.value.source, caught.value.offset) == (WARC, 1234)


def test_xml_that_is_no_feed_has_no_content() -> None:
    row = parse_page(page("<sitemap><url/></sitemap>", mime="application/xml")).metadata
    assert "content" not in row
    assert row["flags"] is None
    assert parse_page(page("<sitemap/>", mime="application/rss+xml")).metadata["flags"] == ["feed_unreadable"]


def test_json_ld_of_very_many_values_is_left_out_alone() -> None:
    many = "[" + "{}," * 250_000 + "1]"
    scripts = f"<script type='application/ld+json'>{many}</script><script type='application/ld+json'>[7]</script>"
    parsed = parse_page(page(f"<title>T</title>{scripts}"))
    assert parsed.text is not None
    assert (parsed.text["json_ld"], parsed.metadata["flags"]) == (["[7]"], ["facts_cut"])


@pytest.mark.parametrize(("script", "value"), [('<!--\n{"a": 1}\n-->', '{"a":1}'), ("null", None), ("not json", None)])
def test_json_ld_as_pages_write_it(script: str, value: str | None) -> None:
    parsed = parse_page(page(f'<script type="application/ld+json">{script}</script>'))
    assert parsed.text is not None
    assert parsed.text["json_ld"] == ([value] if value else None)


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/xhtml+xml"])
def test_byte_order_mark_is_no_text(codec: str, kind: str) -> None:
    html = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>t</title></head><body><p>word</p></body></html>'
    body = "word" if kind == "text/plain" else html
    plain = parse_page(page(body, f"{kind}; charset=utf-8")).text
    marked = parse_page(page(f"\ufeff{body}".encode(codec), f"{kind}; charset=utf-8")).text
    assert plain is not None
    assert marked == plain


@pytest.mark.parametrize(
    "kind", ["application/ld+json; charset=UTF-8", " Application/LD+JSON ;profile='x'", "application/ld+json"]
)
def test_json_ld_is_known_whatever_parameters_its_type_has(kind: str) -> None:
    script = f'<script type="{kind}">{{"@type": "Article", "headline": "x"}}</script>'
    text = parse_page(page(f"<html><head>{script}</head><body>word</body></html>")).text
    assert text is not None
    assert text["json_ld_types"] == ["Article"]


def test_redirects_and_sitemaps_lead_where_links_do() -> None:
    address, url = "//Other.Example/gr\u00f6\u00dfe", "https://other.example/gr%C3%B6%C3%9Fe"
    sent = address.encode().decode("latin-1")
    moved = parse_page(page(http_status=301, headers=(("Location", sent), ("Link", f"<{sent}>; rel=canonical"))))
    assert (moved.metadata["redirect_to"], moved.metadata["canonical_url"]) == (url, url)
    sitemap = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>{address}</loc></url></urlset>'
    for body, kind in ((sitemap, "text/xml"), (f"<a href='{address}'>x</a>", "text/html; charset=utf-8")):
        assert [(link.url, link.host) for link in parse_page(page(body, kind)).links] == [(url, "other.example")]


SAY_NOTHING = ("", ";charset=utf-8", "*/*", "unknown/unknown", "application/unknown", "charset=utf-8", "utf-8", "None")
BODIES = {
    "<!DOCTYPE html><title>t</title><p>word": "html",
    "\ufeff <HTML><title>t</title><p>word</html>": "html",
    "<title>t</title><p>word": "html",
    "<!-- note --><title>t</title>word": "html",
    "<?xml version='1.0'?><a><t>t</t>word</a>": "xml",
    "<rss version='2.0'><channel><title>t</title><item><title>word</title></item></channel></rss>": "feed",
    "t word": "text",
}


@pytest.mark.parametrize("mime", [None, *SAY_NOTHING, "Content-Type: text/html"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("detected", [None, "application/octet-stream"])
def test_a_type_that_says_nothing_leaves_it_to_the_bytes(mime: str | None, body: str, detected: str | None) -> None:
    parsed = parse_page(page(body, mime, mime_detected=detected))
    assert parsed.text is not None
    assert parsed.text["text_type"] == BODIES[body]
    assert "word" in parsed.text["text"]
    assert (parsed.metadata["type_from"], parsed.metadata["flags"]) == ("bytes", None)


@pytest.mark.parametrize("mime", [None, *SAY_NOTHING])
def test_a_type_that_says_nothing_leaves_it_to_the_archive(mime: str | None) -> None:
    parsed = parse_page(page("word <b>t</b>", mime, mime_detected="text/html"))
    assert parsed.text is not None
    assert (parsed.text["text_type"], parsed.metadata["type_from"]) == ("html", "archive")
    assert parsed.metadata["flags"] is None


@pytest.mark.parametrize(
    "mime", ["text/plain", "application/octet-stream", "application/x-httpd-php", "content/unknown"]
)
def test_html_that_the_archive_found_is_read_and_flagged(mime: str) -> None:
    parsed = parse_page(page("<html><title>t</title>word</html>", mime, mime_detected="text/html"))
    assert parsed.text is not None
    assert (parsed.text["title"], parsed.metadata["mime_type"]) == ("t", mime)
    assert (parsed.metadata["type_from"], parsed.metadata["flags"]) == ("archive", ["type_mismatch"])


@pytest.mark.parametrize("mime", ["text/css", "application/javascript", "text/csv", "application/pdf"])
def test_other_types_keep_their_word_without_the_archive(mime: str) -> None:
    parsed = parse_page(page("<html><title>t</title>word</html>", mime, mime_detected=None))
    assert (parsed.metadata.get("parsed_as"), parsed.metadata["type_from"]) == (None, "header")


@pytest.mark.parametrize(
    ("mime", "body", "kind", "charset"),
    [
        ("text/html; charset=windows-1251", "<title>слово</title><p>word", "html", "windows-1251"),
        ("text/plain", "word", "text", "UTF-8"),
        (None, "<!doctype html><title>t</title><p>word", "html", "UTF-8"),
    ],
)
def test_a_resource_record_is_a_page_of_its_own_type(mime: str | None, body: str, kind: str, charset: str) -> None:
    headers = (("WARC-Type", "resource"), ("Content-Length", "9"), *((("Content-Type", mime),) if mime else ()))
    more = {"http_status": None, "http_status_line": None, "record_headers": headers, "record_type": "resource"}
    parsed = parse_page(page(body.encode(charset), None, **more))
    row = parsed.metadata
    assert (row["disposition"], row["http_result"], row["charset_detected"]) == ("SUCCESS", None, charset)
    assert row["mime_type"] == (mime or "text/html").partition(";")[0]
    assert parsed.text is not None
    assert parsed.text["text_type"] == kind
    assert "word" in parsed.text["text"]


def test_a_gzipped_file_that_is_a_resource_stays_one() -> None:
    headers = (("Content-Type", "application/gzip"),)
    more = {"http_status": None, "record_headers": headers, "record_type": "resource"}
    parsed = parse_page(page(gzip.compress(b"<p>word"), None, **more))
    assert (parsed.text, parsed.metadata["flags"]) == (None, None)


@pytest.mark.parametrize("kind", ["conversion", "metadata"])
def test_records_that_hold_no_response_are_named(kind: str) -> None:
    row = parse_page(page("word", None, http_status=None, record_type=kind)).metadata
    assert (row["disposition"], row["failure_reason"]) == ("FAILURE", "NoData")
    assert f"is a {kind} record" in row["failure_detail"]
