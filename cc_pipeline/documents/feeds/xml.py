"""Feeds are often broken, and some are hostile. Their XML is read safely (no entities but HTML's names of characters,
nothing fetched), and repaired if it is not well-formed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from html.entities import html5
from typing import NamedTuple, TypeAlias, cast
from xml.sax.saxutils import escape

from lxml import etree

from cc_pipeline.documents.page import Limits

_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:-]{0,127})((?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+)>")
#: A tag with a quote too many or too few.
_MALFORMED_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:-]{0,127})([^<>]*)>")
_ATTRIBUTE = re.compile(r"([^\s=\"'/<>]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'<>]+)))?")
_ATTRIBUTE_NAME = re.compile(r"[A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?\Z")
_ROOTS = frozenset({"rss", "feed", "rdf"})
_HOLDERS = _ROOTS | {"channel", "items"}
#: Elements of a channel that hold others.
_GROUPS = frozenset({"items", "image", "textinput", "cloud"})
_ITEMS = frozenset({"item", "entry"})
#: Elements of HTML that hold nothing; ``link`` and ``source`` are fields of feeds.
_NEVER_CLOSED = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "meta", "param", "track", "wbr"})
#: Fields that hold nothing if they have one of these attributes.
_EMPTY = {"link": "href", "enclosure": "url", "category": "term", "media:thumbnail": "url"}
#: Fields that hold only text, so that another field ends them.
_PLAIN = frozenset(
    {"title", "link", "guid", "pubdate", "id", "updated", "published", "modified", "issued", "created", "comments"}
    | {"category", "lastbuilddate", "language", "generator", "ttl", "managingeditor", "webmaster", "copyright"}
)
#: Fields that may hold unescaped markup.
_MARKUP = frozenset({"description", "summary", "content", "content:encoded", "subtitle", "tagline", "author"})
#: Fields no HTML has.
_NO_HTML = _PLAIN - {"title", "link"} | {"content:encoded", "enclosure"}
_EXTENSIONS = ("dc:", "dcterms:", "itunes:", "media:", "slash:", "wfw:", "feedburner:")
#: The XML reader allows 256.
_MAX_DEPTH = 200


#: Sections that are no tags: their beginning and end, and whether they are kept.
_SECTIONS = (("<![CDATA[", "]]>", True), ("<!--", "-->", False), ("<?", "?>", False), ("<!", ">", False))

#: Sections without references: their beginning and end.
_VERBATIM = {"<![CDATA[": "]]>", "<!--": "-->"}
_VERBATIM_START = re.compile("|".join(map(re.escape, _VERBATIM)))
_DOCTYPE = re.compile(r"<!DOCTYPE\b(?:[^<>\[\"']|\"[^\"]*\"|'[^']*')*+(?:\[(.*?)\]\s*)?>", re.IGNORECASE | re.DOTALL)
#: The first characters of a document, in which a document type may begin.
_DOCTYPE_CHARS = 65_536
_DECLARED = re.compile(r"""<!ENTITY\s+([A-Za-z_][\w.-]{0,63})\s+(?:"([^"&%<]{0,256})"|'([^'&%<]{0,256})')\s*>""")
_DECLARATION = re.compile(r"<\?xml\b[^>]{0,500}\?>")
#: A name, its semicolon, and the character after it that marks a parameter of an address or a longer name.
_REFERENCE = re.compile(r"&(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9_.-]{0,63})?(;?)(?=(=|\w)?)")
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_XML_ENTITIES = frozenset({"amp", "lt", "gt", "quot", "apos"})
#: Elements that start another language inside HTML.
_FOREIGN_ROOTS = frozenset({"svg", "math"})
_CODES = 0x110000
_MAX_EXPANSIONS = 10_000
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)

#: Prefixes that documents use even without declaring them.
_PREFIXES = {
    "dc": "http://purl.org/dc/elements/1.1/",
    "content": "http://purl.org/rss/1.0/modules/content/",
    "atom": "http://www.w3.org/2005/Atom",
    "dcterms": "http://purl.org/dc/terms/",
    "xhtml": "http://www.w3.org/1999/xhtml",
}

Element: TypeAlias = etree._Element


class Repaired(NamedTuple):
    """A well-formed document, and whether it is only the beginning of the original."""

    text: str
    cut: bool


def repaired(text: str, *, tags: int, items: int) -> Repaired | None:
    """Returns a malformed document as a well-formed one; ``None`` if there is no root element of a feed.

    ``text`` has no document type, and only references that XML knows. Text before the root is dropped. Takes time in
    proportion to the text's length, and ends after ``tags`` tags or ``items`` plus one items.
    """
    feed = _Repair()
    missing: set[str] = set()
    position = seen = 0
    while (begin := text.find("<", position)) >= 0 and seen < tags and feed.items <= items:
        seen += 1
        feed.text(text[position:begin])
        section = text[begin + 1 : begin + 2] in ("!", "?") and next(
            form for form in _SECTIONS if text.startswith(form[0], begin)
        )
        if not section:
            position = feed.tag(text, begin)
            continue
        opener, closer, is_text = section
        end = -1 if closer in missing else text.find(closer, begin + len(opener))
        if end < 0:
            # never closed: only its opener is dropped
            missing.add(closer)
            position = begin + len(opener)
            continue
        position = end + len(closer)
        if is_text:
            feed.text(text[begin:position], raw=True)
    if begin < 0:
        feed.text(text[position:])
    document = feed.document()
    return None if document is None else Repaired(document, seen >= tags and begin >= 0)


class _Repair:
    """The document so far, and the elements that are open: name as written and in lower case."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._open: list[tuple[str, str]] = []
        #: The positions in ``_open`` of items and their holders, and how often each name is open.
        self._holders: list[int] = []
        self._names: Counter[str] = Counter()
        self._root: str | None = None
        self.items = 0
        #: The root's end tag was read: after it only an item or another root counts.
        self._ended = False

    def text(self, text: str, *, raw: bool = False) -> None:
        """Adds text between tags; ``raw`` for a CDATA section."""
        if text and self._open and not self._ended:
            self._parts.append(text if raw else text.replace("]]>", "]]&gt;"))

    def tag(self, text: str, position: int) -> int:
        """Adds the tag at a position, or its ``<`` as text. Returns the position after it."""
        match = _TAG.match(text, position) or _MALFORMED_TAG.match(text, position)
        if match is None:
            self.text("&lt;")
            return position + 1
        if match[1]:
            self._end(match[2])
        else:
            self._start(match[2], match[3])
        return match.end()

    def document(self) -> str | None:
        """Closes every open element and returns the document; ``None`` without a root."""
        if self._root is None:
            return None
        self._close_to(0)
        return "".join(self._parts)

    def _start(self, name: str, written: str) -> None:
        lowered = name.lower()
        local = lowered.rpartition(":")[2]
        if self._root is None:
            if local not in _ROOTS and local != "channel" and not (local == "entry" and "Atom" in written):
                return
            self._root = lowered
        elif local in _ITEMS and self._is_item(lowered):
            self._ended = False
            self.items += 1
            self._close_items()
        elif self._ended or local in _ROOTS:
            # a second document continues in the first one's root
            self._ended = self._ended and local not in _ROOTS
            return
        elif local == "channel" and lowered.rpartition(":")[0] == self._root.rpartition(":")[0]:
            self._close_to(1)
        else:
            self._close_field(lowered, written)
        if len(self._open) >= _MAX_DEPTH:
            return
        attributes = _attributes(written)
        empty = written.endswith("/") or lowered in _NEVER_CLOSED or f" {_EMPTY.get(lowered)}=" in attributes
        if empty and self._open:
            self._parts.append(f"<{name}{attributes}/>")
            return
        self._parts.append(f"<{name}{attributes}>")
        if local in _HOLDERS or local in _ITEMS:
            self._holders.append(len(self._open))
        self._open.append((name, lowered))
        self._names[lowered] += 1

    def _end(self, name: str) -> None:
        lowered = name.lower()
        if lowered == self._root:
            self._close_to(1)
            self._ended = True
            return
        if not self._names[lowered]:
            return
        local = lowered.rpartition(":")[2]
        # a field's end tag ends no item, an item's end tag no channel
        passes = _ITEMS | _HOLDERS if local == "channel" else _ITEMS if local in _ITEMS else ()
        for place in range(len(self._open) - 1, 0, -1):
            open_name = self._open[place][1]
            if open_name == lowered:
                self._close_to(place)
                return
            open_name = open_name.rpartition(":")[2]
            if (open_name in _HOLDERS or open_name in _ITEMS) and open_name not in passes:
                return

    def _is_item(self, lowered: str) -> bool:
        """Whether an element of that name is an item: it has the prefix of the root, or none."""
        prefix = lowered.rpartition(":")[0]
        return not prefix or (self._root is not None and prefix == self._root.rpartition(":")[0])

    def _close_items(self) -> None:
        """Closes all elements inside the holder of items."""
        while self._holders and self._open[self._holders[-1]][1].rpartition(":")[2] in _ITEMS:
            self._close_to(self._holders[-1])
        self._close_to(1 + (self._holders[-1] if self._holders else 0))

    def _close_field(self, lowered: str, written: str) -> None:
        """Closes an open field if the new element cannot be inside it."""
        field = 1 + (self._holders[-1] if self._holders else 0)
        if field >= len(self._open):
            return
        holder = self._open[field][1]
        if lowered in _GROUPS and holder not in _GROUPS:
            ends = holder in _PLAIN or holder in _MARKUP
        elif holder in _PLAIN:
            ends = lowered in _PLAIN or lowered in _MARKUP or lowered in _NO_HTML or lowered.startswith(_EXTENSIONS)
        elif holder in _MARKUP:
            ends = lowered in _NO_HTML or lowered.startswith(_EXTENSIONS)
            if lowered == "link":
                ends = not written.strip(" /")
            elif lowered == "title":
                ends = not self._names["svg"]
        else:
            return
        if ends:
            self._close_to(field)

    def _close_to(self, depth: int) -> None:
        while len(self._open) > depth:
            name, lowered = self._open.pop()
            self._names[lowered] -= 1
            self._parts.append(f"</{name}>")
        while self._holders and self._holders[-1] >= depth:
            self._holders.pop()


def _attributes(written: str) -> str:
    """Returns attributes as XML; text that is no attribute is dropped."""
    if "=" not in written:
        return ""
    attributes: dict[str, str] = {}
    for name, *values in _ATTRIBUTE.findall(written):
        if _ATTRIBUTE_NAME.match(name):
            attributes.setdefault(name, next(filter(None, values), ""))
    return "".join(f' {name}="{value.replace(chr(34), "&quot;")}"' for name, value in attributes.items())


class XmlRead(NamedTuple):
    """The root of a document (``None`` if unreadable), whether it was well-formed, and whether it was cut."""

    root: Element | None
    well_formed: bool
    cut: bool = False


def parse_xml(text: str, limits: Limits, *, feed: bool = True) -> XmlRead:
    """Reads a document. A malformed feed is repaired; another malformed document (``feed`` is false) is read up to the
    fault and, if its elements allow it, after it. Elements beyond the limit are dropped before parsing: a tree of many
    small ones takes thirty times the text.

    The document type is removed before parsing, so that the parser knows no entities at all. References are replaced
    before parsing: HTML's names of characters (``&nbsp;``), and entities that the document declares as short plain
    text, which cannot nest. Other names stay as text. Without a semicolon a name is a reference only if HTML reads it
    so and neither ``=`` nor a letter or digit follows, as in addresses. A document with a repaired reference is not
    well-formed.
    """
    text = _ILLEGAL.sub("", text).lstrip("\ufeff \t\r\n")
    if declaration := _DECLARATION.match(text):
        text = text[declaration.end() :].lstrip()
    declared: dict[str, str] = {}
    begin = text.upper().find("<!DOCTYPE", 0, _DOCTYPE_CHARS) if "<!" in text[:_DOCTYPE_CHARS] else -1
    if begin >= 0 and (doctype := _DOCTYPE.match(text, begin)):
        declared = {name: double or single for name, double, single in _DECLARED.findall(doctype.group(1) or "")}
        text = text[: doctype.start()] + text[doctype.end() :]
    replace = None
    if "&" in text:
        replace = _Replacement(declared)
        text = "".join(
            part if part.startswith(tuple(_VERBATIM)) else _REFERENCE.sub(replace, part)
            for part in _split_verbatim(text)
        )
    text, cut = _cut_tags(text, 2 * limits.elements)
    root = None if cut else _read(text.encode("utf-8"), recover=False)
    if root is not None:
        return XmlRead(root, well_formed=replace is None or not replace.has_repaired)
    if not feed:
        return XmlRead(_read(text.encode("utf-8"), recover=True), cut, cut)
    better = repaired(text, tags=limits.elements, items=limits.feed_items)
    if better is None:
        return XmlRead(None, well_formed=False)
    return XmlRead(_read(better.text.encode("utf-8"), recover=True), False, cut or better.cut)


def _cut_tags(text: str, tags: int) -> tuple[str, bool]:
    """Returns the text with at most ``tags`` tags, and whether it was cut."""
    if text.count("<") <= tags:
        return text, False
    end = -1
    for _ in range(tags + 1):
        end = text.find("<", end + 1)
    return text[:end], True


def _split_verbatim(text: str) -> Iterator[str]:
    """Yields the text's parts in order: CDATA sections and comments, in which an ampersand is literal, and the parts
    between them."""
    position = 0
    while start := _VERBATIM_START.search(text, position):
        closing = _VERBATIM[start[0]]
        end = text.find(closing, start.end())
        if end < 0:
            break
        yield text[position : start.start()]
        position = end + len(closing)
        yield text[start.start() : position]
    yield text[position:]


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
    """Replaces entity references; declared ones at most ``_MAX_EXPANSIONS`` times.

    ``has_repaired``: a reference was met that XML does not allow: a bare ampersand, a name without a semicolon, an
    unknown name, or the number of no character.
    """

    def __init__(self, declared: dict[str, str]) -> None:
        self._declared = declared
        self._remaining = _MAX_EXPANSIONS
        self.has_repaired = False

    def __call__(self, match: re.Match[str]) -> str:
        value = self._value(match)
        if value is None or value == "\ufffd" or not match[2]:
            self.has_repaired = True
        return "&amp;" + match[0][1:] if value is None else value

    def _value(self, match: re.Match[str]) -> str | None:
        """Returns the escaped characters of a reference; ``None`` if it is no reference."""
        name = match[1]
        if not is_reference(match):
            return None
        if name.startswith("#"):
            code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
            return escape(chr(code)) if code < _CODES and not _ILLEGAL.match(chr(code)) else "\ufffd"
        if name in _XML_ENTITIES:
            return f"&{name};"
        value = html5.get(name + ";")
        if value is None and self._remaining > 0 and name in self._declared:
            self._remaining -= 1
            value = self._declared[name]
        return None if value is None else escape(value)


def is_reference(match: re.Match[str]) -> bool:
    """Whether a name after an ampersand may be a reference. A name without a semicolon is none if ``=``, a letter or a
    digit follows (then it is a parameter of an address), or if HTML requires the semicolon."""
    name = match[1]
    return bool(name) and (bool(match[2]) or name.startswith("#") or (not match[3] and name in html5))


def attribute_value(written: str) -> str:
    """Returns the value of an HTML attribute, its references replaced as HTML does in attributes."""
    return _REFERENCE.sub(lambda match: unescape(match[0]) if is_reference(match) else match[0], written)


def local_name(element: Element) -> tuple[str, str]:
    """Returns namespace (empty for none) and local name in lower case."""
    tag = element.tag
    if not isinstance(tag, str):
        return "", ""
    if tag.startswith("{"):
        namespace, _, name = tag[1:].partition("}")
        return namespace.strip(), name.lower()
    prefix, _, name = tag.rpartition(":")
    return _PREFIXES.get(prefix.lower(), "?" + prefix if prefix else ""), name.lower()


def element_text(element: Element) -> str | None:
    """Returns all text inside an element; ``None`` for none."""
    return "".join(element.itertext()).strip() or None


def inner_markup(element: Element) -> str:
    """Returns an element's content as HTML, without the element itself."""
    parts: list[str] = [escape(element.text or "")]
    for child in element:
        _serialize(child, parts)
    return "".join(parts).strip()


def _serialize(element: Element, parts: list[str]) -> None:
    """Writes an element without the namespaces of its names: the content of a feed is read as HTML. The reader bounds
    the depth at 256."""
    if isinstance(element.tag, str):
        name = element.tag.rpartition("}")[2]
        namespace = element.tag.partition("}")[0][1:]
        attributes = f' xmlns="{namespace}"' if name.lower() in _FOREIGN_ROOTS and namespace else ""
        attributes += "".join(
            f' {key.rpartition("}")[2]}="{escape(value).replace(chr(34), "&quot;")}"'
            for key, value in element.attrib.items()
        )
        if name.lower() in _VOID and not len(element) and not element.text:
            parts.append(f"<{name}{attributes} />")
        else:
            parts.append(f"<{name}{attributes}>{escape(element.text or '')}")
            for child in element:
                _serialize(child, parts)
            parts.append(f"</{name}>")
    parts.append(escape(element.tail or ""))
