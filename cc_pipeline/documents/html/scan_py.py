"""The passes over every node of a page, by selectolax's own nodes: used if the compiled scan is missing, and to test
it. The first pass removes scripts and styles from the tree; before the text is read, hidden texts are removed too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline.documents.html.tags import BLOCK, BREAK, CLASSES, TAGS
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
#: The possible parents of a page's title and base; elsewhere they are elements of drawings.
HOLDS_TITLE = frozenset(
    "head body html article aside center div footer form header main nav p section span table tbody td tr".split()
)
#: Elements that browsers show apart from the text around them: a link or a heading has a space there, and nowhere else.
APART = frozenset(tag for tag, roles in zip(TAGS, CLASSES, strict=True) if roles & (BLOCK | BREAK))
READ_TAGS = (*LINK_KEYS, "meta", "style", "title", "html", "base")

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


class ScanLimits(NamedTuple):
    """Limits of ``Collected``: links and meta tags, attributes of a tag and their characters (``bounded`` cuts those of
    a larger tag), and characters of the texts of links."""

    links: int
    metas: int
    attributes: int
    attribute_chars: int
    text_chars: int


#: ``:is`` ends at the first name that fits, and selects an element once.
_SELECTOR = f":is({','.join(READ_TAGS)})"
#: The type of JSON-LD is at least so long.
_LONG_TYPE = 19


def collected_plainly(tree: LexborHTMLParser, limits: ScanLimits, bounded: Bounded) -> Collected:
    """Does the same as ``scan.collected`` with the nodes of selectolax."""
    collected = Collected([], [], [], [], [], [], links_cut=False, metas_cut=False, depth=_depth(tree))
    pending: list[tuple[LexborNode, str, str, str, dict[str, str] | None]] = []
    removed = []
    for node in tree.css(_SELECTOR):
        tag = node.tag or ""
        if tag in REMOVED:
            removed.append(node)
        if tag == "style" or (tag in ("title", "base") and not _is_of_page(node)):
            continue
        if tag == "title":
            if not collected.titles and (title := node.text(deep=True)):
                collected.titles.append(title)
            continue
        attributes: dict[str, str] = _bound_values(node.attributes, limits, bounded)
        if tag == "meta":
            if len(collected.metas) < limits.metas:
                collected.metas.append(attributes)
            else:
                collected = collected._replace(metas_cut=True)
        elif tag in ("base", "html"):
            (collected.bases if tag == "base" else collected.roots).append(attributes)
        else:
            if tag == "script" and len(kind := attributes.get("type", "")) >= _LONG_TYPE:
                collected.scripts.append((kind, node.text()))
            for key in LINK_KEYS[tag]:
                href = attributes.get(key)
                if href and href[0] != "#":
                    if len(pending) < limits.links:
                        remaining = {name: value for name, value in attributes.items() if name != key}
                        pending.append((node, tag, key, href, remaining))
                    else:
                        collected = collected._replace(links_cut=True)
            if tag in WITH_SRCSET and "srcset" in attributes and len(pending) < limits.links:
                pending.append((node, tag, "srcset", attributes["srcset"], None))
    remove(removed)
    room = limits.text_chars
    for node, tag, key, href, link_attributes in pending:
        text: str | None = ""
        if tag in WITH_TEXT:
            text = text_plainly(node)[0] if room >= 0 else None
            room -= len(text or "")
        collected.links.append((tag, key, href, link_attributes, text))
    return collected


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


def text_plainly(root: Any, *, is_spaced: bool = False) -> tuple[str, int]:
    """Does the same as ``scan.text_of`` with the nodes of selectolax."""
    parts: list[str] = []
    waiting: list[LexborNode | str | None] = [root.child]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str) or node is None:
            parts.append(node or "")
            continue
        waiting.append(node.next)
        if node.is_text_node:
            parts.append(node.text(deep=False))
        elif node.is_element_node and node.tag not in REMOVED:
            space = " " if node.tag in APART else ""
            waiting += (space, node.child, space)
    size = len(root.text(deep=True).encode("utf-8", "replace"))
    return collapsed((" " if is_spaced else "").join(parts)), size


def links_plainly(
    raw: list[RawLink],
    places: dict[str, Place],
    place: Callable[[str], Place],
    split_srcset: Callable[[str, int], list[str]],
    item_index: int | None,
    max_links: int,
    bound: int,
) -> tuple[list[Link], bool, bool]:
    """Does the same as ``scan.links_of`` in Python."""
    links: list[Link] = []
    text_cut = False
    for tag, key, href, attributes, text in raw:
        if attributes is None:
            for image in split_srcset(href, max_links - len(links)):
                absolute, host, domain, display_host = places.get(image) or place(image)
                links.append(Link(tag, image, absolute, "", None, {}, host, domain, item_index, key, display_host))
            continue
        if len(links) >= max_links:
            return links, True, text_cut
        # links can nest through other elements, and each has the text of all elements inside it
        text_cut |= text is None or len(text) > bound
        absolute, host, domain, display_host = places.get(href) or place(href)
        cut, rel = (text or "")[:bound], attributes.get("rel")
        links.append(Link(tag, href, absolute, cut, rel, attributes, host, domain, item_index, key, display_host))
    return links, False, text_cut


def _bound_values(attributes: dict[str, Any], limits: ScanLimits, bounded: Bounded) -> dict[str, str]:
    """Returns attributes with every value a text (lexbor has ``None`` for no value), within the limits."""
    values = {name: value or "" for name, value in attributes.items()}
    if len(values) > limits.attributes or len("".join(values.values())) > limits.attribute_chars:
        return bounded(values)
    return values


def _is_of_page(node: LexborNode) -> bool:
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
