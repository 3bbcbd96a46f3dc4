"""Feeds of every dialect as one shape, and as the 2012 document."""

from __future__ import annotations

import json

import pytest

from cc_pipeline.documents.document2012.json import metadata_object
from cc_pipeline.documents.feeds.rows import parse_feed
from cc_pipeline.documents.page import Limits, ParsedPage, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page

RSS = """<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<channel><title>The &amp; <![CDATA[<b>Feed</b>]]></title><link>https://example.com/</link><description>About</description>
<pubDate>Sat, 18 May 2024 10:00:00 +0200</pubDate><lastBuildDate>Fri, 17 May 2024 00:00:00 GMT</lastBuildDate>
<category>News</category><category></category><generator>gen 1</generator><ttl> 60 </ttl>
<item><title>First</title><link>/1?a=1&amp;b=2</link><description>&lt;p&gt;Short&lt;/p&gt;</description>
<author>ed@example.com (Ed Itor)</author><category>A</category><category>B</category>
<comments>https://example.com/1#c</comments><guid isPermaLink="false">tag:1</guid>
<pubDate>Thu, 01 Jan 2004 19:48:21 EST</pubDate><enclosure url="/a.mp3" type="audio/mpeg" length="1"/>
<content:encoded><![CDATA[<p>Long <a href="x.html">link</a></p>]]></content:encoded></item>
<item><title/><dc:creator>Someone</dc:creator><dc:date>2004-01-01T10:00:00-08:00</dc:date>
<guid>https://example.com/2</guid></item></channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://example.org/blog/">
<title type="html">A &lt;i&gt;title&lt;/i&gt;</title>
<link href="."/><link rel="self" href="feed.atom"/><updated>2024-05-18T10:00:00Z</updated>
<author><name>Ann</name><uri>/ann</uri><email>ann@example.org</email></author><category term="t" label="Label"/>
<generator uri="x">G</generator>
<entry><title>Entry</title><id>urn:1</id><link href="e1" type="text/html" title="T"/><link href="e1b"/>
<link rel="self" href="e1.atom"/><link rel="replies" href="e1#r"/><published>2024-05-01T00:00:00+01:00</published>
<updated>2024-05-02T00:00:00Z</updated><summary>Sum</summary><author><name>Bob</name></author>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>Body <a href="y">y</a></p></div></content></entry>
<entry><title>Second</title><updated>2024-05-03T00:00:00Z</updated></entry></feed>"""


def _parse(text: str, mime: str = "application/xml", **more: object) -> ParsedPage:
    return parse_page(page(text, mime=mime, url="https://example.com/feed", **more))


def test_the_author_of_an_item_is_the_first_who_has_a_name() -> None:
    said = "<author>a@b.example</author><dc:creator>Jane Doe</dc:creator><dc:creator>Jim Roe</dc:creator>"
    form = "<rss version='2.0' xmlns:dc='http://purl.org/dc/elements/1.1/'><channel><item>%s</item></channel></rss>"
    [item] = _parse(form % said).feed_items
    assert item["author"] == "Jane Doe"
    assert [each["email"] or each["name"] for each in item["authors"]] == ["a@b.example", "Jane Doe", "Jim Roe"]
    [item] = _parse(form % "<author>a@b.example</author>").feed_items
    assert item["author"] == "a@b.example"


def test_rss_as_the_2012_document() -> None:
    parsed = _parse(RSS)
    content = metadata_object(parsed.metadata, parsed.links)["content"]
    assert content["type"] == "rss-feed"
    assert content["title"] == "The & Feed"
    assert content["link"] == {"href": "https://example.com/"}
    # the greater of lastBuildDate and pubDate
    assert content["updated"] == 1716019200000
    assert (content["categories"], content["generator"], content["ttl"]) == (["News"], "gen 1", 60)
    item, bare = content["items"]
    assert item["description"] == "Short"
    assert item["content"]["links"] == [{"type": "a", "text": "link", "href": "https://example.com/x.html"}]
    assert "title" not in bare


def test_atom_as_the_2012_document() -> None:
    parsed = _parse(ATOM)
    content = metadata_object(parsed.metadata, parsed.links)["content"]
    assert content["title"] == "A title"
    assert content["link"] == {"href": "https://example.org/blog/", "rel": "alternate"}
    assert content["authors"] == [{"name": "Ann", "url": "https://example.org/ann"}]
    assert content["categories"] == ["Label"]
    entry = content["items"][0]
    assert [link["href"] for link in entry["link"]] == ["https://example.org/blog/e1", "https://example.org/blog/e1b"]
    assert entry["link"][0]["type"] == "text/html"
    assert entry["self"]["href"] == "https://example.org/blog/e1.atom"
    assert entry["replies"]["href"] == "https://example.org/blog/e1#r"
    assert (entry["published"], entry["updated"]) == (1714518000000, 1714608000000)
    assert entry["content"]["links"][0]["href"] == "https://example.org/blog/y"


def test_texts_of_a_feed_are_read_as_those_of_a_page() -> None:
    """miniflux/v2#1381, and half of all real feeds: markup in titles and descriptions."""
    body = "&lt;p&gt;It&amp;#8217;s the end.&lt;/p&gt;&lt;p&gt;Next &lt;a href='x'&gt;one&lt;/a&gt;.&lt;/p&gt;"
    item = f"<item><title>Tom &amp;amp; &lt;b&gt;J&lt;/b&gt;erry</title><description>{body}</description></item>"
    parsed = _parse(
        f"<rss><channel><title>A &amp;amp; B</title><description>{body}</description>{item}</channel></rss>"
    )
    assert parsed.text is not None
    assert parsed.text["text"] == "A & B It\u2019s the end. Next one. Tom & Jerry It\u2019s the end. Next one."
    assert (parsed.text["title"], parsed.text["description"]) == ("A & B", "It\u2019s the end. Next one.")
    assert [row["title"] for row in parsed.feed_items] == ["Tom & Jerry"]
    assert [(link.url, link.text, link.item_index) for link in parsed.links] == [("https://example.com/x", "one", 0)]
    assert parsed.metadata["content"]["items"][0]["title"] == "Tom &amp; Jerry", "the document of 2012 has its own rule"
    assert parsed.metadata["content"]["items"][0]["content"] is None


@pytest.mark.parametrize(
    ("written", "text", "in_2012"),
    [
        ("<title type='html'>Fish &amp;amp; &lt;em>Chips&lt;/em></title>", "Fish & Chips", "Fish &amp; Chips"),
        ("<title type='xhtml'><div>AT&amp;T &lt; <b>you</b></div></title>", "AT&T < you", "AT&amp;T &lt; you"),
        ("<title type='text'>Using &lt;b> in HTML</title>", "Using <b> in HTML", "Using  in HTML"),
        ("<title>5 &lt; 6 and 7 > 2</title>", "5 < 6 and 7 > 2", "5 < 6 and 7 > 2"),
    ],
)
def test_titles_of_atom_are_what_their_type_says(written: str, text: str, in_2012: str) -> None:
    parsed = _parse(f'<feed xmlns="http://www.w3.org/2005/Atom"><entry>{written}</entry></feed>')
    assert parsed.text is not None
    assert (parsed.feed_items[0]["title"], parsed.text["text"]) == (text, text)
    assert parsed.metadata["content"]["items"][0]["title"] == in_2012


def test_items_without_an_author_have_those_of_their_source_or_feed() -> None:
    """Ranchero-Software/NetNewsWire#2797; RFC 4287, 4.2.1, and JSON Feed 1.1."""
    source = "<source><author><name>Source</name></author></source>"
    entries = f"<entry/><entry>{source}</entry><entry>{source}<author><name>Own</name></author></entry>"
    parsed = _parse(f'<feed xmlns="http://www.w3.org/2005/Atom"><author><name>Feed</name></author>{entries}</feed>')
    assert [row["author"] for row in parsed.feed_items] == ["Feed", "Source", "Own"]
    assert [item["authors"] is None for item in parsed.metadata["content"]["items"]] == [True, True, False]
    authors = [{"name": "Feed"}, {"name": "x" * 5_000_000}]
    feed = {"version": "https://jsonfeed.org/version/1.1", "authors": authors, "items": [{"id": "1"}]}
    [row] = _parse(json.dumps(feed), "application/feed+json").feed_items
    assert [author["name"] for author in row["authors"]] == ["Feed"], "as much as is repeated with each item"


@pytest.mark.parametrize(
    "bomb",
    [
        '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">'
        + "".join(
            f'<!ENTITY {b} "{"&" + a + ";" * 1}{("&" + a + ";") * 9}">'
            for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        )
        + "]><rss><channel><title>&i;</title></channel></rss>",
        '<!DOCTYPE r [<!ENTITY a "'
        + "x" * 200
        + '">]><rss><channel><title>'
        + "&a;" * 300_000
        + "</title></channel></rss>",
        '<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><rss><channel><title>&a;</title></channel></rss>',
        '<!DOCTYPE r SYSTEM "http://127.0.0.1:1/x.dtd" [<!ENTITY % p SYSTEM "http://127.0.0.1:1/"> %p;]>'
        "<rss><channel><title>t</title></channel></rss>",
        "<rss><channel>" + "<x>" * 100_000 + "</rss>",
        "<feed>" + '<entry a="' * 1000,
    ],
    ids=["nested", "repeated", "file", "address", "deep", "attributes"],
)
def test_entity_bombs_and_external_entities_stay_text(bomb: str) -> None:
    feed = parse_feed(bomb, Limits())
    if feed is not None and feed.title is not None:
        assert len(feed.title.value) < 4_000_000
        assert "root:" not in feed.title.value


def test_texts_over_the_limit_are_cut_and_those_repeated_share_it() -> None:
    media = "<media:description>about</media:description>" + "<media:content url='a.jpg'/>" * 10
    item = f"<item><title>title</title><description>{'told' * 40}</description>{media}</item>"
    title = f"<title>{'n' * 150}</title>"
    rss = f"<rss xmlns:media='http://search.yahoo.com/mrss/'><channel>{title}{item * 5}</channel></rss>"
    named = {"version": "https://jsonfeed.org/version/1", "title": "n" * 130, "items": [{"id": "1"}] * 2}
    rows = []
    for feed, mime in ((rss, "application/rss+xml"), (json.dumps(named), "application/feed+json")):
        parsed = parse_page(page(feed, mime), ParseOptions(limits=Limits(text_chars=125)))
        assert parsed.text is not None
        assert len(parsed.text["text"]) == len(parsed.text["title"]) == 125
        assert parsed.metadata["flags"] == ["text_cut"]
        rows.append(parsed.feed_items)
    assert [[len(row["feed_title"]) for row in each] for each in rows] == [[25] * 5, [62] * 2]
    assert [len(row["description"]) for row in rows[0]] == [125] * 5
    assert {each["description"] for row in rows[0] for each in row["media"]} == {"ab"}


def test_a_base_that_would_make_each_link_long_is_none() -> None:
    for size, host in ((2_000, "other.example"), (3_000, "www.example.com")):
        feed = ATOM.replace("https://example.org/blog/", f"https://other.example/{'x' * size}/")
        parsed = parse_page(page(feed, mime="application/atom+xml"))
        assert parsed.feed_items[0]["link"].startswith(f"https://{host}/")


def test_items_over_the_limit_are_cut() -> None:
    feed = parse_feed("<rss><channel>" + "<item/>" * 50 + "</channel></rss>", Limits(feed_items=5))
    assert feed is not None
    assert (len(feed.items), feed.flags) == (5, {"items_cut"})
