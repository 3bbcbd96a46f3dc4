"""One capture in, its rows out."""

from __future__ import annotations

import gzip
import hashlib

import pytest

from cc_pipeline.documents.page import Limits, ParseOptions
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


def test_limits_cut_and_say_so() -> None:
    limits = Limits(links=3, attributes=2, attribute_chars=10, text_chars=20, payload_bytes=5_000)
    many = "".join(f'<a href="{n}" one="1" two="2" three="3">{n}</a>' for n in range(10)) + "word " * 2000
    parsed = parse_page(page(many), ParseOptions(limits=limits))
    assert len(parsed.links) == 3
    assert set(parsed.metadata["flags"]) == {"payload_cut", "links_cut", "attributes_cut", "text_cut"}
    assert parsed.text is not None
    assert len(parsed.text["text"]) <= 20


def test_an_exception_inside_a_parser_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("cc_pipeline.documents.parse.parse_html", broken)
    with pytest.raises(DataFault, match="KeyError") as caught:
        parse_page(page("<p>x"))
    assert (caught.value.source, caught.value.offset) == (WARC, 1234)


def test_json_ld_of_very_many_values_is_left_out_alone() -> None:
    many = "[" + "{}," * 250_000 + "1]"
    scripts = f"<script type='application/ld+json'>{many}</script><script type='application/ld+json'>[7]</script>"
    parsed = parse_page(page(f"<title>T</title>{scripts}"))
    assert parsed.text is not None
    assert (parsed.text["json_ld"], parsed.metadata["flags"]) == (["[7]"], ["facts_cut"])


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
