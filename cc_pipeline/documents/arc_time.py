"""The fetch times of captures of crawl-002: their ARC files have the clock of the US west coast."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cc_pipeline.documents.dates import parse_date
from cc_pipeline.documents.headers import header
from cc_pipeline.documents.page import PageInput

#: The folder of the archive files whose dates are Pacific time, 7 or 8 hours behind UTC. The evidence is ``Date`` in
#: two records (commoncrawl/arc2warc-conversion); dates of the ARC files of 2012 are UTC.
_FOLDER: Final = "crawl-002/"
_HOUR: Final = timedelta(hours=1)
_FURTHEST: Final = timedelta(days=1)


def correct_fetch_time(page: PageInput) -> datetime | None:
    """Returns the fetch time (aware UTC) of a capture of crawl-002: the archive's date, moved by whole hours towards
    the response's own ``Date``, so that minutes and seconds stay those of the crawler's clock.

    ``None`` for captures of other archive files, and if ``Date`` is absent, unreadable or more than a day away.
    """
    if page.fetch_time is None or not (page.warc_filename or "").startswith(_FOLDER):
        return None
    served = parse_date(header(page.http_headers, "date"))
    if served is None or abs(served - page.fetch_time) > _FURTHEST:
        return None
    try:
        return page.fetch_time + round((served - page.fetch_time) / _HOUR) * _HOUR
    except OverflowError:  # the end of the year 9999
        return None
