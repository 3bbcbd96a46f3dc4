"""The nodes of a page's JSON-LD, and its items of microdata, that describe the page itself.

A page also describes others: the articles that it lists, related ones, products, comments. So each node is first asked
whether it is about this page; then its properties are read by the names of schema.org.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from html import unescape
from typing import Any

from cc_pipeline.documents.html.urls import Resolved
from cc_pipeline.documents.html.whitespace import collapsed

Node = dict[str, Any]

ARTICLE = re.compile(
    r"(?:Advertiser|News|AnalysisNews|AskPublicNews|BackgroundNews|OpinionNews|ReportageNews|ReviewNews|Satirical|"
    r"Scholarly|MedicalScholarly|SocialMedia|Tech)?(?:Article|BlogPosting|Posting|Report|LiveBlogPosting|APIReference)\Z"
)
#: Kinds whose dates and authors are not the page's.
_FOREIGN_KINDS = re.compile(
    r"(?:.*(?:Comment|Review|Rating|Organization|Person|Offer|Product|Image|ImageObject|List|ListItem|Breadcrumb|Action)"
    r"|WebSite|Answer|Blog|WPHeader|WPFooter|WPSideBar|SiteNavigationElement)\Z",
    re.DOTALL,
)
#: Properties whose values may be about the page too. The articles of a list are in other ones.
_NESTING_KEYS = ("@graph", "mainEntity", "mainEntityOfPage")
_MAX_NODES = 2_000
#: Nodes about the page, and values of a property, that are read.
_MAX_ABOUT = 20
_MAX_VALUES = 20
#: A longer text is no name.
_NAME_CHARS = 600

_SCHEMA_ORG = re.compile(r"https?://(?:www\.)?schema\.org/(\w{1,100})\Z")
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_ADDRESS = re.compile(r"https?://|[/#?]", re.IGNORECASE)
_BEFORE_HOST = re.compile(r"https?://(?:www\.)?", re.IGNORECASE)
_ADDRESS_CHARS = 2_000


def plain_text(text: object) -> str | None:
    """Returns a text as people read it, character references replaced and white space collapsed; ``None`` for an empty
    one and for any other value."""
    if not isinstance(text, str):
        return None
    if "&" in text:
        text = _REFERENCE.sub(lambda reference: unescape(reference[0]), text)
    return collapsed(text) or None


def listed(value: Any) -> list[Any]:
    """Returns the values of a property."""
    return value[:_MAX_VALUES] if isinstance(value, list) else [value]


def bare(value: Any) -> Any:
    """Returns the value of an object of JSON-LD that only adds a language or a type; any other value unchanged."""
    return value.get("@value", value) if isinstance(value, dict) else value


def text_of(value: Any) -> str | None:
    """Returns the first text of a property."""
    return next(filter(None, (plain_text(bare(each)) for each in listed(value))), None)


def kinds_of(node: Node) -> list[str]:
    """Returns the types of a node, without their vocabulary."""
    return [
        kind.replace("#", "/").replace(":", "/").rpartition("/")[2]
        for kind in listed(node.get("@type"))
        if isinstance(kind, str)
    ]


@lru_cache(maxsize=1024)
def _is_foreign(kind: str) -> bool:
    return _FOREIGN_KINDS.match(kind) is not None


class OwnAddresses:
    """Tells whether an address is the page's: its URL, with or without its query, or another one that it states.
    Scheme, ``www.``, fragment and a final slash do not matter."""

    def __init__(self, urls: Iterable[str | None], resolve: Callable[[str], Resolved]) -> None:
        self._resolve = resolve
        self._keys = {key for url in urls if url for key in (self._key(url), self._key(url.partition("?")[0]))}

    def has(self, address: str) -> bool | None:
        """Whether the address, which may be relative, is the page's. ``None`` for a section or the site around the
        page, which sites state in place of the page's address."""
        key = self._key(address)
        if key in self._keys:
            return True
        return None if any(own_key.startswith(f"{key}/") for own_key in self._keys) else False

    def _key(self, address: str) -> str:
        url = self._resolve(address[:_ADDRESS_CHARS])[0] or address
        return _BEFORE_HOST.sub("", url.partition("#")[0], count=1).rstrip("/")


class Nodes:
    """``about_page``: the nodes that describe the page, the article first; ``article``: that article, or an empty node.

    Of each kind, and of all kinds of articles, it is the node with the page's address. If none has it, it is the only
    one without another page's address. Raises nothing, whatever the values are.
    """

    def __init__(self, values: Iterable[Any], own: OwnAddresses) -> None:
        self._prefixes = {"schema": "http://schema.org/"}
        self._nodes_by_id: dict[str, Node] = {}
        articles: list[Node] = []
        nodes_by_kind: dict[str, list[Node]] = {}
        for node in self._walk(values):
            if isinstance(name := node.get("@id"), str) and len(node) > 1:
                self._nodes_by_id.setdefault(name, node)
            kinds = kinds_of(node)
            if any(ARTICLE.match(kind) for kind in kinds):
                articles.append(node)
            elif kinds and not any(_is_foreign(kind[:100]) for kind in kinds):
                nodes_by_kind.setdefault(kinds[0], []).append(node)
        chosen_nodes = [_choose(nodes, own) for nodes in (articles, *nodes_by_kind.values())]
        self.about_page = [node for node in chosen_nodes if node][:_MAX_ABOUT]
        self.article = chosen_nodes[0]

    def names(self, value: Any, depth: int = 2) -> list[str]:
        """Returns the texts of a property; of persons and organizations, also of those that it refers to, the names."""
        names: list[str] = []
        for each in map(bare, listed(value)):
            if isinstance(each, dict) and depth:
                names += self.names(self._dereference(self._expanded(each)).get("name"), depth - 1)
            elif isinstance(each, str) and len(each) <= _NAME_CHARS and (name := plain_text(each)):
                names.append(name)
        return names

    def _dereference(self, node: Node) -> Node:
        name = node.get("@id")
        return self._nodes_by_id.get(name, node) if "name" not in node and isinstance(name, str) else node

    def _walk(self, values: Iterable[Any]) -> Iterator[Node]:
        waiting = list(values)[:_MAX_NODES][::-1]
        for _ in range(_MAX_NODES):
            if not waiting:
                return
            value = waiting.pop()
            if isinstance(value, list):
                waiting.extend(reversed(value[:_MAX_NODES]))
            elif isinstance(value, dict):
                for context in listed(value.get("@context")):
                    if isinstance(context, dict):
                        self._prefixes |= {prefix: iri for prefix, iri in context.items() if isinstance(iri, str)}
                node = self._expanded(value)
                yield node
                nested_values = [node[key] for key in _NESTING_KEYS if isinstance(node.get(key), (dict, list))]
                waiting.extend(reversed(nested_values))

    def _expanded(self, node: Node) -> Node:
        """Returns the node with the bare names of properties that have schema.org's address or a prefix for it."""
        return {self._name(key): value for key, value in node.items()} if any(":" in key for key in node) else node

    def _name(self, key: str) -> str:
        prefix, _, name = key.partition(":")
        schema_name = _SCHEMA_ORG.match(self._prefixes[prefix] + name if prefix in self._prefixes else key)
        return schema_name[1] if schema_name else key


def _choose(nodes: list[Node], own: OwnAddresses) -> Node:
    unaddressed_nodes = []
    for node in nodes:
        answers = {own.has(address) for key in ("url", "mainEntityOfPage") for address in _addresses(node.get(key))}
        if True in answers or any(own.has(name) for name in _addresses(node.get("@id"))):
            return node
        if False not in answers:
            unaddressed_nodes.append(node)
    return unaddressed_nodes[0] if len(unaddressed_nodes) == 1 else {}


def _addresses(value: Any) -> Iterator[str]:
    for each in map(bare, listed(value)):
        address = each.get("@id") or each.get("url") if isinstance(each, dict) else each
        if isinstance(address, str) and _ADDRESS.match(address):
            yield address
