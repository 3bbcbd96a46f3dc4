"""What feeds say beyond the 2012 document: media, podcasts, Atom inside RSS, enclosures, pictures, JSON Feed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cc_pipeline.documents.page import ParsedPage
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline_tests.documents.pages import page

NAMESPACES = (
    'xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd" xmlns:media="http://search.yahoo.com/mrss/"'
    ' xmlns:atom="http://www.w3.org/2005/Atom" xmlns:dc="http://purl.org/dc/elements/1.1/"'
)
CHANNEL = """<title>Show</title><link>https://example.com/</link><language>en-gb</language>
<copyright>(c) Ann</copyright>
<image><url>/logo.png</url><title>Show</title><link>https://example.com/</link></image>
<atom:link rel="self" href="/feed.xml" type="application/rss+xml"/><atom:link rel="hub" href="https://hub.example.com/"/>
<itunes:author>Ann</itunes:author>
<itunes:owner><itunes:name>Ann</itunes:name><itunes:email>ann@example.com</itunes:email>
</itunes:owner><itunes:type>serial</itunes:type>
<itunes:explicit>clean</itunes:explicit><itunes:image href="/cover.jpg"/>"""


def _feed(items: str, channel: str = CHANNEL) -> ParsedPage:
    text = f'<rss version="2.0" {NAMESPACES}><channel>{channel}{items}</channel></rss>'
    parsed = parse_page(page(text, mime="application/rss+xml", url="https://example.com/feed"))
    for batch in to_record_batches([parsed]).values():
        batch.validate(full=True)
    return parsed


def _item(inside: str) -> dict[str, Any]:
    (row,) = _feed(f"<item><title>One</title>{inside}</item>").feed_items
    return dict(row)


def test_what_a_feed_says_of_itself() -> None:
    feed = _feed("").metadata["feed"]
    assert (feed["version"], feed["language"], feed["copyright"]) == ("2.0", "en-gb", "(c) Ann")
    assert feed["image"] == "https://example.com/logo.png"
    assert [(link["rel"], link["href"]) for link in feed["links"]] == [
        ("alternate", "https://example.com/"),
        ("self", "https://example.com/feed.xml"),
        ("hub", "https://hub.example.com/"),
    ]
    podcast = feed["podcast"]
    assert podcast["owner"] == {"name": "Ann", "url": None, "email": "ann@example.com"}
    assert (podcast["author"], podcast["type"], podcast["explicit"]) == ("Ann", "serial", False)
    assert podcast["image"] == "https://example.com/cover.jpg"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1:02:03", 3723.0), ("02:03", 123.0), ("3723", 3723.0), ("62.5", 62.5), ("an hour", None), ("", None)],
)
def test_episodes_of_podcasts(written: str, seconds: float | None) -> None:
    row = _item(
        f"<itunes:duration>{written}</itunes:duration><itunes:episode>7</itunes:episode><itunes:season>2</itunes:season>"
        "<itunes:episodeType>bonus</itunes:episodeType><itunes:explicit>yes</itunes:explicit><itunes:block>no</itunes:block>"
        '<itunes:subtitle>Sub</itunes:subtitle><itunes:summary>Sum</itunes:summary><itunes:image href="/e.jpg"/>'
    )
    podcast = row["podcast"]
    assert (podcast["duration"], podcast["episode"], podcast["season"], podcast["type"]) == (seconds, 7, 2, "bonus")
    assert (podcast["explicit"], podcast["block"], podcast["complete"]) == (True, False, None)
    assert (podcast["subtitle"], podcast["summary"]) == ("Sub", "Sum")
    assert row["image"] == "https://example.com/e.jpg"


def test_media_of_items_and_groups() -> None:
    row = _item(
        "<media:title>All</media:title><media:credit>Eve</media:credit>"
        '<media:content url="/a.jpg" medium="image" width="640" height="480" fileSize="1000"/>'
        '<media:group><media:title>Film</media:title><media:thumbnail url="/t.jpg"/><media:player url="/p"/>'
        '<media:content url="/a.mp4" type="video/mp4" duration="120"/>'
        '<media:content url="/b.mp4"><media:title>Short</media:title></media:content></media:group>'
    )
    still, film, short = row["media"]
    assert (still["url"], still["medium"], still["width"], still["height"], still["file_size"]) == (
        *("https://example.com/a.jpg", "image", 640, 480, 1000),
    )
    assert (still["title"], still["credit"]) == ("All", "Eve")
    assert (film["title"], film["type"], film["duration"], film["credit"]) == ("Film", "video/mp4", 120.0, "Eve")
    assert (film["thumbnail"], film["player"]) == ("https://example.com/t.jpg", "https://example.com/p")
    assert short["title"] == "Short"
    assert row["image"] == "https://example.com/a.jpg"


def test_media_in_atom() -> None:
    parsed = parse_page(
        page(
            f'<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="de" {NAMESPACES}><title>T</title><logo>/l.png</logo>'
            '<icon>/i.ico</icon><rights>R</rights><entry xml:lang="en"><title>E</title>'
            '<link rel="enclosure" href="/a.mp3" length="5" type="audio/mpeg"/>'
            '<media:group><media:content url="/v"/><media:thumbnail url="/t.jpg"/>'
            "<media:description>D</media:description></media:group></entry></feed>",
            mime="application/atom+xml",
            url="https://example.com/feed",
        )
    )
    (row,) = parsed.feed_items
    assert row["media"][0]["description"] == "D"
    assert (row["image"], row["language"]) == ("https://example.com/t.jpg", "en")
    assert row["enclosures"][0]["length"] == 5
    feed = parsed.metadata["feed"]
    assert (feed["image"], feed["icon"]) == ("https://example.com/l.png", "https://example.com/i.ico")
    assert (feed["language"], feed["copyright"]) == ("de", "R")


def test_atom_inside_rss() -> None:
    row = _item(
        "<atom:id>urn:1</atom:id><atom:author><atom:name>Ann</atom:name><atom:uri>/ann</atom:uri></atom:author>"
        "<atom:published>2024-05-18T10:00:00Z</atom:published><atom:updated>2024-05-19</atom:updated>"
        '<atom:summary>Sum</atom:summary><atom:content type="html">&lt;p&gt;Body&lt;/p&gt;</atom:content>'
        '<atom:category term="a"/><atom:category term="a"/><dc:language>fr</dc:language>'
        '<atom:link rel="enclosure" href="/a" length="7"/>'
    )
    assert (row["guid"], row["description"], row["content"]) == ("urn:1", "Sum", "<p>Body</p>")
    assert row["authors"] == [{"name": "Ann", "url": "https://example.com/ann", "email": None}]
    assert (row["published_precision"], row["updated_precision"], row["updated_text"]) == (
        "moment",
        "day",
        "2024-05-19",
    )
    assert (row["categories"], row["language"]) == (["a"], "fr")
    assert row["enclosures"][0]["length"] == 7


def test_a_date_that_cannot_be_read_gives_way_to_one_that_can() -> None:
    row = _item("<pubDate>05/06/2024</pubDate>")
    assert (row["published"], row["published_text"], row["published_precision"]) == (None, "05/06/2024", None)
    row = _item("<pubDate>gestern</pubDate><dc:date>2024-05-18T10:00:00Z</dc:date>")
    assert (row["published_text"], row["published_precision"]) == ("2024-05-18T10:00:00Z", "moment")


def test_lists_are_bounded() -> None:
    parsed = _feed("<item>" + "<category>c</category>" * 1500 + '<media:content url="/x"/>' * 3000 + "</item>")
    (row,) = parsed.feed_items
    assert (len(row["categories"]), len(row["media"])) == (1000, 1000)
    assert parsed.metadata["flags"] == ["lists_cut"]


JSON: dict[str, Any] = {
    "version": "https://jsonfeed.org/version/1.1",
    "title": "The feed",
    "home_page_url": "https://example.com/",
    "feed_url": "https://example.com/feed.json",
    "description": "About",
    "language": "en",
    "icon": "/icon.png",
    "favicon": "/favicon.ico",
    "hubs": [{"type": "WebSub", "url": "https://hub.example.com/"}],
    "authors": [{"name": "Ann", "url": "https://example.com/ann"}],
    "items": [
        {
            "id": "https://example.com/1",
            "url": "/1",
            "external_url": "https://example.org/1",
            "title": "First",
            "content_html": '<p>Long <a href="x.html">link</a></p>',
            "content_text": "Long link",
            "summary": "Sum",
            "image": "/1.png",
            "date_published": "2024-05-18T10:00:00+02:00",
            "date_modified": "2024-05-19T00:00:00Z",
            "tags": ["a", "b", "a"],
            "attachments": [
                {
                    "url": "/a.mp3",
                    "mime_type": "audio/mpeg",
                    "size_in_bytes": 8,
                    "duration_in_seconds": 60,
                    "title": "A",
                }
            ],
        },
        {"id": 2, "content_text": "only text", "author": {"name": "Bob"}},
    ],
}


def _json(text: str, mime: str | None = "application/feed+json") -> ParsedPage:
    parsed = parse_page(page(text, mime=mime, url="https://example.com/feed.json"))
    for batch in to_record_batches([parsed]).values():
        batch.validate(full=True)
    return parsed


def test_json_feed_as_rows() -> None:
    parsed = _json(json.dumps(JSON))
    assert (parsed.metadata["parsed_as"], parsed.metadata["content"]["type"]) == ("feed", "json-feed")
    assert parsed.metadata["flags"] is None
    feed = parsed.metadata["feed"]
    assert (feed["version"], feed["language"]) == ("1.1", "en")
    assert (feed["image"], feed["icon"]) == ("https://example.com/icon.png", "https://example.com/favicon.ico")
    assert [link["rel"] for link in feed["links"]] == ["alternate", "self", "hub"]
    first, second = parsed.feed_items
    assert (first["feed_type"], first["feed_title"], first["guid"]) == (
        "json-feed",
        "The feed",
        "https://example.com/1",
    )
    assert (first["link"], first["description"], first["categories"]) == ("https://example.com/1", "Sum", ["a", "b"])
    assert (first["content"], first["content_type"]) == ('<p>Long <a href="x.html">link</a></p>', "text/html")
    assert first["published"].isoformat() == "2024-05-18T08:00:00+00:00"
    assert first["enclosures"] == [
        {"url": "https://example.com/a.mp3", "type": "audio/mpeg", "length": 8, "title": "A", "duration": 60.0}
    ]
    assert (second["guid"], second["author"], second["content_type"]) == ("2", "Bob", "text/plain")
    assert [(link.url, link.item_index) for link in parsed.links] == [("https://example.com/x.html", 0)]
    assert parsed.text is not None
    assert parsed.text["text"] == "The feed About First Sum a b Long link Long link only text"


@pytest.mark.parametrize("mime", ["application/feed+json", "application/json", "text/html", "text/plain", None])
def test_json_feed_is_known_by_its_version(mime: str | None) -> None:
    text = json.dumps(JSON)
    assert len(_json(text, mime).feed_items) == 2
    assert len(_json(text.replace("/", "\\/"), mime).feed_items) == 2


def test_other_json_is_no_feed() -> None:
    assert _json('{"items": [{"id": 1}], "total": 3}', "application/json").metadata.get("parsed_as") is None
    other = _json('{"items": [{"id": 1}], "total": 3}')
    assert (other.metadata.get("parsed_as"), other.metadata["flags"]) == (None, ["feed_unreadable"])


def test_a_json_feed_that_was_cut_keeps_what_stands_before() -> None:
    text = json.dumps(JSON)
    parsed = _json(text[: text.index('"content_text": "only')])
    assert [row["guid"] for row in parsed.feed_items] == ["https://example.com/1"]
    assert parsed.metadata["flags"] == ["feed_malformed"]


@pytest.mark.parametrize(
    "text",
    [
        '{"version":"https://jsonfeed.org/version/1","items":' + "[" * 100_000,
        '{"version":"https://jsonfeed.org/version/1","items":[{"id":' + "9" * 10_000 + "}]}",
        '{"version":"https://jsonfeed.org/version/1","title":"\\ud800","items":[1,null,[],{"id":"\\ud800","tags":[{}]}]}',
        '{"version":"https://jsonfeed.org/version/1","items":[{"url":"http://[","date_published":5,"attachments":[3]}]}',
        '{"version":"https://jsonfeed.org/version/1","items":[{"attachments":[{"url":"a","size_in_bytes":1e400}]}]}',
        '{"version":"https://jsonfeed.org/version/1","items":[{"attachments":[{"url":"a","size_in_bytes":NaN}]}]}',
    ],
    ids=["deep", "digits", "surrogate", "kinds", "infinite", "nan"],
)
def test_odd_json_feeds_are_rows(text: str) -> None:
    assert _json(text).metadata["parsed_as"] == "feed"
