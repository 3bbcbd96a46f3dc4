"""Dates of feeds and pages: right, or absent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple


class Stated(NamedTuple):
    """A date as written, and the moment in UTC; ``None`` where nobody can know."""

    report: str
    text: str
    moment: datetime | None


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


DATES = (
    Stated("kurtmckee/feedparser#75", "2016/6/29 15:07:41", _utc(2016, 6, 29, 15, 7, 41)),
    Stated("kurtmckee/feedparser#114", "Fri, 22 Sep 17 22:05:03 +0300", _utc(2017, 9, 22, 19, 5, 3)),
    Stated("kurtmckee/feedparser#33", "Thu, 03 Sep 15 00:01:01 +0200", _utc(2015, 9, 2, 22, 1, 1)),
    Stated("kurtmckee/feedparser#26", "1513-01-01T00:00:00Z", _utc(1513, 1, 1)),
    Stated("kurtmckee/feedparser#72", "Tue, 24 May 2016 2:17:57 PM CEST", _utc(2016, 5, 24, 12, 17, 57)),
    Stated("kurtmckee/feedparser#72", "2016-05-24 14:17:57.02016-05-24 14:17:57.0", None),
    Stated("brief-rss/brief#184", "Mon, 25 Jan 2016 1:35:20 -0800", _utc(2016, 1, 25, 9, 35, 20)),
    Stated("kurtmckee/feedparser#135", "Mo, 25 Jun 2018 11:41:36", None),
    Stated("nuxt-modules/sitemap#637", "garbage2024-01-15T09:30:00Zjunk", None),
    Stated("nuxt-modules/sitemap#637", "2024-02-30", None),
    Stated("nuxt-modules/sitemap#637", "2023-02-29", None),
    Stated("codelucas/newspaper#967", "2023-01-02", _utc(2023, 1, 2)),
    Stated("RFC 3339 5.6", "2024-05-18t01:02:03.4567z", _utc(2024, 5, 18, 1, 2, 3, 456_700)),
    Stated("RFC 5322 4.3", "Sat, 18 May 2024 01:02:03 -0000", _utc(2024, 5, 18, 1, 2, 3)),
    Stated("RFC 9110 5.6.7", "Saturday, 18-May-24 01:02:03 GMT", _utc(2024, 5, 18, 1, 2, 3)),
    Stated("RFC 9110 5.6.7", "Sat May 18 01:02:03 2024", _utc(2024, 5, 18, 1, 2, 3)),
    Stated("rssboard.org", "05/06/2024", None),
)
