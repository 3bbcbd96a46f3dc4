"""XML of feeds, read safely: no entity is expanded but the characters HTML names, nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.entities import html5
from typing import NamedTuple, TypeAlias, cast

from lxml import etree

from cc_pipeline.documents.feeds.repair import repaired
from cc_pipeline.documents.page import Limits

_DOCTYPE = re.compile(r"<!DOCTYPE\b(?:[^<>\[\"']|\"[^\"]*\"|'[^']*')*+(?:\[(.*?)\]\s*)?>", re.IGNORECASE | re.DOTALL)
#: Where a document type may begin.
_DOCTYPE_CHARS = 65_536
_DECLARED = re.compile(r"""<!ENTITY\s+([A-Za-z_][\w.-]{0,63})\s+(?:"([^"&%<]{0,256})"|'([^'&%<]{0,256})')\s*>""")
_DECLARATION = re.compile(r"<\?xml\b[^>]{0,500}\?>")
_REFERENCE = re.compile(r"&(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9_.-]{0,63})?;?")
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_XML_ENTITIES = frozenset({"amp", "lt", "gt", "quot", "apos"})
#: Elements that start another language inside HTML.
_FOREIGN_ROOTS = frozenset({"svg", "math"})
_CODES = 0x110000
_MAX_EXPANSIONS = 10_000
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)

#: Prefixes as documents use them even where they forget to declare them.
_PREFIXES = {
    "dc": "http://purl.org/dc/elements/1.1/",
    "content": "http://purl.org/rss/1.0/modules/content/",
    "atom": "http://www.w3.org/2005/Atom",
    "dcterms": "http://purl.org/dc/terms/",
    "xhtml": "http://www.w3.org/1999/xhtml",
}

Element: TypeAlias = etree._Element


class XmlRead(NamedTuple):
    """The root of a document (``None`` for none), whether it was well-formed, and whether it was cut at a bound."""

    root: Element | None
    well_formed: bool
    cut: bool = False


def parse_xml(text: str, limits: Limits, *, feed: bool = True) -> XmlRead:
    """Reads a document. Of a malformed feed it gives what can be read; of another malformed document (``feed`` is
    false) what stands before the fault and, where its elements allow it, behind. What goes beyond the bound on
    elements is left out beforehand: a tree of many small ones takes thirty times the text.

    The document type is taken out before parsing, so that the parser knows no entities at all. References are put
    in beforehand: the characters HTML names (``&nbsp;``), and entities the document declares as short plain text,
    which cannot nest. Other names stay as text.
    """
    text = _ILLEGAL.sub("", text).lstrip("\ufeff \t\r\n")
    if declaration := _DECLARATION.match(text):
        text = text[declaration.end() :].lstrip()
    declared: dict[str, str] = {}
    begin = text.upper().find("<!DOCTYPE", 0, _DOCTYPE_CHARS) if "<!" in text[:_DOCTYPE_CHARS] else -1
    if begin >= 0 and (doctype := _DOCTYPE.match(text, begin)):
        declared = {name: double or single for name, double, single in _DECLARED.findall(doctype.group(1) or "")}
        text = text[: doctype.start()] + text[doctype.end() :]
    if "&" in text:
        replace = _Replacement(declared)
        text = "".join(
            part if part.startswith("<![CDATA[") else _REFERENCE.sub(replace, part) for part in _split_cdata(text)
        )
    text, cut = _within(text, 2 * limits.elements)
    root = None if cut else _read(text.encode("utf-8"), recover=False)
    if root is not None:
        return XmlRead(root, well_formed=True)
    if not feed:
        return XmlRead(_read(text.encode("utf-8"), recover=True), cut, cut)
    better = repaired(text, tags=limits.elements, items=limits.feed_items)
    if better is None:
        return XmlRead(None, well_formed=False)
    return XmlRead(_read(better.text.encode("utf-8"), recover=True), False, cut or better.cut)


def _within(text: str, tags: int) -> tuple[str, bool]:
    """The text before the first tag that is one too many, and whether there was one."""
    if text.count("<") <= tags:
        return text, False
    at = -1
    for _ in range(tags + 1):
        at = text.find("<", at + 1)
    return text[:at], True


def _split_cdata(text: str) -> Iterator[str]:
    """The text's parts: CDATA sections, and what lies between them."""
    at = 0
    while (begin := text.find("<![CDATA[", at)) >= 0 and (end := text.find("]]>", begin)) >= 0:
        yield text[at:begin]
        at = end + 3
        yield text[begin:at]
    yield text[at:]


def _read(data: bytes, *, recover: bool) -> Element | None:
    parser = etree.XMLParser(
        encoding="utf-8",
        recover=recover,
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        strip_cdata=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError):
        return None
    return cast("Element | None", root)


class _Replacement:
    """What stands for an entity reference; a declared one only so often."""

    def __init__(self, declared: dict[str, str]) -> None:
        self._declared = declared
        self._left = _MAX_EXPANSIONS

    def __call__(self, found: re.Match[str]) -> str:
        reference, name = found.group(0), found.group(1)
        if name is None:
            return "&amp;" + reference[1:]
        if name.startswith("#"):
            code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
            return _escape(chr(code)) if code < _CODES and not _ILLEGAL.match(chr(code)) else "\ufffd"
        if name in _XML_ENTITIES:
            return f"&{name};"
        value = html5.get(name + ";")
        if value is None and self._left > 0 and name in self._declared:
            self._left -= 1
            value = self._declared[name]
        return "&amp;" + reference[1:] if value is None else _escape(value)


def local_name(element: Element) -> tuple[str, str]:
    """Namespace (empty for none) and local name in lower case."""
    tag = element.tag
    if not isinstance(tag, str):
        return "", ""
    if tag.startswith("{"):
        namespace, _, name = tag[1:].partition("}")
        return namespace.strip(), name.lower()
    prefix, _, name = tag.rpartition(":")
    return _PREFIXES.get(prefix.lower(), "?" + prefix if prefix else ""), name.lower()


def element_text(element: Element) -> str | None:
    """All text inside an element, ``None`` for none."""
    return "".join(element.itertext()).strip() or None


def markup_or_text(element: Element) -> str | None:
    """The text inside an element, or its content as HTML where it has elements."""
    return inner_markup(element) or None if len(element) else element_text(element)


def inner_markup(element: Element) -> str:
    """An element's content as HTML, without the element itself."""
    parts: list[str] = [_escape(element.text or "")]
    for child in element:
        _serialize(child, parts)
    return "".join(parts).strip()


def _serialize(element: Element, parts: list[str]) -> None:
    """Names lose their namespaces: what a feed holds is read as HTML. The reader bounds the depth at 256."""
    if isinstance(element.tag, str):
        name = element.tag.rpartition("}")[2]
        namespace = element.tag.partition("}")[0][1:]
        attributes = f' xmlns="{namespace}"' if name.lower() in _FOREIGN_ROOTS and namespace else ""
        attributes += "".join(
            f' {key.rpartition("}")[2]}="{_escape(value).replace(chr(34), "&quot;")}"'
            for key, value in element.attrib.items()
        )
        if name.lower() in _VOID and not len(element) and not element.text:
            parts.append(f"<{name}{attributes} />")
        else:
            parts.append(f"<{name}{attributes}>{_escape(element.text or '')}")
            for child in element:
                _serialize(child, parts)
            parts.append(f"</{name}>")
    parts.append(_escape(element.tail or ""))


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
