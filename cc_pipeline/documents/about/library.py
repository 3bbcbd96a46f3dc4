"""What htmldate finds where no reader of ours found a date: it looks at markup and texts by their looks.

It is slow (milliseconds a page) and it guesses, so what it finds is marked as its own.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from lxml import html

#: Characters of a page it is given: its regular expressions take a second for a few megabytes.
_MOST_CHARS = 256 * 1024
_FIRST = "1995-01-01"
_LAST = "2099-12-31"
_AHEAD = timedelta(days=1)


@lru_cache(maxsize=1)
def _find_date() -> Any:
    from htmldate import find_date  # noqa: PLC0415 - half a second to import, for pages without a date only

    logging.getLogger("htmldate").setLevel(logging.CRITICAL)
    return find_date


def guessed_date(markup: str, url: str, fetched: datetime | None, *, article: bool) -> tuple[date, str] | None:
    """A day and how it was found: ``htmldate`` from the markup, ``htmldate-text`` anywhere in the text.

    The text is searched for an ``article`` only: other pages are full of dates that are not their own. Never raises.
    """
    latest = _LAST if fetched is None else (fetched + _AHEAD).date().isoformat()
    with contextlib.suppress(Exception):  # whatever a page makes of it, there is no date then
        tree = html.document_fromstring(markup[:_MOST_CHARS].encode("utf-8", "replace"), parser=_parser())
        for source, extensive in (("htmldate", False), ("htmldate-text", True))[: 1 + article]:
            found = _find_date()(
                tree, extensive_search=extensive, original_date=True, url=url, min_date=_FIRST, max_date=latest
            )
            if found:
                return date.fromisoformat(found), source
    return None


def _parser() -> html.HTMLParser:
    return html.HTMLParser(encoding="utf-8", collect_ids=False, remove_comments=True, remove_pis=True)


def moment_of(day: date) -> datetime:
    """Midnight of the day, UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
