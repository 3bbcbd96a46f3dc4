"""A page as its title, meta tags, links and text: from one walk over one tree, since building the tree costs most.
XHTML is converted to HTML first."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from lxml import etree
from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline.documents.headers import split_content_type
from cc_pipeline.documents.html.bounds import bounded
from cc_pipeline.documents.html.links import base_resolver, linking
from cc_pipeline.documents.html.marks import Linking, Mark, WalkedPage, WalkLimits, WalkOptions
from cc_pipeline.documents.html.tables import Tables
from cc_pipeline.documents.html.tree_builder import Built, build_again, build_shallow_tree, build_tree
from cc_pipeline.documents.html.urls import Resolved, browser_resolver
from cc_pipeline.documents.html.walk import walk
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

#: The attributes that can be a meta tag's key, the most important first.
META_KEYS = ("name", "property", "http-equiv", "itemprop")
_JSON_LD = "application/ld+json"
#: Elements with facts about a page; real pages have a tenth.
_MAX_FACTS = 20_000
_NO_BASE = browser_resolver("")


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


@dataclass
class HtmlDocument:
    """The content of one HTML page. ``meta_tags`` are rows of the 2012 document; ``json_ld`` the scripts' texts;
    ``cut`` is the markup within the limits if some was removed, ``work`` the open elements at each tag, summed.
    ``resolve`` makes the page's references absolute."""

    title: str | None = None
    meta_tags: list[dict[str, object]] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    html_attributes: dict[str, str] = field(default_factory=dict)
    json_ld: list[str] = field(default_factory=list)
    body_text: str = ""
    flags: set[str] = field(default_factory=set)
    cut: bytes | None = None
    work: int = 0
    tree: LexborHTMLParser | None = None
    page: WalkedPage | None = None
    resolve: Callable[[str], Resolved] = field(default=_NO_BASE)

    @cached_property
    def facts_by_tag(self) -> dict[str, list[Mark]]:
        """The facts of each tag, in the order of the page."""
        groups: dict[str, list[Mark]] = defaultdict(list)
        for mark in self.page.facts if self.page is not None else ():
            groups[mark.tag].append(mark)
        return groups

    @cached_property
    def tables(self) -> Tables | None:
        """The tables of the main content, if they were asked for and the page has a body."""
        return Tables.from_raw(self.page.tables) if self.page is not None and self.page.tables is not None else None


def parse_html(
    text: str,
    url: str,
    limits: Limits,
    *,
    utf8: bytes | None = None,
    item_index: int | None = None,
    links: bool = True,
    charset: str = "UTF-8",
    with_tables: bool = False,
) -> HtmlDocument:
    """Reads a page or a fragment of one.

    ``url`` is the base of relative links, unless the page has a ``base``. Links are resolved as browsers do
    (``charset`` is the page's, by the standard's name). ``utf8`` is the text as UTF-8, if the caller has it. Content
    beyond ``limits`` is left out and flagged, before the tree is built if it would cost the builder too much.
    ``with_tables``: the tables of the main content are made too."""
    document = HtmlDocument()
    full_markup = text.encode("utf-8", "replace") if utf8 is None else utf8
    built = _build(full_markup, limits, document.flags)
    document.work = built.work
    is_base_usable = True

    def link(facts: list[Mark]) -> Linking:
        nonlocal is_base_usable
        document.resolve, is_base_usable = base_resolver(facts, url, charset)
        return linking(document.resolve, item_index)

    page, document.tree, markup = _walk(built, limits, document.flags, link, links=links, with_tables=with_tables)
    document.page, document.links = page, page.links
    if markup is not full_markup:
        document.cut = markup
    _read_tags(document, limits)
    cuts = {
        "base_unusable": not is_base_usable,
        "links_cut": links and page.links_cut,
        "text_cut": page.link_texts_cut,
        "meta_cut": page.metas_cut,
        "facts_cut": page.facts_cut,
    }
    document.flags.update(flag for flag, is_cut in cuts.items() if is_cut)
    return document


def _build(markup: bytes, limits: Limits, flags: set[str]) -> Built:
    """Builds the tree of a page."""
    within_limits, work, is_small = bounded(markup, limits, flags)
    built = build_tree(within_limits, limits, flags, is_small=is_small)
    return built._replace(work=max(work, built.work))


def _walk(
    built: Built,
    limits: Limits,
    flags: set[str],
    link: Callable[[list[Mark]], Linking],
    *,
    links: bool,
    with_tables: bool,
) -> tuple[WalkedPage, LexborHTMLParser, bytes]:
    """Walks over a tree, or if that is too deep over one that is not. Returns what it read, the tree, its markup."""

    def bound(attributes: dict[str, str]) -> dict[str, str]:
        cut = {name: value[: limits.attribute_chars] for name, value in list(attributes.items())[: limits.attributes]}
        if cut != attributes:
            flags.add("attributes_cut")
        return cut

    small_tree: LexborHTMLParser | None = None

    def parse(content: bytes) -> LexborNode | None:
        # pages have many small ones: a new tree for each takes ten times as long
        nonlocal small_tree
        within_limits, _, is_small = bounded(content, limits, flags)
        small_tree = build_again(small_tree, within_limits) if is_small else None
        tree = small_tree or build_tree(within_limits, limits, flags).tree
        return tree.root

    def measure(tree: LexborHTMLParser) -> int:
        return _walk_tree(tree, WalkLimits(0, 0, 0, 0, 0, 0, 0), WalkOptions(False, False, dict, parse, link)).depth

    tables = (limits.text_chars, limits.elements)
    marks = (limits.links if links else 0, limits.meta_tags, _MAX_FACTS, limits.attributes, limits.attribute_chars)
    options = WalkOptions(with_tables, False, bound, parse, link)
    tree, markup = built.tree, built.markup
    page = _walk_tree(tree, WalkLimits(*tables, *marks), options)
    if page.depth > 2 * limits.depth:
        tree, markup = build_shallow_tree(built.markup, limits, flags, measure)
        page = _walk_tree(tree, WalkLimits(*tables, *marks), options)
    if page.has_references:
        page = _walk_tree(tree, WalkLimits(*tables, *marks), options._replace(with_ids=True))
    return page, tree, markup


def _walk_tree(tree: LexborHTMLParser, limits: WalkLimits, options: WalkOptions) -> WalkedPage:
    if tree.root is None:
        return WalkedPage("", "", b"", [], [], None, 0, False, False, False, False, False)
    return walk(tree.root, limits, options)


def _read_tags(document: HtmlDocument, limits: Limits) -> None:
    """Reads title, meta tags, attributes of the root, scripts of data, and the text."""
    page, facts = document.page, document.facts_by_tag
    assert page is not None
    for attributes in (mark.attributes for mark in facts["meta"]):
        name = next((attributes[key] for key in META_KEYS if key in attributes), None)
        document.meta_tags.append({"name": name, "content": attributes.get("content"), "attributes": attributes})
    document.html_attributes = next((mark.attributes for mark in facts["html"] if mark.attributes), {})
    document.title = next((mark.raw for mark in facts["title"] if mark.raw), None)
    document.json_ld = [
        mark.raw
        for mark in facts["script"]
        if mark.raw and split_content_type(mark.attributes.get("type"))[0] == _JSON_LD
    ]
    document.body_text = page.text[: limits.text_chars]
    if len(page.text) > limits.text_chars or len(document.title or "") > limits.text_chars:
        document.flags.add("text_cut")
        document.title = document.title and document.title[: limits.text_chars]
