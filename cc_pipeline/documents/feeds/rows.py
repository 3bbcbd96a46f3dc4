"""A feed as rows: the 2012 ``content`` document, the feed_items rows, the links in items, the text."""

from __future__ import annotations

import re
from dataclasses import asdict
from functools import partial
from html import unescape
from itertools import accumulate
from typing import Any, NamedTuple

from cc_pipeline.documents.feeds.atom import ATOM_NAMESPACES, read_atom
from cc_pipeline.documents.feeds.jsonfeed import begins_json, read_json_feed
from cc_pipeline.documents.feeds.model import MAX_LIST, Content, Feed, FeedItem, FeedLink, Media, Person, Podcast
from cc_pipeline.documents.feeds.rss import read_rss
from cc_pipeline.documents.feeds.xml import local_name, parse_xml
from cc_pipeline.documents.html.tree import HtmlDocument, parse_html
from cc_pipeline.documents.html.whitespace import collapsed
from cc_pipeline.documents.page import Limits, Link

_OF_ALL_MEDIA = ("title", "description", "credit")
#: A document without one of these tags is no feed, and is not parsed as one.
_FEED_ROOT = re.compile(r"<(?:[\w.-]{1,40}:)?(?:rss|feed|rdf|channel|entry)\b", re.IGNORECASE)


def parse_feed(text: str, limits: Limits, base: str = "") -> Feed | None:
    """Reads a feed from its decoded text; returns ``None`` for other documents. Malformed feeds are read if possible.

    ``base`` is the feed's URL, against which relative links are resolved.
    """
    if begins_json(text):
        json_feed = read_json_feed(text, limits, base)
        if json_feed is not None:
            _bound(json_feed, limits)
        return json_feed
    if not _FEED_ROOT.search(text):
        return None
    root, clean, cut = parse_xml(text, limits)
    if root is None:
        return None
    namespace, name = local_name(root)
    if name == "feed" or (name == "entry" and namespace in ATOM_NAMESPACES):
        feed = read_atom(root, limits, base)
    elif name in ("rss", "rdf", "channel"):
        feed = read_rss(root, limits, base)
    else:
        return None
    if not clean:
        feed.flags.add("feed_malformed")
    if cut:
        feed.flags.add("elements_cut")
    _bound(feed, limits)
    return feed


def _bound(feed: Feed, limits: Limits) -> None:
    """Cuts lists longer than ``MAX_LIST``, and texts longer than the limit of a page. The shared fields of all media
    are repeated with each medium, so the limit is divided by the number of media."""
    bounded_lists: list[list[Any]] = [feed.links, feed.authors, feed.categories]
    for item in feed.items:
        bounded_lists += [item.links, item.authors, item.categories, item.contents, item.enclosures, item.media]
    for bounded_list in bounded_lists:
        if len(bounded_list) > MAX_LIST:
            del bounded_list[MAX_LIST:]
            feed.flags.add("lists_cut")
    max_chars = limits.text_chars
    share = max_chars // max(sum(len(item.media) for item in feed.items), 1)
    for holder in (feed, *feed.items):
        for name in ("title", "description"):
            if (text := getattr(holder, name)) is not None:
                setattr(holder, name, text._replace(value=_cut(text.value, max_chars, feed)))
    for item in feed.items:
        item.contents = [content._replace(value=_cut(content.value, max_chars, feed)) for content in item.contents]
        shared_media = item.media_about
        shared_fields: dict[str, Any] = {
            name: _cut(text, share, feed)
            for name in _OF_ALL_MEDIA
            if item.media and (text := getattr(shared_media, name))
        }
        item.media_about = shared_media._replace(**shared_fields)


def _cut(text: str, max_chars: int, feed: Feed) -> str:
    if len(text) <= max_chars:
        return text
    feed.flags.add("text_cut")
    return text[:max_chars]


#: A tag as the 2012 document leaves it out: a ``<`` before anything else is a character.
_TAG = re.compile(r"<[/!?a-zA-Z][^<>]*>")


class FeedRows(NamedTuple):
    """``content`` and ``feed`` for page_metadata, ``text`` for page_text, rows for feed_items, links in the markup of
    items."""

    content: dict[str, Any]
    feed: dict[str, Any]
    text: dict[str, Any]
    items: tuple[dict[str, Any], ...]
    links: tuple[Link, ...]


def feed_rows(feed: Feed, url: str, limits: Limits) -> FeedRows:
    """Returns all rows of one feed. ``url`` resolves relative links inside item bodies."""
    title, description = _shown(feed.title, limits), _shown(feed.description, limits)
    words = [title, description, *feed.categories]
    # title and authors of the feed are repeated with each item
    share = limits.text_chars // max(len(feed.items), 1)
    feed_title, feed_authors = title and _cut(title, share, feed), _inherited_authors(feed, share)
    found_links: list[Link] = []
    nested: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for index, item in enumerate(feed.items):
        read_body = partial(_read_body, url=url, limits=limits, index=index)
        item_title = _shown(item.title, limits)
        descriptions = [read_body(item.description)] if item.description else []
        bodies = [read_body(text) for text in item.contents]
        words += [item_title, *(document.body_text for document in descriptions), *item.categories]
        words += [document.body_text for document in bodies]
        for document in (*descriptions, *bodies):
            found_links += document.links
            feed.flags |= document.flags
        markup = [document for text, document in zip(item.contents, bodies, strict=True) if text.is_html]
        nested.append(_nested_item(item, markup, feed.type))
        authors = item.authors or item.source_authors or feed_authors
        rows.append(
            _row(item, authors, index) | {"feed_type": feed.type, "feed_title": feed_title, "title": item_title}
        )
    feed_row = {name: getattr(feed, name) for name in ("version", "language", "copyright", "image", "icon")}
    feed_row |= {"links": [link._asdict() for link in feed.links] or None, "podcast": _podcast(feed.podcast)}
    text = " ".join(collapsed(part) for part in words if part and not part.isspace())
    shown = {"text": text, "title": title, "description": description, "published": feed.published}
    return FeedRows(_content(feed, nested), feed_row, shown, tuple(rows), tuple(found_links))


def _shown(text: Content | None, limits: Limits) -> str | None:
    """Returns a title or the description of a feed as a page shows it."""
    if text is None or not text.is_html:
        return text and text.value
    if "<" not in text.value:
        return unescape(text.value).strip() or None
    return parse_html(text.value, "", limits, links=False).body_text or None


def _read_body(text: Content, url: str, limits: Limits, index: int) -> HtmlDocument:
    """Reads the description or content of an item as a page."""
    if text.is_html:
        return parse_html(text.value, text.base or url, limits, item_index=index)
    return HtmlDocument(body_text=text.value if text.is_text else "")


def _inherited_authors(feed: Feed, max_chars: int) -> list[Person]:
    """Returns the authors of items without their own (RFC 4287, 4.2.1; JSON Feed 1.1), as many as fit."""
    authors = [] if feed.type == "rss-feed" else feed.authors
    lengths = accumulate(len("".join(filter(None, author))) for author in authors)
    return [author for author, length in zip(authors, lengths, strict=True) if length <= max_chars]


def _content(feed: Feed, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the ``content`` of the 2012 document."""
    return {
        "type": feed.type,
        "title": _stripped(feed.title),
        "link": _links(feed.links, "alternate"),
        "description": _stripped(feed.description),
        "published": feed.published,
        "updated": feed.updated,
        "categories": feed.categories or None,
        "generator": feed.generator,
        "ttl": feed.ttl,
        "authors": _authors(feed.authors),
        "items": items,
    }


def _nested_item(item: FeedItem, bodies: list[HtmlDocument], kind: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "title": _stripped(item.title),
        "description": _stripped(item.description),
        "link": _links(item.links, "alternate"),
        "self": _links(item.links, "self"),
        "replies": _links(item.links, "replies"),
        "categories": item.categories or None,
        "comments": item.comments,
        "published": item.published,
        "updated": item.updated,
        "guid": item.guid,
        "content": [_html_doc(body) for body in bodies] or None,
    }
    if kind == "rss-feed":
        row["author"] = _format_author(item.authors)
    else:
        row["authors"] = _authors(item.authors)
    return row


def _html_doc(body: HtmlDocument) -> dict[str, Any]:
    return {
        "type": "html-doc",
        "title": body.title,
        "meta_tags": body.meta_tags or None,
        "links": [
            {"type": link.type, "href": link.href, "url": link.url, "text": link.text, "attributes": link.attributes}
            for link in body.links
            if link.is_document_link
        ]
        or None,
    }


def _row(item: FeedItem, authors: list[Person], index: int) -> dict[str, Any]:
    body = item.contents[0] if item.contents else None
    return {
        "item_index": index,
        "description": item.description.value if item.description else None,
        "link": item.link,
        "links": [link._asdict() for link in item.links] or None,
        "author": _format_author(sorted(authors, key=lambda author: not author.name)),
        "authors": _authors(authors),
        "categories": item.categories or None,
        "comments": item.comments,
        "guid": item.guid,
        "published": item.published,
        "updated": item.updated,
        "content": body.value if body else None,
        "content_type": body.type if body else None,
        **_dates(item),
        "language": item.language,
        "image": item.image or (item.podcast.image if item.podcast else None),
        "enclosures": [enclosure._asdict() for enclosure in item.enclosures] or None,
        "media": [_media(media, item.media_about) for media in item.media] or None,
        "podcast": _podcast(item.podcast),
    }


def _dates(item: FeedItem) -> dict[str, str | None]:
    columns: dict[str, str | None] = {}
    for name, date in (("published", item.published_date), ("updated", item.updated_date)):
        columns[f"{name}_text"] = date.text if date else None
        columns[f"{name}_precision"] = date.precision if date else None
    return columns


def _media(media: Media, shared_media: Media) -> dict[str, Any]:
    """Returns a media object; its empty fields are filled with those of the whole item."""
    fields = media._asdict()
    return fields | {name: fields[name] or getattr(shared_media, name) for name in _OF_ALL_MEDIA}


def _podcast(podcast: Podcast | None) -> dict[str, Any] | None:
    if podcast is None:
        return None
    return asdict(podcast) | {"owner": podcast.owner._asdict() if podcast.owner else None}


def _format_author(authors: list[Person]) -> str | None:
    if not authors:
        return None
    first = authors[0]
    if first.name and first.email:
        return f"{first.email} ({first.name})"
    return first.name or first.email


def _authors(authors: list[Person]) -> list[dict[str, str | None]] | None:
    return [author._asdict() for author in authors] or None


def _links(links: list[FeedLink], rel: str) -> list[dict[str, str | None]] | None:
    return [link._asdict() for link in links if link.rel == rel] or None


def _stripped(text: Content | None) -> str | None:
    """Returns a text without tags, as titles and descriptions in the 2012 document; ``None`` for an empty one."""
    return (_TAG.sub("", text.value).strip() or None) if text else None
