"""HTML: title, meta tags, links and text in one pass over one tree (lexbor, through selectolax)."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline.documents.depth import check_depth
from cc_pipeline.documents.options import Limits
from cc_pipeline.documents.page import Link
from cc_pipeline.documents.urls import domain_of, host_of, resolver

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

_SELECTOR = "base,meta,html," + ",".join(LINK_ATTRIBUTE)
_WITH_TEXT = frozenset({"a", "area", "iframe"})


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

    def meta(self, *names: str) -> str | None:
        """The first non-empty content of a meta tag with one of these keys (lower case), in their order."""
        for name in names:
            for tag in self.meta_tags:
                key = tag["name"]
                if isinstance(key, str) and key.lower() == name and tag["content"]:
                    return str(tag["content"])
        return None


def parse_html(
    text: str, url: str, limits: Limits, *, source: str = "", item_index: int | None = None, links: bool = True
) -> HtmlDocument:
    """Reads a page or a fragment of one. ``url`` is what relative links are relative to, unless the page has
    a ``base``. Raises ``DataFault`` for nesting beyond the limit."""
    check_depth(text, limits.depth, source or url)
    tree = LexborHTMLParser(text)
    document = HtmlDocument()
    pending = _collect(tree, document, limits, links=links)
    document.title = _title(tree)
    tree.strip_tags(["script", "style"])
    _finish_links(pending, document, url, limits, item_index)
    tree.strip_tags(["noscript", "iframe", "template", "title"])
    document.body_text = _body_text(tree, limits, document.flags)
    return document


@dataclass(slots=True)
class _Pending:
    links: list[tuple[LexborNode, str, str, dict[str, str]]] = field(default_factory=list)
    base: str | None = None


def _collect(tree: LexborHTMLParser, document: HtmlDocument, limits: Limits, *, links: bool) -> _Pending:
    pending = _Pending()
    wanted = LINK_ATTRIBUTE if links else {}
    for node in tree.css(_SELECTOR):
        tag = node.tag or ""
        attributes = _attributes(node, limits, document.flags)
        if (key := wanted.get(tag)) is not None:
            href = attributes.pop(key, None)
            if tag == "script" and attributes.get("type", "").strip().lower() == "application/ld+json":
                document.json_ld.append(node.text(deep=True) or "")
            if not href or href[0] == "#":
                continue
            if len(pending.links) >= limits.links:
                document.flags.add("links_cut")
                continue
            pending.links.append((node, tag, href, attributes))
        elif tag == "meta":
            name = next((attributes[key] for key in META_KEYS if key in attributes), None)
            document.meta_tags.append({"name": name, "content": attributes.get("content"), "attributes": attributes})
        elif tag == "base":
            if pending.base is None and attributes.get("href"):
                pending.base = attributes["href"]
        elif tag == "html" and not document.html_attributes:
            document.html_attributes = attributes
    return pending


def _attributes(node: LexborNode, limits: Limits, flags: set[str]) -> dict[str, str]:
    attributes: dict[str, str | None] = node.attributes
    kept = {name: value or "" for name, value in attributes.items()}
    if len(kept) > limits.attributes:
        flags.add("attributes_cut")
        kept = dict(list(kept.items())[: limits.attributes])
    bound = limits.attribute_chars
    for name, value in kept.items():
        if len(value) > bound:
            flags.add("attributes_cut")
            kept[name] = value[:bound]
    return kept


def _finish_links(pending: _Pending, document: HtmlDocument, url: str, limits: Limits, item_index: int | None) -> None:
    base = url
    if pending.base:
        resolved = resolver(url)(pending.base)
        if resolved and host_of(resolved):
            base = resolved
        else:
            document.flags.add("base_unusable")
    resolve = resolver(base)
    for node, tag, href, attributes in pending.links:
        text = ""
        if tag in _WITH_TEXT:
            text = " ".join(node.text(deep=True, separator=" ").split())
            if len(text) > limits.attribute_chars:
                document.flags.add("text_cut")
                text = text[: limits.attribute_chars]
        absolute = resolve(href)
        host = host_of(absolute) if absolute else None
        domain = domain_of(host) if host else None
        document.links.append(
            Link(tag, href, absolute, text, attributes.get("rel"), attributes, host, domain, item_index)
        )


def _title(tree: LexborHTMLParser) -> str | None:
    for node in tree.css("title"):
        parent = node.parent
        if parent is None or parent.tag in ("head", "body", "html"):
            return node.text(deep=True) or None
    return None


def _body_text(tree: LexborHTMLParser, limits: Limits, flags: set[str]) -> str:
    body = tree.body
    if body is None:
        return ""
    text = " ".join((body.text(deep=True, separator=" ") or "").split())
    if len(text) > limits.text_chars:
        flags.add("text_cut")
        text = text[: limits.text_chars]
    return text
