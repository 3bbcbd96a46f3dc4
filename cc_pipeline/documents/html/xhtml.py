"""XHTML that says it is XML, read as XML first.

An HTML parser takes ``<script/>`` and ``<title/>`` for tags that nothing ends and all that follows for their text, and
CDATA sections for comments. Where a page holds such and is well-formed, it is written again as the HTML it means.
"""

from __future__ import annotations

import html
import re

from lxml import etree

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
