"""The one shape of all feed formats."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from cc_pipeline.documents.dates import ReadDate

#: The maximum length of each list of an item or a feed; longer lists are cut and flagged.
MAX_LIST = 1000
#: The maximum number of elements that are read of an item, or of a feed besides its items.
MAX_FIELDS = 4 * MAX_LIST


class FeedLink(NamedTuple):
    """A link of a feed or an item; ``rel`` is ``alternate`` if the format has no other word."""

    href: str
    rel: str = "alternate"
    type: str | None = None
    title: str | None = None


class Person(NamedTuple):
    name: str | None
    url: str | None = None
    email: str | None = None


_EMAIL_NAME = re.compile(r"\s*([^\s()<>@]+@[^\s()<>]+)\s*\(([^()]*)\)\s*\Z")
_EMAIL_AT_END = re.compile(r"[<(]([^\s()<>@]+@[^\s()<>]+)[>)]\s*\Z")
_NAME_MOST = 500


def person(text: str) -> Person:
    """Parses ``mail (name)``, ``name <mail>``, ``name (mail)``, a mail address or a name."""
    if len(text) > _NAME_MOST:
        return Person(text)
    if match := _EMAIL_NAME.match(text):
        return Person(match.group(2).strip() or None, None, match.group(1))
    if (match := _EMAIL_AT_END.search(text)) and "\n" not in (name := text[: match.start()].strip()):
        return Person(name or None, None, match.group(1))
    if "@" in text and " " not in text:
        return Person(None, None, text)
    return Person(text)


class Enclosure(NamedTuple):
    """A file that belongs to an item: its length in bytes and seconds, as the feed states."""

    url: str
    type: str | None = None
    length: int | None = None
    title: str | None = None
    duration: float | None = None


class Media(NamedTuple):
    """An object of Media RSS. Sizes are pixels, ``duration`` is seconds, ``file_size`` bytes."""

    url: str | None = None
    type: str | None = None
    medium: str | None = None
    width: int | None = None
    height: int | None = None
    duration: float | None = None
    file_size: int | None = None
    title: str | None = None
    description: str | None = None
    credit: str | None = None
    thumbnail: str | None = None
    player: str | None = None


@dataclass(slots=True)
class Podcast:
    """The iTunes elements of a feed or an item. ``type`` is ``episodic`` or ``serial`` for a feed, ``full``,
    ``trailer`` or ``bonus`` for an item; ``duration`` is seconds."""

    author: str | None = None
    owner: Person | None = None
    subtitle: str | None = None
    summary: str | None = None
    image: str | None = None
    type: str | None = None
    explicit: bool | None = None
    block: bool | None = None
    complete: bool | None = None
    episode: int | None = None
    season: int | None = None
    duration: float | None = None
    new_feed_url: str | None = None


class Content(NamedTuple):
    """A title, description or body: its markup or text, its type in the format's words (``None`` for undeclared HTML),
    and the base URL of its relative references."""

    value: str
    type: str | None = None
    base: str | None = None

    @property
    def is_html(self) -> bool:
        return self.type is None or "html" in self.type.lower()

    @property
    def is_text(self) -> bool:
        """Whether the value is the text itself."""
        return not self.is_html and (self.type or "").lower().partition("/")[0] == "text"


@dataclass(slots=True)
class FeedItem:
    """One item or entry. ``source_authors`` are those of the feed that it was taken from."""

    title: Content | None = None
    description: Content | None = None
    links: list[FeedLink] = field(default_factory=list)
    authors: list[Person] = field(default_factory=list)
    source_authors: list[Person] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    comments: str | None = None
    guid: str | None = None
    published_date: ReadDate | None = None
    updated_date: ReadDate | None = None
    contents: list[Content] = field(default_factory=list)
    language: str | None = None
    image: str | None = None
    enclosures: list[Enclosure] = field(default_factory=list)
    media: list[Media] = field(default_factory=list)
    #: The fields that all media of the item share.
    media_about: Media = field(default_factory=Media)
    podcast: Podcast | None = None

    @property
    def published(self) -> datetime | None:
        return self.published_date.moment if self.published_date else None

    @property
    def updated(self) -> datetime | None:
        return self.updated_date.moment if self.updated_date else None

    @property
    def link(self) -> str | None:
        """The URL of the page that the item is about."""
        return next((link.href for link in self.links if link.rel == "alternate"), None)


@dataclass(slots=True)
class Feed:
    """One feed. ``type`` is the 2012 document's word (``json-feed`` is new); ``version`` the format's number, if the
    feed states one."""

    type: Literal["rss-feed", "atom-feed", "json-feed"]
    version: str | None = None
    title: Content | None = None
    description: Content | None = None
    links: list[FeedLink] = field(default_factory=list)
    authors: list[Person] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    webmaster: Person | None = None
    generator: str | None = None
    ttl: int | None = None
    language: str | None = None
    published: datetime | None = None
    updated: datetime | None = None
    copyright: str | None = None
    image: str | None = None
    icon: str | None = None
    podcast: Podcast | None = None
    items: list[FeedItem] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
