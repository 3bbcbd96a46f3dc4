"""Atom 0.3 and 1.0, and markup inside feeds."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from functools import partial
from html import unescape

from cc_pipeline.documents.dates import first_read, parse_date, read_date
from cc_pipeline.documents.feeds.extensions import add_categories, number, read_extension
from cc_pipeline.documents.feeds.model import MAX_FIELDS, MAX_LIST, Content, Enclosure, Feed, FeedItem, FeedLink, Person
from cc_pipeline.documents.feeds.xml import Element, attribute_value, element_text, inner_markup, local_name
from cc_pipeline.documents.html.urls import Resolved, browser_resolver, resolve_reference
from cc_pipeline.documents.page import Limits

#: A value never contains ``<``, so that the search never reads the same text twice.
_TAG = re.compile(r"<[a-zA-Z](?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+>")
_REFERENCE = re.compile(
    r"""(\s(?:href|src|cite|action|background|longdesc|usemap|poster|data)\s*=\s*)(?:"([^"]*)"|'([^']*)')""",
    re.IGNORECASE,
)


def absolutize(markup: str | None, base: str) -> str | None:
    """Returns ``markup`` with the references of its tags resolved against ``base``; other text unchanged."""
    if not markup or "<" not in markup or "=" not in markup or not base:
        return markup
    resolve = browser_resolver(base)
    return _TAG.sub(lambda tag: _REFERENCE.sub(partial(_resolved, resolve), tag.group(0)), markup)


def _resolved(resolve: Callable[[str], Resolved], match: re.Match[str]) -> str:
    quote = '"' if match.group(2) is not None else "'"
    value = match.group(2) if match.group(2) is not None else match.group(3)
    url, _ = resolve(attribute_value(value))
    if url is None or value.startswith("#") or "://" in value:
        return match.group(0)
    return f"{match.group(1)}{quote}{url.replace('&', '&amp;').replace(quote, '&quot;')}{quote}"


ATOM = "http://www.w3.org/2005/Atom"
ATOM_NAMESPACES = frozenset(
    {ATOM, "http://purl.org/atom/ns#", "https://www.w3.org/2005/Atom", "http://www.w3.org/2005/atom"}
)
_XML = "{http://www.w3.org/XML/1998/namespace}"
#: The maximum length of an `xml:base`, as of the `base` element of a page.
_BASE_CHARS = 2_048
_DATES_PUBLISHED = ("published", "issued", "created")
_DATES_UPDATED = ("updated", "modified")


def read_atom(root: Element, limits: Limits, base: str) -> Feed:
    """Reads a feed from its ``feed`` element; ``base`` is the feed's own URL."""
    feed = Feed("atom-feed", version=root.get("version"), language=root.get(f"{_XML}lang"))
    fields = 0
    # an entry may be the root of a document
    for child in (root,) if local_name(root)[1] == "entry" else root:
        if local_name(child)[1] in ("entry", "item"):
            if len(feed.items) >= limits.feed_items:
                feed.flags.add("items_cut")
                break
            feed.items.append(_read_entry(child, base, feed.flags))
            continue
        fields += 1
        if fields > MAX_FIELDS:
            feed.flags.add("lists_cut")
        else:
            _read_child(feed, child, root, base)
    return feed


def _read_entry(element: Element, base: str, flags: set[str]) -> FeedItem:
    item = FeedItem(language=element.get(f"{_XML}lang"))
    for place, child in enumerate(element):
        if place >= MAX_FIELDS:
            flags.add("lists_cut")
            break
        _read_child(item, child, element, base)
    return item


def _read_child(holder: Feed | FeedItem, child: Element, parent: Element, base: str) -> None:
    namespace, name = local_name(child)
    if namespace and namespace != local_name(parent)[0] and namespace not in ATOM_NAMESPACES:
        read_extension(holder, child, element_text(child), partial(absolute_in, base))
    elif isinstance(holder, Feed):
        read_feed_element(holder, child, name, base)
    else:
        read_entry_element(holder, child, name, base)


def read_feed_element(feed: Feed, child: Element, name: str, base: str) -> None:
    """Reads an element of Atom about a feed, also inside RSS. It fills empty fields; links, authors and categories add
    up."""
    if name == "title":
        feed.title = feed.title or construct(child, base)
    elif name in ("subtitle", "tagline"):
        feed.description = feed.description or construct(child, base)
    elif name == "link" and (link := atom_link(child, base)):
        feed.links.append(link)
    elif name == "author":
        feed.authors.append(read_person(child, base))
    elif name == "category":
        add_categories(feed, _category(child))
    elif name == "generator":
        feed.generator = feed.generator or element_text(child)
    elif name in ("rights", "copyright") and (rights := construct(child, base)):
        feed.copyright = feed.copyright or rights.value
    elif name in ("logo", "icon") and (href := element_text(child)):
        setattr(feed, "image" if name == "logo" else name, absolute(child, href, base))
    elif name in _DATES_UPDATED:
        feed.updated = parse_date(element_text(child)) or feed.updated
    elif name in _DATES_PUBLISHED:
        feed.published = parse_date(element_text(child)) or feed.published


def read_entry_element(item: FeedItem, child: Element, name: str, base: str) -> None:
    """Reads an element of Atom about an entry, also inside an item of RSS. It fills empty fields; links, authors and
    categories add up."""
    if name == "title":
        item.title = item.title or construct(child, base)
    elif name == "summary":
        item.description = item.description or construct(child, base)
    elif name == "content":
        if (content := construct(child, base)) is not None:
            item.contents.append(content)
        elif href := child.get("src"):
            item.links.append(FeedLink(absolute(child, href, base), "content", child.get("type")))
    elif name == "link" and (link := atom_link(child, base)):
        add_link(item, child, link)
    elif name == "author":
        item.authors.append(read_person(child, base))
    elif name == "source":
        item.source_authors = [read_person(e, base) for e in child if local_name(e)[1] == "author"][:MAX_LIST]
    elif name == "category":
        add_categories(item, _category(child))
    elif name == "id":
        item.guid = item.guid or element_text(child)
    elif name in _DATES_PUBLISHED:
        item.published_date = first_read(read_date(element_text(child)), item.published_date)
    elif name in _DATES_UPDATED:
        item.updated_date = first_read(read_date(element_text(child)), item.updated_date)


def construct(element: Element, base: str) -> Content | None:
    """Returns a text construct, or an entry's content: plain text, markup unescaped (``html``), markup inside
    (``xhtml``), or decoded base64. Base64 is content of a media type of neither text nor XML (RFC 4287, 4.1.3.3), or
    declared by Atom 0.3's ``mode``."""
    base = base_of(element, base)
    value = absolutize(_construct(element), base)
    return None if value is None else Content(value, element.get("type"), base)


def _construct(element: Element) -> str | None:
    kind = (element.get("type") or "text").partition(";")[0].strip().lower()
    mode = (element.get("mode") or "").lower()
    binary = "/" in kind and not kind.startswith("text/") and not kind.endswith(("+xml", "/xml"))
    in_content = local_name(element)[1] == "content"
    if mode == "base64" or (in_content and binary and not mode and not len(element)):
        try:
            written = "".join((element_text(element) or "").split())
            return base64.b64decode(written, validate=True).decode("utf-8", "replace").strip() or None
        except (binascii.Error, ValueError):
            return None if mode else element_text(element)
    if mode == "escaped":
        return element_text(element)
    if len(element):
        if kind == "xhtml" and len(element) == 1 and local_name(element[0])[1] == "div":
            return inner_markup(element[0]) or None
        return inner_markup(element) or None
    text = element_text(element)
    return unescape(text) if text and mode == "xml" and kind == "text/html" else text


def atom_link(element: Element, base: str) -> FeedLink | None:
    """Returns the link of a ``link`` element; ``None`` without an ``href``."""
    written = element.get("href")
    if written is None or not (written.strip() or base_of(element, base)):
        return None
    href = written.strip()
    rel = (element.get("rel") or "alternate").strip()
    rel = rel.removeprefix("http://www.iana.org/assignments/relation/")
    return FeedLink(absolute(element, href, base), rel, element.get("type"), element.get("title"))


def add_link(item: FeedItem, element: Element, link: FeedLink) -> None:
    """Adds a ``link`` to an item; it may be an enclosure."""
    item.links.append(link)
    if link.rel == "enclosure":
        item.enclosures.append(Enclosure(link.href, link.type, number(element.get("length")), link.title))


def base_of(element: Element, base: str) -> str:
    """Returns the base of relative references inside an element: its ``xml:base``, resolved against the feed's URL. A
    very long ``xml:base`` is ignored: each reference would be as long again."""
    bases = [value for node in (element, *element.iterancestors()) if (value := node.get(f"{_XML}base"))]
    bases = [value for value in bases if len(value) <= _BASE_CHARS]
    for value in reversed(bases):
        base = resolve_reference(base, value)
    return base


def absolute_in(base: str, element: Element, href: str) -> str:
    return absolute(element, href, base)


def absolute(element: Element, href: str, base: str) -> str:
    """Returns a reference of the feed as a browser would resolve it; unchanged if that is impossible."""
    return resolve_reference(base_of(element, base), href)


def read_person(element: Element, base: str) -> Person:
    """Returns a person construct: name, address, mail."""
    fields: dict[str, str | None] = {}
    for child in element:
        fields.setdefault(local_name(child)[1], element_text(child))
    url = fields.get("uri") or fields.get("url") or fields.get("homepage")
    return Person(
        fields.get("name") or (None if len(element) else element_text(element)),
        absolute(element, url, base) if url else None,
        fields.get("email"),
    )


def _category(element: Element) -> str | None:
    return element.get("label") or element.get("term") or element_text(element)
