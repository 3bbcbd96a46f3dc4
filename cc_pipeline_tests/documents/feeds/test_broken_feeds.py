"""Feeds broken in one place, against feedparser: what it finds is found, and nothing that was never written."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Any

import feedparser
import pytest

from cc_pipeline.documents.charset import decode
from cc_pipeline.documents.feeds import atom, rss
from cc_pipeline.documents.feeds.model import MAX_FIELDS, FeedItem
from cc_pipeline.documents.feeds.rows import parse_feed
from cc_pipeline.documents.feeds.xml import repaired
from cc_pipeline.documents.page import Limits
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.documents.pages import page

ITEMS = 40
BROKEN = 20

_RSS2 = (
    '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    ' xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel><title>Feed</title>'
    "<link>https://example.com/</link><description>About</description>",
    "<item><title>Title {n}</title><link>https://example.com/{n}</link><description>TEXT</description>"
    '<guid isPermaLink="false">id:{n}</guid><pubDate>Thu, 01 Jan 2004 19:48:21 GMT</pubDate>'
    "<dc:creator>Ann</dc:creator><content:encoded><![CDATA[<p>Body {n}</p>]]></content:encoded></item>\n",
    "</channel></rss>",
)
_RSS1 = (
    '<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
    ' xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">'
    '<channel rdf:about="https://example.com/rdf"><title>Feed</title><link>https://example.com/</link></channel>',
    '<item rdf:about="id:{n}"><title>Title {n}</title><link>https://example.com/{n}</link>'
    "<description>TEXT</description><dc:date>2004-01-01T10:00:00Z</dc:date></item>\n",
    "</rdf:RDF>",
)
_ATOM = (
    '<?xml version="1.0"?>\n<feed xmlns="http://www.w3.org/2005/Atom"><title>Feed</title>'
    '<link href="https://example.com/"/><id>feed:1</id><updated>2024-05-18T10:00:00Z</updated>',
    '<entry><title>Title {n}</title><link href="https://example.com/{n}"/><summary>TEXT</summary><id>id:{n}</id>'
    "<updated>2024-05-18T10:00:00Z</updated><author><name>Ann</name></author></entry>\n",
    "</feed>",
)
FORMATS = {"rss2": _RSS2, "rss1": _RSS1, "atom": _ATOM}

#: Files in which feedparser takes something else for a link or an id than what the formats say.
_FEEDPARSER_ALONE = {"entry_link_rel_enclosure_no_href", "entry_id_xml_base", "rss_channel_item_uri_at_protocol"}

Break = Callable[[str], str]


def _text(markup: str) -> Break:
    return lambda item: item.replace("TEXT", markup)


def _without(part: str) -> Break:
    return lambda item: item.replace(part, "", 1)


#: What happens to one item.
IN_ITEM: dict[str, Break] = {
    "br": _text("one<br>two"),
    "img": _text('one<img src="a.png">two'),
    "img_bare": _text("one<img src=a.png alt>two"),
    "p": _text("<p>one<p>two"),
    "list": _text("<ul><li>one<li>two</ul>"),
    "table": _text("<table><tr><td>one<td>two"),
    "stray_end": _text("one</p>two</b>"),
    "stray_div_end": lambda item: item.replace("</title>", "</title></div></div>"),
    "crossed": _text("<b>one<i>two</b>three</i>"),
    "less_than": _text("1 < 2 <3 <-- and <> &&& <"),
    "open_quote": _text('<a href="x>one</a> two'),
    "open_comment": _text("one <!-- two"),
    "open_cdata": _text("one <![CDATA[ two"),
    "cdata_end": _text("one ]]> two"),
    "control": _text("one\x0btwo\x00three"),
    "references": _text("&nbsp;&bogus;&#0;&#xD800;&"),
    "same_attribute_twice": _text('<a href="1" href="2">x</a>'),
    "undeclared_prefix": lambda item: item.replace("TEXT", "TEXT</DESC><x:y>z</x:y><DESC>").replace("<DESC>", ""),
    "html_document": _text("<html><head><title>Other</title><body><p>one"),
    "form": _text("<form action=x><input type=text name=y><select><option>1<option>2</select>"),
    "script": _text("<script>if (a < b && c > d) { document.write('</p>') }</script>"),
    "no_description_end": _without("</description>"),
    "no_summary_end": _without("</summary>"),
    "no_title_end": _without("</title>"),
    "no_link_end": _without("</link>"),
    "no_guid_end": _without("</guid>"),
    "no_id_end": _without("</id>"),
    "no_date_end": _without("</pubDate>"),
    "no_author_end": _without("</author>"),
    "no_item_end": lambda item: item.replace("</item>", "").replace("</entry>", ""),
    "no_item_begin": lambda item: item.replace("<item>", "").replace("<entry>", ""),
    "second_item_end": lambda item: item.replace("</item>", "</item></item>").replace("</entry>", "</entry></entry>"),
    "upper_case": lambda item: item.replace("</title>", "</TITLE>").replace("</description>", "</Description>"),
    "link_not_closed": lambda item: item.replace('"/>', '">'),
    "space_in_tag": lambda item: item.replace("<title>", "< title>"),
    "channel_end": lambda item: item + "</channel>",
    "root_end": lambda item: item + "</channel></rss></feed></rdf:RDF>",
    "cut_tag": lambda item: item.replace("</title>", "</title"),
}
PHP = "<br />\n<b>Warning</b>:  connect() [<a href='x'>x</a>]: failed in <b>/www/rss.php</b> on line <b>3</b><br />\n"
#: What happens to the whole.
IN_WHOLE: dict[str, Break] = {
    "blank_lines": lambda text: "\n\n \n" + text,
    "byte_order_marks": lambda text: "\ufeff\ufeff" + text,
    "php_warning": lambda text: PHP + text,
    "words": lambda text: "Notice: Undefined index in feed.php\n" + text,
    "comment": lambda text: "<!-- cached <rss> 2024 -->\n" + text,
    "script_before": lambda text: "<script>var a = '<b>';</script>" + text,
    "script_behind": lambda text: text + "<script>document.write('<title>x</title>')</script><title>y</title>",
    "words_behind": lambda text: text + "\n<br>Time: 0.3 s & more",
    "cut": lambda text: text[: len(text) * 2 // 3],
    "no_end": lambda text: text[: text.rindex("</")],
    "no_channel_end": lambda text: text.replace("</channel>", ""),
    "twice": lambda text: text + text.replace("id:", "ID:").replace("com/", "com/two/"),
    "bare_amp": lambda text: text.replace("Title ", "A & B "),
    "channel_p": lambda text: text.replace(
        "<title>Feed</title>", "<title>Feed</title><description><p>one<p>two</description>"
    ),
    "channel_image": lambda text: text.replace(
        "<title>Feed</title>", "<title>Feed</title><image><url>x</url><title>y</title>"
    ),
    "latin1": lambda text: text.replace("Body", "Body \u00e9").encode("latin-1").decode("utf-8", "surrogateescape"),
}


def _feed(form: str, in_item: str | None, in_whole: str | None) -> bytes:
    head, item, tail = FORMATS[form]
    items = [item.replace("{n}", str(number)) for number in range(ITEMS)]
    if in_item:
        items[BROKEN] = IN_ITEM[in_item](items[BROKEN])
    text = head + "".join(items) + tail
    return (IN_WHOLE[in_whole](text) if in_whole else text).encode("utf-8", "surrogateescape")


def _keys(item: FeedItem) -> set[str]:
    return {key for key in (item.guid, item.link) if key}


def _missing(data: bytes, items: list[FeedItem]) -> list[Any]:
    """What feedparser finds and we do not."""
    ours = {key for item in items for key in (item.guid, *(link.href for link in item.links))}
    try:
        theirs = feedparser.parse(data, sanitize_html=False, resolve_relative_uris=False).entries
    except UnicodeEncodeError:  # feedparser breaks on references to half a surrogate pair
        return []
    # it escapes once more what it read
    ours |= {escape(key, quote=False) for key in ours if key}
    keys = [{str(key).strip() for key in (entry.get("id"), entry.get("link")) if key} for entry in theirs]
    return [key for key in keys if key and not key & ours]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("in_item", "in_whole"), [*((each, None) for each in IN_ITEM), *((None, each) for each in IN_WHOLE)]
)
def test_one_break_costs_no_other_item(form: str, in_item: str | None, in_whole: str | None) -> None:
    data = _feed(form, in_item, in_whole)
    feed = parse_feed(decode(data).text, Limits())
    assert feed is not None
    numbers = range(ITEMS * 2 // 3 - 1) if in_whole == "cut" else range(ITEMS)
    found = {key for item in feed.items for key in _keys(item)}
    lost = [n for n in numbers if not {f"id:{n}", f"https://example.com/{n}"} & found]
    assert lost == [BROKEN] * len(lost)
    written = {f"{sign}:{n}" for n in range(ITEMS) for sign in ("id", "ID")} | {
        f"https://example.com/{way}{n}" for n in range(ITEMS) for way in ("", "two/")
    }
    invented = [item for item in feed.items if not _keys(item) & written]
    assert not invented
    assert _missing(data, feed.items) == []
    assert feed.title is not None
    assert feed.title.value.startswith("Feed")


@pytest.mark.parametrize("mime", ["application/rss+xml", "text/xml", "text/html", "text/plain", None])
@pytest.mark.parametrize("before", ["blank_lines", "byte_order_marks", "php_warning", "words"])
def test_junk_before_the_feed_is_passed_by_whatever_its_label(mime: str | None, before: str) -> None:
    data = _feed("rss2", None, before)
    parsed = parse_page(page(data, mime=mime))
    assert (parsed.metadata["parsed_as"], len(parsed.feed_items)) == ("feed", ITEMS)


def _unclosed(data: bytes) -> bytes:
    return re.sub(rb"(</(?:description|summary|content|title)>)", rb"<br><p>\1", data, count=3)


@needs_corpus
def test_every_item_that_feedparser_finds_in_malformed_feeds_is_found() -> None:
    """Those of the corpus as they are, and well-formed ones with junk before them, tags left open, or their end cut."""
    paths = sorted(each for kind in ("xml", "rss", "atom") for each in CORPUS.glob(f"feeds/**/*.{kind}"))
    missing, items = [], 0
    for number, path in enumerate(paths):
        data = path.read_bytes()
        if number % 4 == 0 and b"\0" not in data[:200]:
            data = (PHP.encode() + data, _unclosed(data), data[: len(data) * 3 // 4])[number % 3]
        feed = parse_feed(decode(data).text, Limits())
        if feed is not None and "feed_malformed" in feed.flags and path.stem not in _FEEDPARSER_ALONE:
            items += len(feed.items)
            missing += [(path.name, keys) for keys in _missing(data, feed.items)]
    assert items > 100
    assert missing == []


@pytest.mark.parametrize("end", ["</channel></rss>", ""])
def test_a_feed_of_too_many_elements_gives_its_beginning(end: str) -> None:
    few = Limits(elements=600, feed_items=1_000)
    items = "".join(f"<item><guid>{n}</guid><title>T</title></item>" for n in range(900))
    feed = parse_feed(f"<rss><channel>{items}{end}", few)
    assert feed is not None
    assert [item.guid for item in feed.items] == [str(n) for n in range(len(feed.items))]
    assert 90 <= len(feed.items) <= 210
    assert "elements_cut" in feed.flags


def test_what_is_behind_the_last_item_that_is_kept_is_not_repaired() -> None:
    items = "".join(f"<item><guid>{n}</guid><br>" for n in range(900))
    read = repaired(f"<rss><channel>{items}", tags=10_000, items=20)
    assert read is not None
    assert (read.text.count("<item>"), read.cut) == (21, False)


@pytest.mark.parametrize(
    "feed",
    [
        "<feed xmlns='http://www.w3.org/2005/Atom'><entry>{}<id>last</id></entry><entry><id>2</id></entry></feed>",
        "<rss xmlns:a='http://www.w3.org/2005/Atom'><channel><item>{}</item><item><guid>2</guid></item></channel></rss>",
        "<feed xmlns='http://www.w3.org/2005/Atom'>{}<entry><id>1</id></entry><entry><id>2</id></entry></feed>",
        "<rss><channel>{}<item><guid>1</guid></item><item><guid>2</guid></item></channel></rss>",
    ],
)
def test_no_more_fields_are_looked_at_than_the_bound(feed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(atom, "absolute", lambda _, href, __: looked.append(href) or href)
    monkeypatch.setattr(rss, "absolute", lambda _, href, __: looked.append(href) or href)
    found = parse_feed(feed.format("<link href='x'>y</link>" * 10_000), Limits())
    assert found is not None
    assert (len(found.items), found.items[1].guid, found.flags) == (2, "2", {"lists_cut"})
    assert 0 < len(looked) <= MAX_FIELDS
