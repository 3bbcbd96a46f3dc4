"""JSON Feed 1.0 and 1.1. A truncated feed is read up to the cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cc_pipeline.documents.dates import read_date
from cc_pipeline.documents.feeds.model import LIST_MOST, Content, Enclosure, Feed, FeedItem, FeedLink, Person
from cc_pipeline.documents.html.urls import resolve_reference
from cc_pipeline.documents.page import Limits

_SPACE = re.compile(r"[\s\ufeff]*")
_BETWEEN = re.compile(r"\s*,?\s*")
_COLON = re.compile(r"\s*:\s*")
_VERSION = re.compile(r"https?://(?:www\.)?jsonfeed\.org/version/([\d.]{1,10})")
_DECODER = json.JSONDecoder(strict=False)
_SURROGATE = re.compile("[\ud800-\udfff]")
_INT_MOST = 2**63


def begins_json(text: str) -> bool:
    """Whether a text can be a JSON object."""
    found = _SPACE.match(text)
    return text.startswith("{", found.end() if found else 0)


def read_json_feed(text: str, limits: Limits, base: str) -> Feed | None:
    """Reads a feed from the decoded text; returns ``None`` if it is no JSON Feed: a feed names its version, or has a
    title and items. ``base`` is the feed's own URL."""
    feed = Feed("json-feed")
    # a list of empty lists takes twenty times its text
    if len(text) > 2 * limits.text_chars:
        feed.flags.add("text_cut")
        text = text[: 2 * limits.text_chars]
    about: dict[str, Any] = {}
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
            about.setdefault(key, value)
    named = _VERSION.match(_text(about.get("version")) or "")
    if not named and not (found_items and _text(about.get("title"))):
        return None
    feed.version = named[1] if named else None
    feed.title, feed.description = _text(about.get("title")), _text(about.get("description"))
    feed.language = _text(about.get("language"))
    feed.authors = _authors(about, base)
    feed.image, feed.icon = _url(about.get("icon"), base), _url(about.get("favicon"), base)
    for key, rel in (("home_page_url", "alternate"), ("feed_url", "self"), ("next_url", "next")):
        if href := _url(about.get(key), base):
            feed.links.append(FeedLink(href, rel))
    for hub in _list(about.get("hubs")):
        if isinstance(hub, dict) and (href := _url(hub.get("url"), base)):
            feed.links.append(FeedLink(href, "hub", _text(hub.get("type"))))
    return feed


def _members(text: str, feed: Feed) -> Iterator[tuple[str, Any]]:
    """Yields the members of the outermost object; the elements of ``items`` one by one, so that memory never holds all
    of them as JSON. Ends, with a flag, where the text breaks off or stops being JSON."""
    at = _past(_SPACE, text, 0) + 1
    try:
        while True:
            at = _past(_BETWEEN, text, at)
            if text.startswith("}", at):
                return
            key, at = _DECODER.raw_decode(text, at)
            at = _past(_COLON, text, at)
            if not isinstance(key, str):
                raise ValueError("a key is no text")
            if key == "items" and text.startswith("[", at):
                at = _past(_BETWEEN, text, at + 1)
                while not text.startswith("]", at):
                    value, at = _DECODER.raw_decode(text, at)
                    at = _past(_BETWEEN, text, at)
                    yield key, value
                at += 1
            else:
                value, at = _DECODER.raw_decode(text, at)
                yield key, value
    except (ValueError, RecursionError):
        feed.flags.add("feed_malformed")


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _item(said: dict[str, Any], base: str, feed: Feed) -> FeedItem:
    item = FeedItem(title=_text(said.get("title")), description=_text(said.get("summary")))
    identity = said.get("id")
    item.guid = str(identity) if isinstance(identity, int) and not isinstance(identity, bool) else _text(identity)
    for key, rel in (("url", "alternate"), ("external_url", "related")):
        if href := _url(said.get(key), base):
            item.links.append(FeedLink(href, rel))
    for name, kind in (("content_html", "text/html"), ("content_text", "text/plain")):
        if value := _text(said.get(name)):
            item.contents.append(Content(value, kind, base))
    item.authors = _authors(said, base)
    tags = [tag for each in _list(said.get("tags"), feed) if (tag := _text(each))]
    item.categories = list(dict.fromkeys(tags))
    item.language = _text(said.get("language"))
    item.image = _url(said.get("image"), base) or _url(said.get("banner_image"), base)
    item.published_date = read_date(_text(said.get("date_published")))
    item.updated_date = read_date(_text(said.get("date_modified")))
    for each in _list(said.get("attachments"), feed):
        if isinstance(each, dict) and (href := _url(each.get("url"), base)):
            mime, title = _text(each.get("mime_type")), _text(each.get("title"))
            size, seconds = _number(each.get("size_in_bytes")), _number(each.get("duration_in_seconds"))
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


def _url(value: Any, base: str) -> str | None:
    href = _text(value)
    return resolve_reference(base, href) if href else None


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _INT_MOST
    return float(value) if good else None


def _list(value: Any, feed: Feed | None = None) -> list[Any]:
    found = value if isinstance(value, list) else []
    if feed is not None and len(found) > LIST_MOST:
        feed.flags.add("lists_cut")
    return found[:LIST_MOST]


def _authors(said: dict[str, Any], base: str) -> list[Person]:
    """Reads ``authors`` of version 1.1 or ``author`` of 1.0."""
    people = _list(said.get("authors")) or [said.get("author")]
    found = [
        Person(_text(each.get("name")), _url(each.get("url"), base), None) for each in people if isinstance(each, dict)
    ]
    return [each for each in found if any(each)]
