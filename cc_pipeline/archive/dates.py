"""Dates as WARC and ARC headers write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_STRICT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_LOOSE = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?)?)?(Z|[+-]\d\d:?\d\d)?"
)
_DIGITS = re.compile(r"\d{8,20}")


def warc_date(text: str) -> tuple[datetime | None, bool]:
    """(aware UTC time or ``None``, is the spelling plain?) of a ``WARC-Date``.

    WARC 1.0 has whole seconds; WARC 1.1 allows anything from a year to nanoseconds (cut to microseconds).
    """
    if _STRICT.fullmatch(text):
        try:
            return datetime.fromisoformat(text), True
        except ValueError:
            return None, False
    loose = _LOOSE.fullmatch(text.strip())
    if loose is None:
        return digits_date(text)[0], False
    year, month, day, hour, minute, second, fraction, zone = loose.groups()
    micros = ((fraction or "") + "000000")[:6]
    offset = "+00:00" if zone in (None, "Z") else zone
    spelled = f"{year}-{month or '01'}-{day or '01'}T{hour or '00'}:{minute or '00'}:{second or '00'}.{micros}{offset}"
    try:
        return datetime.fromisoformat(spelled).astimezone(UTC), False
    except (ValueError, OverflowError):
        return None, False


def digits_date(text: str) -> tuple[datetime | None, bool]:
    """(aware UTC time or ``None``, is it the usual 14 digits?) of an ARC date.

    ARC dates are ``YYYYMMDDhhmmss``. Fewer digits (8 to 13) leave out the small units; of more, only the
    first 14 count, as the archives with 16 and 18 digits pad them with zeros.
    """
    text = text.strip()
    if not _DIGITS.fullmatch(text):
        return None, False
    whole = text[:14].ljust(14, "0") if len(text) % 2 == 0 or len(text) > 14 else text[:-1].ljust(14, "0")
    try:
        hour, minute, second = int(whole[8:10]), int(whole[10:12]), int(whole[12:])
        moment = datetime(int(whole[:4]), int(whole[4:6]), int(whole[6:8]), hour, minute, second, tzinfo=UTC)
        return moment, len(text) == 14
    except ValueError:
        return None, False
