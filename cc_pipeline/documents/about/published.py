"""The dates of publication and of the last change, each with its source. A page states dates in many places, and many
are not its own.

Readers are tried from the most to the least certain; after an unreadable text the next one is tried.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from cc_pipeline.documents.about.nodes import Node, bare, listed
from cc_pipeline.documents.about.statements import Metas, Statements, Time
from cc_pipeline.documents.dates import Precision, parse_date, read_date

_DAY_AS_WRITTEN = re.compile(
    r"(?<!\d)(\d{4}-?\d\d-?\d\d)(?!\d)|\b([a-z]{3,9}\.? {0,2}\d{1,2}(?:st|nd|rd|th)?,? {1,2}\d{4})\b"
    r"|\b(\d{1,2}(?:st|nd|rd|th)?\.?[ -]{1,2}[a-z]{3,9}\.?,?[ -]{1,2}\d{4})\b",
    re.IGNORECASE,
)
#: The form of nearly all moments: it is tried first.
_PLAIN_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?!\d)")
_FIRST_MOMENT = date(1800, 1, 1)
#: Dates that programs write in place of an unknown date.
_NO_DATES = frozenset({date(1970, 1, 1)})
#: Clocks and zones differ: a page dated tomorrow is plausible.
_MOMENTS_AHEAD = timedelta(days=2)
_LAST_MOMENT = datetime(2100, 1, 1, tzinfo=UTC)
_IN_URL = re.compile(
    r"[/_.-]((?:19|20)\d\d)([/_.-]?)(0[1-9]|1[0-2]|[1-9](?=[/_.-])|[a-z]{3,9}(?=[/_.-]))\2"
    r"(0[1-9]|[12]\d|3[01]|[1-9](?!\d))(?=[/_.?-]|\Z)",
    re.IGNORECASE,
)
_URL_CHARS = 2_000
_FARTHEST_WEST, _FARTHEST_EAST = timedelta(hours=12), timedelta(hours=14)

#: Plain keys of ``meta`` tags (``Metas``), the most certain first.
_PUBLISHED_GRAPH = """
articlepublishedtime ogarticlepublishedtime articlepublished ogpublishedtime ogpubdate ogpublishdate
ogdatepublished articlepublicationdate articlepublisheddate vrpublishedtime rnewsdatepublished
shareaholicarticlepublishedtime videoreleasedate bookreleasedate datepublished dcdate dctermscreated dctermsissued
dcissued schemadatepublished articlepostdate articlecreated btpubdate ogregdate
""".split()
_PUBLISHED_NAMES = """
articlepublishedtime parselypubdate sailthrudate datepublished publisheddate publishdate publicationdate pubdate
dcdateissued dctermsissued dcissued dctermscreated dccreated dcdatecreated dctermsdate dcdatepublication dcdate
citationpublicationdate citationdate citationonlinedate originalpublicationdate articlepublished articlecreated
articledateoriginal btpubdate rbpubdate cxenseparserecspublishtime mediatorpublishedtime publishedtime publishtime
published datecreated dateposted displaydate docdate creationdate created articlepubdate contentcreatedate
dcsextarticlefirstpublished analyticsattributesarticledate shareaholicarticlepublishedtime ogpublishedtime pdate
ptime releasedate twtpublishedat date postdate newsdate issuedate firstpublished firstpublisheddate
""".split()
_MODIFIED_GRAPH = """
articlemodifiedtime ogarticlemodifiedtime ogmodifiedtime ogupdatedtime articlemodified articlemodifieddate
modifiedtime updatedtime datemodified dctermsmodified dcmodified schemadatemodified articlepostmodified btmoddate
""".split()
_MODIFIED_NAMES = """
articlemodifiedtime datemodified dctermsmodified dcmodified dcdatemodified lastmodified lastmod modificationdate
modified modifieddate modifiedtime dateupdated updated updatedtime lastupdate lastupdated revised revisiondate
rbmoddate btmoddate ogupdatedtime utime
""".split()
_PUBLISHED_LD = ("datePublished", "uploadDate", "dateCreated")
_MODIFIED_LD = ("dateModified",)
_PUBLISHED_KIND = ("publish", "pubdate", "posted", "entry-date", "post-date", "datecreated", "issued")
_MODIFIED_KIND = ("modif", "updated", "update")
#: ``time`` elements outside the page's own article.
_OTHER_KIND = ("comment", "related", "event")


class StatedDate(NamedTuple):
    """A moment in UTC, how exact it is (``dates.Precision``), and the day in the page's own zone."""

    moment: datetime
    precision: Precision
    day: date


def read_stated_date(text: object, fetched: datetime | None) -> StatedDate | None:
    """Returns the date in a text. ``None`` if it is no date, an ambiguous one, or impossible for a page fetched at
    ``fetched``."""
    parsed = read_date(text) if isinstance(text, str) else None
    if parsed is None or parsed.moment is None or parsed.precision is None:
        return None
    day = _day_as_written(parsed.text) if parsed.precision == "moment" else parsed.moment.date()
    if day is None or abs(day - parsed.moment.date()) > timedelta(days=1):
        day = parsed.moment.date()
    if (
        day < _FIRST_MOMENT
        or day in _NO_DATES
        or parsed.moment > (fetched + _MOMENTS_AHEAD if fetched is not None else _LAST_MOMENT)
    ):
        return None
    return StatedDate(parsed.moment, parsed.precision, day)


def _day_as_written(text: str) -> date | None:
    if plain := _PLAIN_DAY.match(text):
        with contextlib.suppress(ValueError):
            return date.fromisoformat(plain[0])
    match = _DAY_AS_WRITTEN.search(text)
    moment = parse_date(match.group(match.lastindex or 0)) if match else None
    return moment.date() if moment else None


def _on_day_of_url(date_: StatedDate, url: str) -> StatedDate:
    """Gives a moment that is stated in UTC the day in the page's address, if it is that day in some time zone."""
    moment, day = date_.moment, read_url_day(url)
    in_utc = date_.precision == "moment" and date_.day == moment.date()
    if day and in_utc and (moment - _FARTHEST_WEST).date() <= day <= (moment + _FARTHEST_EAST).date():
        return date_._replace(day=day)
    return date_


def read_url_day(url: str) -> date | None:
    """Returns the day in a URL's path, as news sites write it."""
    _, _, path = url[:_URL_CHARS].partition("://")
    for year, _, month, day in _IN_URL.findall(path):
        moment = parse_date(f"{year}-{month:0>2}-{day:0>2}" if month.isdigit() else f"{day} {month} {year}")
        if moment:
            return moment.date()
    return None


class SourcedDate(NamedTuple):
    """A date and the reader that found it."""

    stated_date: StatedDate
    source: str


def published(statements: Statements, url: str, fetched: datetime | None) -> SourcedDate | None:
    """Returns the first date of publication that is readable and possible for a page fetched at ``fetched``."""
    publication = _first_possible(_published(statements, fetched), fetched)
    return publication and publication._replace(stated_date=_on_day_of_url(publication.stated_date, url))


def modified(statements: Statements, fetched: datetime | None) -> SourcedDate | None:
    """Returns the first date of the last change that is readable and possible."""
    return _first_possible(_modified(statements, fetched), fetched)


def _first_possible(stated_texts: Iterable[tuple[str, Any]], fetched: datetime | None) -> SourcedDate | None:
    for source, text in stated_texts:
        if stated_date := read_stated_date(text, fetched):
            return SourcedDate(stated_date, source)
    return None


def _published(statements: Statements, fetched: datetime | None) -> Iterator[tuple[str, Any]]:
    yield from _read_node_dates("json-ld", statements.nodes.about_page, _PUBLISHED_LD)
    yield from _read_meta_dates(statements.metas, _PUBLISHED_GRAPH, _PUBLISHED_NAMES)
    yield from _read_node_dates("microdata", statements.items, _PUBLISHED_LD)
    yield from _read_times((time for time in statements.times if time.has(_PUBLISHED_KIND)), fetched)
    yield from _read_times((time for time in statements.times if not time.has(_MODIFIED_KIND)), fetched)


def _modified(statements: Statements, fetched: datetime | None) -> Iterator[tuple[str, Any]]:
    yield from _read_node_dates("json-ld", statements.nodes.about_page, _MODIFIED_LD)
    yield from _read_meta_dates(statements.metas, _MODIFIED_GRAPH, _MODIFIED_NAMES)
    yield from _read_node_dates("microdata", statements.items, _MODIFIED_LD)
    yield from _read_times((time for time in statements.times if time.has(_MODIFIED_KIND)), fetched)


def _read_node_dates(source: str, nodes: Iterable[Node], names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for node in nodes:
        for name in names:
            for value in listed(node.get(name)):
                yield source, bare(value)


def _read_meta_dates(metas: Metas, graph: list[str], names: list[str]) -> Iterator[tuple[str, Any]]:
    for key in filter(metas.graph.__contains__, graph):
        for text in metas.graph[key]:
            yield "open-graph" if key.startswith(("article", "og", "video", "book")) else "meta", text
    for key in filter(metas.names.__contains__, names):
        for text in metas.names[key]:
            yield "meta", text


def _read_times(times: Iterable[Time], fetched: datetime | None) -> Iterator[tuple[str, Any]]:
    """Yields the ``time`` elements if they name one day: those of a list name the days of other pages."""
    own_times = [time for time in times if not time.has(_OTHER_KIND)]
    if len({date.day for time in own_times if (date := read_stated_date(time.datetime, fetched))}) == 1:
        yield from (("time", time.datetime) for time in own_times)
