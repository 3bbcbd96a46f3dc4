"""The one shape every feed format is read into, and dates as feeds write them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_tz
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


_ISO = re.compile(
    r"(\d{4})(?:-?(\d\d))?(?:-?(\d\d))?"
    r"(?:[T\s]\s*(\d{1,2}):?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?\s*(Z|[A-Za-z]{1,5}|[+-]\d\d:?(?:\d\d)?)?)?\s*\Z"
)
#: Zones RFC 822 readers do not know; hours east of Greenwich.
_ZONES = {"AT": -4, "ET": -5, "CT": -6, "MT": -7, "PT": -8, "CET": 1, "CEST": 2, "MET": 1, "BST": 1, "MSK": 3, "JST": 9}
_ZONE_AT_END = re.compile(r"\s+([A-Z]{2,4})\Z")
_MAX_CHARS = 100


def parse_date(text: str | None) -> datetime | None:
    """An aware UTC time for a feed's date, ``None`` where it cannot be read. Times without a zone are UTC."""
    if not text or len(text) > _MAX_CHARS:
        return None
    text = " ".join(text.split())
    try:
        return _iso(text) or _rfc822(text)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def _iso(text: str) -> datetime | None:
    found = _ISO.match(text)
    if not found:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = datetime(int(year), int(month or 1), int(day or 1), tzinfo=UTC)
    if hour is None:
        return moment
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    moment += timedelta(hours=int(hour), minutes=int(minute), seconds=int(second or 0), microseconds=micros)
    return moment - _offset(zone)


def _offset(zone: str | None) -> timedelta:
    if not zone or zone.upper() in ("Z", "UTC", "GMT"):
        return timedelta()
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return shift if zone[0] == "+" else -shift
    return timedelta(hours=_ZONES.get(zone.upper(), 0))


def _rfc822(text: str) -> datetime | None:
    extra = None
    if (named := _ZONE_AT_END.search(text)) and named.group(1) in _ZONES:
        extra, text = _ZONES[named.group(1)], text[: named.start()]
    parsed = parsedate_tz(text)
    if parsed is None:
        return None
    offset = timedelta(hours=extra) if extra is not None else timedelta(seconds=parsed[9] or 0)
    moment = datetime(*parsed[:3], tzinfo=UTC) + timedelta(hours=parsed[3], minutes=parsed[4], seconds=parsed[5])
    return moment - offset
