"""Mutated and swollen pages and feeds, and odd headers: rows, nothing else, which fit the tables, within bounds of time
and memory.

Some dozens of them, or more for ``CC_PIPELINE_FUZZ_SECONDS``. Seeds are documents of ours and, where it lies beside the
checkout, the corpus.
"""

from __future__ import annotations

import json

from hypothesis import strategies as st

from cc_pipeline.documents.document2012.json import metadata_json
from cc_pipeline.documents.page import FLAGS, Limits, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline_tests import fuzzing
from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.documents.feeds.test_feeds import ATOM, RSS
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.documents.test_parse_page import HTML
from cc_pipeline_tests.fuzzing import bounded, edits, fuzz, swollen

OPTIONS = ParseOptions(limits=Limits(links=200, feed_items=200))

TOKENS = (
    b'<a href=', b"<base href='", b'<meta charset=', b'<![CDATA[', b']]>', b'<!--', b'-->', b'<script>',
    b'</script>', b'<noscript>', b'</noscript>', b'<template>', b'</template>', b'<svg>', b'<title>', b'<math>',
    b'<iframe>', b'<table>', b'<frameset>', b"<!DOCTYPE x [<!ENTITY a 'b'>]>", b'&a;', b'&#xD800;', b'&#0;',
    b'\x00', b'\xff\xfe', b'\xef\xbb\xbf', b'<style>', b'</style>', b'<select>', b'</p>', b'<form>', b'<rss>',
    b"<feed xmlns='http://www.w3.org/2005/Atom'>", b'<item>', b'<entry>', b"xml:base='http://[::'", b'<link>',
    b'http://[', b'//', b'\\', b'\xed\xa0\x80', b'<plaintext>', b'<script type="application/ld+json">',
    b'{"@type":', b'<html', b'<body', b'</body>', b'</html>', b'<object>', b"'", b'"',
)  # fmt: skip
TYPES = (
    "text/html",
    "application/xml",
    "application/rss+xml",
    "text/plain",
    "text/html; charset=utf-16",
    "application/feed+json",
    None,
    ";;",
    "x",
)
JSON = (
    b'{"version":"https://jsonfeed.org/version/1.1","title":"T","items":[{"id":"1","content_html":"<p>x"},{"id":"2"}]}'
)


def seeds() -> list[bytes]:
    """Documents to start from."""
    found = [JSON, *(text.encode() for text in (HTML, RSS, ATOM))]
    for pattern in (
        "html_text_metadata/readability/*/source.html",
        "feeds/**/*.xml",
        "charset/chardet/*/*",
    ):
        files = sorted(CORPUS.glob(pattern))
        found += [path.read_bytes() for path in files[:: max(1, len(files) // 30)]]
    return [seed[:100_000] for seed in found]


def check(payload: bytes, mime: str | None) -> None:
    """Parses and checks what every row promises."""
    with bounded():
        parsed = parse_page(page(payload, mime=mime), OPTIONS)
    batches = to_record_batches([parsed])
    assert batches["page_metadata"].num_rows == 1
    assert {*(parsed.metadata.get("flags") or ())} <= {*FLAGS}
    assert json.loads(metadata_json(parsed.metadata, parsed.links))["disposition"] == "SUCCESS"
    for batch in batches.values():
        batch.validate(full=True)


@fuzz(100, payload=edits(seeds(), 12), mime=st.sampled_from(TYPES))
def test_mutated_documents(payload: bytes, mime: str | None) -> None:
    check(payload, mime)


@fuzz(
    80,
    headers=st.lists(st.tuples(st.text(max_size=20), st.text(max_size=40)), max_size=8),
    url=st.text(max_size=40),
    status=st.none() | st.integers(0, 999),
)
def test_odd_headers_urls_and_statuses(headers: list[tuple[str, str]], url: str, status: int | None) -> None:
    parsed = parse_page(page("<a href=x>y</a>", url=url, headers=headers, http_status=status), OPTIONS)
    assert to_record_batches([parsed])["page_metadata"].num_rows == 1


#: What pages are made of that costs a parser something, with a number where one of many is another.
PIECES = (
    *TOKENS,
    *(
        b"<%s>" % name
        for name in b"b i div p li ul td tr span h1 ruby rt option optgroup button object marquee".split()
    ),
    *(b"</%s>" % name for name in b"b a div table td svg br option select li".split()),
    *(b"<nobr>", b"<center>", b"<pre>", b"<a href=x%d>", b"<font color=%d>", b"<a a%d=1>", b" a%d=1", b"<body a%d=1>"),
    *(
        b"<meta name=a%d content=b>",
        b'<img srcset="a 1x, ',
        b"<img src=%d.png>",
        b"<link rel=canonical href=%d>",
        b"x ",
    ),
    *(b'<script type="application/ld+json">', b'{"@type":"a%d"},', b'\\"', b",", b"[", b"//", b"/*", b"&amp", b"&#9;"),
    *(b"data:;base64,", b"../", b"=", b"</scrip", "\u65e5\u672c ".encode(), b"\x1b$B", b"w%d "),
)


@st.composite
def swollen_pages(draw: st.DrawFn) -> bytes:
    """One or two runs of a few pieces over and over: kilobytes, or more where seconds of fuzzing were asked for."""
    most = 400_000 if fuzzing.SECONDS else 4_000
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        parts.append(b"".join(draw(st.lists(st.sampled_from(PIECES), max_size=2))).replace(b"%d", b"0"))
        piece = b"".join(draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4)))
        times = draw(st.sampled_from((100, most // 8, most))) // len(piece) + 1
        parts.append(b"".join(piece.replace(b"%d", b"%d" % number) for number in range(times)))
    return b"".join(parts)


@fuzz(40, payload=swollen_pages(), mime=st.sampled_from((*TYPES[:4], "application/xhtml+xml", None)))
def test_swollen_pages(payload: bytes, mime: str | None) -> None:
    """Time and memory are the oracle: no page may cost more than two seconds, or 300 MB over its size."""
    with bounded(2.0, 300.0):
        to_record_batches([parse_page(page(payload, mime=mime))])


FEED_TOKENS = (
    *(b"<item>", b"</item>", b"<entry>", b"</entry>", b"<title>", b"</title>", b"<description>", b"<content:encoded>"),
    *(b"<link>", b"<link href='x'>", b"<guid>", b"<p>", b"</p>", b"<br>", b"<svg>", b"<channel>", b"</channel>"),
    *(b"<rss>", b"</rss>", b"<feed xmlns='http://www.w3.org/2005/Atom'>", b"<x:y>", b"<a b='c' ", b'<a b="', b"'"),
    *(b'"', b"<", b">", b"&", b"&amp;", b"&a;", b"&#1;", b"<![CDATA[", b"]]>", b"<!--", b"-->", b"<?", b"?>", b" "),
    *(b"<!DOCTYPE x [", b"<!ENTITY a 'b'>", b"]>", b"\n", b"=", b"a", b"a,", b"(a@b", b")", b"xml:base='a/'", b"/>"),
    *(b"<media:content url='u'>", b"<media:group>", b"<itunes:keywords>", b"<category>a</category>", b"<author>"),
    *(b'{"items":[', b"{", b"[", b'"a":', b"1,", b'"\\u0041', b"]", b"}", b"<dc:date>", b"2024-05-18", b":", b"Z "),
)
FEED_HEADS = (
    *(b"", b"<?xml version='1.0'?><rss version='2.0'><channel><title>t</title>", b"<rss><channel><item><description>"),
    *(b"<rss><channel><item><author>", b"<rss><channel><item><pubDate>", b"<rss><channel><itunes:keywords>"),
    *(b"<feed xmlns='http://www.w3.org/2005/Atom'><entry>", b"<rss><channel><item><content:encoded>"),
    *(b"<feed xmlns='http://www.w3.org/2005/Atom'><entry><content type='html'>", b"<rss><channel><item><link>"),
    b'{"version":"https://jsonfeed.org/version/1.1","items":[',
    b'{"version":"https://jsonfeed.org/version/1.1","items":[{"id":"1","content_html":"',
)


@fuzz(60, data=swollen(FEED_TOKENS, FEED_HEADS), mime=st.sampled_from(TYPES))
def test_swollen_feeds(data: bytes, mime: str | None) -> None:
    check(data, mime)
