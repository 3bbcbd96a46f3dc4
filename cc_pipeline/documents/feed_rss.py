"""RSS: the 0.9x and 2.0 family and the RDF family (0.90, 1.0, 1.1)."""

from __future__ import annotations

import re

from cc_pipeline.documents.feed_atom import ATOM_NAMESPACES, atom_link
from cc_pipeline.documents.feed_dates import parse_date
from cc_pipeline.documents.feed_model import Content, Feed, FeedItem, FeedLink, Person
from cc_pipeline.documents.feed_xml import Element, inner_markup, local_name
from cc_pipeline.documents.options import Limits

DC = "http://purl.org/dc/elements/1.1/"
DCTERMS = "http://purl.org/dc/terms/"
CONTENT = "http://purl.org/rss/1.0/modules/content/"
XHTML = "http://www.w3.org/1999/xhtml"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"

_EMAIL_NAME = re.compile(r"\s*([^\s()<>@]+@[^\s()<>]+)\s*\(([^()]*)\)\s*\Z")
_NAME_EMAIL = re.compile(r"\s*(.*?)\s*[<(]([^\s()<>@]+@[^\s()<>]+)[>)]\s*\Z")
_TTL = re.compile(r"\s*(\d{1,9})")


def read_rss(root: Element, limits: Limits) -> Feed:
    """Reads from the root element (``rss``, ``RDF`` or a bare ``channel``)."""
    feed = Feed("rss-feed", version=root.get("version"))
    channels = [root] if local_name(root)[1] == "channel" else [e for e in root if local_name(e)[1] == "channel"]
    for channel in channels[:1]:
        _read_channel(channel, feed)
    holders = [*channels, root] if root not in channels else channels
    for element in _items(holders):
        if len(feed.items) >= limits.feed_items:
            feed.flags.add("items_cut")
            break
        feed.items.append(_read_item(element))
    return feed


def _items(holders: list[Element]) -> list[Element]:
    found = []
    for holder in holders:
        for child in holder:
            name = local_name(child)[1]
            if name == "item":
                found.append(child)
            elif name == "items":
                found += [e for e in child if local_name(e)[1] == "item"]
    return found


def _read_channel(channel: Element, feed: Feed) -> None:
    build = published = None
    for child in channel:
        namespace, name = local_name(child)
        text = _text(child)
        if namespace in ATOM_NAMESPACES:
            if name == "link" and (link := atom_link(child)):
                feed.links.append(link)
        elif namespace == DC:
            if name == "date":
                feed.updated = feed.updated or parse_date(text)
            elif name == "creator" and text:
                feed.authors.append(person(text))
            elif name == "subject" and text:
                feed.categories.append(text)
            elif name == "language":
                feed.language = feed.language or text
            elif name == "title":
                feed.title = feed.title or text
            elif name == "description":
                feed.description = feed.description or text
        elif namespace not in _FOREIGN:
            if name == "title":
                feed.title = text or feed.title
            elif name == "link" and text:
                feed.links.insert(0, FeedLink(text))
            elif name == "description":
                feed.description = _markup_or_text(child) or feed.description
            elif name == "lastbuilddate":
                build = parse_date(text)
            elif name == "pubdate":
                published = parse_date(text)
            elif name == "category" and text:
                feed.categories.append(text)
            elif name == "generator":
                feed.generator = text
            elif name == "ttl" and (number := _TTL.match(text or "")):
                feed.ttl = int(number.group(1)) if int(number.group(1)) < 2**31 else None
            elif name == "language":
                feed.language = text
            elif name in ("managingeditor", "author") and text:
                feed.authors.append(person(text))
    moments = [moment for moment in (build, published) if moment]
    feed.published = published
    feed.updated = max(moments) if moments else feed.updated


#: Namespaces whose elements share RSS's names but mean something else.
_FOREIGN = frozenset(
    {
        "http://www.itunes.com/dtds/podcast-1.0.dtd",
        "http://search.yahoo.com/mrss/",
        "http://search.yahoo.com/mrss",
        "http://rssnamespace.org/feedburner/ext/1.0",
        "http://purl.org/rss/1.0/modules/image/",
        "http://purl.org/rss/1.0/modules/syndication/",
        CONTENT,
        DCTERMS,
    }
)


def _read_item(element: Element) -> FeedItem:
    item = FeedItem()
    dublin_date = None
    for child in element:
        namespace, name = local_name(child)
        text = _text(child)
        if namespace in ATOM_NAMESPACES:
            if name == "link" and (link := atom_link(child)):
                item.links.append(link)
            elif name in ("updated", "modified"):
                item.updated = item.updated or parse_date(text)
            elif name in ("published", "issued"):
                item.published = item.published or parse_date(text)
        elif namespace == DC:
            if name == "date":
                dublin_date = dublin_date or parse_date(text)
            elif name in ("creator", "author") and text:
                item.authors.append(person(text))
            elif name == "subject" and text:
                item.categories.append(text)
            elif name == "title":
                item.title = item.title or text
            elif name == "description":
                item.description = item.description or text
            elif name == "identifier":
                item.guid = item.guid or text
        elif namespace == CONTENT and name == "encoded":
            if value := _markup_or_text(child):
                item.contents.append(Content(value, "text/html"))
        elif namespace == DCTERMS:
            if name == "modified":
                item.updated = item.updated or parse_date(text)
            elif name in ("created", "issued"):
                dublin_date = dublin_date or parse_date(text)
        elif namespace == XHTML and name in ("body", "div"):
            if value := inner_markup(child):
                item.contents.append(Content(value, "application/xhtml+xml"))
        elif namespace not in _FOREIGN:
            _read_plain(item, child, name, text)
    item.published = item.published or dublin_date
    if item.guid is None:
        item.guid = element.get(f"{{{RDF}}}about")
    if item.link is None and (about := element.get(f"{{{RDF}}}about")):
        item.links.append(FeedLink(about))
    return item


def _read_plain(item: FeedItem, child: Element, name: str, text: str | None) -> None:
    if name == "title":
        item.title = text or item.title
    elif name == "link" and (href := text or child.get("href")):
        item.links.insert(0, FeedLink(href))
    elif name == "description":
        item.description = _markup_or_text(child) or item.description
    elif name == "author" and text:
        item.authors.insert(0, person(text))
    elif name == "category" and text:
        item.categories.append(text)
    elif name == "comments":
        item.comments = text or item.comments
    elif name == "guid":
        item.guid = text or item.guid
        if text and child.get("isPermaLink", "true").strip().lower() == "true" and "://" in text and not item.link:
            item.links.append(FeedLink(text))
    elif name == "pubdate":
        item.published = parse_date(text) or item.published
    elif name == "enclosure" and (href := child.get("url")):
        item.links.append(FeedLink(href.strip(), "enclosure", child.get("type")))
    elif name == "source" and (href := child.get("url")):
        item.links.append(FeedLink(href.strip(), "via", None, text))
    elif name in ("body", "fullitem") and text:
        item.contents.append(Content(text, "text/html"))


def person(text: str) -> Person:
    """``mail (name)``, ``name <mail>``, ``name (mail)``, a mail address or a name."""
    if found := _EMAIL_NAME.match(text):
        return Person(found.group(2).strip() or None, None, found.group(1))
    if found := _NAME_EMAIL.match(text):
        return Person(found.group(1) or None, None, found.group(2))
    if "@" in text and " " not in text:
        return Person(None, None, text)
    return Person(text)


def _text(element: Element) -> str | None:
    value = "".join(element.itertext()).strip()
    return value or None


def _markup_or_text(element: Element) -> str | None:
    return inner_markup(element) if len(element) else _text(element)
