"""Microdata items, as the WHATWG's JSON of them: ``type``, ``id`` and ``properties``, a list of values a name.

The elements come from one look at the tree (``marks.py``). Whose property an element is is found by going up to the
nearest item; what was found on the way is kept, so that a page costs no more than its nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selectolax.lexbor import LexborNode

from cc_pipeline.documents.about.nodes import alone, is_article, is_other, kinds_of
from cc_pipeline.documents.about.reading import Reading
from cc_pipeline.documents.html.urls import Resolved

Item = dict[str, Any]

#: The attribute that holds the value of such an element, as an address.
URL_ATTRIBUTE = {
    "a": "href",
    "area": "href",
    "link": "href",
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "source": "src",
    "track": "src",
    "video": "src",
    "object": "data",
}
_MAX_NAMES = 16
_MAX_REFERENCES = 32
_MAX_ABOUT = 500
_NESTED = 3


class Microdata:
    """Collects items and their properties; ``add`` wants the elements in document order.

    ``items`` are the top-level ones, ``loose`` the properties outside any item, name to values.
    """

    def __init__(self, reading: Reading, resolve: Callable[[str], Resolved]) -> None:
        self.items: list[Item] = []
        self.loose: dict[str, list[Any]] = {}
        self._reading = reading
        self._resolve = resolve
        self._by_node: dict[int, Item] = {}
        self._nearest: dict[int, Item | None] = {}
        self._referenced: dict[str, list[Item]] = {}
        self._references = 0

    def refer(self, attributes: dict[str, str | None], node: LexborNode) -> None:
        """First of all, for every element with ``itemscope``: makes its item, and notes what it points to."""
        item: Item = {}
        if kinds := (attributes.get("itemtype") or "").split():
            item["type"] = kinds[:_MAX_NAMES]
        if name := attributes.get("itemid"):
            item["id"] = self._resolve(name)[0] or name
        item["properties"] = {}
        self._by_node[node.mem_id] = item
        for name in (attributes.get("itemref") or "").split()[:_MAX_NAMES]:
            if self._references < _MAX_REFERENCES:
                self._references += 1
                self._referenced.setdefault(name, []).append(item)

    def add(self, node: LexborNode, tag: str, attributes: dict[str, str | None]) -> None:
        """An element with ``itemscope``, ``itemprop`` or both."""
        own = self._by_node.get(node.mem_id)
        names = (attributes.get("itemprop") or "").split()[:_MAX_NAMES]
        if not names:
            if own is not None:
                self.items.append(own)
            return
        owners = self._owners(node)
        value = own if own is not None else self._value(node, tag, attributes)
        if value is None:
            return
        for owner in owners:
            if owner is own:
                continue
            for name in names:
                owner["properties"].setdefault(name, []).append(value)
        if not owners:
            if own is not None:
                self.items.append(own)
            for name in names:
                self.loose.setdefault(name, []).append(value)

    def _owners(self, node: LexborNode) -> list[Item]:
        found = []
        nearest = self._item_above(node)
        if nearest is not None:
            found.append(nearest)
        if self._referenced:
            found += [item for item in self._referring(node) if item is not nearest]
        return found

    def _item_above(self, node: LexborNode) -> Item | None:
        passed = []
        above = node.parent
        item = None
        while above is not None:
            place = above.mem_id
            item = self._by_node.get(place)
            if item is not None:
                break
            if place in self._nearest:
                item = self._nearest[place]
                break
            passed.append(place)
            above = above.parent
        self._nearest.update(dict.fromkeys(passed, item))
        return item

    def _referring(self, node: LexborNode) -> list[Item]:
        """Items that point to the element or to one around it, up to the nearest item."""
        found: list[Item] = []
        current: LexborNode | None = node
        while current is not None and self._reading.step():
            found += self._referenced.get(current.attributes.get("id") or "", ())
            current = current.parent
            if current is not None and current.mem_id in self._by_node:
                break
        return found

    def _value(self, node: LexborNode, tag: str, attributes: dict[str, str | None]) -> str | None:
        if tag == "meta":
            return self._reading.take(attributes.get("content") or "")
        if tag in URL_ATTRIBUTE:
            written = attributes.get(URL_ATTRIBUTE[tag]) or ""
            return self._reading.take(self._resolve(written)[0] or written) if written else ""
        if tag in ("data", "meter"):
            return self._reading.take(attributes.get("value") or "")
        if tag == "time" and attributes.get("datetime"):
            return self._reading.take(attributes["datetime"] or "")
        if "content" in attributes:  # not in the standard, but what search engines read
            return self._reading.take(attributes["content"] or "")
        return self._reading.text(node)


def about_page(items: list[Item]) -> list[Item]:
    """The items, and those within, that can speak of the page itself: articles first."""
    articles: list[Item] = []
    rest: list[Item] = []
    waiting = [(item, _NESTED) for item in items[:_MAX_ABOUT]]
    for item, depth in waiting:
        kinds = kinds_of(item, "type")
        if is_article(kinds):
            articles.append(item)
        elif is_other(kinds):
            continue
        elif depth == _NESTED:
            rest.append(item)
        if depth:
            within = [value for values in item["properties"].values() for value in values if isinstance(value, dict)]
            waiting.extend((value, depth - 1) for value in within[: max(0, _MAX_ABOUT - len(waiting))])
    return articles + alone(rest, "type")


def written(item: Item, depth: int, seen: set[int], reading: Reading) -> Item:
    """The item as JSON can have it: nested no deeper than ``depth``, and in full only where it stands first, since
    references can make circles. What has no properties has none in the JSON either."""
    kept = {name: value for name, value in item.items() if name != "properties"}
    if id(item) in seen or not item["properties"]:
        return kept
    seen.add(id(item))
    properties: dict[str, list[Any]] = {}
    for name, values in item["properties"].items():
        within = properties.setdefault(name, [])
        for value in values:
            if not isinstance(value, dict):
                within.append(value)
            elif depth > 0:
                within.append(written(value, depth - 1, seen, reading))
            else:
                reading.cut = True
    return kept | {"properties": properties}
