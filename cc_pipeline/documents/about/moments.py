"""Dates of pages: read, checked against when the page was fetched, with the day as the page writes it."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from cc_pipeline.documents.dates import Precision, parse_date, read_date

_DAY_AS_WRITTEN = re.compile(
    r"(?<!\d)(\d{4}-?\d\d-?\d\d)(?!\d)|\b([a-z]{3,9}\.? {0,2}\d{1,2}(?:st|nd|rd|th)?,? {1,2}\d{4})\b"
    r"|\b(\d{1,2}(?:st|nd|rd|th)?\.?[ -]{1,2}[a-z]{3,9}\.?,?[ -]{1,2}\d{4})\b",
    re.IGNORECASE,
)
_FIRST = date(1800, 1, 1)
#: What programs write that know no date.
_NO_DATES = frozenset({date(1970, 1, 1)})
#: Clocks and zones differ: a page of tomorrow is not yet odd.
_AHEAD = timedelta(days=2)
_LAST = datetime(2100, 1, 1, tzinfo=UTC)
_IN_URL = re.compile(
    r"[/_.-]((?:19|20)\d\d)([/_.-]?)(0[1-9]|1[0-2]|[1-9](?=[/_.-])|[a-z]{3,9}(?=[/_.-]))\2"
    r"(0[1-9]|[12]\d|3[01]|[1-9](?!\d))(?=[/_.?-]|\Z)",
    re.IGNORECASE,
)
_URL_CHARS = 2_000


class Stated(NamedTuple):
    """A moment in UTC, how exact it is (``dates.Precision``), and the day in the page's own zone."""

    moment: datetime
    precision: Precision
    day: date


def stated(text: object, fetched: datetime | None) -> Stated | None:
    """What a text says, ``None`` where it is no date that can be read in one way only, or none that can be true of
    a page that was there at ``fetched``."""
    found = read_date(text) if isinstance(text, str) else None
    if found is None or found.moment is None or found.precision is None:
        return None
    day = _day_as_written(found.text) if found.precision == "moment" else found.moment.date()
    if day is None or abs(day - found.moment.date()) > timedelta(days=1):
        day = found.moment.date()
    if day < _FIRST or day in _NO_DATES or found.moment > (fetched + _AHEAD if fetched is not None else _LAST):
        return None
    return Stated(found.moment, found.precision, day)


def _day_as_written(text: str) -> date | None:
    found = _DAY_AS_WRITTEN.search(text)
    moment = parse_date(found.group(found.lastindex or 0)) if found else None
    return moment.date() if moment else None


def in_url(url: str, fetched: datetime | None) -> Stated | None:
    """The day that a URL's path has, as news sites write it."""
    _, _, path = url[:_URL_CHARS].partition("://")
    for year, _, month, day in _IN_URL.findall(path):
        if month.isdigit():
            found = stated(f"{year}-{month:0>2}-{day:0>2}", fetched)
        else:
            found = stated(f"{day} {month} {year}", fetched)
        if found:
            return found
    return None


def on_day(day: date, guessed: bool) -> Stated:
    """No more than a day, midnight of it in UTC. The first of a month that is ``guessed`` may stand for all of it."""
    precision: Precision = "day"
    if guessed and day.day == 1:
        precision = "year" if day.month == 1 else "month"
    return Stated(datetime(day.year, day.month, day.day, tzinfo=UTC), precision, day)
