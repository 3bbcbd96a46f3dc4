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
#: Characters of a page beyond which it is read as HTML.
_MOST = 4 * 1024 * 1024


def as_html(text: str) -> str | None:
    """The HTML that an XHTML page means, ``None`` where its markup is the same in both, or where it is no XML.

    Read without its document type, so there are no entities to expand but HTML's own, and nothing to fetch.
    """
    if len(text) > _MOST or not _DIFFERENT.search(text):
        return None
    plain = _ENTITY.sub(_character, _DOCTYPE.sub("", text, count=1))
    parser = etree.XMLParser(encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(plain.encode("utf-8", "replace"), parser)
        return str(etree.tostring(root, method="html", encoding="unicode"))
    except (etree.XMLSyntaxError, etree.SerialisationError, ValueError):
        return None


def _character(found: re.Match[str]) -> str:
    return found.group(0) if found.group(1) in _OF_XML else html.escape(html.unescape(found.group(0)))
