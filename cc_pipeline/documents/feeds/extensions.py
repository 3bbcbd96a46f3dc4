"""Podcast (iTunes) and media (Media RSS) elements, in RSS and Atom alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from cc_pipeline.documents.feeds.model import MAX_LIST, Content, Feed, FeedItem, Media, Person, Podcast, person
from cc_pipeline.documents.feeds.xml import Element, element_text, local_name

_ITUNES_END = "podcast-1.0.dtd"
_MEDIA = "http://search.yahoo.com/mrss"
_YES = frozenset({"yes", "true", "explicit", "1"})
_FALSE_WORDS = frozenset({"no", "false", "clean", "0"})
_NUMBER = re.compile(r"\d{1,18}")
_DECIMAL = re.compile(r"\d{1,12}(?:\.\d{1,9})?")
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,4}):(\d{1,2})(?:\.\d+)?")

#: Makes a reference of an element absolute.
Absolute = Callable[[Element, str], str]


def read_extension(holder: Feed | FeedItem, element: Element, text: str | None, absolute: Absolute) -> None:
    """Reads an iTunes or Media RSS element into the podcast or media fields of ``holder``; other elements are ignored.
    Its values also fill empty fields of ``holder`` such as the authors; its categories are added."""
    namespace, name = local_name(element)
    if namespace.lower().endswith(_ITUNES_END):
        _read_itunes(holder, element, name, text, absolute)
    elif namespace.rstrip("/") == _MEDIA:
        _read_media(holder, element, name, text, absolute)


def add_categories(holder: Feed | FeedItem, *categories: str | None) -> None:
    """Adds the categories that the feed or item lacks."""
    if len(holder.categories) <= MAX_LIST:
        present_categories = set(holder.categories)
        holder.categories += [word for word in dict.fromkeys(categories) if word and word not in present_categories]


def _read_itunes(holder: Feed | FeedItem, element: Element, name: str, text: str | None, absolute: Absolute) -> None:
    podcast = holder.podcast = holder.podcast or Podcast()
    if name == "author" and text:
        podcast.author = podcast.author or text
        if not holder.authors:
            holder.authors.append(person(text))
    elif name in ("subtitle", "summary") and text:
        setattr(podcast, name, getattr(podcast, name) or text)
        holder.description = holder.description or Content(text)
    elif name == "keywords" and text:
        add_categories(holder, *(word.strip() for word in text.split(",")))
    elif name == "category":
        add_categories(
            holder, *(category.get("text") for category in element.iter() if local_name(category)[1] == "category")
        )
    elif name == "image" and (href := element.get("href") or element.get("url") or text):
        podcast.image = podcast.image or absolute(element, href.strip())
    elif name == "owner":
        owner_fields = {local_name(child)[1]: element_text(child) for child in element}
        podcast.owner = podcast.owner or Person(owner_fields.get("name"), None, owner_fields.get("email"))
    elif name in ("explicit", "block", "complete"):
        setattr(podcast, name, _truth(text))
    elif name in ("episode", "season"):
        setattr(podcast, name, number(text, 2**31))
    elif name == "duration":
        podcast.duration = _seconds(text)
    elif name in ("episodetype", "type") and text:
        podcast.type = text
    elif name == "new-feed-url" and text:
        podcast.new_feed_url = absolute(element, text)


def _truth(text: str | None) -> bool | None:
    word = (text or "").lower()
    return True if word in _YES else False if word in _FALSE_WORDS else None


def number(text: str | None, bound: int = 2**63) -> int | None:
    """Returns a whole number below ``bound``; ``None`` for any other text."""
    match = _NUMBER.fullmatch((text or "").strip()[:40])
    return int(match[0]) if match and int(match[0]) < bound else None


def _decimal(text: str | None) -> float | None:
    match = _DECIMAL.fullmatch((text or "").strip()[:40])
    return float(match[0]) if match else None


def _seconds(text: str | None) -> float | None:
    """Returns the seconds of ``1234``, ``20:34`` or ``1:20:34``."""
    word = (text or "").strip()[:40]
    if clock := _CLOCK.fullmatch(word):
        return float(int(clock[1] or 0) * 3600 + int(clock[2]) * 60 + int(clock[3]))
    return _decimal(word)


def _read_media(holder: Feed | FeedItem, element: Element, name: str, text: str | None, absolute: Absolute) -> None:
    if name == "category":
        add_categories(holder, text)
    elif isinstance(holder, Feed):
        if name == "thumbnail" and (href := element.get("url")):
            holder.image = holder.image or absolute(element, href)
    elif name == "group":
        group_media = _read_media_fields(element, absolute)
        for child in element:
            if local_name(child)[1] == "content":
                _add_media(holder, _media(child, group_media, absolute))
        if not any(local_name(child)[1] == "content" for child in element):
            _add_media(holder, group_media)
        _use_thumbnail(holder, group_media.thumbnail)
    elif name == "content":
        media = _media(element, Media(), absolute)
        _add_media(holder, media)
        _use_thumbnail(holder, media.thumbnail or (media.url if media.medium == "image" else None))
    elif name == "thumbnail" and (href := element.get("url")):
        _use_thumbnail(holder, absolute(element, href))
    elif name in ("title", "description", "credit") and text:
        # applies to each medium of the item that has no value of its own
        media_fields: dict[str, Any] = {name: text}
        holder.media_about = holder.media_about._replace(**media_fields)


def _add_media(holder: FeedItem, media: Media) -> None:
    if len(holder.media) <= MAX_LIST and any(media):
        holder.media.append(media)


def _use_thumbnail(holder: FeedItem, url: str | None) -> None:
    holder.image = holder.image or url


def _read_media_fields(element: Element, absolute: Absolute) -> Media:
    """Reads the fields that the children of a ``content`` or ``group`` have."""
    fields: dict[str, Any] = {}
    for child in element:
        name = local_name(child)[1]
        if name in ("title", "description", "credit") and (text := element_text(child)):
            fields.setdefault(name, text)
        elif name in ("thumbnail", "player") and (href := child.get("url")):
            fields.setdefault(name, absolute(child, href))
    return Media()._replace(**fields)


def _media(element: Element, group: Media, absolute: Absolute) -> Media:
    own_media = _read_media_fields(element, absolute)
    href = element.get("url")
    return Media(
        url=absolute(element, href) if href else None,
        type=element.get("type"),
        medium=(element.get("medium") or "").lower() or None,
        width=number(element.get("width"), 2**31),
        height=number(element.get("height"), 2**31),
        duration=_seconds(element.get("duration")),
        file_size=number(element.get("fileSize")),
        title=own_media.title or group.title,
        description=own_media.description or group.description,
        credit=own_media.credit or group.credit,
        thumbnail=own_media.thumbnail or group.thumbnail,
        player=own_media.player or group.player,
    )
