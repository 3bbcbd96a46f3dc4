"""Microdata as nodes of JSON-LD: ``@type``, ``@id``, and a list of values for each property.

The elements come from one pass over the tree (``marks.py``). The owner of a property is the nearest item above its
element. Owners found on the way up are cached, so that the cost of a page is linear in its nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cc_pipeline.documents.about.budget import Reading
from cc_pipeline.documents.about.nodes import Node as Item
from cc_pipeline.documents.html.scan import Node
from cc_pipeline.documents.html.urls import Resolved

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


class Microdata:
    """Collects items and their properties; ``add`` must get the elements in document order.

    ``items`` are the top-level items, ``loose`` the properties outside any item, name to values.
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

    def refer(self, attributes: dict[str, str | None], node: Node) -> None:
        """Makes the item of an element with ``itemscope`` and records its references. Called for all of them before
        ``add``."""
        item: Item = {}
        if kinds := (attributes.get("itemtype") or "").split():
            item["@type"] = kinds[:_MAX_NAMES]
        if name := attributes.get("itemid"):
            item["@id"] = self._resolve(name)[0] or name
        self._by_node[node.mem_id] = item
        for name in (attributes.get("itemref") or "").split()[:_MAX_NAMES]:
            if self._references < _MAX_REFERENCES:
                self._references += 1
                self._referenced.setdefault(name, []).append(item)

    def add(self, node: Node, tag: str, attributes: dict[str, str | None]) -> None:
        """Adds an element with ``itemscope``, ``itemprop`` or both."""
        own_item = self._by_node.get(node.mem_id)
        names = [name for name in (attributes.get("itemprop") or "").split()[:_MAX_NAMES] if not name.startswith("@")]
        if not names:
            if own_item is not None:
                self.items.append(own_item)
            return
        owners = self._owners(node)
        value = own_item if own_item is not None else self._value(node, tag, attributes)
        if value is None:
            return
        for owner in owners:
            if owner is own_item:
                continue
            for name in names:
                owner.setdefault(name, []).append(value)
        if not owners:
            if own_item is not None:
                self.items.append(own_item)
            for name in names:
                self.loose.setdefault(name, []).append(value)

    def _owners(self, node: Node) -> list[Item]:
        owners = []
        nearest = self._nearest_item(node)
        if nearest is not None:
            owners.append(nearest)
        if self._referenced:
            owners += [item for item in self._referring(node) if item is not nearest]
        return owners

    def _nearest_item(self, node: Node) -> Item | None:
        """Returns the item of the nearest element around ``node``; caches it for the elements on the way."""
        passed = []
        nearest = None
        ancestor = node.parent
        while ancestor is not None:
            place = ancestor.mem_id
            if place in self._by_node or place in self._nearest:
                nearest = self._by_node[place] if place in self._by_node else self._nearest[place]
                break
            passed.append(place)
            ancestor = ancestor.parent
        self._nearest.update(dict.fromkeys(passed, nearest))
        return nearest

    def _referring(self, node: Node) -> list[Item]:
        """Returns the items that refer to the element or to one around it, up to the nearest item."""
        referring_items: list[Item] = []
        current: Node | None = node
        while current is not None and self._reading.step():
            referring_items += self._referenced.get(current.attributes.get("id") or "", ())
            current = current.parent
            if current is not None and current.mem_id in self._by_node:
                break
        return referring_items

    def _value(self, node: Node, tag: str, attributes: dict[str, str | None]) -> str | None:
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


def written(item: Item, depth: int, seen: set[int], reading: Reading) -> dict[str, Any]:
    """Returns the item in the WHATWG's JSON: ``type``, ``id`` and ``properties``. It is nested no deeper than
    ``depth``, and in full only at its first place, since references can make circles. An item without properties has
    no ``properties`` in the JSON."""
    json_item = {key.removeprefix("@"): item[key] for key in ("@type", "@id") if key in item}
    if id(item) in seen or len(item) == len(json_item):
        return json_item
    seen.add(id(item))
    properties: dict[str, list[Any]] = {}
    for name, values in item.items():
        if name.startswith("@"):
            continue
        json_values = properties.setdefault(name, [])
        for value in values:
            if not isinstance(value, dict):
                json_values.append(value)
            elif depth > 0:
                json_values.append(written(value, depth - 1, seen, reading))
            else:
                reading.cut = True
    return json_item | {"properties": properties}
