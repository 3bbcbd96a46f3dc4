"""Crawls: their ids, the list of them (``collinfo.json``), and what is peculiar about some."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from cc_pipeline.errors import DataFault, DataKind, UserInputError

Era = Literal["columnar", "arc", "built"]

#: The parts of a crawl that the columnar index keeps apart.
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
#: What the id of a collection of archive files begins with that a person named.
LOCAL: Final = "LOCAL-"

_ID = re.compile(r"[A-Z0-9][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*")
_WEEKLY = re.compile(r".*?-(\d{4})-(\d{2})(?:-.*)?")
_MAX_ID = 64
#: There were some 120 crawls in 18 years.
MAX_CRAWLS: Final = 10_000
#: Common Crawl began in 2007; a crawl of a year far from now would pass for the newest or the oldest.
_YEARS: Final = range(2007, 2101)


@dataclass(frozen=True, slots=True)
class Crawl:
    """One crawl. ``started`` and ``ended`` are aware UTC and tell when its captures were made, ``None`` if unknown;
    ``cdx_api`` is the address of its CDX server, if it has one."""

    id: str
    name: str
    started: datetime | None
    ended: datetime | None
    cdx_api: str | None

    @property
    def era(self) -> Era:
        """``arc`` for the crawls before 2013, ``built`` where nobody publishes an index, so that one is built here;
        unknown families are taken to have a columnar index."""
        if index_is_built(self.id):
            return "built"
        return "arc" if self.id in ARC_CRAWLS else "columnar"


@dataclass(frozen=True, slots=True)
class CrawlList:
    """A collinfo read: its crawls, newest first, and what was wrong with entries that are not among them."""

    crawls: tuple[Crawl, ...]
    faults: tuple[DataFault, ...]


def parse_collinfo(data: bytes, source: str = "collinfo.json") -> tuple[Crawl, ...]:
    """The crawls of a ``collinfo.json``, newest first. Unknown fields and unknown families of ids are accepted.

    Raises ``DataFault`` when the file is not a JSON list, or when none of its entries can be used.
    """
    read = read_collinfo(data, source)
    if read.faults and not read.crawls:
        raise read.faults[0]
    return read.crawls


def read_collinfo(data: bytes, source: str = "collinfo.json") -> CrawlList:
    """The same with the faults of single entries: no id, or years and weeks in which no crawl can be.

    Raises ``DataFault`` when it is no JSON list at all, or ``TOO_LARGE`` for a number of thousands of digits, for
    nesting, and for more than ``MAX_CRAWLS`` entries.

    Format: a list of ``{id, name, timegate, cdx-api, from, to}``; the times are ISO 8601 without a zone and mean UTC.
    """
    try:
        entries: Any = json.loads(data)
    except UnicodeDecodeError as fault:
        raise DataFault(DataKind.MALFORMED, source, fault.start, "is not UTF-8 text") from fault
    except json.JSONDecodeError as fault:
        raise DataFault(DataKind.MALFORMED, source, fault.pos, f"is not JSON: {fault.msg}") from fault
    except ValueError as fault:  # Python converts no number of more than 4,300 digits
        raise DataFault(DataKind.TOO_LARGE, source, None, "has a number of thousands of digits") from fault
    except RecursionError as fault:
        raise DataFault(DataKind.TOO_LARGE, source, None, "is nested deeper than any list of crawls") from fault
    if not isinstance(entries, list):
        raise DataFault(DataKind.MALFORMED, source, 0, "is not a list of crawls")
    if len(entries) > MAX_CRAWLS:
        raise DataFault(DataKind.TOO_LARGE, source, None, f"lists {len(entries)} crawls, more than {MAX_CRAWLS}")
    crawls: dict[str, Crawl] = {}
    faults: list[DataFault] = []
    for number, entry in enumerate(entries):
        try:
            crawl = _read_entry(entry)
        except ValueError as wrong:
            faults.append(DataFault(DataKind.MALFORMED, source, None, f"entry {number}: {wrong}"))
        else:
            crawls.setdefault(crawl.id, crawl)
    return CrawlList(tuple(sorted(crawls.values(), key=age, reverse=True)), tuple(faults))


def news_month(crawl_id: str) -> tuple[int, int] | None:
    """Year and month of ``CC-NEWS-YYYY-MM``, ``None`` for every other id."""
    found = _NEWS.fullmatch(crawl_id)
    if found is None or int(found[1]) not in _NEWS_YEARS or not 1 <= int(found[2]) <= 12:
        return None
    return int(found[1]), int(found[2])


def index_is_built(crawl_id: str) -> bool:
    """Whether nobody publishes an index of this crawl, so that one is built here, in the lake's own place: months of
    CC-NEWS, and collections of archive files that a person named."""
    return crawl_id.startswith(LOCAL) or news_month(crawl_id) is not None


def has_subsets(crawl_id: str) -> bool:
    """Whether a crawl keeps subsets apart: those of the ARC years and those whose index is built here do not."""
    return crawl_id not in ARC_CRAWLS and not index_is_built(crawl_id)


def unlisted_crawl(crawl_id: str) -> Crawl | None:
    """The crawl behind an id that no list of crawls has and that means one all the same; ``None`` for other ids.

    Whether there is such a crawl is another question.
    """
    month = news_month(crawl_id)
    if month is not None:
        started = datetime(*month, 1, tzinfo=UTC)
        ended = (started + timedelta(days=31)).replace(day=1) - timedelta(seconds=1)
        return Crawl(crawl_id, f"CC-NEWS of {started:%B %Y}", started, ended, None)
    return Crawl(crawl_id, crawl_id, None, None, None) if index_is_built(crawl_id) else None


def validate_crawl_id(text: str) -> str:
    """``text`` as a crawl id (``CC-MAIN-2024-22``; ``cc-main-2024-22`` and ``2024-22`` mean it too).

    Raises ``UserInputError`` for text that cannot be one. Whether such a crawl exists is another question.
    """
    name = text.strip()
    if re.fullmatch(r"\d{4}(?:-\d{2,4})?", name):
        name = f"CC-MAIN-{name}"
    elif name[:3].lower() == "cc-":
        # the family is in capitals; a supplemental crawl may have a word of its own behind its week
        name = "-".join((*(part.upper() for part in name.split("-")[:2]), *name.split("-")[2:]))
    elif name[: len(LOCAL)].upper() == LOCAL:
        name = LOCAL + name[len(LOCAL) :]
    if name.startswith("CC-NEWS") and news_month(name) is None:
        raise UserInputError(f"{text[:80]!r} is no month of CC-NEWS; they look like CC-NEWS-2026-05, from 2016 on")
    if len(name) > _MAX_ID or not _ID.fullmatch(name):
        raise UserInputError(
            f"{text[:80]!r} is not a crawl id; they look like CC-MAIN-2024-22. To list all: cc-pipeline crawls"
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
        raise ValueError(f"says the time {text.strip()[:40]!r}, which no crawl can have")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def age(crawl: Crawl) -> tuple[datetime, str]:
    """What crawls are sorted by: when it began, or the week (of CC-NEWS the month) in its id."""
    month = news_month(crawl.id)
    if crawl.started is not None or month is not None:
        return crawl.started or datetime(*(month or (1, 1)), 1, tzinfo=UTC), crawl.id
    weekly = _WEEKLY.fullmatch(crawl.id)
    try:
        moment = datetime.fromisocalendar(int(weekly[1]), int(weekly[2]), 1) if weekly else None
    except ValueError:
        moment = None
    return moment.replace(tzinfo=UTC) if moment else datetime(1, 1, 1, tzinfo=UTC), crawl.id
