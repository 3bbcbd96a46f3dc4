"""Facts about a page are spread over it, and parsing takes the tree apart. So one pass over the whole tree collects
all that their readers need: headings, times, items, and ``meta`` tags by key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.about.budget import Reading
from cc_pipeline.documents.about.microdata import Microdata, written
from cc_pipeline.documents.about.nodes import Node as Item
from cc_pipeline.documents.about.nodes import Nodes, plain_text
from cc_pipeline.documents.html.scan import Node, Rule, Selection, selected
from cc_pipeline.documents.html.urls import Resolved
from cc_pipeline.documents.page import Limits

_MAX_SAME = 50

_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_MAX_HEADINGS = 500
_HEADING_CHARS = 1_000
_MAX_TIMES = 50
_MAX_ITEMS = 500
_DEPTH = 16
_MARKED_ELEMENTS = Selection(
    (*_HEADINGS, "time"),
    (
        Rule("itemscope"),
        Rule("itemprop"),
        Rule("http-equiv", "=", "refresh"),
    ),
)


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


class Marks:
    """The facts that ``collect`` collected; nodes of the tree are not kept."""

    def __init__(self, limits: Limits) -> None:
        self.reading = Reading(limits)
        self.headings: list[dict[str, Any]] = []
        self.times: list[Time] = []
        self.refresh: str | None = None
        self.microdata: list[Item] = []
        self.loose: dict[str, list[Any]] = {}

    def collect(self, tree: LexborHTMLParser, resolve: Callable[[str], Resolved]) -> None:
        """Reads the tree."""
        reading = self.reading
        items = Microdata(reading, resolve)
        marked_nodes = []
        for node in selected(tree, _MARKED_ELEMENTS):
            if not reading.node():
                break
            attributes = node.attributes
            marked_nodes.append((node, node.tag or "", attributes))
            if "itemscope" in attributes:
                items.refer(attributes, node)
        for node, tag, attributes in marked_nodes:
            if tag in _HEADINGS:
                self._heading(node, _HEADINGS[tag])
            elif tag == "time":
                self._time(node, attributes)
            elif tag == "meta" and self.refresh is None and (attributes.get("http-equiv") or "").lower() == "refresh":
                self._refresh(node, attributes)
            if "itemprop" in attributes or "itemscope" in attributes:
                items.add(node, tag, attributes)
        self.microdata, self.loose = items.items[:_MAX_ITEMS], items.loose
        reading.cut |= len(items.items) > _MAX_ITEMS

    def structured(self) -> list[Structured]:
        """Returns the items of microdata as JSON texts, in the order of the page."""
        structured_items = []
        seen: set[int] = set()
        for item in self.microdata:
            if item.keys() - {"@id"}:
                value = json.dumps(written(item, _DEPTH, seen, self.reading), ensure_ascii=False, separators=(",", ":"))
                structured_items.append(Structured("microdata", item.get("@type", []), value))
        return structured_items

    def _heading(self, node: Node, level: int) -> None:
        if len(self.headings) >= _MAX_HEADINGS:
            self.reading.cut = True
        elif text := self.reading.text(node, _HEADING_CHARS):
            self.headings.append({"level": level, "text": text})

    def _time(self, node: Node, attributes: dict[str, str | None]) -> None:
        if len(self.times) >= _MAX_TIMES:
            return
        kind = " ".join(attributes.get(name) or "" for name in ("class", "itemprop", "id"))[:200].lower()
        if "pubdate" in attributes:
            kind += " published"
        if value := attributes.get("datetime") or self.reading.text(node, 100, is_spaced=True):
            self.times.append(Time(value, kind))

    def _refresh(self, node: Node, attributes: dict[str, str | None]) -> None:
        parent = node.parent
        # browsers that run scripts ignore a ``noscript``
        if parent is None or parent.tag != "noscript":
            self.refresh = attributes.get("content")


class Statements(NamedTuple):
    """Where a page states dates and authors: JSON-LD, microdata (items about the page, then properties outside of
    items), ``meta`` tags and ``time`` elements."""

    nodes: Nodes
    items: list[Item]
    metas: Metas
    times: list[Time]
