"""Malformed feeds made well-formed, so that one broken item costs no other.

A parser of XML that recovers closes tags by their number: after one unclosed ``<br>`` each item lies inside the one
before. What ends where is known better from what a feed looks like: items do not nest, and a field ends with its item.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:-]{0,127})((?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+)>")
#: A tag with a quote too many or too few.
_TORN = re.compile(r"<(/?)([A-Za-z_][\w.:-]{0,127})([^<>]*)>")
_ATTRIBUTE = re.compile(r"([^\s=\"'/<>]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'<>]+)))?")
_ATTRIBUTE_NAME = re.compile(r"[A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?\Z")
_ROOTS = frozenset({"rss", "feed", "rdf"})
_HOLDERS = _ROOTS | {"channel", "items"}
#: Elements of a channel that hold others.
_GROUPS = frozenset({"items", "image", "textinput", "cloud"})
_ITEMS = frozenset({"item", "entry"})
#: Elements of HTML that hold nothing; ``link`` and ``source`` are fields of feeds.
_VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "meta", "param", "track", "wbr"})
#: Fields that hold nothing where they have one of these attributes.
_EMPTY = {"link": "href", "enclosure": "url", "category": "term", "media:thumbnail": "url"}
#: Fields that hold text only, so that another field ends them.
_PLAIN = frozenset(
    {"title", "link", "guid", "pubdate", "id", "updated", "published", "modified", "issued", "created", "comments"}
    | {"category", "lastbuilddate", "language", "generator", "ttl", "managingeditor", "webmaster", "copyright"}
)
#: Fields that may hold markup as it is.
_MARKUP = frozenset({"description", "summary", "content", "content:encoded", "subtitle", "tagline", "author"})
#: Fields no HTML has.
_NO_HTML = _PLAIN - {"title", "link"} | {"content:encoded", "enclosure"}
_EXTENSIONS = ("dc:", "dcterms:", "itunes:", "media:", "slash:", "wfw:", "feedburner:")
#: What the reader of XML allows is 256.
_MOST_DEPTH = 200


#: Sections that are no tags: how they begin and end, and whether they are kept.
_SECTIONS = (("<![CDATA[", "]]>", True), ("<!--", "-->", False), ("<?", "?>", False), ("<!", ">", False))


class Repaired(NamedTuple):
    """A well-formed document, and whether it is no more than the beginning of what there was."""

    text: str
    cut: bool


def repaired(text: str, *, tags: int, items: int) -> Repaired | None:
    """A well-formed document with all that a malformed one says; ``None`` where there is no root element of a feed.

    ``text`` has no document type, and no references but those XML knows. What stands before the root is left out.
    Takes time in proportion to the text's length, and ends behind so many ``tags`` and one more than ``items``.
    """
    feed = _Repair()
    missing: set[str] = set()
    at = seen = 0
    while (begin := text.find("<", at)) >= 0 and seen < tags and feed.items <= items:
        seen += 1
        feed.text(text[at:begin])
        found = text[begin + 1 : begin + 2] in ("!", "?") and next(s for s in _SECTIONS if text.startswith(s[0], begin))
        if not found:
            at = feed.tag(text, begin)
            continue
        opener, closer, kept = found
        end = -1 if closer in missing else text.find(closer, begin + len(opener))
        if end < 0:
            # never closed: its beginning alone is left out
            missing.add(closer)
            at = begin + len(opener)
            continue
        at = end + len(closer)
        if kept:
            feed.text(text[begin:at], raw=True)
    if begin < 0:
        feed.text(text[at:])
    document = feed.document()
    return None if document is None else Repaired(document, seen >= tags and begin >= 0)


class _Repair:
    """The document so far, and the elements that are open: name as written and in lower case."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._open: list[tuple[str, str]] = []
        #: Where in ``_open`` the items and what holds them are, and how often each name is open.
        self._holders: list[int] = []
        self._names: Counter[str] = Counter()
        self._root: str | None = None
        self.items = 0
        #: The root's end tag was met: what follows counts only if it is an item, or another root.
        self._ended = False

    def text(self, text: str, *, raw: bool = False) -> None:
        """Text between tags; ``raw`` for a CDATA section."""
        if text and self._open and not self._ended:
            self._parts.append(text if raw else text.replace("]]>", "]]&gt;"))

    def tag(self, text: str, at: int) -> int:
        """Takes the tag at a place, or its first sign as text; where to go on."""
        found = _TAG.match(text, at) or _TORN.match(text, at)
        if found is None:
            self.text("&lt;")
            return at + 1
        if found[1]:
            self._end(found[2])
        else:
            self._start(found[2], found[3])
        return found.end()

    def document(self) -> str | None:
        """The whole, every open element closed."""
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
            # another document behind the first goes on in its root
            self._ended = self._ended and local not in _ROOTS
            return
        elif local == "channel" and lowered.rpartition(":")[0] == self._root.rpartition(":")[0]:
            self._close_to(1)
        else:
            self._close_field(lowered, written)
        if len(self._open) >= _MOST_DEPTH:
            return
        attributes = _attributes(written)
        empty = written.endswith("/") or lowered in _VOID or f" {_EMPTY.get(lowered)}=" in attributes
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
        # a field's end tag ends no item, an item's no channel
        passes = _ITEMS | _HOLDERS if local == "channel" else _ITEMS if local in _ITEMS else ()
        for place in range(len(self._open) - 1, 0, -1):
            each = self._open[place][1]
            if each == lowered:
                self._close_to(place)
                return
            each = each.rpartition(":")[2]
            if (each in _HOLDERS or each in _ITEMS) and each not in passes:
                return

    def _is_item(self, lowered: str) -> bool:
        """Whether an element of that name is an item here: it has the prefix of the root, or none."""
        prefix = lowered.rpartition(":")[0]
        return not prefix or (self._root is not None and prefix == self._root.rpartition(":")[0])

    def _close_items(self) -> None:
        """Closes all that is inside the element which items belong into."""
        while self._holders and self._open[self._holders[-1]][1].rpartition(":")[2] in _ITEMS:
            self._close_to(self._holders[-1])
        self._close_to(1 + (self._holders[-1] if self._holders else 0))

    def _close_field(self, lowered: str, written: str) -> None:
        """Closes a field that was left open, where one begins that cannot be inside it."""
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
    """Attributes as XML has them; what is none is left out."""
    if "=" not in written:
        return ""
    found: dict[str, str] = {}
    for name, *values in _ATTRIBUTE.findall(written):
        if _ATTRIBUTE_NAME.match(name):
            found.setdefault(name, next(filter(None, values), ""))
    return "".join(f' {name}="{value.replace(chr(34), "&quot;")}"' for name, value in found.items())
