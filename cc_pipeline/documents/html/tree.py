"""Title, meta tags, links and text of HTML come from one walk over one tree, since building the tree costs most. XHTML
is converted to HTML first."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from lxml import etree
from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.headers import split_content_type
from cc_pipeline.documents.html.bounds import bounded
from cc_pipeline.documents.html.scan import body_text, collected, links_of
from cc_pipeline.documents.html.scan_py import Collected, Place, ScanLimits
from cc_pipeline.documents.html.tree_builder import build_shallow_tree, build_tree
from cc_pipeline.documents.html.urls import Resolved, browser_resolver, domain_of, shown_host
from cc_pipeline.documents.page import Limits, Link

_VOID = "area|base|basefont|bgsound|br|col|embed|frame|hr|img|input|link|meta|param|source|track|wbr"
#: Markup that HTML and XML parsers read differently.
_DIFFERENT = re.compile(rf"<(?!(?:{_VOID})\b)[a-zA-Z][\w.:-]*(?:\s[^<>]*)?/>|<!\[CDATA\[")
_DOCTYPE_START = re.compile("<!DOCTYPE", re.IGNORECASE)
#: The rest of a document type. It is matched once: a search would read to the end for each start of an unclosed type.
_DOCTYPE_REST = re.compile(r"[^>\[]*+(?:\[[^\]]*+\]\s*+)?>")
_ENTITY = re.compile(r"&([a-zA-Z][a-zA-Z0-9]{1,31};)")
_OF_XML = frozenset(("amp;", "lt;", "gt;", "quot;", "apos;"))
#: Self-closing elements whose text HTML would extend to an end tag.
_SWALLOWING = re.compile(r"<(script|style|title|textarea|iframe|noscript|noembed|noframes|xmp)((?:\s[^<>]*)?)/>")
#: A page of more characters is not read as XML.
_MAX_XML_CHARS = 4 * 1024 * 1024

#: The maximum length of a base element's URL; each link of a page can be as long again.
_BASE_CHARS = 2_048

#: An address in a srcset, with the commas around it.
_CANDIDATE = re.compile(r"[\s,]*+(\S++)")
#: The descriptors after an address, up to the next comma; commas in brackets do not count (HTML, 4.8.4.2.2).
_DESCRIPTORS = re.compile(r"(?:[^,(]++|\([^)]*+\)?)*+")
_MAX_CANDIDATES = 64
#: A scheme and a host in lower case, before a path.
_ROOT = re.compile(r"https?://[a-z0-9.-]+(?=/)")
#: The resolved roots of linked sites: pages of a site link to the same ones.
_ROOTS: dict[str, Place] = {}
_MAX_ROOTS = 65_536
#: The attributes that can be a meta tag's key, the most important first.
META_KEYS = ("name", "property", "http-equiv", "itemprop")
_JSON_LD = "application/ld+json"


def as_html(text: str) -> str | None:
    """Returns an XHTML page as HTML; ``None`` if its markup is the same in both. A page that is not well-formed or was
    cut off keeps its markup, except the self-closing elements that would swallow the rest.

    The document type is not read, so there are no entities to expand but HTML's own, and nothing to fetch.
    """
    if len(text) > _MAX_XML_CHARS:
        return _not_swallowing(text)
    if not _DIFFERENT.search(text):
        return None
    plain = _ENTITY.sub(_character, _without_doctype(text))
    parser = etree.XMLParser(encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(plain.encode("utf-8", "replace"), parser)
        return str(etree.tostring(root, method="html", encoding="unicode"))
    except (etree.XMLSyntaxError, etree.SerialisationError, ValueError):
        return _not_swallowing(text)


def _without_doctype(text: str) -> str:
    start = _DOCTYPE_START.search(text)
    doctype = start and _DOCTYPE_REST.match(text, start.end())
    return text[: start.start()] + text[doctype.end() :] if start and doctype else text


def _not_swallowing(text: str) -> str | None:
    """Returns the markup with ``<script/>`` and the like closed as in HTML; ``None`` if it has none of them."""
    ended, count = _SWALLOWING.subn(r"<\1\2></\1>", text)
    return ended if count else None


def _character(reference: re.Match[str]) -> str:
    return reference.group(0) if reference.group(1) in _OF_XML else html.escape(html.unescape(reference.group(0)))


@dataclass(slots=True)
class HtmlDocument:
    """The content of one HTML page. ``meta_tags`` are rows of the 2012 document; ``json_ld`` the scripts' texts;
    ``cut`` is the markup within the limits if some was removed, ``work`` the open elements at each tag, summed."""

    title: str | None = None
    meta_tags: list[dict[str, object]] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    html_attributes: dict[str, str] = field(default_factory=dict)
    json_ld: list[str] = field(default_factory=list)
    body_text: str = ""
    flags: set[str] = field(default_factory=set)
    cut: bytes | None = None
    work: int = 0


#: Another reader of the tree, called while the tree is complete.
TreeReader = Callable[[LexborHTMLParser, HtmlDocument, Callable[[str], Resolved]], None]


def parse_html(
    text: str,
    url: str,
    limits: Limits,
    *,
    utf8: bytes | None = None,
    item_index: int | None = None,
    links: bool = True,
    charset: str = "UTF-8",
    read_tree: TreeReader | None = None,
) -> HtmlDocument:
    """Reads a page or a fragment of one.

    ``url`` is the base of relative links, unless the page has a ``base``. Links are resolved as browsers do
    (``charset`` is the page's, by the standard's name). ``utf8`` is the text as UTF-8, if the caller has it. Content
    beyond ``limits`` is left out and flagged, before the tree is built if it would cost the builder too much.
    ``read_tree`` is called once with the tree (only scripts and styles are removed by then), the document so far, and
    the resolver of the page's references."""
    document = HtmlDocument()
    full_markup = text.encode("utf-8", "replace") if utf8 is None else utf8
    markup, document.work, is_small = bounded(full_markup, limits, document.flags)
    tree, markup, work = build_tree(markup, limits, document.flags, is_small=is_small)
    document.work = max(document.work, work)
    if markup is not full_markup:
        document.cut = markup
    scan_limits = ScanLimits(
        limits.links if links else 0,
        limits.meta_tags,
        limits.attributes,
        limits.attribute_chars,
        limits.text_chars,
    )
    within_bounds = partial(_bounded, limits=limits, flags=document.flags)
    tags = collected(tree, scan_limits, within_bounds)
    if tags.depth > 2 * limits.depth:
        tree, document.cut = build_shallow_tree(markup, limits, document.flags, _measure_depth)
        tags = collected(tree, scan_limits, within_bounds)
    _finish_tags(tags, document, limits)
    resolve = _finish_links(tags, document, charset, url, limits, item_index, links=links)
    if read_tree is not None:
        read_tree(tree, document, resolve)
    document.body_text = body_text(tree)
    if len(document.body_text) > limits.text_chars:
        document.flags.add("text_cut")
        document.body_text = document.body_text[: limits.text_chars]
    return document


def _measure_depth(tree: LexborHTMLParser) -> int:
    return collected(tree, ScanLimits(0, 0, 0, 0, 0), dict).depth


def _finish_tags(tags: Collected, document: HtmlDocument, limits: Limits) -> None:
    document.title = tags.titles[0] if tags.titles else None
    if len(document.title or "") > limits.text_chars:
        document.flags.add("text_cut")
        document.title = tags.titles[0][: limits.text_chars]
    for attributes in tags.metas:
        name = None
        for key in META_KEYS:
            if key in attributes:
                name = attributes[key]
                break
        document.meta_tags.append({"name": name, "content": attributes.get("content"), "attributes": attributes})
    if tags.metas_cut:
        document.flags.add("meta_cut")
    document.html_attributes = next(filter(None, tags.roots), {})
    document.json_ld = [text for kind, text in tags.scripts if split_content_type(kind)[0] == _JSON_LD]


def _split_srcset(value: str, max_urls: int) -> list[str]:
    """Returns the image addresses of a srcset: descriptors follow each, up to a comma. Addresses may have commas."""
    urls: list[str] = []
    position = 0
    for _ in range(_MAX_CANDIDATES):
        candidate = _CANDIDATE.match(value, position)
        if candidate is None or len(urls) >= max_urls:
            break
        href = candidate.group(1)
        position = candidate.end()
        if href[-1] == ",":
            href = href.rstrip(",")
        elif descriptors := _DESCRIPTORS.match(value, position):
            position = descriptors.end()
        if href:
            urls.append(href)
    return urls


def _bounded(attributes: dict[str, str], limits: Limits, flags: set[str]) -> dict[str, str]:
    """Cuts attributes to the limits on number and length."""
    bound = limits.attribute_chars
    cut = {name: value[:bound] for name, value in list(attributes.items())[: limits.attributes]}
    if cut != attributes:
        flags.add("attributes_cut")
    return cut


def _finish_links(
    tags: Collected,
    document: HtmlDocument,
    charset: str,
    url: str,
    limits: Limits,
    item_index: int | None,
    *,
    links: bool,
) -> Callable[[str], Resolved]:
    """Makes the links of the collected tags. Returns the resolver of the page's references."""
    resolve = browser_resolver(url, charset)
    if written := next((attributes["href"] for attributes in tags.bases if "href" in attributes), ""):
        base, base_host = resolve(written) if len(written) <= _BASE_CHARS else (None, None)
        if base and base_host:
            resolve = browser_resolver(base, charset)
        else:
            document.flags.add("base_unusable")
    places: dict[str, Place] = {}

    def place(href: str) -> Place:
        absolute, host = resolve(href)
        domain, display_host = (domain_of(host), shown_host(host)) if host else (None, None)
        places[href] = resolved = absolute, host, domain, display_host
        if absolute == href and (root := _ROOT.match(href)):
            if len(_ROOTS) >= _MAX_ROOTS:
                _ROOTS.clear()
            _ROOTS[root[0]] = resolved
        return resolved

    top, host, domain, display_host = place("/")
    page_root = (top.removesuffix("/"), host, domain, display_host) if top and _ROOT.match(top) else None
    link_limits = (limits.links, limits.attribute_chars)
    document.links, is_truncated, text_cut = links_of(
        tags.links, places, place, page_root, _ROOTS, _split_srcset, item_index, *link_limits
    )
    if text_cut:
        document.flags.add("text_cut")
    if links and (is_truncated or tags.links_cut):
        document.flags.add("links_cut")
    return resolve
