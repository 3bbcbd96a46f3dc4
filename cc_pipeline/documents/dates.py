"""Dates as pages and feeds write them: right, or absent; never shifted.

A clock time without a zone is kept as local time (``local``). Dates that could mean two days (``05/06/2024``), names
in other languages than English, and days that no calendar has are not read.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Literal, NamedTuple

from dateutil import tz
from dateutil.parser import isoparser

#: How exact a date is. ``moment``: an instant. ``local``: a clock time whose zone is not known, shown as if it were
#: UTC. ``day``, ``week``, ``month``, ``year``: nothing more exact is stated; shown as its first moment in UTC.
Precision = Literal["moment", "local", "day", "week", "month", "year"]


class ReadDate(NamedTuple):
    """A date: its text and its meaning. ``moment`` is aware UTC; it and ``precision`` are ``None`` if the text cannot
    be read for certain."""

    text: str
    moment: datetime | None = None
    precision: Precision | None = None


_MAX_CHARS = 100
#: Broken programs write other years for "no date".
_YEARS = range(1000, 2200)
#: Two-digit years mean 2000 to 2049 or 1970 to 1999; the others are older or newer than the web.
_LAST_OF_2000 = 49
_FIRST_OF_1900 = 70

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_WEEKDAY = (
    r"(?:(?:mon(?:day)?|tue(?:s|sday)?|wed(?:s|nesday)?|thu(?:r|rs|rsday)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?)\b\.?"
    r"\s*(?:,\s*)?(?:the\s+)?)?"
)
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_CALENDAR = tuple(
    re.compile(pattern + r"\Z", re.IGNORECASE)
    for pattern in (
        # 18 May 2024, Sat, 18-May-24, 18th of May, 2024
        _WEEKDAY + _DAY + r"[\s.-]*(?:of\s+)?" + _MONTH + r"[\s,-]*(?P<year>\d{4}|\d{2})",
        # May 18, 2024; Sat May 18 2024
        _WEEKDAY + _MONTH + r"\s*" + _DAY + r"(?:\s*,\s*|\s+)(?P<year>\d{4})",
        _MONTH + r"\s*,?\s*(?P<year>\d{4})",
        # 2024-05-18, 2024/5/18, 2024. 5. 18., 2024年5月18日, 2024년 5월 18일
        r"(?P<year>\d{4})\s*[-/.\u5e74\ub144]\s*(?P<month>\d{1,2})\s*[-/.\u6708\uc6d4]\s*(?P<day>\d{1,2})\s*[.\u65e5\uc77c]?",
        # 18.05.2024
        r"(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.\s?(?P<year>\d{4})",
    )
)
#: 05/18/2024 or 18/05/2024: read only if one of the orders is impossible.
_SLASHED = re.compile(r"(\d{1,2})([/-])(\d{1,2})\2(\d{4})\Z")
_ISO = re.compile(
    r"(?P<date>\d{4}(?:-\d\d-\d\d|\d{4}|-\d\d|-?W\d\d(?:-?[1-7])?|-?\d{3})?)"
    r"(?:(?:T\s*|\s+(?:T\s*)?)(?P<hour>\d{1,2})(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?"
    r"\s*(?:(?P<half>[ap]\.?\s?m\b\.?)\s*)?(?P<zone>Z|(?:(?:GMT|UTC|UT)\s*)?[+\u2212-]\d{1,2}(?::?\d\d)?|[A-Z]{2,5})?)?\Z",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"(?:\bT|(?:\bat|[,@]|\s-)\s*|\b)(?P<hour>\d{1,2})(?:(?::(?P<minute>\d\d))(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?"
    r"|(?=\s*[ap]\.?\s?m\b))\s*(?P<half>[ap](?:\.?\s?m)?\b\.?)?"
    r"\s*(?P<zone>Z\b|(?:(?:GMT|UTC|UT)\s*)?[+\u2212-]\d{1,2}(?::?\d\d)?\b|[^\W\d_]+(?=[\s,]|\Z))?",
    re.IGNORECASE,
)
#: The form of most feeds and pages; minutes of the offset as ``_MAX_OFFSET`` bounds them.
_PLAIN_ISO = re.compile(
    r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:Z|[+-](?:0\d|1[0-3]):[0-5]\d)\Z", re.ASCII
)
_WEEK = re.compile(r"\d{4}-?W\d\d\Z", re.IGNORECASE)
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?\s*([+\u2212-])(\d{1,2}?)(?::?(\d\d))?\Z", re.IGNORECASE)
#: A repeated zone: (Central European Summer Time), [Europe/Berlin], CEST after +0200.
_COMMENT = re.compile(r"(?:(?<!\s)\s*(?:\([^()]*\)|\[[^\[\]]*\])|(?<=[+-]\d{4})\s[A-Z]{3,5})\Z")
#: A word after a clock time that belongs to the date.
_DATE_WORD = re.compile(rf"(?:{_WEEKDAY.removesuffix('?')}|{_MONTH}|on|at|the)\Z", re.IGNORECASE)
_DIGITS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_ISO_DAYS = isoparser()
_EPOCH = re.compile(r"1[0-8]\d{8}(\d{3})?\Z")

#: Minutes east of Greenwich; the zones of RFC 822 first.
_ZONES = {
    **{"UT": 0, "UTC": 0, "GMT": 0, "Z": 0, "EST": -300, "EDT": -240, "CST": -360, "CDT": -300, "MST": -420},
    **{"MDT": -360, "PST": -480, "PDT": -420, "AKST": -540, "AKDT": -480, "HST": -600, "ADT": -180, "NDT": -150},
    **{"WET": 0, "WEST": 60, "BST": 60, "CET": 60, "CEST": 120, "MET": 60, "MEST": 120, "MESZ": 120, "MEZ": 60},
    **{"EET": 120, "EEST": 180, "MSD": 240, "SAST": 120, "PKT": 300, "WIB": 420, "ICT": 420, "HKT": 480, "SGT": 480},
    **{"AWST": 480, "JST": 540, "KST": 540, "ACST": 570, "ACDT": 630, "AEST": 600, "AEDT": 660, "NZST": 720},
    **{"NZDT": 780, "BRT": -180, "ART": -180},
}
#: Zones whose distance from Greenwich changes with the date.
_PLACES = {
    **{"ET": "America/New_York", "CT": "America/Chicago", "MT": "America/Denver", "PT": "America/Los_Angeles"},
    **{"AT": "America/Halifax", "MSK": "Europe/Moscow"},
}
#: Names of several zones of the world.
_AMBIGUOUS = frozenset({"IST", "AST", "SST", "AMT", "GST", "ECT", "WST", "NST", "EAST", "CLT", "CCT"})
_MAX_OFFSET = 14 * 60


def parse_date(text: str | None) -> datetime | None:
    """Returns the moment of ``read_date``: aware UTC; ``None`` without a text or a certain reading."""
    date = read_date(text)
    return date.moment if date else None


def read_date(text: str | None) -> ReadDate | None:
    """Reads a date as pages and feeds write them. Returns ``None`` without a text, and a ``ReadDate`` without
    ``moment`` for a text that is no date or an ambiguous one. Never raises.

    Accepts ISO 8601 (week and ordinal dates, basic and reduced forms), RFC 822 and 850, English dates, numeric dates
    that can mean only one day, and Unix times in seconds or milliseconds.
    """
    text = " ".join(text.split()) if text else ""
    if not text:
        return None
    if len(text) > _MAX_CHARS:
        return ReadDate(text[:_MAX_CHARS])
    try:
        parsed = _read(text)
    except (ValueError, OverflowError):
        parsed = None
    if parsed is None or parsed[0].year not in _YEARS:
        return ReadDate(text)
    return ReadDate(text, *parsed)


def first_read(*dates: ReadDate | None) -> ReadDate | None:
    """Returns the first date that could be read; else the first that has a text."""
    present_dates = [date for date in dates if date is not None]
    return next(
        (date for date in present_dates if date.moment is not None), present_dates[0] if present_dates else None
    )


def _read(text: str) -> tuple[datetime, Precision] | None:
    if text.isdigit():
        return _digits(text)
    if _PLAIN_ISO.match(text):
        return datetime.fromisoformat(text).astimezone(UTC), "moment"
    text = _COMMENT.sub("", text)
    if iso := _ISO.match(text):
        day, precision = _iso_day(iso["date"])
        return _timed(day, precision, iso, iso["zone"], standard=True)
    clock = _CLOCK.search(text)
    if clock is None:
        return _day(text)
    zone, end = clock["zone"], clock.end()
    if zone and _DATE_WORD.match(zone):
        zone, end = None, clock.start("zone")
    before, after = text[: clock.start()].rstrip(" ,"), text[end:].strip(" ,")
    day_and_precision = _day(f"{before} {after.removeprefix('on ').strip()}".strip())
    return _timed(*day_and_precision, clock, zone, standard=bool(before) and not after) if day_and_precision else None


def _digits(text: str) -> tuple[datetime, Precision] | None:
    if _EPOCH.match(text):
        seconds, millis = int(text[:10]), int(text[10:] or 0)
        return datetime.fromtimestamp(seconds, UTC) + timedelta(milliseconds=millis), "moment"
    if len(text) == 4:
        return datetime(int(text), 1, 1, tzinfo=UTC), "year"
    if len(text) == 7:
        return _iso_day(text)
    if form := _DIGITS.get(len(text)):
        moment = datetime.strptime(text, form).replace(tzinfo=UTC)
        return moment, "day" if form == _DIGITS[8] else "local"
    return None


def _iso_day(text: str) -> tuple[datetime, Precision]:
    moment = _ISO_DAYS.isoparse(text.upper()).replace(tzinfo=UTC)
    if len(text) == 4:
        return moment, "year"
    if text[4] == "-" and len(text) == 7:
        return moment, "month"
    return moment, "week" if _WEEK.match(text) else "day"


def _day(text: str) -> tuple[datetime, Precision] | None:
    if slashed := _SLASHED.match(text):
        first, second = int(slashed[1]), int(slashed[3])
        if first == second or max(first, second) > 12 >= min(first, second):
            return datetime(int(slashed[4]), min(first, second), max(first, second), tzinfo=UTC), "day"
        return None
    for form in _CALENDAR:
        if not (match := form.match(text)):
            continue
        parts = match.groupdict()
        month = _MONTHS.index(parts["name"][:3].lower()) + 1 if parts.get("name") else int(parts["month"])
        if not (year := _full_year(parts["year"])):
            return None
        return datetime(year, month, int(parts.get("day") or 1), tzinfo=UTC), "day" if parts.get("day") else "month"
    return None


def _full_year(text: str) -> int | None:
    year = int(text)
    if len(text) > 2:
        return year
    if year <= _LAST_OF_2000:
        return 2000 + year
    return 1900 + year if year >= _FIRST_OF_1900 else None


def _timed(
    day: datetime, precision: Precision, clock: re.Match[str], zone: str | None, *, standard: bool
) -> tuple[datetime, Precision] | None:
    """Returns a day with the clock's time. ``standard``: the zone is at the position of RFC 822 and ISO 8601, and so
    has the meaning they define."""
    parts = clock.groupdict()
    if parts["hour"] is None:
        return day, precision
    if precision != "day":
        return None
    hour = _hour(int(parts["hour"]), (parts["half"] or "")[:1].lower())
    minute, second = int(parts["minute"] or 0), int(parts["second"] or 0)
    micros = int((parts["fraction"] or "0")[:6].ljust(6, "0"))
    end_of_day = hour == 24 and not (minute or second or micros)
    if hour is None or (hour > 23 and not end_of_day) or minute > 59 or second > 60:
        return None
    moment = day + timedelta(hours=hour, minutes=minute, seconds=second, microseconds=micros)
    if not zone:
        return moment, "local"
    zone_offset = _zone(zone.strip(), standard=standard)
    if zone_offset is None:
        # an unknown word may mean the afternoon in another language
        return (moment, "local") if zone.upper() in _AMBIGUOUS or _OFFSET.match(zone) or zone == "CST" else (day, "day")
    if isinstance(zone_offset, timedelta):
        return moment - zone_offset, "moment"
    local = moment.replace(tzinfo=zone_offset)
    certain = tz.datetime_exists(local) and not tz.datetime_ambiguous(local)
    return (local.astimezone(UTC), "moment") if certain else (moment, "local")


def _hour(hour: int, half: str) -> int | None:
    """Returns the hour of a day; ``half`` is ``a`` or ``p`` for am and pm, else empty."""
    noon = 12
    if not half:
        return hour
    if half == "a":
        return hour % noon if hour <= noon else None
    return hour % noon + noon if hour > 0 else None


def _zone(name: str, *, standard: bool) -> timedelta | tzinfo | None:
    """Returns the distance east of Greenwich of a zone's name or offset, or a zone object if it depends on the date;
    ``None`` for a zone that is unknown or ambiguous."""
    if offset := _OFFSET.match(name):
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes > _MAX_OFFSET or int(offset[3] or 0) > 59:
            return None
        return timedelta(minutes=minutes if offset[1] == "+" else -minutes)
    name = name.upper()
    if name in _PLACES:
        return _place(_PLACES[name])
    # Java writes China's time as CST, at a position where RFC 822 has no zone
    if name not in _ZONES or (name == "CST" and not standard):
        return None
    return timedelta(minutes=_ZONES[name])


@cache
def _place(name: str) -> tzinfo | None:
    return tz.gettz(name)
