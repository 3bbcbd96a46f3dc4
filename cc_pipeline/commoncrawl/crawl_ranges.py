"""Which crawls a person means by ``all``, a year, or a range of years or crawls; and when a crawl was made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cc_pipeline.commoncrawl.crawls import Crawl, age, validate_crawl_id
from cc_pipeline.errors import UserInputError

Span = tuple[datetime, datetime]

_YEAR = re.compile(r"\d{4}")
_IN_ID = re.compile(r"(?<![0-9])(?:20\d\d)(?![0-9])")
_WEEK = re.compile(r".*-(\d{4})-(\d{2})")
_BEGIN, _END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
#: A crawl of which only the week is known took about this long.
_DAYS = 14


def is_selection(text: str, listed: Sequence[Crawl]) -> bool:
    """Whether ``text`` may mean several crawls: ``all``, ``2018..2024``, or a year that is not a crawl's own id."""
    text = text.strip()
    if text.lower() == "all" or ".." in text:
        return True
    return bool(_YEAR.fullmatch(text)) and validate_crawl_id(text) not in {crawl.id for crawl in listed}


def select(text: str, listed: Sequence[Crawl]) -> tuple[Crawl, ...]:
    """The crawls of ``listed`` (newest first) that a selection means, newest first.

    ``all``; a year (``2018``); a range, both ends included, each of which may be a year, a crawl or nothing
    (``2018..2024``, ``2012..``, ``CC-MAIN-2018-05..2019``). A crawl belongs to the years that its id names. Raises
    ``UserInputError`` for a crawl that is not listed, for ends in the wrong order, and where no crawl is meant.
    """
    wanted = text.strip()
    if wanted.lower() == "all":
        found = tuple(listed)
    else:
        first, dots, last = wanted.partition("..")
        low, high = _bound(first, listed, 0), _bound(last if dots else first, listed, 1)
        if low is not None and high is not None and low > high:
            raise UserInputError(f"{text!r} begins after it ends; write the older end first: {last.strip()}..{first}")
        found = tuple(
            crawl
            for crawl in listed
            if (low is None or _last(crawl) >= low) and (high is None or _first(crawl) <= high)
        )
    if not found:
        raise UserInputError(f"the source lists no crawl of {text.strip()[:80]}. All of them: cc-pipeline crawls")
    return found


def made_in(crawl: Crawl) -> Span:
    """First and last moment of a crawl's captures (aware UTC): as it was listed, else as its id tells."""
    if crawl.started is not None:
        return crawl.started, max(crawl.ended or crawl.started, crawl.started)
    weekly = _WEEK.fullmatch(crawl.id)
    if weekly and 1 <= int(weekly[2]) <= 53:
        start = datetime(int(weekly[1]), 1, 1, tzinfo=UTC) + timedelta(weeks=int(weekly[2]) - 1)
        return start, start + timedelta(days=_DAYS)
    years = _years(crawl)
    if not years:
        return _BEGIN, _END
    return datetime(years[0], 1, 1, tzinfo=UTC), datetime(years[-1] + 1, 1, 1, tzinfo=UTC)


def apart(one: Span, other: Span) -> timedelta:
    """How long lies between two spans of time: zero where they touch or overlap."""
    return max(timedelta(0), other[0] - one[1], one[0] - other[1])


def _bound(text: str, listed: Sequence[Crawl], side: int) -> tuple[int, datetime, str] | None:
    """The least key a crawl of the range has (``side`` 0), or the greatest (1); ``None``: no bound."""
    text = text.strip()
    if not text:
        return None
    wanted = validate_crawl_id(text)
    crawl = next((one for one in listed if one.id == wanted), None)
    if crawl is not None and not _YEAR.fullmatch(text):
        return _first(crawl) if side else _last(crawl)
    if _YEAR.fullmatch(text):
        return (int(text), _END, "~" * 64) if side else (int(text), _BEGIN, "")
    raise UserInputError(f"{text[:80]!r} is neither a year nor a crawl of the source. All: cc-pipeline crawls")


def _first(crawl: Crawl) -> tuple[int, datetime, str]:
    return (min(_years(crawl), default=age(crawl)[0].year), *age(crawl))


def _last(crawl: Crawl) -> tuple[int, datetime, str]:
    return (max(_years(crawl), default=age(crawl)[0].year), *age(crawl))


def _years(crawl: Crawl) -> list[int]:
    weekly = _WEEK.fullmatch(crawl.id)
    return [int(weekly[1])] if weekly else sorted(int(year) for year in _IN_ID.findall(crawl.id))
