"""Dates as pages state them: the moment, and the calendar day as it is written there."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from cc_pipeline.documents.feeds.model import parse_date

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january",
            "feb february",
            "mar march",
            "apr april",
            "may",
            "jun june",
            "jul july",
            "aug august",
            "sep sept september",
            "oct october",
            "nov november",
            "dec december",
        ),
        1,
    )
    for name in names.split()
}
_MAX_CHARS = 100
_ISO_DAY = re.compile(r"\s*(\d{4})-(\d\d?)-(\d\d?)(?!\d)")
_MONTH_FIRST = re.compile(r"\b([a-z]{3,9})\.? {0,3}(\d{1,2})(?:st|nd|rd|th)?,? {1,3}(\d{4})\b", re.IGNORECASE)
_DAY_FIRST = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?\.?[ -]{1,3}([a-z]{3,9})\.?,?[ -]{1,3}(\d{4})\b", re.IGNORECASE)
_YEAR_FIRST = re.compile(r"(?<!\d)(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?!\d)")
_EPOCH = re.compile(r"\s*(\d{10})(?:\d{3})?\s*\Z")
_FIRST = date(1800, 1, 1)
#: What programs write that know no date.
_NO_DATES = frozenset({date(1970, 1, 1)})
#: Clocks and zones differ: a page of tomorrow is not yet odd.
_AHEAD = timedelta(days=2)
_LAST = datetime(2100, 1, 1, tzinfo=UTC)


class Stated(NamedTuple):
    """A moment in UTC (midnight where only a day is stated), and the day as the page writes it."""

    moment: datetime
    day: date


def stated(text: object, fetched: datetime | None) -> Stated | None:
    """What a text says, ``None`` where it is no date that can be read in one way only, or none that can be true of
    a page that was there at ``fetched``."""
    if not isinstance(text, str) or not text or len(text) > _MAX_CHARS:
        return None
    try:
        found = _read(text)
    except (ValueError, OverflowError):
        return None
    if found is None or found.day < _FIRST or found.day in _NO_DATES:
        return None
    latest = fetched + _AHEAD if fetched is not None else _LAST
    return found if found.moment <= latest else None


def _read(text: str) -> Stated | None:
    if epoch := _EPOCH.match(text):
        moment = datetime.fromtimestamp(int(epoch.group(1)), UTC)
        return Stated(moment, moment.date())
    day = _day(text)
    moment_read = parse_date(text)
    if moment_read is None:
        return Stated(datetime(day.year, day.month, day.day, tzinfo=UTC), day) if day else None
    # an ISO date has its day in front; one of mail has it in words, which are read above
    if day is None or abs((moment_read.date() - day).days) > 1:
        day = moment_read.date()
    return Stated(moment_read, day)


def _day(text: str) -> date | None:
    if found := _ISO_DAY.match(text) or _YEAR_FIRST.search(text):
        parts = [int(part) for part in found.groups() if part.isdigit()]
        return date(*parts)
    if (found := _MONTH_FIRST.search(text)) and (month := _MONTHS.get(found.group(1).lower())):
        return date(int(found.group(3)), month, int(found.group(2)))
    if (found := _DAY_FIRST.search(text)) and (month := _MONTHS.get(found.group(2).lower())):
        return date(int(found.group(3)), month, int(found.group(1)))
    return None


_IN_URL = re.compile(
    r"[/_.-]((?:19|20)\d\d)([/_.-]?)(0[1-9]|1[0-2]|[1-9](?=[/_.-])|[a-z]{3,9}(?=[/_.-]))\2"
    r"(0[1-9]|[12]\d|3[01]|[1-9](?!\d))(?=[/_.?-]|\Z)",
    re.IGNORECASE,
)
_URL_CHARS = 2_000


def in_url(url: str, fetched: datetime | None) -> Stated | None:
    """The day that a URL's path has, as news sites write it."""
    _, _, path = url[:_URL_CHARS].partition("://")
    for year, _, month, day in _IN_URL.findall(path):
        number = int(month) if month.isdigit() else _MONTHS.get(month.lower())
        if number:
            try:
                found = date(int(year), number, int(day))
            except ValueError:
                continue
            return stated(found.isoformat(), fetched)
    return None
