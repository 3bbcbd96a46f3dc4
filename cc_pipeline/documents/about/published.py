"""When a page says it was published and changed, and where it says so.

Readers are tried from the most to the least certain; one whose text cannot be read gives way to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from cc_pipeline.documents.about.marks import Marks, Time
from cc_pipeline.documents.about.metas import Metas
from cc_pipeline.documents.about.microdata import Item, about_page
from cc_pipeline.documents.about.moments import Stated, in_url, stated
from cc_pipeline.documents.about.nodes import Nodes

#: Plain keys of ``meta`` tags (metas.py), the most certain first.
_PUBLISHED_GRAPH = """
articlepublishedtime ogarticlepublishedtime articlepublished ogpublishedtime ogpubdate ogpublishdate
ogdatepublished articlepublicationdate articlepublisheddate vrpublishedtime rnewsdatepublished
shareaholicarticlepublishedtime videoreleasedate bookreleasedate datepublished dcdate dctermscreated dctermsissued
dcissued schemadatepublished articlepostdate articlecreated btpubdate ogregdate
"""
_PUBLISHED_NAMES = """
articlepublishedtime parselypubdate sailthrudate datepublished publisheddate publishdate publicationdate pubdate
dcdateissued dctermsissued dcissued dctermscreated dccreated dcdatecreated dctermsdate dcdatepublication dcdate
citationpublicationdate citationdate citationonlinedate originalpublicationdate articlepublished articlecreated
articledateoriginal btpubdate rbpubdate cxenseparserecspublishtime mediatorpublishedtime publishedtime publishtime
published datecreated dateposted displaydate docdate creationdate created articlepubdate contentcreatedate
dcsextarticlefirstpublished analyticsattributesarticledate shareaholicarticlepublishedtime ogpublishedtime pdate
ptime releasedate twtpublishedat date postdate newsdate issuedate firstpublished firstpublisheddate
"""
_MODIFIED_GRAPH = """
articlemodifiedtime ogarticlemodifiedtime ogmodifiedtime ogupdatedtime articlemodified articlemodifieddate
modifiedtime updatedtime datemodified dctermsmodified dcmodified schemadatemodified articlepostmodified btmoddate
"""
_MODIFIED_NAMES = """
articlemodifiedtime datemodified dctermsmodified dcmodified dcdatemodified lastmodified lastmod modificationdate
modified modifieddate modifiedtime dateupdated updated updatedtime lastupdate lastupdated revised revisiondate
rbmoddate btmoddate ogupdatedtime utime
"""
_PUBLISHED_LD = ("datePublished", "uploadDate", "dateCreated")
_MODIFIED_LD = ("dateModified",)
_IN_DC = ("http://purl.org/dc/terms/", "http://purl.org/dc/elements/1.1/")
_PUBLISHED_KIND = ("publish", "pubdate", "posted", "entry-date", "post-date", "datecreated", "issued")
_MODIFIED_KIND = ("modif", "updated", "update")
#: ``time`` elements of what is not the page's own article.
_OTHER_KIND = ("comment", "related", "event")
#: A page with more of them is a list of other pages.
_MOST_TIMES = 12


class When(NamedTuple):
    """A date and the reader that found it."""

    stated: Stated
    source: str


def published(nodes: Nodes, metas: Metas, marks: Marks, url: str, fetched: datetime | None) -> When | None:
    """The first date of publication that can be read, and be true of a page fetched then.

    A page gets its address when it is published. So a day in the address overrules dates more than a day from it: those
    are of another page, of a later edition, or of the template.
    """
    day = in_url(url, fetched)
    for source, text in _published(nodes, metas, marks):
        found = stated(text, fetched)
        if found and (day is None or abs((found.day - day.day).days) <= 1):
            # the moment may be stated in another zone than the page's own
            return When(found if day is None else found._replace(day=day.day), source)
    return When(day, "url") if day else None


def modified(nodes: Nodes, metas: Metas, marks: Marks, fetched: datetime | None) -> When | None:
    """The first date of the last change that can be read and be true."""
    for source, text in _modified(nodes, metas, marks):
        if found := stated(text, fetched):
            return When(found, source)
    return None


def _published(nodes: Nodes, metas: Metas, marks: Marks) -> Iterator[tuple[str, Any]]:
    yield from _of_nodes(nodes, _PUBLISHED_LD)
    yield from _of_metas(metas, _PUBLISHED_GRAPH.split(), _PUBLISHED_NAMES.split())
    yield from _of_items(marks, _PUBLISHED_LD, ("issued", "created", "date", "published"))
    yield from _of_times(marks.times, _PUBLISHED_KIND, ())
    yield from _near_heading(marks.times)


def _modified(nodes: Nodes, metas: Metas, marks: Marks) -> Iterator[tuple[str, Any]]:
    yield from _of_nodes(nodes, _MODIFIED_LD)
    yield from _of_metas(metas, _MODIFIED_GRAPH.split(), _MODIFIED_NAMES.split())
    yield from _of_items(marks, _MODIFIED_LD, ("modified",))
    yield from _of_times(marks.times, _MODIFIED_KIND, ())


def _of_nodes(nodes: Nodes, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for node in nodes.about_page:
        for name in names:
            value = node.get(name)
            for each in value[:4] if isinstance(value, list) else [value]:
                yield "json-ld", each.get("@value") if isinstance(each, dict) else each


def _of_metas(metas: Metas, graph: list[str], names: list[str]) -> Iterator[tuple[str, Any]]:
    for key in graph:
        for text in metas.graph.get(key, ()):
            yield "open-graph" if key.startswith(("article", "og", "video", "book")) else "meta", text
    for key in names:
        for text in metas.names.get(key, ()):
            yield "meta", text


def _of_items(marks: Marks, names: tuple[str, ...], dublin: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    yield from (("microdata", text) for text in _stated_by(marks.microdata, marks.loose, names))
    everywhere = [f"{scheme}://schema.org/{name}" for name in names for scheme in ("http", "https")]
    everywhere += [space + name for name in dublin for space in _IN_DC]
    yield from (("rdfa", text) for text in _stated_by(marks.rdfa, marks.loose_rdfa, tuple(everywhere)))


def _stated_by(items: list[Item], loose: dict[str, list[Any]], names: tuple[str, ...]) -> Iterator[Any]:
    for properties in (*(item["properties"] for item in about_page(items)), loose):
        for name in names:
            yield from properties.get(name, ())


def _of_times(times: list[Time], wanted: tuple[str, ...], other: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for time in times:
        kind = time.kind
        if any(word in kind for word in wanted) and not any(word in kind for word in (*_OTHER_KIND, *other)):
            yield "time", time.datetime


def _near_heading(times: list[Time]) -> Iterator[tuple[str, Any]]:
    """``time`` elements by their distance from the page's main heading."""
    own = [time for time in times if not any(word in time.kind for word in (*_OTHER_KIND, *_MODIFIED_KIND))]
    if len(own) <= _MOST_TIMES:
        behind = [time for time in own if time.headings == 1]
        for time in (*behind, *reversed([time for time in own if time.headings == 0])):
            yield "time", time.datetime
