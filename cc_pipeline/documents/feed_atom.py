"""Atom 0.3 and 1.0."""

from __future__ import annotations

import base64
import binascii
from html import unescape
from urllib.parse import urljoin

from cc_pipeline.documents.feed_dates import parse_date
from cc_pipeline.documents.feed_model import Content, Feed, FeedItem, FeedLink, Person
from cc_pipeline.documents.feed_xml import Element, inner_markup, local_name
from cc_pipeline.documents.options import Limits

ATOM = "http://www.w3.org/2005/Atom"
ATOM_NAMESPACES = frozenset(
    {ATOM, "http://purl.org/atom/ns#", "https://www.w3.org/2005/Atom", "http://www.w3.org/2005/atom"}
)
_XML = "{http://www.w3.org/XML/1998/namespace}"
_DATES_PUBLISHED = ("published", "issued", "created")
_DATES_UPDATED = ("updated", "modified")


def read_atom(root: Element, limits: Limits) -> Feed:
    """Reads from the ``feed`` element."""
    feed = Feed("atom-feed", version=root.get("version"), language=root.get(f"{_XML}lang"))
    for child in root:
        namespace, name = local_name(child)
        if name == "entry":
            if len(feed.items) >= limits.feed_items:
                feed.flags.add("items_cut")
                break
            feed.items.append(_read_entry(child, feed))
        elif namespace and namespace not in ATOM_NAMESPACES:
            continue
        elif name == "title":
            feed.title = construct(child)
        elif name in ("subtitle", "tagline"):
            feed.description = construct(child)
        elif name == "link" and (link := atom_link(child)):
            feed.links.append(link)
        elif name == "author":
            feed.authors.append(_person(child))
        elif name == "category" and (label := _category(child)):
            feed.categories.append(label)
        elif name == "generator":
            feed.generator = _text(child)
        elif name in _DATES_UPDATED:
            feed.updated = parse_date(_text(child)) or feed.updated
        elif name in _DATES_PUBLISHED:
            feed.published = parse_date(_text(child)) or feed.published
    return feed


def _read_entry(element: Element, feed: Feed) -> FeedItem:
    item = FeedItem()
    for child in element:
        namespace, name = local_name(child)
        if namespace and namespace not in ATOM_NAMESPACES:
            continue
        if name == "title":
            item.title = construct(child)
        elif name == "summary":
            item.description = construct(child)
        elif name == "content":
            if (value := construct(child)) is not None:
                item.contents.append(Content(value, child.get("type")))
            elif href := child.get("src"):
                item.links.append(FeedLink(_absolute(child, href), "content", child.get("type")))
        elif name == "link" and (link := atom_link(child)):
            item.links.append(link)
        elif name == "author":
            item.authors.append(_person(child))
        elif name == "category" and (label := _category(child)):
            item.categories.append(label)
        elif name == "id":
            item.guid = _text(child)
        elif name in _DATES_PUBLISHED:
            item.published = parse_date(_text(child)) or item.published
        elif name in _DATES_UPDATED:
            item.updated = parse_date(_text(child)) or item.updated
    return item


def construct(element: Element) -> str | None:
    """A text construct: plain text, markup unescaped (``html``) or markup inside (``xhtml``)."""
    kind = (element.get("type") or "text").lower()
    mode = (element.get("mode") or "").lower()
    if mode == "base64":
        try:
            return base64.b64decode(_text(element) or "").decode("utf-8", "replace").strip() or None
        except (binascii.Error, ValueError):
            return None
    if mode == "escaped":
        return _text(element)
    if len(element):
        if kind == "xhtml" and len(element) == 1 and local_name(element[0])[1] == "div":
            return inner_markup(element[0]) or None
        return inner_markup(element) or None
    text = _text(element)
    return unescape(text) if text and mode == "xml" and kind == "text/html" else text


def atom_link(element: Element) -> FeedLink | None:
    """A ``link`` element; ``None`` without an ``href``."""
    href = (element.get("href") or "").strip()
    if not href:
        return None
    rel = (element.get("rel") or "alternate").strip()
    rel = rel.removeprefix("http://www.iana.org/assignments/relation/")
    return FeedLink(_absolute(element, href), rel, element.get("type"), element.get("title"))


def _absolute(element: Element, href: str) -> str:
    bases = [value for node in (element, *element.iterancestors()) if (value := node.get(f"{_XML}base"))]
    try:
        for base in bases:
            href = urljoin(base, href)
    except ValueError:
        pass
    return href


def _person(element: Element) -> Person:
    found: dict[str, str | None] = {}
    for child in element:
        found.setdefault(local_name(child)[1], _text(child))
    return Person(
        found.get("name") or (None if len(element) else _text(element)),
        found.get("uri") or found.get("url") or found.get("homepage"),
        found.get("email"),
    )


def _category(element: Element) -> str | None:
    return element.get("label") or element.get("term") or _text(element)


def _text(element: Element) -> str | None:
    return "".join(element.itertext()).strip() or None
