"""Crawls: their ids, the published list (``collinfo.json``), and selections such as ``2018..2024``. An id determines
when a crawl was made, which index it has, and its known peculiarities."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from cc_pipeline.advice import advise
from cc_pipeline.commoncrawl.surt import KeyRule
from cc_pipeline.errors import DataFault, DataKind, UserInputError

#: Crawls whose row groups lack minimum and maximum of ``url_surtkey`` in today's fields, by a survey in 2022 of the
#: footers of all 300 ``warc`` files of each.
WITHOUT_KEY_STATISTICS: Final = frozenset(
    f"CC-MAIN-{week}"
    for week in """
2017-43 2017-47 2017-51 2018-05 2018-09 2018-13 2018-17 2018-22 2018-26 2018-30 2018-34 2018-39 2018-43
""".split()
)

#: Crawls with possibly wrong payload digests: an extra CRLF is between HTTP header and payload. A mismatch there is
#: noted and never an error.
UNRELIABLE_DIGEST_CRAWLS: Final = frozenset({"CC-MAIN-2018-34"})

#: First crawls with a property of the columnar index, by week.
FIRST_WITH: Final = {
    "content_charset": "2018-39",
    "content_languages": "2018-39",
    "content_truncated": "2019-47",
    "fetch_redirect": "2019-47",
    "int64_fetch_time": "2020-05",
    "url_host_name_reversed": "2021-49",
    "page_index": "2021-49",
    "sorted_parts": "2022-27",
    "keys_of_today": "2025-05",
    "warc_record_id": "2026-30",
}

_WEEKLY_ID = re.compile(r"CC-[A-Z]+-(\d{4}-\d{2})(?:-.*)?")

Era = Literal["columnar", "arc", "built"]

#: The word for the newest crawl.
NEWEST: Final = "newest"
#: The most crawls that an error lists.
_MAX_SHOWN_CRAWLS: Final = 8
#: The parts of a crawl that the columnar index separates.
SUBSETS: Final[tuple[str, ...]] = ("warc", "crawldiagnostics", "robotstxt")

#: Crawls stored as ARC files, without a columnar index: id and the top folder of the bucket that holds them.
ARC_CRAWLS: Final = {
    "CC-MAIN-2012": "parse-output",
    "CC-MAIN-2009-2010": "crawl-002",
    "CC-MAIN-2008-2009": "crawl-001",
}

#: Months of CC-NEWS: WARC files with no index of any kind, and in no list of crawls.
_NEWS = re.compile(r"CC-NEWS-(\d{4})-(\d{2})")
#: CC-NEWS began in August 2016.
_NEWS_YEARS: Final = range(2016, 2101)
#: The prefix of the id of a collection of archive files that a user named.
LOCAL: Final = "LOCAL-"

_ID = re.compile(r"[A-Z0-9][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*")
_WEEKLY = re.compile(r".*?-(\d{4})-(\d{2})(?:-.*)?")
_MAX_ID = 64
#: There were some 120 crawls in 18 years.
MAX_CRAWLS: Final = 10_000
#: Common Crawl began in 2007; a crawl of a year far from now would pass for the newest or the oldest.
_YEARS: Final = range(2007, 2101)

Span = tuple[datetime, datetime]

_YEAR = re.compile(r"\d{4}")
_IN_ID = re.compile(r"(?<![0-9])(?:20\d\d)(?![0-9])")
_WEEK = re.compile(r".*-(\d{4})-(\d{2})")
_BEGIN, _END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
#: The assumed duration of a crawl with only a known week.
_DAYS = 14

#: The last day on which this list was compared with what is published.
LIST_COMPARED_ON: Final = datetime(2026, 11, 21, tzinfo=UTC)

_WEEKS: Final = """
2013 20 48
2014 10 15 23 35 41 42 49 52
2015 06 11 14 18 22 27 32 35 40 48
2016 07 18 22 26 30 36 40 44 50
2017 04 09 13 17 22 26 30 34 39 43 47 51
2018 05 09 13 17 22 26 30 34 39 43 47 51
2019 04 09 13 18 22 26 30 35 39 43 47 51
2020 05 10 16 24 29 34 40 45 50
2021 04 10 17 21 25 31 39 43 49
2022 05 21 27 33 40 49
2023 06 14 23 40 50
2024 10 18 22 26 30 33 38 42 46 51
2025 05 08 13 18 21 26 30 33 38 43 47 51
2026 04 08 12 17 21 25 30 34 39 43
"""


def has_feature(crawl_id: str, feature: str) -> bool | None:
    """Whether the index of ``crawl_id`` is expected to have a ``FIRST_WITH`` property; ``None`` if its id has no
    week."""
    weekly = _WEEKLY_ID.fullmatch(crawl_id)
    return weekly[1] >= FIRST_WITH[feature] if weekly else None


def key_rule(crawl_id: str, index: str = "parquet") -> KeyRule:
    """Returns the rule of SURT keys in an index of a crawl; ``index`` is its kind (``parquet``, ``zipnum``, ``btree``).

    The rule changed between CC-MAIN-2024-51 and CC-MAIN-2025-05 (ia-web-commons#28). The columnar index is made from
    the lines of ZipNum, so both have the same keys; ZipNum of the ARC years was made long before. A B-tree has no SURT
    keys: the keys of its rows are computed here by today's rule, as those of locally built indexes. Crawls without a
    week in their id follow today's rule too.
    """
    if index == "btree" or index_is_built(crawl_id):
        return KeyRule.TODAY
    is_old = crawl_id in ARC_CRAWLS or has_feature(crawl_id, "keys_of_today") is False
    return KeyRule.UNTIL_2024 if is_old else KeyRule.TODAY


@dataclass(frozen=True, slots=True)
class Crawl:
    """One crawl. ``started`` and ``ended``: the times of its first and last capture (aware UTC), ``None`` if unknown;
    ``cdx_api`` is the address of its CDX server, if it has one."""

    id: str
    name: str
    started: datetime | None
    ended: datetime | None
    cdx_api: str | None

    @property
    def era(self) -> Era:
        """``arc`` for the crawls before 2013, ``built`` for crawls without a published index, which is built locally;
        unknown families are assumed to have a columnar index."""
        if index_is_built(self.id):
            return "built"
        return "arc" if self.id in ARC_CRAWLS else "columnar"


def parse_collinfo(data: bytes, source: str = "collinfo.json") -> tuple[Crawl, ...]:
    """Returns the crawls of a ``collinfo.json``, newest first. Accepts unknown fields and unknown families of ids, and
    leaves out entries without an id, or with impossible years and weeks.

    Raises ``DataFault`` if it is no JSON list, or if none of its entries can be used; ``TOO_LARGE`` for a number of
    thousands of digits, for nesting, and for more than ``MAX_CRAWLS`` entries.
    Format: a list of ``{id, name, timegate, cdx-api, from, to}``; the times are ISO 8601 without a zone and mean UTC.
    """
    try:
        entries: Any = json.loads(data)
    except UnicodeDecodeError as fault:
        raise DataFault(DataKind.MALFORMED, source, fault.start, "is not UTF-8 text") from fault
    except json.JSONDecodeError as fault:
        raise DataFault(DataKind.MALFORMED, source, fault.pos, f"is not JSON: {fault.msg}") from fault
    except ValueError as fault:  # Python refuses numbers of more than 4,300 digits
        raise DataFault(DataKind.TOO_LARGE, source, None, "has a number of thousands of digits") from fault
    except RecursionError as fault:
        raise DataFault(DataKind.TOO_LARGE, source, None, "is nested deeper than any list of crawls") from fault
    if not isinstance(entries, list):
        raise DataFault(DataKind.MALFORMED, source, 0, "is not a list of crawls")
    if len(entries) > MAX_CRAWLS:
        raise DataFault(DataKind.TOO_LARGE, source, None, f"lists {len(entries)} crawls, more than {MAX_CRAWLS}")
    crawls: dict[str, Crawl] = {}
    reasons: list[str] = []
    for entry in entries:
        try:
            crawl = _read_entry(entry)
        except ValueError as wrong:
            reasons.append(str(wrong))
        else:
            crawls.setdefault(crawl.id, crawl)
    if reasons and not crawls:
        message = f"has no usable entry; the first of {len(reasons)}: {reasons[0]}"
        raise DataFault(DataKind.MALFORMED, source, None, message)
    return tuple(sorted(crawls.values(), key=age, reverse=True))


def news_month(crawl_id: str) -> tuple[int, int] | None:
    """Returns year and month of ``CC-NEWS-YYYY-MM``; ``None`` for every other id."""
    match = _NEWS.fullmatch(crawl_id)
    if match is None or int(match[1]) not in _NEWS_YEARS or not 1 <= int(match[2]) <= 12:
        return None
    return int(match[1]), int(match[2])


def index_is_built(crawl_id: str) -> bool:
    """Whether this crawl has no published index, so that one is built in the lake store: months of CC-NEWS, and
    collections of archive files that a user named."""
    return crawl_id.startswith(LOCAL) or news_month(crawl_id) is not None


def has_subsets(crawl_id: str) -> bool:
    """Whether a crawl has separate subsets: crawls of the ARC years and those with a locally built index do not."""
    return crawl_id not in ARC_CRAWLS and not index_is_built(crawl_id)


def unlisted_crawl(crawl_id: str) -> Crawl | None:
    """Returns the crawl of an id that is valid although no list of crawls has it; ``None`` for other ids.

    Does not check that the crawl exists.
    """
    month = news_month(crawl_id)
    if month is not None:
        started = datetime(*month, 1, tzinfo=UTC)
        ended = (started + timedelta(days=31)).replace(day=1) - timedelta(seconds=1)
        return Crawl(crawl_id, f"CC-NEWS of {started:%B %Y}", started, ended, None)
    return crawl_of(crawl_id) if index_is_built(crawl_id) else None


def validate_crawl_id(text: str) -> str:
    """Returns ``text`` as a crawl id (``CC-MAIN-2024-22``; also for ``cc-main-2024-22`` and ``2024-22``).

    Raises ``UserInputError`` for text that cannot be one. Does not check that the crawl exists.
    """
    name = text.strip()
    if re.fullmatch(r"\d{4}(?:-\d{2,4})?", name):
        name = f"CC-MAIN-{name}"
    elif name[:3].lower() == "cc-":
        # the family is in capitals; a supplemental crawl may have another word after its week
        name = "-".join((*(part.upper() for part in name.split("-")[:2]), *name.split("-")[2:]))
    elif name[: len(LOCAL)].upper() == LOCAL:
        name = LOCAL + name[len(LOCAL) :]
    if name.startswith("CC-NEWS") and news_month(name) is None:
        raise UserInputError(f"{text[:80]!r} is no month of CC-NEWS; write a month from 2016 on, as in CC-NEWS-2026-05")
    if len(name) > _MAX_ID or not _ID.fullmatch(name):
        raise UserInputError(
            f"{text[:80]!r} is not a crawl id, such as CC-MAIN-2024-22. To list all crawls: {advise('crawls')}"
        )
    return name


def _read_entry(entry: Any) -> Crawl:
    if not isinstance(entry, dict):
        raise ValueError("is not an object")
    crawl_id = entry.get("id")
    if not isinstance(crawl_id, str) or len(crawl_id) > _MAX_ID or not _ID.fullmatch(crawl_id):
        raise ValueError(f"has no usable id ({str(crawl_id)[:40]!r})")
    weekly = _WEEKLY.fullmatch(crawl_id)
    if weekly is not None and (int(weekly[1]) not in _YEARS or not 1 <= int(weekly[2]) <= 53):
        raise ValueError(f"{crawl_id} names a year or week that no crawl can have")
    name, api = entry.get("name"), entry.get("cdx-api")
    started, ended = _read_time(entry.get("from")), _read_time(entry.get("to"))
    if started is not None and ended is not None and ended < started:
        raise ValueError(f"{crawl_id} ends before it starts")
    return Crawl(
        id=crawl_id,
        name=name if isinstance(name, str) and name else crawl_id,
        started=started,
        ended=ended,
        cdx_api=api if isinstance(api, str) and api else None,
    )


def _read_time(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.year not in _YEARS:
        raise ValueError(f"has the time {text.strip()[:40]!r}, which no crawl can have")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def age(crawl: Crawl) -> tuple[datetime, str]:
    """Returns the sort key of a crawl: its begin, or the week (for CC-NEWS the month) in its id."""
    month = news_month(crawl.id)
    if crawl.started is not None or month is not None:
        return crawl.started or datetime(*(month or (1, 1)), 1, tzinfo=UTC), crawl.id
    weekly = _WEEKLY.fullmatch(crawl.id)
    try:
        moment = datetime.fromisocalendar(int(weekly[1]), int(weekly[2]), 1) if weekly else None
    except ValueError:
        moment = None
    return moment.replace(tzinfo=UTC) if moment else datetime(1, 1, 1, tzinfo=UTC), crawl.id


def is_selection(text: str, crawls: Sequence[Crawl]) -> bool:
    """Whether ``text`` may select several crawls: ``all``, ``2018..2024``, or a year that is not a crawl's own id."""
    text = text.strip()
    if text.lower() == "all" or ".." in text:
        return True
    return bool(_YEAR.fullmatch(text)) and validate_crawl_id(text) not in {crawl.id for crawl in crawls}


def select(text: str, crawls: Sequence[Crawl], owner: str = "the source") -> tuple[Crawl, ...]:
    """Returns those of ``crawls`` (newest first) that match a selection, newest first.

    A selection is ``newest``; ``all``; an id; a year (``2018``); or a range, both ends included, each of which may be a
    year, a crawl or empty (``2018..2024``, ``2012..``, ``CC-MAIN-2018-05..2019``). A crawl belongs to the years that
    its id names. Raises ``UserInputError`` that lists what ``owner`` has, for a crawl that is not among ``crawls`` and
    if none matches; and for ends in the wrong order.
    """
    selection = text.strip()
    if selection.lower() == NEWEST:
        matching_crawls = tuple(crawls[:1])
    elif selection.lower() == "all":
        matching_crawls = tuple(crawls)
    elif not is_selection(selection, crawls):
        crawl_id = validate_crawl_id(selection)
        matching_crawls = tuple(crawl for crawl in crawls if crawl.id == crawl_id)
    else:
        first, dots, last = selection.partition("..")
        low, high = _bound(first, crawls, 0, owner), _bound(last if dots else first, crawls, 1, owner)
        if low is not None and high is not None and low > high:
            raise UserInputError(
                f"the range {text!r} begins after it ends; write the older crawl or year first: {last.strip()}..{first}"
            )
        matching_crawls = tuple(
            crawl
            for crawl in crawls
            if (low is None or _last(crawl) >= low) and (high is None or _first(crawl) <= high)
        )
    if not matching_crawls:
        raise _no_such_crawl(selection, crawls, owner)
    return matching_crawls


def _no_such_crawl(text: str, crawls: Sequence[Crawl], owner: str) -> UserInputError:
    shown = ", ".join(crawl.id for crawl in crawls[:_MAX_SHOWN_CRAWLS]) or "none"
    others = len(crawls) - _MAX_SHOWN_CRAWLS
    rest = f" and {others:,} older ones" if others > 0 else ""
    return UserInputError(f"{owner} has no crawl {text[:80]}; it has {shown}{rest}")


def estimate_capture_span(crawl: Crawl) -> Span:
    """Returns first and last moment of a crawl's captures (aware UTC): as listed, else by its id."""
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


def measure_gap(first: Span, second: Span) -> timedelta:
    """Returns the time between two spans: zero if they touch or overlap."""
    return max(timedelta(0), second[0] - first[1], first[0] - second[1])


def _bound(text: str, crawls: Sequence[Crawl], side: int, owner: str) -> tuple[int, datetime, str] | None:
    """Returns the least key of the crawls in the range (``side`` 0), or the greatest (1); ``None``: no bound."""
    text = text.strip()
    if not text:
        return None
    crawl_id = validate_crawl_id(text)
    crawl = next((listed_crawl for listed_crawl in crawls if listed_crawl.id == crawl_id), None)
    if crawl is not None and not _YEAR.fullmatch(text):
        return _first(crawl) if side else _last(crawl)
    if _YEAR.fullmatch(text):
        return (int(text), _END, "~" * 64) if side else (int(text), _BEGIN, "")
    raise _no_such_crawl(text, crawls, owner)


def _first(crawl: Crawl) -> tuple[int, datetime, str]:
    began = age(crawl)
    return (min(_years(crawl), default=began[0].year), *began)


def _last(crawl: Crawl) -> tuple[int, datetime, str]:
    began = age(crawl)
    return (max(_years(crawl), default=began[0].year), *began)


def _years(crawl: Crawl) -> list[int]:
    weekly = _WEEK.fullmatch(crawl.id)
    return [int(weekly[1])] if weekly else sorted(int(year) for year in _IN_ID.findall(crawl.id))


def crawl_of(crawl_id: str) -> Crawl:
    """Returns a crawl with only a known id."""
    return Crawl(crawl_id, crawl_id, None, None, None)


def known_at_release() -> tuple[Crawl, ...]:
    """Returns all crawls that were published on ``LIST_COMPARED_ON``, newest first, with only their ids."""
    years = [line.split() for line in _WEEKS.split("\n") if line]
    ids = [*ARC_CRAWLS, *(f"CC-MAIN-{year}-{week}" for year, *weeks in years for week in weeks)]
    return tuple(sorted((crawl_of(crawl_id) for crawl_id in ids), key=age, reverse=True))
