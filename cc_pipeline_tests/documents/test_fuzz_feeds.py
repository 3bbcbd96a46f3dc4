"""Mutated and swollen feeds: rows, bounded in time and memory, and never fewer items for it.

Seeds are feeds of ours and, where it lies beside the checkout, the corpus.
"""

from __future__ import annotations

from hypothesis import strategies as st

from cc_pipeline.documents.dates import read_date
from cc_pipeline.documents.feeds.rows import parse_feed
from cc_pipeline.documents.page import Limits, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.documents.feeds.test_feeds import ATOM, RSS
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.fuzzing import bounded, edits, fuzz, swollen

#: Without simhash and languages: those are no part of reading a feed.
OPTIONS = ParseOptions(text_simhash=False, language=False)
TOKENS = (
    *(b"<item>", b"</item>", b"<entry>", b"</entry>", b"<title>", b"</title>", b"<description>", b"<content:encoded>"),
    *(b"<link>", b"<link href='x'>", b"<guid>", b"<p>", b"</p>", b"<br>", b"<svg>", b"<channel>", b"</channel>"),
    *(b"<rss>", b"</rss>", b"<feed xmlns='http://www.w3.org/2005/Atom'>", b"<x:y>", b"<a b='c' ", b'<a b="', b"'"),
    *(b'"', b"<", b">", b"&", b"&amp;", b"&a;", b"&#1;", b"<![CDATA[", b"]]>", b"<!--", b"-->", b"<?", b"?>", b" "),
    *(b"<!DOCTYPE x [", b"<!ENTITY a 'b'>", b"]>", b"\n", b"=", b"a", b"a,", b"(a@b", b")", b"xml:base='a/'", b"/>"),
    *(b"<media:content url='u'>", b"<media:group>", b"<itunes:keywords>", b"<category>a</category>", b"<author>"),
    *(b'{"items":[', b"{", b"[", b'"a":', b"1,", b'"\\u0041', b"]", b"}", b"<dc:date>", b"2024-05-18", b":", b"Z "),
)
HEADS = (
    *(b"", b"<?xml version='1.0'?><rss version='2.0'><channel><title>t</title>", b"<rss><channel><item><description>"),
    *(b"<rss><channel><item><author>", b"<rss><channel><item><pubDate>", b"<rss><channel><itunes:keywords>"),
    *(b"<feed xmlns='http://www.w3.org/2005/Atom'><entry>", b"<rss><channel><item><content:encoded>"),
    *(b"<feed xmlns='http://www.w3.org/2005/Atom'><entry><content type='html'>", b"<rss><channel><item><link>"),
    b'{"version":"https://jsonfeed.org/version/1.1","items":[',
    b'{"version":"https://jsonfeed.org/version/1.1","items":[{"id":"1","content_html":"',
)
TYPES = ("application/rss+xml", "text/xml", "text/html", "application/feed+json", None)
JSON = (
    b'{"version":"https://jsonfeed.org/version/1.1","title":"T","items":[{"id":"1","content_html":"<p>x"},{"id":"2"}]}'
)


def _seeds() -> list[bytes]:
    files = sorted(CORPUS.glob("feeds/**/*.xml"))
    return [RSS.encode(), ATOM.encode(), JSON, *(path.read_bytes() for path in files[:: max(1, len(files) // 40)])]


def _check(payload: bytes, mime: str | None) -> None:
    source = page(payload, mime=mime)
    with bounded():
        try:
            parsed = parse_page(source, OPTIONS)
        except DataFault as fault:
            assert "nested deeper" in fault.reason, fault
            return
        for batch in to_record_batches([parsed]).values():
            batch.validate(full=True)


@fuzz(60, data=edits(_seeds(), 12), mime=st.sampled_from(TYPES))
def test_mutated_feeds(data: bytes, mime: str | None) -> None:
    _check(data, mime)


@fuzz(60, data=swollen(TOKENS, HEADS), mime=st.sampled_from(TYPES))
def test_swollen_feeds(data: bytes, mime: str | None) -> None:
    _check(data, mime)


ITEM = "<item><title>T</title><link>https://example.com/{n}</link><description>D</description><guid>{n}</guid></item>"


@fuzz(60, soup=st.lists(st.sampled_from(TOKENS[:40]), max_size=8), place=st.integers(1, 8))
def test_soup_in_one_description_invents_and_loses_no_other_item(soup: list[bytes], place: int) -> None:
    """But where the soup itself has items, or opens what only its own end closes."""
    joined = b"".join(soup).decode()
    if any(word in joined for word in ("item", "entry", "<![CDATA[", "<!--", "<?", "<!", "channel", "rss", "feed")):
        return
    items = [ITEM.replace("{n}", str(n)) for n in range(10)]
    items[place] = items[place].replace(">D<", f">{joined}<")
    feed = parse_feed("<rss version='2.0'><channel><title>F</title>" + "".join(items) + "</channel></rss>", Limits())
    assert feed is not None
    found = [item.guid for item in feed.items]
    others = [str(n) for n in range(10) if n != place]
    assert [guid for guid in found if guid in others] == others
    assert len(found) == 10


@fuzz(200, text=st.text(max_size=120) | st.lists(st.sampled_from((*TOKENS[-4:], b"May ", b"1", b"PM"))).map(
    lambda parts: b"".join(parts).decode()
))  # fmt: skip
def test_any_date(text: str) -> None:
    with bounded(0.1, 20):
        read_date(text)
