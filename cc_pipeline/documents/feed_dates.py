"""Dates as feeds write them: RFC 822 and its dialects, ISO 8601 and W3CDTF."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_tz

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
