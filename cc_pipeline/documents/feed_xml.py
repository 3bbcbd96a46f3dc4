"""XML of feeds, read safely: no entity is expanded but the characters HTML names, nothing is fetched."""

from __future__ import annotations

import re
from html.entities import html5
from typing import TypeAlias, cast

from lxml import etree

_DOCTYPE = re.compile(r"<!DOCTYPE\b(?:[^<>\[]|\[[^\]]*\])*>", re.IGNORECASE)
_DECLARATION = re.compile(r"\s*<\?xml\b[^>]{0,500}\?>")
_ENTITY = re.compile(r"&(#?[A-Za-z0-9]{1,32});?")
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_XML_ENTITIES = frozenset({"amp", "lt", "gt", "quot", "apos"})
_CDATA = re.compile(r"(<!\[CDATA\[.*?\]\]>)", re.DOTALL)

#: Prefixes as documents use them even where they forget to declare them.
_PREFIXES = {
    "dc": "http://purl.org/dc/elements/1.1/",
    "content": "http://purl.org/rss/1.0/modules/content/",
    "atom": "http://www.w3.org/2005/Atom",
    "dcterms": "http://purl.org/dc/terms/",
    "xhtml": "http://www.w3.org/1999/xhtml",
}

Element: TypeAlias = etree._Element


def parse_xml(text: str) -> tuple[Element | None, bool]:
    """The root of a document and whether it was well-formed. Malformed documents give what can be had.

    The document type is dropped before parsing, so that no entity can be declared; named characters of HTML
    (``&nbsp;``) are put in, other undeclared names stay as text.
    """
    text = _ILLEGAL.sub("", text)
    text = _DECLARATION.sub("", text, count=1).lstrip("\ufeff \t\r\n")
    text = _DOCTYPE.sub("", text, count=1)
    if "&" in text:
        text = "".join(
            part if part.startswith("<![CDATA[") else _ENTITY.sub(_character, part) for part in _CDATA.split(text)
        )
    data = text.encode("utf-8")
    root, clean = _read(data, recover=False), True
    if root is None:
        root, clean = _read(data, recover=True), False
    return root, clean


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


def _character(found: re.Match[str]) -> str:
    name = found.group(1)
    if name.startswith("#") or name in _XML_ENTITIES:
        return found.group(0)
    known = html5.get(name + ";")
    if known is None:
        return "&amp;" + found.group(0)[1:]
    return known.replace("&", "&amp;").replace("<", "&lt;")


def local_name(element: Element) -> tuple[str, str]:
    """Namespace (empty for none) and local name in lower case."""
    tag = element.tag
    if not isinstance(tag, str):
        return "", ""
    if tag.startswith("{"):
        namespace, _, name = tag[1:].partition("}")
        return namespace, name.lower()
    prefix, _, name = tag.rpartition(":")
    return _PREFIXES.get(prefix.lower(), "?" + prefix if prefix else ""), name.lower()


def inner_markup(element: Element) -> str:
    """An element's content as markup, without the element itself."""
    parts = [(element.text or "").replace("&", "&amp;").replace("<", "&lt;")]
    parts += [etree.tostring(child, encoding="unicode", method="xml") for child in element]
    return "".join(parts).strip()
