"""What htmldate finds where no reader of ours found a date: it looks at markup and texts by their looks.

It is slow (milliseconds a page) and it guesses, so what it finds is marked as its own.
"""

from __future__ import annotations

import contextlib
import logging
import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any

from lxml import html

#: Characters of a page it is given: its regular expressions take a second for a few megabytes.
_MOST_CHARS = 256 * 1024
#: Short texts with digits that it may try to read in every language, five milliseconds each.
_MOST_TEXTS = 50
_SHORT = 64
_FIRST = "1995-01-01"
_LAST = "2099-12-31"
_AHEAD = timedelta(days=1)


_DIGIT = re.compile(r"\d")
#: Where what was found stood.
MARKUP, TEXT = "htmldate", "htmldate-text"
#: Languages whose dates are read in texts. htmldate asks dateparser for all of its 205, whose tables take three
#: seconds and 40 MB in every process.
LANGUAGES = """
en de fr es it pt nl pl ru uk cs sv da nb fi hu ro el tr ar fa hi id vi zh ja ko
"""


@lru_cache(maxsize=1)
def _find_date() -> Any:
    import htmldate  # noqa: PLC0415 - slow to import, for pages without a date only
    from htmldate import extractors  # noqa: PLC0415

    for name in ("htmldate", "dateparser"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.suppress(AttributeError):  # one that has no such parser reads in all languages
        extractors.get_external_parser().languages = LANGUAGES.split()
    return htmldate.find_date


def guessed_date(markup: str, url: str, fetched: datetime | None, *, article: bool) -> tuple[date, str] | None:
    """A day and how it was found: ``htmldate`` from the markup, ``htmldate-text`` anywhere in the text.

    The text is searched for an ``article`` only: other pages are full of dates that are not their own. Never raises.
    """
    latest = _LAST if fetched is None else (fetched + _AHEAD).date().isoformat()
    with contextlib.suppress(Exception):  # whatever a page makes of it, there is no date then
        tree = html.document_fromstring(markup[:_MOST_CHARS].encode("utf-8", "replace"), parser=_parser())
        for source, extensive in ((MARKUP, False), (TEXT, True))[: 1 + article]:
            if extensive:
                bound_texts(tree)
            found = _find_date()(
                tree, extensive_search=extensive, original_date=True, url=url, min_date=_FIRST, max_date=latest
            )
            if found:
                return date.fromisoformat(found), source
    return None


def _parser() -> html.HTMLParser:
    return html.HTMLParser(encoding="utf-8", collect_ids=False, remove_comments=True, remove_pis=True)


def bound_texts(tree: html.HtmlElement) -> None:
    """Takes out the short texts with digits that are too many."""
    count = 0
    for element in tree.iter():
        for place in ("text", "tail"):
            text = getattr(element, place)
            if text and len(text.strip()) <= _SHORT and _DIGIT.search(text):
                count += 1
                if count > _MOST_TEXTS:
                    setattr(element, place, None)
