"""JSON Feed 1.0 and 1.1. A truncated feed is read up to the cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cc_pipeline.documents.dates import read_date
from cc_pipeline.documents.feeds.model import MAX_LIST, Content, Enclosure, Feed, FeedItem, FeedLink, Person
from cc_pipeline.documents.html.urls import resolve_reference
from cc_pipeline.documents.page import Limits

_SPACE = re.compile(r"[\s\ufeff]*")
_SEPARATOR = re.compile(r"\s*,?\s*")
_COLON = re.compile(r"\s*:\s*")
_VERSION = re.compile(r"https?://(?:www\.)?jsonfeed\.org/version/([\d.]{1,10})")
_DECODER = json.JSONDecoder(strict=False)
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_INT = 2**63


def begins_json(text: str) -> bool:
    """Whether a text can be a JSON object."""
    space = _SPACE.match(text)
    return text.startswith("{", space.end() if space else 0)


def read_json_feed(text: str, limits: Limits, base: str) -> Feed | None:
    """Reads a feed from the decoded text; returns ``None`` if it is no JSON Feed: a feed names its version, or has a
    title and items. ``base`` is the feed's own URL."""
    feed = Feed("json-feed")
    # a list of empty lists takes twenty times its text
    if len(text) > 2 * limits.text_chars:
        feed.flags.add("text_cut")
        text = text[: 2 * limits.text_chars]
    feed_fields: dict[str, Any] = {}
    found_items = False
    for key, value in _members(text, feed):
        if key == "items" and isinstance(value, dict):
            found_items = True
            if len(feed.items) < limits.feed_items:
                feed.items.append(_item(value, base, feed))
            else:
                feed.flags.add("items_cut")
                break
        elif key != "items":
            feed_fields.setdefault(key, value)
    version = _VERSION.match(_text(feed_fields.get("version")) or "")
    if not version and not (found_items and _text(feed_fields.get("title"))):
        return None
    feed.version = version[1] if version else None
    feed.title, feed.description = _plain(feed_fields.get("title")), _plain(feed_fields.get("description"))
    feed.language = _text(feed_fields.get("language"))
    feed.authors = _authors(feed_fields, base)
    feed.image, feed.icon = _url(feed_fields.get("icon"), base), _url(feed_fields.get("favicon"), base)
    for key, rel in (("home_page_url", "alternate"), ("feed_url", "self"), ("next_url", "next")):
        if href := _url(feed_fields.get(key), base):
            feed.links.append(FeedLink(href, rel))
    for hub in _list(feed_fields.get("hubs")):
        if isinstance(hub, dict) and (href := _url(hub.get("url"), base)):
            feed.links.append(FeedLink(href, "hub", _text(hub.get("type"))))
    return feed


def _members(text: str, feed: Feed) -> Iterator[tuple[str, Any]]:
    """Yields the members of the outermost object; the elements of ``items`` one by one, so that memory never holds all
    of them as JSON. Ends, with a flag, where the text breaks off or stops being JSON."""
    position = _past(_SPACE, text, 0) + 1
    try:
        while True:
            position = _past(_SEPARATOR, text, position)
            if text.startswith("}", position):
                return
            key, position = _DECODER.raw_decode(text, position)
            position = _past(_COLON, text, position)
            if not isinstance(key, str):
                raise ValueError("a key is no text")
            if key == "items" and text.startswith("[", position):
                position = _past(_SEPARATOR, text, position + 1)
                while not text.startswith("]", position):
                    value, position = _DECODER.raw_decode(text, position)
                    position = _past(_SEPARATOR, text, position)
                    yield key, value
                position += 1
            else:
                value, position = _DECODER.raw_decode(text, position)
                yield key, value
    except (ValueError, RecursionError):
        feed.flags.add("feed_malformed")


def _past(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def _item(fields: dict[str, Any], base: str, feed: Feed) -> FeedItem:
    item = FeedItem(title=_plain(fields.get("title")), description=_plain(fields.get("summary")))
    identity = fields.get("id")
    item.guid = str(identity) if isinstance(identity, int) and not isinstance(identity, bool) else _text(identity)
    for key, rel in (("url", "alternate"), ("external_url", "related")):
        if href := _url(fields.get(key), base):
            item.links.append(FeedLink(href, rel))
    for name, kind in (("content_html", "text/html"), ("content_text", "text/plain")):
        if value := _text(fields.get(name)):
            item.contents.append(Content(value, kind, base))
    item.authors = _authors(fields, base)
    tags = [tag for tag_value in _list(fields.get("tags"), feed) if (tag := _text(tag_value))]
    item.categories = list(dict.fromkeys(tags))
    item.language = _text(fields.get("language"))
    item.image = _url(fields.get("image"), base) or _url(fields.get("banner_image"), base)
    item.published_date = read_date(_text(fields.get("date_published")))
    item.updated_date = read_date(_text(fields.get("date_modified")))
    for attachment in _list(fields.get("attachments"), feed):
        if isinstance(attachment, dict) and (href := _url(attachment.get("url"), base)):
            mime, title = _text(attachment.get("mime_type")), _text(attachment.get("title"))
            size, seconds = _number(attachment.get("size_in_bytes")), _number(attachment.get("duration_in_seconds"))
            item.links.append(FeedLink(href, "enclosure", mime, title))
            length = int(size) if size is not None else None
            item.enclosures.append(Enclosure(href, mime, length, title, seconds))
    return item


def _text(value: Any) -> str | None:
    """Returns a stripped text; ``None`` for other values. JSON's escapes can name half a surrogate pair, which UTF-8
    cannot encode: it becomes U+FFFD."""
    if not isinstance(value, str):
        return None
    return (value if value.isascii() else _SURROGATE.sub("\ufffd", value)).strip() or None


def _plain(value: Any) -> Content | None:
    text = _text(value)
    return Content(text, "text/plain") if text else None


def _url(value: Any, base: str) -> str | None:
    href = _text(value)
    return resolve_reference(base, href) if href else None


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_INT
    return float(value) if good else None


def _list(value: Any, feed: Feed | None = None) -> list[Any]:
    values = value if isinstance(value, list) else []
    if feed is not None and len(values) > MAX_LIST:
        feed.flags.add("lists_cut")
    return values[:MAX_LIST]


def _authors(fields: dict[str, Any], base: str) -> list[Person]:
    """Reads ``authors`` of version 1.1 or ``author`` of 1.0."""
    people = _list(fields.get("authors")) or [fields.get("author")]
    persons = [
        Person(_text(author.get("name")), _url(author.get("url"), base), None)
        for author in people
        if isinstance(author, dict)
    ]
    return [person for person in persons if any(person)]
