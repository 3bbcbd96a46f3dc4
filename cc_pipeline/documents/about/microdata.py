"""Pages describe themselves in two syntaxes, microdata and RDFa. Both become one shape, the WHATWG's JSON of items:
``type``, ``id`` and ``properties``, a list of values a name.

The elements come from one pass over the tree (``marks.py``). The owner of a property is the nearest item above its
element. Owners found on the way up are cached, so that the cost of a page is linear in its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from cc_pipeline.documents.about.budget import Reading
from cc_pipeline.documents.about.nodes import is_article, is_foreign, keep_unique_kinds, kinds_of
from cc_pipeline.documents.html.scan import Node
from cc_pipeline.documents.html.urls import Resolved

Item = dict[str, Any]
T = TypeVar("T")

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

_DC = "http://purl.org/dc/terms/"
#: Prefixes of RDFa's initial context that pages use.
_PREFIXES = {
    "article": "http://ogp.me/ns/article#",
    "cc": "http://creativecommons.org/ns#",
    "ctag": "http://commontag.org/ns#",
    "dc": _DC,
    "dc11": "http://purl.org/dc/elements/1.1/",
    "dcterms": _DC,
    "foaf": "http://xmlns.com/foaf/0.1/",
    "gr": "http://purl.org/goodrelations/v1#",
    "ical": "http://www.w3.org/2002/12/cal/icaltzd#",
    "og": "http://ogp.me/ns#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "rev": "http://purl.org/stuff/rev#",
    "schema": "http://schema.org/",
    "sioc": "http://rdfs.org/sioc/ns#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "v": "http://rdf.data-vocabulary.org/#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_MAX_PREFIXES = 64
#: Attributes of elements that state something in RDFa, or change how others are read.
RDFA_ATTRIBUTES = ("property", "typeof", "vocab", "prefix", "about", "resource")


def _find_ancestor_value(node: Node, values_by_node: Mapping[int, T], nearest: dict[int, T], outside: T) -> T:
    """Returns the value of the nearest element around ``node`` that has one, else ``outside``. Caches it in ``nearest``
    for the elements on the way."""
    passed, inherited = [], outside
    ancestor = node.parent
    while ancestor is not None:
        place = ancestor.mem_id
        if place in values_by_node or place in nearest:
            inherited = values_by_node[place] if place in values_by_node else nearest[place]
            break
        passed.append(place)
        ancestor = ancestor.parent
    nearest.update(dict.fromkeys(passed, inherited))
    return inherited


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
            item["type"] = kinds[:_MAX_NAMES]
        if name := attributes.get("itemid"):
            item["id"] = self._resolve(name)[0] or name
        item["properties"] = {}
        self._by_node[node.mem_id] = item
        for name in (attributes.get("itemref") or "").split()[:_MAX_NAMES]:
            if self._references < _MAX_REFERENCES:
                self._references += 1
                self._referenced.setdefault(name, []).append(item)

    def add(self, node: Node, tag: str, attributes: dict[str, str | None]) -> None:
        """Adds an element with ``itemscope``, ``itemprop`` or both."""
        own_item = self._by_node.get(node.mem_id)
        names = (attributes.get("itemprop") or "").split()[:_MAX_NAMES]
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
                owner["properties"].setdefault(name, []).append(value)
        if not owners:
            if own_item is not None:
                self.items.append(own_item)
            for name in names:
                self.loose.setdefault(name, []).append(value)

    def _owners(self, node: Node) -> list[Item]:
        owners = []
        nearest: Item | None = _find_ancestor_value(node, self._by_node, self._nearest, None)
        if nearest is not None:
            owners.append(nearest)
        if self._referenced:
            owners += [item for item in self._referring(node) if item is not nearest]
        return owners

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


def about_page(items: list[Item]) -> list[Item]:
    """Returns the items, nested ones too, that can describe the page itself: articles first."""
    articles: list[Item] = []
    other_items: list[Item] = []
    waiting = [(item, _NESTED) for item in items[:_MAX_ABOUT]]
    for item, depth in waiting:
        kinds = kinds_of(item, "type")
        if is_article(kinds):
            articles.append(item)
        elif is_foreign(kinds):
            continue
        elif depth == _NESTED:
            other_items.append(item)
        if depth:
            nested_items = [
                value for values in item["properties"].values() for value in values if isinstance(value, dict)
            ]
            waiting.extend((value, depth - 1) for value in nested_items[: max(0, _MAX_ABOUT - len(waiting))])
    return articles + keep_unique_kinds(other_items, "type")


def written(item: Item, depth: int, seen: set[int], reading: Reading) -> Item:
    """Returns the item as JSON: nested no deeper than ``depth``, and in full only at its first place, since references
    can make circles. An item without properties has no ``properties`` in the JSON."""
    json_item = {name: value for name, value in item.items() if name != "properties"}
    if id(item) in seen or not item["properties"]:
        return json_item
    seen.add(id(item))
    properties: dict[str, list[Any]] = {}
    for name, values in item["properties"].items():
        json_values = properties.setdefault(name, [])
        for value in values:
            if not isinstance(value, dict):
                json_values.append(value)
            elif depth > 0:
                json_values.append(written(value, depth - 1, seen, reading))
            else:
                reading.cut = True
    return json_item | {"properties": properties}


class _Scope(NamedTuple):
    """The context of nested elements: the subject of their properties, and how names are read."""

    subject: Item | None
    vocab: str | None
    prefixes: dict[str, str]


_OUTSIDE = _Scope(None, None, _PREFIXES)


class Rdfa:
    """Collects typed or named subjects and their properties; ``add`` must get the elements in document order.

    ``loose`` are the properties of the page itself, including those of ``meta`` tags (OpenGraph).
    """

    def __init__(self, reading: Reading, resolve: Callable[[str], Resolved]) -> None:
        self._items: list[Item] = []
        self._page: Item = {"id": resolve("")[0] or "", "properties": {}}
        self.loose: dict[str, list[Any]] = {}
        self._reading = reading
        self._resolve = resolve
        self._scopes: dict[int, _Scope] = {}
        self._nearest: dict[int, _Scope] = {}
        self._subjects: dict[str, Item] = {}

    def add(self, node: Node, tag: str, attributes: dict[str, str | None]) -> None:
        """Adds an element with one of ``RDFA_ATTRIBUTES``."""
        outer_scope = _find_ancestor_value(node, self._scopes, self._nearest, _OUTSIDE)
        vocab, prefixes = outer_scope.vocab, outer_scope.prefixes
        if "vocab" in attributes:
            vocab = (attributes["vocab"] or "").strip() or None
        if declared := attributes.get("prefix"):
            words = declared.split()[: 2 * _MAX_PREFIXES]
            pairs = zip(words[::2], words[1::2], strict=False)
            prefixes = prefixes | {name[:-1].lower(): iri for name, iri in pairs if name.endswith(":")}
        names = [
            iri
            for name in (attributes.get("property") or "").split()[:_MAX_NAMES]
            if (iri := _iri(name, vocab, prefixes))
        ]
        holder = outer_scope.subject
        if (about_name := attributes.get("about")) is not None:
            holder = self._subject(about_name, prefixes)
        subject = holder
        kinds = [
            iri
            for name in (attributes.get("typeof") or "").split()[:_MAX_NAMES]
            if (iri := _iri(name, vocab, prefixes))
        ]
        value: Any = None
        if kinds:
            object_name = about_name if about_name is not None else self._object(attributes)
            # what a typed element with a property is about is that property's value
            subject = holder if about_name is not None else self._subject(object_name, prefixes)
            if subject is not None:
                subject.setdefault("type", kinds)
            if about_name is None:
                value = subject
        elif not names and attributes.get("resource") is not None:
            subject = self._subject(attributes["resource"], prefixes)
        if names:
            if value is None:
                value = self._value(node, tag, attributes, prefixes)
            if value is not None:
                self._state(holder, names, value, tag)
        new = subject is not outer_scope.subject
        if kinds and subject is not None and not (names and about_name is None and holder is not None):
            self._keep(subject)
        if new or vocab != outer_scope.vocab or prefixes is not outer_scope.prefixes:
            self._scopes[node.mem_id] = _Scope(subject, vocab, prefixes)

    def _keep(self, subject: Item) -> None:
        if not any(item is subject for item in self._items[-8:]):
            self._items.append(subject)

    def items(self) -> list[Item]:
        """Returns the page itself, typed subjects that are no property's value, and named subjects without a type."""
        typed = {id(item) for item in self._items}
        untyped_subjects = (item for item in self._subjects.values() if "type" not in item and id(item) not in typed)
        return [item for item in (self._page, *self._items, *untyped_subjects) if item["properties"] or "type" in item]

    def _state(self, holder: Item | None, names: list[str], value: Any, tag: str) -> None:
        property_maps = [holder["properties"]] if holder else [self.loose]
        if holder is None and tag != "meta":
            property_maps.append(self._page["properties"])
        for properties in property_maps:
            for name in names:
                properties.setdefault(name, []).append(value)

    def _subject(self, name: str | None, prefixes: dict[str, str]) -> Item:
        if name is None:
            return {"properties": {}}
        iri = self._address(name, prefixes)
        if iri not in self._subjects:
            self._subjects[iri] = {"id": iri, "properties": {}}
        return self._subjects[iri]

    def _address(self, name: str, prefixes: dict[str, str]) -> str:
        name = name.strip()
        if name.startswith("[") and name.endswith("]"):
            name = name[1:-1]
        prefix, colon, suffix = name.partition(":")
        if colon and prefix.lower() in prefixes and not suffix.startswith("//"):
            return prefixes[prefix.lower()] + suffix
        return name if name.startswith("_:") else self._resolve(name)[0] or name

    def _object(self, attributes: dict[str, str | None]) -> str | None:
        resource = attributes.get("resource")
        if resource is not None:
            return resource
        written = attributes.get("href")
        return attributes.get("src") if written is None else written

    def _value(self, node: Node, tag: str, attributes: dict[str, str | None], prefixes: dict[str, str]) -> str | None:
        if "content" in attributes:
            return self._reading.take(attributes["content"] or "")
        if attributes.get("datetime"):
            return self._reading.take(attributes["datetime"] or "")
        if (object_name := self._object(attributes)) is not None and (
            "resource" in attributes or tag in URL_ATTRIBUTE or "href" in attributes
        ):
            return self._reading.take(self._address(object_name, prefixes))
        return self._reading.text(node)


def _iri(name: str, vocab: str | None, prefixes: dict[str, str]) -> str | None:
    """Returns a name as an IRI; ``None`` if its vocabulary is not known."""
    prefix, colon, suffix = name.partition(":")
    if not colon:
        return vocab + name if vocab else None
    if prefix.lower() in prefixes and not suffix.startswith("//"):
        return prefixes[prefix.lower()] + suffix
    return name if "/" in suffix or prefix in ("urn", "tag") else None
