"""The passes over every node of a page, by selectolax's own nodes: used if the compiled scan is missing, and to test
it. The first pass removes scripts and styles from the tree; before the text is read, hidden texts are removed too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline.documents.html.whitespace import collapsed
from cc_pipeline.documents.page import LINK_ATTRIBUTE, Link

#: The attributes that hold links, by tag.
LINK_KEYS: dict[str, tuple[str, ...]] = {
    **{tag: (key,) for tag, key in LINK_ATTRIBUTE.items()},
    "form": ("action",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "source": ("src",),
    "object": ("data",),
    "embed": ("src",),
}
WITH_SRCSET = frozenset({"img", "source"})
WITH_TEXT = frozenset({"a", "area"})
#: Elements whose text is not part of the page's: the first are never read, the others only for links inside them.
REMOVED = frozenset({"script", "style"})
UNREAD = frozenset({"noscript", "template", "title", "iframe"})
#: The possible parents of a page's title.
HOLDS_TITLE = frozenset(
    "head body html article aside center div footer form header main nav p section span table tbody td tr".split()
)
WANTED = (*LINK_KEYS, "meta", "style", "title", "html", "base")

#: Tag, attribute, its value, the other attributes, text (``None`` beyond the limit); a srcset has no attributes.
RawLink = tuple[str, str, str, dict[str, str] | None, str | None]
#: Absolute URL, host, domain, and host as browsers show it.
Place = tuple[str | None, str | None, str | None, str | None]
Bounded = Callable[[dict[str, Any]], dict[str, str]]


class Collected(NamedTuple):
    """The content of a page's tags, in document order: links, attributes of ``meta``, the page's title if it has one,
    attributes of ``base`` and ``html``, type and text of scripts with a long type, whether there were more links and
    meta tags than the limits, and the depth of its elements (the root's is 1; templates' contents do not count)."""

    links: list[RawLink]
    metas: list[dict[str, str]]
    titles: list[str]
    bases: list[dict[str, str]]
    roots: list[dict[str, str]]
    scripts: list[tuple[str, str]]
    links_cut: bool
    metas_cut: bool
    depth: int


class Most(NamedTuple):
    """Limits of ``Collected``: links and meta tags, attributes of a tag and their characters (``bounded`` cuts those of
    a larger tag), and characters of the texts of links."""

    links: int
    metas: int
    attributes: int
    attribute_chars: int
    text_chars: int


#: ``:is`` ends at the first name that fits, and selects an element once.
_SELECTOR = f":is({','.join(WANTED)})"
#: The type of JSON-LD is at least so long.
_LONG_TYPE = 19


def collected_plainly(tree: LexborHTMLParser, most: Most, bounded: Bounded) -> Collected:
    """Does the same as ``scan.collected`` with the nodes of selectolax."""
    found = Collected([], [], [], [], [], [], links_cut=False, metas_cut=False, depth=_depth(tree))
    pending: list[tuple[LexborNode, str, str, str, dict[str, str] | None]] = []
    removed = []
    for node in tree.css(_SELECTOR):
        tag = node.tag or ""
        if tag in REMOVED:
            removed.append(node)
        if tag == "style":
            continue
        if tag == "title":
            if not found.titles and _is_page_title(node) and (title := node.text(deep=True)):
                found.titles.append(title)
            continue
        attributes: dict[str, str] = _within(node.attributes, most, bounded)
        if tag == "meta":
            if len(found.metas) < most.metas:
                found.metas.append(attributes)
            else:
                found = found._replace(metas_cut=True)
        elif tag in ("base", "html"):
            (found.bases if tag == "base" else found.roots).append(attributes)
        else:
            if tag == "script" and len(kind := attributes.get("type", "")) >= _LONG_TYPE:
                found.scripts.append((kind, node.text()))
            for key in LINK_KEYS[tag]:
                href = attributes.get(key)
                if href and href[0] != "#":
                    if len(pending) < most.links:
                        others = {name: value for name, value in attributes.items() if name != key}
                        pending.append((node, tag, key, href, others))
                    else:
                        found = found._replace(links_cut=True)
            if tag in WITH_SRCSET and "srcset" in attributes and len(pending) < most.links:
                pending.append((node, tag, "srcset", attributes["srcset"], None))
    remove(removed)
    room = most.text_chars
    for node, tag, key, href, rest in pending:
        text: str | None = ""
        if tag in WITH_TEXT:
            text = collapsed(node.text(True, " ")) if room >= 0 else None
            room -= len(text or "")
        found.links.append((tag, key, href, rest, text))
    return found


def _depth(tree: LexborHTMLParser) -> int:
    deepest, depth, node = 0, 1, tree.root
    while node is not None and depth:
        deepest = max(deepest, depth if node.is_element_node else 0)
        if node.child is not None:
            node, depth = node.child, depth + 1
            continue
        while node is not None and node.next is None and depth > 1:
            node, depth = node.parent, depth - 1
        node = node.next if node is not None and depth > 1 else None
    return deepest


def links_plainly(
    raw: list[RawLink],
    places: dict[str, Place],
    place: Callable[[str], Place],
    pictures: Callable[[str, int], list[str]],
    item_index: int | None,
    most: int,
    bound: int,
) -> tuple[list[Link], bool, bool]:
    """Does the same as ``scan.links_of`` in Python."""
    made: list[Link] = []
    text_cut = False
    for tag, key, href, attributes, text in raw:
        if attributes is None:
            for picture in pictures(href, most - len(made)):
                absolute, host, domain, shown = places.get(picture) or place(picture)
                made.append(Link(tag, picture, absolute, "", None, {}, host, domain, item_index, key, shown))
            continue
        if len(made) >= most:
            return made, True, text_cut
        # links can nest through other elements, and each has the text of all elements inside it
        text_cut |= text is None or len(text) > bound
        absolute, host, domain, shown = places.get(href) or place(href)
        cut, rel = (text or "")[:bound], attributes.get("rel")
        made.append(Link(tag, href, absolute, cut, rel, attributes, host, domain, item_index, key, shown))
    return made, False, text_cut


def _within(attributes: dict[str, Any], most: Most, bounded: Bounded) -> dict[str, str]:
    """Returns attributes with every value a text (lexbor has ``None`` for no value), within the limits."""
    values = {name: value or "" for name, value in attributes.items()}
    if len(values) > most.attributes or len("".join(values.values())) > most.attribute_chars:
        return bounded(values)
    return values


def _is_page_title(node: LexborNode) -> bool:
    parent = node.parent
    return parent is None or parent.tag in HOLDS_TITLE


def remove(nodes: list[LexborNode]) -> None:
    """Removes nodes from the tree; the last first, because a node is removed with its descendants."""
    for node in reversed(nodes):
        node.decompose()


def body_text_plainly(tree: LexborHTMLParser) -> str:
    """Does the same as ``scan.body_text`` with the nodes of selectolax."""
    remove(tree.css(f":is({','.join(UNREAD)})"))
    return "" if tree.body is None else collapsed(tree.body.text(deep=True, separator=" ", skip_empty=True))
