"""HTML: title, meta tags, links and text in one pass over one tree (lexbor, through selectolax)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline.documents.depth import check_depth
from cc_pipeline.documents.options import Limits
from cc_pipeline.documents.page import Link
from cc_pipeline.documents.urls import domain_of, resolver

#: The tags the 2012 document lists, and the attribute that holds the link.
LINK_ATTRIBUTE = {
    "a": "href",
    "area": "href",
    "frame": "src",
    "iframe": "src",
    "script": "src",
    "link": "href",
    "img": "src",
}
#: The attributes that can be a meta tag's key, in the order they count.
META_KEYS = ("name", "property", "http-equiv", "itemprop")

_WITH_TEXT = frozenset({"a", "area"})
#: Elements whose text is no part of the page's; scripts and iframes are links as well.
_UNREAD = frozenset({"style", "noscript", "template", "title"})
#: Names only: an element that matches two selectors of a list would come twice.
_SELECTOR = ",".join(("base", "meta", "html", *LINK_ATTRIBUTE, *sorted(_UNREAD)))


@dataclass(slots=True)
class HtmlDocument:
    """What one HTML page holds. ``meta_tags`` are rows of the 2012 document; ``scripts`` the JSON-LD texts."""

    title: str | None = None
    meta_tags: list[dict[str, object]] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    html_attributes: dict[str, str] = field(default_factory=dict)
    json_ld: list[str] = field(default_factory=list)
    body_text: str = ""
    flags: set[str] = field(default_factory=set)


def parse_html(
    text: str,
    url: str,
    limits: Limits,
    *,
    utf8: bytes | None = None,
    source: str = "",
    item_index: int | None = None,
    links: bool = True,
) -> HtmlDocument:
    """Reads a page or a fragment of one. ``url`` is what relative links are relative to, unless the page has
    a ``base``. ``utf8`` is the text as UTF-8 where the caller has it. Raises ``DataFault`` for nesting beyond
    the limit."""
    check_depth(text, limits.depth, source or url)
    tree = LexborHTMLParser(text if utf8 is None else utf8)
    document = HtmlDocument()
    found = _collect(tree, document, limits, links=links)
    _remove(found.scripts)
    _finish_links(found, document, url, limits, item_index)
    _remove(found.unread)
    document.body_text = _body_text(tree, limits, document.flags)
    return document


@dataclass(slots=True)
class _Found:
    """Nodes to come back to: links whose text is wanted, and nodes whose text is not the page's."""

    links: list[tuple[LexborNode, str, str, dict[str, str]]] = field(default_factory=list)
    scripts: list[LexborNode] = field(default_factory=list)
    unread: list[LexborNode] = field(default_factory=list)
    base: str | None = None


def _collect(tree: LexborHTMLParser, document: HtmlDocument, limits: Limits, *, links: bool) -> _Found:
    """One look at the nodes that matter, in document order. Most nodes are links, so links come first."""
    found = _Found()
    pending = found.links
    for node in tree.css(_SELECTOR):
        tag = node.tag or ""
        key = LINK_ATTRIBUTE.get(tag)
        if key is None:
            _collect_other(node, tag, document, found, limits)
            continue
        attributes: dict[str, Any] = node.attributes  # a value may be None, see _bounded
        values = attributes.values()
        if None in values or len(values) > limits.attributes or len("".join(values)) > limits.attribute_chars:
            attributes = _bounded(attributes, limits, document.flags)
        if tag == "script":
            found.scripts.append(node)
            if attributes.get("type", "").strip().lower() == "application/ld+json":
                document.json_ld.append(node.text(deep=True) or "")
        elif tag == "iframe":
            found.unread.append(node)
        href = attributes.pop(key, None)
        if href and links and href[0] != "#":
            if len(pending) < limits.links:
                pending.append((node, tag, href, attributes))
            else:
                document.flags.add("links_cut")
    return found


def _collect_other(node: LexborNode, tag: str, document: HtmlDocument, found: _Found, limits: Limits) -> None:
    if tag in _UNREAD:
        if tag == "title" and document.title is None and _is_page_title(node):
            document.title = node.text(deep=True) or None
        (found.scripts if tag == "style" else found.unread).append(node)
        return
    attributes = _bounded(node.attributes, limits, document.flags)
    if tag == "meta":
        name = next((attributes[key] for key in META_KEYS if key in attributes), None)
        document.meta_tags.append({"name": name, "content": attributes.get("content"), "attributes": attributes})
    elif tag == "base":
        found.base = found.base or attributes.get("href")
    elif not document.html_attributes:
        document.html_attributes = attributes


def _is_page_title(node: LexborNode) -> bool:
    parent = node.parent
    return parent is None or parent.tag in ("head", "body", "html")


def _remove(nodes: list[LexborNode]) -> None:
    """Takes nodes out of the tree; the last first, because a node goes with all that is inside it."""
    for node in reversed(nodes):
        node.decompose()


def _bounded(attributes: Mapping[str, str | None], limits: Limits, flags: set[str]) -> dict[str, str]:
    """Attributes with every value a text, in number and length within bounds."""
    kept = {name: value or "" for name, value in attributes.items()}
    if len("".join(kept.values())) > limits.attribute_chars or len(kept) > limits.attributes:
        bound = limits.attribute_chars
        cut = {name: value[:bound] for name, value in list(kept.items())[: limits.attributes]}
        if cut != kept:
            flags.add("attributes_cut")
        return cut
    return kept


def _finish_links(found: _Found, document: HtmlDocument, url: str, limits: Limits, item_index: int | None) -> None:
    resolve = resolver(url)
    if found.base:
        base, base_host = resolve(found.base)
        if base and base_host:
            resolve = resolver(base)
        else:
            document.flags.add("base_unusable")
    bound = limits.attribute_chars
    links = document.links
    domains: dict[str | None, str | None] = {None: None}
    for node, tag, href, attributes in found.links:
        text = ""
        if tag in _WITH_TEXT:
            text = " ".join(node.text(deep=True, separator=" ").split())
            if len(text) > bound:
                document.flags.add("text_cut")
                text = text[:bound]
        absolute, host = resolve(href)
        if host not in domains:
            domains[host] = domain_of(host) if host else None
        rel = attributes.get("rel")
        links.append(Link(tag, href, absolute, text, rel, attributes, host, domains[host], item_index))


def _body_text(tree: LexborHTMLParser, limits: Limits, flags: set[str]) -> str:
    body = tree.body
    if body is None:
        return ""
    text = " ".join((body.text(deep=True, separator=" ", skip_empty=True) or "").split())
    if len(text) > limits.text_chars:
        flags.add("text_cut")
        text = text[: limits.text_chars]
    return text
