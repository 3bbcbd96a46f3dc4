"""The one shape every feed format is read into."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple


class FeedLink(NamedTuple):
    """A link of a feed or an item; ``rel`` is ``alternate`` where the format has no other word."""

    href: str
    rel: str = "alternate"
    type: str | None = None
    title: str | None = None


class Person(NamedTuple):
    name: str | None
    url: str | None = None
    email: str | None = None


class Content(NamedTuple):
    """A body of an item: its markup or text, the format's word for which (``None`` for HTML unsaid), and the URL
    its relative references are relative to."""

    value: str
    type: str | None = None
    base: str | None = None


@dataclass(slots=True)
class FeedItem:
    """One item or entry. ``description`` is as published and may hold markup."""

    title: str | None = None
    description: str | None = None
    links: list[FeedLink] = field(default_factory=list)
    authors: list[Person] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    comments: str | None = None
    guid: str | None = None
    published: datetime | None = None
    updated: datetime | None = None
    contents: list[Content] = field(default_factory=list)

    @property
    def link(self) -> str | None:
        """The page the item is about."""
        return next((link.href for link in self.links if link.rel == "alternate"), None)


@dataclass(slots=True)
class Feed:
    """One feed. ``type`` is the 2012 document's word; ``version`` the format's number where it gives one."""

    type: Literal["rss-feed", "atom-feed"]
    version: str | None = None
    title: str | None = None
    description: str | None = None
    links: list[FeedLink] = field(default_factory=list)
    authors: list[Person] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    webmaster: Person | None = None
    generator: str | None = None
    ttl: int | None = None
    language: str | None = None
    published: datetime | None = None
    updated: datetime | None = None
    last_build_date: datetime | None = None
    items: list[FeedItem] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
