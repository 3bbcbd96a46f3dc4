"""All that is read of HTML comes from one walk over one tree, since making it costs most: title, meta tags, links,
text. XHTML is brought to HTML before."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lxml import etree
from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline.documents.html.bounds import bounded
from cc_pipeline.documents.html.urls import Resolved, browser_resolver, domain_of, resolver, shown_host
from cc_pipeline.documents.html.whitespace import collapsed
from cc_pipeline.documents.page import LINK_ATTRIBUTE, Limits, Link

_VOID = "area|base|basefont|bgsound|br|col|embed|frame|hr|img|input|link|meta|param|source|track|wbr"
#: What the two ways to read differ in.
_DIFFERENT = re.compile(rf"<(?!(?:{_VOID})\b)[a-zA-Z][\w.:-]*(?:\s[^<>]*)?/>|<!\[CDATA\[")
_DOCTYPE = re.compile(r"<!DOCTYPE[^>\[]*+(?:\[[^\]]*+\]\s*+)?>", re.IGNORECASE)
_ENTITY = re.compile(r"&([a-zA-Z][a-zA-Z0-9]{1,31};)")
_OF_XML = frozenset(("amp;", "lt;", "gt;", "quot;", "apos;"))
#: Elements that end themselves and whose text HTML would look for up to an end tag.
_SWALLOWING = re.compile(r"<(script|style|title|textarea|iframe|noscript|noembed|noframes|xmp)((?:\s[^<>]*)?)/>")
#: Characters of a page beyond which it is not read as XML.
_MOST = 4 * 1024 * 1024
#: The media types of pages that are XML.
XML_TYPES = frozenset({"application/xhtml+xml", "application/xml", "text/xml"})

#: Characters of a base element's URL; each link of a page can be as long again.
_BASE_CHARS = 2_048

#: Further tags with links, and the attributes that hold them.
_MORE_LINKS = {
    "form": ("action",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "source": ("src",),
    "object": ("data",),
    "embed": ("src",),
}
_WITH_SRCSET = frozenset({"img", "source"})
#: An address in a srcset, with the commas around it.
_CANDIDATE = re.compile(r"[\s,]*+(\S++)")
_MOST_CANDIDATES = 64
#: The attributes that can be a meta tag's key, in the order they count.
META_KEYS = ("name", "property", "http-equiv", "itemprop")

_WITH_TEXT = frozenset({"a", "area"})
#: Elements whose text is no part of the page's; scripts and iframes are links as well.
_UNREAD = frozenset({"style", "noscript", "template", "title"})
_WANTED = (*LINK_ATTRIBUTE, *_MORE_LINKS, "meta", *sorted(_UNREAD), "html", "base")
#: ``:is`` ends at the first name that fits, and gives an element once.
_SELECTOR = f":is({','.join(_WANTED)})"


def as_html(text: str) -> str | None:
    """The HTML that an XHTML page means, ``None`` where its markup is the same in both. A page that is not well-formed
    or was cut off keeps its markup, but for the elements that end themselves and would swallow what follows.

    Read without its document type, so there are no entities to expand but HTML's own, and nothing to fetch.
    """
    if len(text) > _MOST:
        return _not_swallowing(text)
    if not _DIFFERENT.search(text):
        return None
    plain = _ENTITY.sub(_character, _DOCTYPE.sub("", text, count=1))
    parser = etree.XMLParser(encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(plain.encode("utf-8", "replace"), parser)
        return str(etree.tostring(root, method="html", encoding="unicode"))
    except (etree.XMLSyntaxError, etree.SerialisationError, ValueError):
        return _not_swallowing(text)


def _not_swallowing(text: str) -> str | None:
    """The markup with ``<script/>`` and its like ended as HTML wants it, ``None`` where it has none of them."""
    ended, count = _SWALLOWING.subn(r"<\1\2></\1>", text)
    return ended if count else None


def _character(found: re.Match[str]) -> str:
    return found.group(0) if found.group(1) in _OF_XML else html.escape(html.unescape(found.group(0)))


def _tag_ids() -> dict[int, str]:
    tree = LexborHTMLParser("")
    return {tree.create_node(tag).tag_id: tag for tag in _WANTED}


#: lexbor's number of each of these tags: cheaper to ask a node for than the name.
_TAGS = _tag_ids()


@dataclass(slots=True)
class HtmlDocument:
    """What one HTML page holds. ``meta_tags`` are rows of the 2012 document; ``json_ld`` the scripts' texts; ``cut``
    is the markup within its bounds where that is not all of it, ``work`` the open elements at each tag, summed."""

    title: str | None = None
    meta_tags: list[dict[str, object]] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    html_attributes: dict[str, str] = field(default_factory=dict)
    json_ld: list[str] = field(default_factory=list)
    body_text: str = ""
    flags: set[str] = field(default_factory=set)
    cut: bytes | None = None
    work: int = 0


#: What else is to be read from the tree while it is there.
Look = Callable[[LexborHTMLParser, HtmlDocument, Callable[[str], Resolved]], None]


def parse_html(
    text: str,
    url: str,
    limits: Limits,
    *,
    utf8: bytes | None = None,
    item_index: int | None = None,
    links: bool = True,
    codec: str = "utf-8",
    as_written: bool = False,
    look: Look | None = None,
) -> HtmlDocument:
    """Reads a page or a fragment of one.

    ``url`` is what relative links are relative to, unless the page has a ``base``. Links become what a browser would
    ask for (``codec`` is the page's charset by Python's name), or with ``as_written`` what 2012 wrote. ``utf8`` is
    the text as UTF-8 where the caller has it. What goes beyond ``limits`` is left out, before a tree is made where it
    would cost the builder too much, and flagged. ``look`` is called once with the tree, as long as only scripts and
    styles are out of it, what was found until then, and the resolver of the page's references.
    """
    document = HtmlDocument()
    whole = text.encode("utf-8", "replace") if utf8 is None else utf8
    markup, document.work = bounded(whole, limits, document.flags)
    if markup is not whole:
        document.cut = markup
    tree = LexborHTMLParser(markup)
    found = _collect(tree, document, limits, links=links)
    _remove(found.scripts)
    found_by = resolver if as_written else partial(browser_resolver, codec=codec)
    resolve = _finish_links(found, document, found_by, url, limits, item_index)
    if look is not None:
        look(tree, document, resolve)
    _remove(found.unread)
    document.body_text = _body_text(tree, limits, document.flags)
    return document


@dataclass(slots=True)
class _Found:
    """Nodes to come back to: links whose text is wanted, and nodes whose text is not the page's."""

    links: list[tuple[LexborNode, str, str, str, dict[str, str]]] = field(default_factory=list)
    scripts: list[LexborNode] = field(default_factory=list)
    unread: list[LexborNode] = field(default_factory=list)
    base: str | None = None


def _collect(tree: LexborHTMLParser, document: HtmlDocument, limits: Limits, *, links: bool) -> _Found:
    """One look at the nodes that matter, in document order. Most nodes are links, so links come first."""
    found = _Found()
    pending = found.links
    most_attributes, most_chars = limits.attributes, limits.attribute_chars
    room = limits.links if links else 0
    for node in tree.css(_SELECTOR):
        tag = _TAGS[node.tag_id]
        key = LINK_ATTRIBUTE.get(tag)
        if key is None:
            if tag in _MORE_LINKS:
                _collect_more(node, tag, document, found, limits, room)
            else:
                _collect_other(node, tag, document, found, limits)
            continue
        attributes: dict[str, Any] = node.attributes  # a value may be None, see _bounded
        values = attributes.values()
        if None in values or len(attributes) > most_attributes or len("".join(values)) > most_chars:
            attributes = _bounded(attributes, limits, document.flags)
        if key == "src":
            if tag == "script":
                kind = attributes.get("type", "").strip().lower()
                (found.unread if kind.startswith("math/tex") else found.scripts).append(node)
                if kind == "application/ld+json":
                    document.json_ld.append(node.text() or "")
            elif tag == "iframe":
                found.unread.append(node)
        href = attributes.pop(key, None)
        if href and href[0] != "#":
            if len(pending) < room:
                pending.append((node, tag, key, href, attributes))
            elif links:
                document.flags.add("links_cut")
        if tag == "img" and "srcset" in attributes:
            _collect_srcset(node, tag, attributes["srcset"], pending, room)
    return found


def _collect_more(node: LexborNode, tag: str, document: HtmlDocument, found: _Found, limits: Limits, room: int) -> None:
    attributes = _bounded(node.attributes, limits, document.flags)
    for key in _MORE_LINKS[tag]:
        href = attributes.get(key)
        if href and href[0] != "#":
            if len(found.links) < room:
                others = {name: value for name, value in attributes.items() if name != key}
                found.links.append((node, tag, key, href, others))
            elif room:
                document.flags.add("links_cut")
    if tag in _WITH_SRCSET and "srcset" in attributes:
        _collect_srcset(node, tag, attributes["srcset"], found.links, room)


def _collect_srcset(
    node: LexborNode, tag: str, value: str, links: list[tuple[LexborNode, str, str, str, dict[str, str]]], room: int
) -> None:
    """Every picture of a srcset: an address, then what it is good for up to a comma. Addresses may have commas."""
    at = 0
    for _ in range(_MOST_CANDIDATES):
        candidate = _CANDIDATE.match(value, at)
        if candidate is None or len(links) >= room:
            return
        href = candidate.group(1)
        at = candidate.end()
        if href[-1] == ",":
            href = href.rstrip(",")
        else:
            at = value.find(",", at)
        if href:
            links.append((node, tag, "srcset", href, {}))
        if at < 0:
            return


def _collect_other(node: LexborNode, tag: str, document: HtmlDocument, found: _Found, limits: Limits) -> None:
    if tag in _UNREAD:
        if tag == "title" and document.title is None and _is_page_title(node):
            document.title = node.text(deep=True) or None
        (found.scripts if tag == "style" else found.unread).append(node)
        return
    attributes = _bounded(node.attributes, limits, document.flags)
    if tag == "meta":
        name = None
        for key in META_KEYS:
            if key in attributes:
                name = attributes[key]
                break
        if len(document.meta_tags) < limits.meta_tags:
            document.meta_tags.append({"name": name, "content": attributes.get("content"), "attributes": attributes})
        else:
            document.flags.add("meta_cut")
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


def _bounded(attributes: dict[str, Any], limits: Limits, flags: set[str]) -> dict[str, str]:
    """Attributes with every value a text (lexbor has ``None`` for no value), in number and length within bounds."""
    if None in attributes.values():
        attributes = {name: value or "" for name, value in attributes.items()}
    if len(attributes) <= limits.attributes and len("".join(attributes.values())) <= limits.attribute_chars:
        return attributes
    bound = limits.attribute_chars
    cut = {name: value[:bound] for name, value in list(attributes.items())[: limits.attributes]}
    if cut != attributes:
        flags.add("attributes_cut")
    return cut


def _finish_links(
    found: _Found,
    document: HtmlDocument,
    resolver: Callable[[str], Callable[[str], Resolved]],
    url: str,
    limits: Limits,
    item_index: int | None,
) -> Callable[[str], Resolved]:
    """Makes the links of what was found; the answer makes other references of the page absolute."""
    resolve = resolver(url)
    if found.base:
        base, base_host = resolve(found.base) if len(found.base) <= _BASE_CHARS else (None, None)
        if base and base_host:
            resolve = resolver(base)
        else:
            document.flags.add("base_unusable")
    bound = limits.attribute_chars
    room = limits.text_chars  # links can nest by way of other elements, each with the text of all inside it
    append = document.links.append
    as_link = tuple.__new__  # what Link(...) comes to, in two thirds of the time
    places: dict[str, tuple[str | None, str | None, str | None, str | None]] = {}
    for node, tag, key, href, attributes in found.links:
        text = ""
        if tag in _WITH_TEXT:
            if room < 0:
                document.flags.add("text_cut")
            else:
                text = collapsed(node.text(True, " "))
                room -= len(text)
            if len(text) > bound:
                document.flags.add("text_cut")
                text = text[:bound]
        if href in places:
            absolute, host, domain, shown = places[href]
        else:
            absolute, host = resolve(href)
            domain, shown = (domain_of(host), shown_host(host)) if host else (None, None)
            places[href] = absolute, host, domain, shown
        rel = attributes.get("rel")
        append(as_link(Link, (tag, href, absolute, text, rel, attributes, host, domain, item_index, key, shown)))
    return resolve


def _body_text(tree: LexborHTMLParser, limits: Limits, flags: set[str]) -> str:
    body = tree.body
    if body is None:
        return ""
    text = collapsed(body.text(deep=True, separator=" ", skip_empty=True))
    if len(text) > limits.text_chars:
        flags.add("text_cut")
        text = text[: limits.text_chars]
    return text
