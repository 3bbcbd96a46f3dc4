"""Microdata as nodes of JSON-LD: ``@type``, ``@id``, and a list of values for each property."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cc_pipeline.documents.about.nodes import Node as Item
from cc_pipeline.documents.html.marks import Mark, WalkedPage
from cc_pipeline.documents.html.tags import IS_INERT
from cc_pipeline.documents.html.urls import Resolved
from cc_pipeline.documents.page import Limits

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


#: The characters of all facts of a page, those of a value, and steps from element to element.
_CHARS = 1024 * 1024
_VALUE_CHARS = 16 * 1024
_STEPS = 200_000


class Reading:
    """The budget left for a page's facts: elements nest, and so do their texts. ``cut`` is true once something was left
    out because of it."""

    def __init__(self, page: WalkedPage, limits: Limits) -> None:
        self.page = page
        self.cut = False
        self._chars = min(_CHARS, limits.text_chars)
        self._value_chars = min(_VALUE_CHARS, limits.attribute_chars)
        self._steps = _STEPS

    def step(self) -> bool:
        """Whether another step from element to element may be taken."""
        self._steps -= 1
        self.cut |= self._steps < 0
        return self._steps >= 0

    def take(self, text: str, max_chars: int | None = None) -> str | None:
        """Returns the text up to the bound; ``None`` once the budget is spent."""
        if self._chars <= 0:
            self.cut = True
            return None
        bound = self._value_chars if max_chars is None else max_chars
        self.cut |= len(text) > bound
        excerpt = text[:bound]
        self._chars -= len(excerpt)
        return excerpt

    def text_of(self, mark: Mark, max_chars: int | None = None) -> str | None:
        """Returns the text of an element up to the bound; ``None`` once the budget is spent."""
        bound = self._value_chars if max_chars is None else max_chars
        return self.take(self.page.text_of(mark, bound + 1), bound)


class Microdata:
    """The items of a page: ``items`` at the top, ``loose`` the properties outside any item, name to values.

    The owner of a property is the nearest item around its element; so are items that refer to an element around it.
    """

    def __init__(self, reading: Reading, resolve: Callable[[str], Resolved]) -> None:
        self.items: list[Item] = []
        self.loose: dict[str, list[Any]] = {}
        self._reading, self._resolve = reading, resolve
        self._marks = reading.page.facts
        self._items: dict[int, Item] = {}
        self._referring: dict[str, list[Item]] = {}
        self._make_items()
        nearest: list[int] = []  # for each mark the place of the nearest item around it, -1 for none
        for place, mark in enumerate(self._marks):
            parent = mark.parent
            nearest.append(parent if parent < 0 or parent in self._items else nearest[parent])
            if not mark.state & IS_INERT and (place in self._items or "itemprop" in mark.attributes):
                self._add(place, mark, self._items.get(nearest[place]))

    def _make_items(self) -> None:
        references = 0
        for place, mark in enumerate(self._marks):
            attributes = mark.attributes
            if "itemscope" not in attributes:
                continue
            item: Item = {}
            if kinds := attributes.get("itemtype", "").split():
                item["@type"] = kinds[:_MAX_NAMES]
            if name := attributes.get("itemid"):
                item["@id"] = self._resolve(name)[0] or name
            self._items[place] = item
            for name in attributes.get("itemref", "").split()[:_MAX_NAMES]:
                references += 1
                if references <= _MAX_REFERENCES:
                    self._referring.setdefault(name, []).append(item)

    def _add(self, place: int, mark: Mark, owner: Item | None) -> None:
        own_item = self._items.get(place)
        names = [name for name in mark.attributes.get("itemprop", "").split()[:_MAX_NAMES] if not name.startswith("@")]
        owners = [] if owner is None else [owner]
        if names and self._referring:
            owners += [item for item in self._find_referring(place) if item is not owner]
        value = own_item if own_item is not None or not names else self._value(mark)
        if own_item is not None and not (names and owners):
            self.items.append(own_item)
        if value is None:
            return
        for name in names:
            if not owners:
                self.loose.setdefault(name, []).append(value)
            for item in owners:
                if item is not own_item:
                    item.setdefault(name, []).append(value)

    def _find_referring(self, place: int) -> list[Item]:
        """Returns the items that refer to the element or to one around it, up to the nearest item."""
        items: list[Item] = []
        current = place
        while current >= 0 and self._reading.step():
            items += self._referring.get(self._marks[current].attributes.get("id", ""), ())
            current = self._marks[current].parent
            if current in self._items:
                break
        return items

    def _value(self, mark: Mark) -> str | None:
        tag, attributes = mark.tag, mark.attributes
        if tag == "meta":
            return self._reading.take(attributes.get("content", ""))
        if tag in URL_ATTRIBUTE:
            written = attributes.get(URL_ATTRIBUTE[tag], "")
            return self._reading.take(self._resolve(written)[0] or written) if written else ""
        if tag in ("data", "meter"):
            return self._reading.take(attributes.get("value", ""))
        if tag == "time" and attributes.get("datetime"):
            return self._reading.take(attributes["datetime"])
        if "content" in attributes:  # not in the standard, but what search engines read
            return self._reading.take(attributes["content"])
        return self._reading.text_of(mark)


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
