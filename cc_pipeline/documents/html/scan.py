"""What is asked of every node of a page: what stands in its tags, elements by tag or attribute, and all of its text.
Compiled, over selectolax's tree as it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from selectolax.lexbor import LexborHTMLParser

from cc_pipeline import compiled
from cc_pipeline.documents.html.lexbor import NUMBERS, Page
from cc_pipeline.documents.html.scan_py import (
    HOLDS_TITLE,
    LINK_KEYS,
    REMOVED,
    UNREAD,
    WITH_SRCSET,
    WITH_TEXT,
    Bounded,
    Collected,
    Most,
    Place,
    RawLink,
    body_text_plainly,
    collected_plainly,
    links_plainly,
)
from cc_pipeline.documents.html.tags import TAGS
from cc_pipeline.documents.page import Link

# what a tag is to the scan; the same numbers in _scan.c
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
)
_SIGNS = {"": 0, "*=": 1, "~=": 2, "=": 3}


class Node(Protocol):
    """What both kinds of nodes have: selectolax's, and the compiled scan's."""

    @property
    def tag(self) -> str | None: ...
    @property
    def attributes(self) -> dict[str, str | None]: ...
    @property
    def parent(self) -> Node | None: ...
    @property
    def mem_id(self) -> int: ...
    def text(self, deep: bool = True, separator: str = "") -> str:
        """Of all text nodes below."""


class Rule(NamedTuple):
    """An attribute and a sign of CSS with a value in small letters, which may be written in any; no sign for any
    value."""

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


def collected(tree: LexborHTMLParser, most: Most, bounded: Bounded) -> Collected:
    """What stands in the page's tags, within bounds."""
    if not COMPILED or tree.root is None:
        return collected_plainly(tree, most, bounded)
    return Collected(*_collected(tree.root.mem_id, *most, bounded))


def links_of(
    raw: list[RawLink],
    places: dict[str, Place],
    place: Callable[[str], Place],
    own: Place | None,
    roots: dict[str, Place],
    pictures: Callable[[str, int], list[str]],
    item_index: int | None,
    most: int,
    bound: int,
) -> tuple[list[Link], bool, bool]:
    """Links of what was collected, whether there were more than ``most``, and whether one had more text than ``bound``.
    ``places`` has what is known of references, ``place`` says it of another; ``pictures`` are those of a srcset.

    ``own`` is the page's URL without a path, as long as paths under it stay as they are written, ``roots`` are such of
    other pages: of plain paths under them nothing else is asked."""
    if not COMPILED:
        return links_plainly(raw, places, place, pictures, item_index, most, bound)
    made: tuple[list[Link], bool, bool] = _links(
        raw, Link, places, place, own, roots, pictures, item_index, most, bound
    )
    return made


def selected(tree: LexborHTMLParser, selection: Selection) -> list[Any]:
    """The elements of a selection in document order, each a ``Node``, none within scripts; after ``collected``."""
    if not COMPILED or tree.root is None:
        return tree.css(selection.css)
    found: list[Any] = _selected(tree.root.mem_id, tree, selection.tags, selection.rules)
    return found


def body_text(tree: LexborHTMLParser) -> str:
    """All text of the page, white space collapsed; what it reads is of no use for anything else after it."""
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


#: What both are compared on when this is imported.
_SAMPLE = (
    "<html lang=en><head><title>T</title><base href=/x><meta name=a content='b'><style>s</style></head><body>"
    "<a href='/y' hidden>one <b>two</b><script type='application/ld+json'>{}</script></a><img src=i srcset='j 2x'>"
    "<video src=v poster=p></video><noscript>no</noscript><p>\u6f22&nbsp; x</p></body>"
)


def _check() -> bool:
    """Makes the compiled scan ready; whether it does what the plain one does with the selectolax that is here."""
    if _set_up is None:
        return False
    try:
        _set_up(_PAGE.known, _plans())
    except ImportError:
        return False
    ours, plain = LexborHTMLParser(_SAMPLE), LexborHTMLParser(_SAMPLE)
    most = Most(10, 10, 10, 100, 100)
    root, body = ours.root, ours.body
    return (
        root is not None
        and body is not None
        and Collected(*_collected(root.mem_id, *most, dict)) == collected_plainly(plain, most, dict)
        and _body_text(body.mem_id) == body_text_plainly(plain)
    )


_PAGE = Page()
_set_up, _collected = compiled("documents.html._scan", "set_up"), compiled("documents.html._scan", "collected")
_selected, _body_text = compiled("documents.html._scan", "selected"), compiled("documents.html._scan", "body_text")
_links = compiled("documents.html._scan", "links")
#: Whether the compiled one is in use.
COMPILED = _check()
