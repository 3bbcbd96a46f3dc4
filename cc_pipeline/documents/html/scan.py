"""The passes over every node of a page: the content of its tags, elements by tag or attribute, and all of its text.
Compiled, on selectolax's tree in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from selectolax.lexbor import LexborHTMLParser

from cc_pipeline import compiled
from cc_pipeline.documents.html.lexbor import NUMBERS, Page
from cc_pipeline.documents.html.scan_py import (
    APART,
    HOLDS_TITLE,
    LINK_KEYS,
    REMOVED,
    UNREAD,
    WITH_SRCSET,
    WITH_TEXT,
    Bounded,
    Collected,
    Place,
    RawLink,
    ScanLimits,
    body_text_plainly,
    collected_plainly,
    links_plainly,
    text_plainly,
)
from cc_pipeline.documents.html.tags import TAGS
from cc_pipeline.documents.page import Link

# the roles of a tag in the scan; the same numbers in _scan.c
_FLAGS = (
    (1, WITH_TEXT),
    (2, WITH_SRCSET),
    (4, {"script"}),
    (8, {"meta"}),
    (16, {"title"}),
    (32, {"base"}),
    (64, {"html"}),
    (128, REMOVED),
    (256, UNREAD),
    (512, HOLDS_TITLE),
    (1024, APART),
)
_SIGNS = {"": 0, "*=": 1, "~=": 2, "=": 3}


class Node(Protocol):
    """The common interface of selectolax's nodes and the compiled scan's."""

    @property
    def tag(self) -> str | None: ...
    @property
    def attributes(self) -> dict[str, str | None]: ...
    @property
    def parent(self) -> Node | None: ...
    @property
    def mem_id(self) -> int: ...


class Rule(NamedTuple):
    """An attribute, a sign of CSS and a value in lower case, compared without case; no sign for any value."""

    attribute: str
    sign: str = ""
    value: str = ""


class Selection:
    """Elements that have one of the tags, or an attribute by one of the rules."""

    def __init__(self, tags: tuple[str, ...], rules: tuple[Rule, ...]) -> None:
        signed = (
            f"[{rule.attribute}{rule.sign}{rule.value} i]" if rule.sign else f"[{rule.attribute}]" for rule in rules
        )
        self.css = f":is({','.join((*tags, *signed))})"
        self.tags = bytes(number in {_PAGE.number(tag) for tag in tags} for number in range(NUMBERS))
        self.rules = tuple((rule.attribute.encode(), _SIGNS[rule.sign], rule.value.encode()) for rule in rules)


def collected(tree: LexborHTMLParser, limits: ScanLimits, bounded: Bounded) -> Collected:
    """Collects the content of the page's tags, within limits."""
    if not COMPILED or tree.root is None:
        return collected_plainly(tree, limits, bounded)
    return Collected(*_collected(tree.root.mem_id, *limits, bounded))


def links_of(
    raw: list[RawLink],
    places: dict[str, Place],
    place: Callable[[str], Place],
    page_root: Place | None,
    roots: dict[str, Place],
    split_srcset: Callable[[str, int], list[str]],
    item_index: int | None,
    max_links: int,
    bound: int,
) -> tuple[list[Link], bool, bool]:
    """Returns the links of the collected tags, whether there were more than ``max_links``, and whether one had more
    text than ``bound``. ``places`` has the resolved references, ``place`` resolves another one.

    ``page_root`` is the page's URL without a path, if paths under it stay as written, ``roots`` those of other sites:
    plain paths under them need no further resolution."""
    if not COMPILED:
        return links_plainly(raw, places, place, split_srcset, item_index, max_links, bound)
    collected_links: tuple[list[Link], bool, bool] = _links(
        raw, Link, places, place, page_root, roots, split_srcset, item_index, max_links, bound
    )
    return collected_links


def selected(tree: LexborHTMLParser, selection: Selection) -> list[Any]:
    """Returns the elements of a selection in document order, each a ``Node``, none in scripts; after ``collected``."""
    if not COMPILED or tree.root is None:
        return tree.css(selection.css)
    nodes: list[Any] = _selected(tree.root.mem_id, tree, selection.tags, selection.rules)
    return nodes


def text_of(node: Node, *, is_spaced: bool = False) -> tuple[str, int]:
    """Returns the text below a node as browsers show it in one line: white space collapsed, a space at each end of a
    block and at a line break. Other elements have spaces around them only if ``is_spaced``. Returns the bytes that were
    read too."""
    text: tuple[str, int] = _node_text(node.mem_id, is_spaced) if COMPILED else text_plainly(node, is_spaced=is_spaced)
    return text


def body_text(tree: LexborHTMLParser) -> str:
    """Returns all text of the page, white space collapsed. The tree is unusable afterwards."""
    if not COMPILED:
        return body_text_plainly(tree)
    return "" if tree.body is None else str(_body_text(tree.body.mem_id))


def _plans() -> list[tuple[str, tuple[str, ...], int] | None]:
    plans: list[tuple[str, tuple[str, ...], int] | None] = [None] * NUMBERS
    for tag in TAGS[1:]:
        number = _PAGE.number(tag)
        if number < NUMBERS:
            plans[number] = (tag, LINK_KEYS.get(tag, ()), sum(flag for flag, tags in _FLAGS if tag in tags))
    return plans


#: The page on which both scans are compared on import.
_SAMPLE = (
    "<html lang=en><head><title>T</title><base href=/x><meta name=a content='b'><style>s</style></head><body>"
    "<a href='/y' hidden>one <b>two</b><script type='application/ld+json'>{}</script></a><img src=i srcset='j 2x'>"
    "<video src=v poster=p></video><noscript>no</noscript><p>\u6f22&nbsp; x</p></body>"
)


def _check() -> bool:
    """Sets up the compiled scan. Returns whether it agrees with the plain one for the installed selectolax."""
    if _set_up is None:
        return False
    try:
        _set_up(_PAGE.reference_nodes, _plans())
    except ImportError:
        return False
    compiled_tree, plain = LexborHTMLParser(_SAMPLE), LexborHTMLParser(_SAMPLE)
    limits = ScanLimits(10, 10, 10, 100, 100)
    root, body = compiled_tree.root, compiled_tree.body
    return (
        root is not None
        and body is not None
        and Collected(*_collected(root.mem_id, *limits, dict)) == collected_plainly(plain, limits, dict)
        and _body_text(body.mem_id) == body_text_plainly(plain)
    )


_PAGE = Page()
_set_up, _collected = compiled("documents.html._scan", "set_up"), compiled("documents.html._scan", "collected")
_selected, _body_text = compiled("documents.html._scan", "selected"), compiled("documents.html._scan", "body_text")
_node_text, _links = compiled("documents.html._scan", "node_text"), compiled("documents.html._scan", "links")
#: Whether the compiled function is in use.
COMPILED = _check()
