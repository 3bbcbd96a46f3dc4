"""A feed as rows: the 2012 ``content`` document, the feed_items rows, the links in items, the text."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any, NamedTuple

from cc_pipeline.documents.feeds.atom import ATOM_NAMESPACES, read_atom
from cc_pipeline.documents.feeds.jsonfeed import begins_json, read_json_feed
from cc_pipeline.documents.feeds.model import MAX_LIST, Feed, FeedItem, FeedLink, Media, Person, Podcast
from cc_pipeline.documents.feeds.rss import read_rss
from cc_pipeline.documents.feeds.xml import local_name, parse_xml
from cc_pipeline.documents.html.tree import HtmlDocument, parse_html
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
    feed.title, feed.description = (text and _cut(text, max_chars, feed) for text in (feed.title, feed.description))
    share = max_chars // max(sum(len(item.media) for item in feed.items), 1)
    for item in feed.items:
        item.title, item.description = (text and _cut(text, max_chars, feed) for text in (item.title, item.description))
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


_TAG = re.compile(r"<[^<>]*>")


class FeedRows(NamedTuple):
    """``content`` and ``feed`` for page_metadata, rows for feed_items, links found in item bodies, the 2012 text."""

    content: dict[str, Any]
    feed: dict[str, Any]
    items: tuple[dict[str, Any], ...]
    links: tuple[Link, ...]
    text: str


def feed_rows(feed: Feed, url: str, limits: Limits, *, links: bool = True) -> FeedRows:
    """Returns all rows of one feed. ``url`` resolves relative links inside item bodies."""
    words: list[str] = []
    content: dict[str, Any] = {"type": feed.type}
    title = _stripped(feed.title)
    content["title"] = title
    _add_words(words, title)
    content["link"] = _links(feed.links, "alternate")
    content["description"] = _stripped(feed.description)
    _add_words(words, content["description"])
    content["published"] = feed.published
    content["updated"] = feed.updated
    content["categories"] = feed.categories or None
    for category in feed.categories:
        _add_words(words, category)
    content["generator"] = feed.generator
    content["ttl"] = feed.ttl
    content["authors"] = _authors(feed.authors)
    # the title is repeated with each item
    feed_title = title and _cut(title, limits.text_chars // max(len(feed.items), 1), feed)
    found_links: list[Link] = []
    nested: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for index, item in enumerate(feed.items):
        bodies = _bodies(item, url, limits, index, links=links)
        nested.append(_nested_item(item, bodies, feed.type, words))
        for body in bodies:
            found_links += body.links
            feed.flags |= body.flags
            _add_words(words, body.body_text)
        if feed.type == "json-feed":
            for plain in item.contents:
                _add_words(words, plain.value if plain.type == "text/plain" else None)
        rows.append(_row(item, feed, feed_title, index))
    content["items"] = nested
    feed_row = {name: getattr(feed, name) for name in ("version", "language", "copyright", "image", "icon")}
    feed_row |= {"links": [link._asdict() for link in feed.links] or None, "podcast": _podcast(feed.podcast)}
    return FeedRows(content, feed_row, tuple(rows), tuple(found_links), " ".join(words))


def _bodies(item: FeedItem, url: str, limits: Limits, index: int, *, links: bool) -> list[HtmlDocument]:
    return [
        parse_html(body.value, body.base or url, limits, item_index=index, links=links)
        for body in item.contents
        if body.type is None or "html" in body.type.lower()
    ]


def _nested_item(item: FeedItem, bodies: list[HtmlDocument], kind: str, words: list[str]) -> dict[str, Any]:
    title, description = _stripped(item.title), _stripped(item.description)
    for part in (title, description, *item.categories):
        _add_words(words, part)
    row: dict[str, Any] = {
        "title": title,
        "description": description,
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


def _row(item: FeedItem, feed: Feed, title: str | None, index: int) -> dict[str, Any]:
    body = item.contents[0] if item.contents else None
    return {
        "feed_type": feed.type,
        "feed_title": title,
        "item_index": index,
        "title": item.title,
        "description": item.description,
        "link": item.link,
        "links": [link._asdict() for link in item.links] or None,
        "author": _format_author(sorted(item.authors, key=_is_nameless)),
        "authors": _authors(item.authors),
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


def _is_nameless(author: Person) -> bool:
    return not author.name


def _authors(authors: list[Person]) -> list[dict[str, str | None]] | None:
    return [author._asdict() for author in authors] or None


def _links(links: list[FeedLink], rel: str) -> list[dict[str, str | None]] | None:
    return [link._asdict() for link in links if link.rel == rel] or None


def _stripped(text: str | None) -> str | None:
    """Returns a text without tags, as titles and descriptions in the 2012 document; ``None`` for an empty one."""
    return (_TAG.sub("", text).strip() or None) if text else None


def _add_words(words: list[str], text: str | None) -> None:
    if text and (stripped := text.strip()):
        words.append(stripped)
