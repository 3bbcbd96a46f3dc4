"""The dates of publication and of the last change, each with its source. A page states dates in many places, and many
are not its own.

Readers are tried from the most to the least certain; after an unreadable text the next one is tried.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from lxml import html

from cc_pipeline.documents.about.marks import Marks, Metas, Time
from cc_pipeline.documents.about.microdata import about_page
from cc_pipeline.documents.about.nodes import Nodes
from cc_pipeline.documents.dates import Precision, parse_date, read_date

#: Characters of a page that htmldate gets: its regular expressions take a second for a few megabytes.
_MAX_CHARS = 256 * 1024
#: Short texts with digits that htmldate may try to read in every language, five milliseconds each.
_MAX_TEXTS = 50
_SHORT = 64
_FIRST_GUESS = "1995-01-01"
_LAST_GUESS = "2099-12-31"
_GUESSES_AHEAD = timedelta(days=1)


_DIGIT = re.compile(r"\d")
#: The source of a guessed date.
MARKUP, TEXT = "htmldate", "htmldate-text"
#: Languages whose dates are read in texts. htmldate asks dateparser for all of its 205, whose tables take three
#: seconds and 40 MB in every process.
LANGUAGES = """
en de fr es it pt nl pl ru uk cs sv da nb fi hu ro el tr ar fa hi id vi zh ja ko
"""

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
#: A page with more ``time`` elements is a list of other pages.
_MAX_TIMES = 12


@lru_cache(maxsize=1)
def _find_date() -> Any:
    import htmldate  # noqa: PLC0415 - slow to import, for pages without a date only
    from htmldate import extractors  # noqa: PLC0415

    for name in ("htmldate", "dateparser"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.suppress(AttributeError):  # a version without this parser reads all languages
        extractors.get_external_parser().languages = LANGUAGES.split()
    return htmldate.find_date


def guessed_date(markup: str, url: str, fetched: datetime | None, *, article: bool) -> tuple[date, str] | None:
    """Returns a day and its source: ``htmldate`` for the markup, ``htmldate-text`` for the text.

    The text is searched only if ``article`` is true: other pages are full of dates of other pages. Never raises.
    """
    parser = html.HTMLParser(encoding="utf-8", collect_ids=False, remove_comments=True, remove_pis=True)
    latest = _LAST_GUESS if fetched is None else (fetched + _GUESSES_AHEAD).date().isoformat()
    with contextlib.suppress(Exception):  # htmldate and lxml raise many errors on hostile pages
        tree = html.document_fromstring(markup[:_MAX_CHARS].encode("utf-8", "replace"), parser=parser)
        for source, extensive in ((MARKUP, False), (TEXT, True))[: 1 + article]:
            if extensive:
                bound_texts(tree)
            iso_day = _find_date()(
                tree, extensive_search=extensive, original_date=True, url=url, min_date=_FIRST_GUESS, max_date=latest
            )
            if iso_day:
                return date.fromisoformat(iso_day), source
    return None


def bound_texts(tree: html.HtmlElement) -> None:
    """Removes all but the first ``_MAX_TEXTS`` short texts with digits."""
    count = 0
    for element in tree.iter():
        for place in ("text", "tail"):
            text = getattr(element, place)
            if text and len(text.strip()) <= _SHORT and _DIGIT.search(text):
                count += 1
                if count > _MAX_TEXTS:
                    setattr(element, place, None)


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


def read_url_date(url: str, fetched: datetime | None) -> StatedDate | None:
    """Returns the day in a URL's path, as news sites write it."""
    _, _, path = url[:_URL_CHARS].partition("://")
    for year, _, month, day in _IN_URL.findall(path):
        day_in_path = f"{year}-{month:0>2}-{day:0>2}" if month.isdigit() else f"{day} {month} {year}"
        if url_date := read_stated_date(day_in_path, fetched):
            return url_date
    return None


def on_day(day: date, guessed: bool) -> StatedDate:
    """Returns a day as midnight in UTC. If it is ``guessed``, the first of a month means the month or the year."""
    precision: Precision = "day"
    if guessed and day.day == 1:
        precision = "year" if day.month == 1 else "month"
    return StatedDate(datetime(day.year, day.month, day.day, tzinfo=UTC), precision, day)


class SourcedDate(NamedTuple):
    """A date and the reader that found it."""

    stated_date: StatedDate
    source: str


def published(nodes: Nodes, metas: Metas, marks: Marks, url: str, fetched: datetime | None) -> SourcedDate | None:
    """Returns the first date of publication that is readable and possible for a page fetched at ``fetched``.

    A page gets its address when it is published. So a day in the address overrules dates more than a day from it: they
    belong to another page, a later edition, or the template.
    """
    day = read_url_date(url, fetched)
    for source, text in _published(nodes, metas, marks):
        stated_date = read_stated_date(text, fetched)
        if stated_date and (day is None or abs((stated_date.day - day.day).days) <= 1):
            # the moment may be stated in another zone than the page's own
            return SourcedDate(stated_date if day is None else stated_date._replace(day=day.day), source)
    return SourcedDate(day, "url") if day else None


def modified(nodes: Nodes, metas: Metas, marks: Marks, fetched: datetime | None) -> SourcedDate | None:
    """Returns the first date of the last change that is readable and possible."""
    for source, text in _modified(nodes, metas, marks):
        if stated_date := read_stated_date(text, fetched):
            return SourcedDate(stated_date, source)
    return None


def _published(nodes: Nodes, metas: Metas, marks: Marks) -> Iterator[tuple[str, Any]]:
    yield from _read_node_dates(nodes, _PUBLISHED_LD)
    yield from _read_meta_dates(metas, _PUBLISHED_GRAPH, _PUBLISHED_NAMES)
    yield from _read_item_dates(marks, _PUBLISHED_LD)
    yield from _read_time_dates(marks.times, _PUBLISHED_KIND)
    yield from _near_heading(marks.times)


def _modified(nodes: Nodes, metas: Metas, marks: Marks) -> Iterator[tuple[str, Any]]:
    yield from _read_node_dates(nodes, _MODIFIED_LD)
    yield from _read_meta_dates(metas, _MODIFIED_GRAPH, _MODIFIED_NAMES)
    yield from _read_item_dates(marks, _MODIFIED_LD)
    yield from _read_time_dates(marks.times, _MODIFIED_KIND)


def _read_node_dates(nodes: Nodes, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for node in nodes.about_page:
        for name in names:
            value = node.get(name)
            for date_value in value[:4] if isinstance(value, list) else [value]:
                yield "json-ld", date_value.get("@value") if isinstance(date_value, dict) else date_value


def _read_meta_dates(metas: Metas, graph: list[str], names: list[str]) -> Iterator[tuple[str, Any]]:
    for key in filter(metas.graph.__contains__, graph):
        for text in metas.graph[key]:
            yield "open-graph" if key.startswith(("article", "og", "video", "book")) else "meta", text
    for key in filter(metas.names.__contains__, names):
        for text in metas.names[key]:
            yield "meta", text


def _read_item_dates(marks: Marks, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for properties in (*(item["properties"] for item in about_page(marks.microdata)), marks.loose):
        for name in names:
            for text in properties.get(name, ()):
                yield "microdata", text


def _read_time_dates(times: list[Time], kind_words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for time in times:
        if any(word in time.kind for word in kind_words) and not any(word in time.kind for word in _OTHER_KIND):
            yield "time", time.datetime


def _near_heading(times: list[Time]) -> Iterator[tuple[str, Any]]:
    """Yields the ``time`` elements by their distance from the page's main heading."""
    article_times = [time for time in times if not any(word in time.kind for word in (*_OTHER_KIND, *_MODIFIED_KIND))]
    if len(article_times) <= _MAX_TIMES:
        after_heading = [time for time in article_times if time.headings == 1]
        for time in (*after_heading, *reversed([time for time in article_times if time.headings == 0])):
            yield "time", time.datetime
