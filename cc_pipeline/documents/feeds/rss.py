"""RSS: the 0.9x and 2.0 family, the RDF family (0.90, 1.0, 1.1), podcasts and media."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial

from cc_pipeline.documents.dates import ReadDate, first_read, parse_date, read_date
from cc_pipeline.documents.feeds.atom import (
    ATOM_NAMESPACES,
    absolute,
    absolute_in,
    absolutize,
    base_of,
    read_entry_element,
    read_feed_element,
)
from cc_pipeline.documents.feeds.extensions import add_categories, number, read_extension
from cc_pipeline.documents.feeds.model import MAX_FIELDS, Content, Enclosure, Feed, FeedItem, FeedLink, person
from cc_pipeline.documents.feeds.xml import Element, element_text, inner_markup, local_name
from cc_pipeline.documents.page import Limits

DC = "http://purl.org/dc/elements/1.1/"
DCTERMS = "http://purl.org/dc/terms/"
CONTENT = "http://purl.org/rss/1.0/modules/content/"
XHTML = "http://www.w3.org/1999/xhtml"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"

_TTL = re.compile(r"\s*(\d{1,10})")
_TTL_MAX = 2**31
#: The elements that give the date of an item without a pubDate, in this order.
_PUBLISHED_ORDER = ("issued", "dc", "created")


def read_rss(root: Element, limits: Limits, base: str) -> Feed:
    """Reads a feed from its root element (``rss``, ``RDF`` or a bare ``channel``); ``base`` is the feed's own URL."""
    feed = Feed("rss-feed", version=root.get("version"))
    channels = [root] if local_name(root)[1] == "channel" else [e for e in root if local_name(e)[1] == "channel"]
    for channel in channels[:1]:
        _read_channel(channel, feed, base)
    for child in root:
        if feed.image is None and local_name(child)[1] == "image":
            _read_image(feed, child, base)
    holders = channels if root in channels else [*channels, root]
    for element in _items(holders):
        if len(feed.items) >= limits.feed_items:
            feed.flags.add("items_cut")
            break
        feed.items.append(_read_item(element, base, feed.flags))
    return feed


def _items(holders: list[Element]) -> list[Element]:
    items = []
    for holder in holders:
        for child in holder:
            name = local_name(child)[1]
            if name == "item":
                items.append(child)
            elif name == "items":
                items += [e for e in child if local_name(e)[1] == "item"]
    return items


def _read_channel(channel: Element, feed: Feed, base: str) -> None:
    rss_namespaces = ("", local_name(channel)[0])
    own_links: list[FeedLink] = []
    dates: dict[str, datetime | None] = {}
    make_absolute = partial(absolute_in, base)
    fields = 0
    for child in channel:
        namespace, name = local_name(child)
        if name in ("item", "items"):
            continue
        fields += 1
        if fields > MAX_FIELDS:
            feed.flags.add("lists_cut")
            break
        text = element_text(child)
        if namespace in rss_namespaces:
            if name == "link" and text:
                own_links.append(FeedLink(absolute(child, text, base)))
            _read_channel_element(feed, child, name, text, base)
            if name in ("pubdate", "lastbuilddate"):
                dates[name] = parse_date(text)
        elif namespace in ATOM_NAMESPACES:
            read_feed_element(feed, child, name, base)
        elif namespace == DC:
            _read_dublin_core(feed, child, name, text, base)
            if name == "date":
                dates.setdefault("dc", parse_date(text))
        elif namespace == DCTERMS:
            dates.setdefault(name, parse_date(text))
        else:
            read_extension(feed, child, text, make_absolute)
    # RSS's own links are the page; a link of another format, or a guid, is so only without one
    feed.links[:0] = own_links
    build, published = dates.get("lastbuilddate"), dates.get("pubdate")
    if feed.webmaster and not feed.authors:
        feed.authors.append(feed.webmaster)
    feed.published = published or feed.published or dates.get("issued") or dates.get("created")
    update_times = [moment for moment in (build, published) if moment]
    feed.updated = max(update_times) if update_times else feed.updated or dates.get("modified") or dates.get("dc")


def _read_channel_element(feed: Feed, child: Element, name: str, text: str | None, base: str) -> None:
    if name == "title":
        feed.title = feed.title or _markup(child, base)
    elif name == "description":
        feed.description = feed.description or _markup(child, base)
    elif name == "category" and text:
        feed.categories.append(text)
    elif name == "generator":
        feed.generator = text
    elif name == "ttl" and (number := _TTL.match(text or "")):
        feed.ttl = int(number.group(1)) if int(number.group(1)) < _TTL_MAX else None
    elif name == "language":
        feed.language = text
    elif name == "copyright":
        feed.copyright = text
    elif name == "image":
        _read_image(feed, child, base)
    elif name in ("managingeditor", "author") and text:
        feed.authors.append(person(text))
    elif name == "webmaster" and text:
        feed.webmaster = person(text)


def _read_image(feed: Feed, element: Element, base: str) -> None:
    """Reads the feed's image; RSS 0.90 and 1.0 have it beside the channel."""
    image_url = next(
        (text for child in element if local_name(child)[1] == "url" and (text := element_text(child))), None
    )
    image_url = image_url or element.get("href") or element.get(f"{{{RDF}}}resource")
    feed.image = feed.image or (absolute(element, image_url, base) if image_url else None)


def _read_dublin_core(holder: Feed | FeedItem, child: Element, name: str, text: str | None, base: str) -> None:
    """Fills fields that the format's own elements left empty from Dublin Core; authors and categories add up."""
    if not text:
        return
    if name in ("creator", "author"):
        holder.authors.append(person(text))
    elif name == "subject":
        add_categories(holder, text)
    elif name == "title":
        holder.title = holder.title or _markup(child, base)
    elif name == "description":
        holder.description = holder.description or _markup(child, base)
    elif name == "rights" and isinstance(holder, Feed):
        holder.copyright = holder.copyright or text
    elif name == "language":
        holder.language = holder.language or text
    elif name == "identifier" and isinstance(holder, FeedItem):
        holder.guid = holder.guid or text


def _read_item(element: Element, base: str, flags: set[str]) -> FeedItem:
    item = FeedItem()
    rss_namespaces = ("", local_name(element)[0])
    own_links: list[FeedLink] = []
    dates: dict[str, ReadDate | None] = {}
    make_absolute = partial(absolute_in, base)
    for place, child in enumerate(element):
        if place >= MAX_FIELDS:
            flags.add("lists_cut")
            break
        namespace, name = local_name(child)
        text = element_text(child)
        if namespace in rss_namespaces:
            if name == "link" and (href := text or child.get("href")):
                own_links.append(FeedLink(absolute(child, href, base)))
            _read_item_element(item, child, name, text, base)
        elif namespace in ATOM_NAMESPACES:
            read_entry_element(item, child, name, base)
        elif namespace == DC:
            _read_dublin_core(item, child, name, text, base)
            if name == "date":
                dates.setdefault("dc", read_date(text))
        elif namespace == CONTENT and name == "encoded":
            if content := _markup(child, base, "text/html"):
                item.contents.append(content)
        elif namespace == DCTERMS:
            dates.setdefault(name, read_date(text))
        elif namespace == XHTML and name in ("body", "div"):
            if value := absolutize(inner_markup(child), base_of(child, base)):
                item.contents.append(Content(value, "application/xhtml+xml", base_of(child, base)))
        else:
            read_extension(item, child, text, make_absolute)
    item.published_date = first_read(item.published_date, *map(dates.get, _PUBLISHED_ORDER))
    item.updated_date = first_read(item.updated_date, dates.get("modified"))
    rdf_about = element.get(f"{{{RDF}}}about")
    item.guid = item.guid or rdf_about
    item.links[:0] = own_links
    return item


def _read_item_element(item: FeedItem, child: Element, name: str, text: str | None, base: str) -> None:
    if name == "title":
        item.title = _markup(child, base) or item.title
    elif name == "description":
        item.description = _markup(child, base) or item.description
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
        item.published_date = first_read(read_date(text), item.published_date)
    elif name == "enclosure" and (href := child.get("url")):
        url = absolute(child, href.strip(), base)
        item.links.append(FeedLink(url, "enclosure", child.get("type")))
        item.enclosures.append(Enclosure(url, child.get("type"), number(child.get("length"))))
    elif name == "source" and (href := child.get("url")):
        item.links.append(FeedLink(absolute(child, href.strip(), base), "via", None, text))
    elif name in ("body", "fullitem", "encoded") and (content := _markup(child, base, "text/html")):
        item.contents.append(content)


def _markup(element: Element, base: str, kind: str | None = None) -> Content | None:
    base = base_of(element, base)
    markup = absolutize(inner_markup(element) if len(element) else element_text(element), base)
    return Content(markup, kind, base) if markup else None
