"""What a page states about itself in its marks: headings, times, refreshes, items of microdata, and ``meta`` tags by
key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from cc_pipeline.documents.about.microdata import Microdata, Reading, written
from cc_pipeline.documents.about.nodes import Node as Item
from cc_pipeline.documents.about.nodes import Nodes, plain_text
from cc_pipeline.documents.html.marks import Mark, WalkedPage
from cc_pipeline.documents.html.tags import IS_INERT, IS_UNSEEN
from cc_pipeline.documents.html.urls import Resolved
from cc_pipeline.documents.page import Limits

_MAX_SAME = 50

_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_MAX_HEADINGS = 500
_HEADING_CHARS = 1_000
_MAX_TIMES = 50
_MAX_ITEMS = 500
_DEPTH = 16


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """``DC.date-issued`` and ``dc:date_issued`` as ``dcdateissued``."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


class Metas:
    """Contents by plain key, in the order of the page; ``graph`` of tags with ``property``, ``names`` of those with
    ``name`` or ``http-equiv``. Tags with ``itemprop`` are microdata, which may describe something else on the page."""

    def __init__(self, tags: Iterable[Mapping[str, Any]]) -> None:
        self.graph: dict[str, list[str]] = {}
        self.names: dict[str, list[str]] = {}
        for tag in tags:
            content = tag["content"]
            if not content or content.isspace():
                continue
            attributes = tag["attributes"]
            if properties := attributes.get("property"):
                for key in properties.split()[:4]:
                    _put(self.graph, key, content)
            for attribute in ("name", "http-equiv"):
                if key := attributes.get(attribute):
                    _put(self.names, key, content)

    def first_text(self, keys: Iterable[str]) -> str | None:
        """Returns the text of the first key that has one."""
        for key in keys:
            for content in (*self.graph.get(key, ()), *self.names.get(key, ())):
                if text := plain_text(content):
                    return text
        return None


def _put(contents_by_key: dict[str, list[str]], key: str, content: str) -> None:
    contents = contents_by_key.setdefault(plain(key[:100]), [])
    if len(contents) < _MAX_SAME:
        contents.append(content)


class Time(NamedTuple):
    """A ``time`` element: its value, and its names of class, property and element."""

    datetime: str
    kind: str

    def has(self, words: Iterable[str]) -> bool:
        """Whether one of its names has one of the words in it."""
        return any(word in self.kind for word in words)


class Structured(NamedTuple):
    """An item of microdata, or a JSON-LD document, as compact JSON."""

    syntax: str
    types: list[str]
    value: str


class Facts:
    """The headings that a page shows, its times, the contents of its refreshes, and its microdata."""

    def __init__(self, page: WalkedPage, resolve: Callable[[str], Resolved], limits: Limits) -> None:
        self.reading = Reading(page, limits)
        self.headings: list[dict[str, Any]] = []
        self.times: list[Time] = []
        self.refreshes: list[str] = []
        items = Microdata(self.reading, resolve)
        for mark in page.facts:
            if mark.state & IS_INERT:  # browsers that run scripts do not see it
                continue
            if mark.tag in _HEADINGS and not mark.state & IS_UNSEEN:
                self._read_heading(mark)
            elif mark.tag == "time":
                self._read_time(mark)
            elif mark.tag == "meta" and mark.attributes.get("http-equiv", "").lower() == "refresh":
                self.refreshes.append(mark.attributes.get("content", ""))
        self.microdata, self.loose = items.items[:_MAX_ITEMS], items.loose
        self.reading.cut |= len(items.items) > _MAX_ITEMS

    def structured(self) -> list[Structured]:
        """Returns the items of microdata as JSON texts, in the order of the page."""
        structured_items = []
        seen: set[int] = set()
        for item in self.microdata:
            if item.keys() - {"@id"}:
                value = json.dumps(written(item, _DEPTH, seen, self.reading), ensure_ascii=False, separators=(",", ":"))
                structured_items.append(Structured("microdata", item.get("@type", []), value))
        return structured_items

    def _read_heading(self, mark: Mark) -> None:
        if len(self.headings) >= _MAX_HEADINGS:
            self.reading.cut = True
        elif text := self.reading.text_of(mark, _HEADING_CHARS):
            self.headings.append({"level": _HEADINGS[mark.tag], "text": text})

    def _read_time(self, mark: Mark) -> None:
        if len(self.times) >= _MAX_TIMES:
            return
        attributes = mark.attributes
        kind = " ".join(attributes.get(name, "") for name in ("class", "itemprop", "id"))[:200].lower()
        if "pubdate" in attributes:
            kind += " published"
        if value := attributes.get("datetime") or self.reading.page.spaced_text_of(mark, 100):
            self.times.append(Time(value, kind))


class Statements(NamedTuple):
    """Where a page states dates and authors: JSON-LD, microdata (items about the page, then properties outside of
    items), ``meta`` tags and ``time`` elements."""

    nodes: Nodes
    items: list[Item]
    metas: Metas
    times: list[Time]
