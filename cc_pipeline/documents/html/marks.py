"""What the walk over a page hands to its readers: its texts, and the elements that are read one by one."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from selectolax.lexbor import LexborNode

from cc_pipeline.documents.html.tables import RawTables
from cc_pipeline.documents.html.tags import IS_UNSEEN
from cc_pipeline.documents.html.whitespace import collapsed
from cc_pipeline.documents.page import Link


class Mark(NamedTuple):
    """An element with a fact about the page: its tag is in small letters.

    ``[start:end]`` is the place of its text: in the page's text, or if a browser does not show the element
    (``IS_UNSEEN`` in ``state``) in that of all such elements. ``parent`` is the index of the nearest mark around it, -1
    for none; ``hints`` are bits of ``HINT``, ``around`` those of it and the next elements around it; ``raw`` is the
    text of a title or a script of data.
    """

    tag: str
    attributes: dict[str, str]
    start: int
    end: int
    parent: int
    state: int
    hints: int
    around: int
    raw: str


#: Absolute URL, host, domain, and host as browsers show it.
Place = tuple[str | None, str | None, str | None, str | None]


class Linking(NamedTuple):
    """What the links of a page are made with. ``places`` are the references that are resolved, ``place`` resolves
    another one and adds it. ``root`` is the place of the page's own root, its URL without the final slash, ``None`` if
    references have to be resolved one by one; ``roots`` are those of other sites, by scheme and host.
    ``split_srcset`` returns the addresses of a srcset, at most so many; ``item_index`` is that of all links."""

    places: dict[str, Place]
    place: Callable[[str], Place]
    root: Place | None
    roots: dict[str, Place]
    split_srcset: Callable[[str, int], list[str]]
    item_index: int | None


class WalkLimits(NamedTuple):
    """Limits of a walk: characters of the tables, and of the texts of all links; elements of the tables; links, meta
    tags, facts; attributes of a tag and their characters (a larger tag is passed to ``bound``), as many as the text of
    a link may have."""

    chars: int
    elements: int
    links: int
    metas: int
    facts: int
    attributes: int
    attribute_chars: int


class WalkOptions(NamedTuple):
    """``with_tables``: the tables of the main content are made; ``with_ids``: all elements with an id are marked.
    ``bound`` cuts the attributes of a tag to the limits; ``parse`` returns the root of the tree of what is in a
    ``noscript``, if that has one; that tree is read before the next is asked for. ``link`` is called with the facts,
    which name the base of references."""

    with_tables: bool
    with_ids: bool
    bound: Callable[[dict[str, Any]], dict[str, str]]
    parse: Callable[[bytes], LexborNode | None]
    link: Callable[[list[Mark]], Linking]


class WalkedPage(NamedTuple):
    """``text`` is what a browser shows of the page, in one line: white space collapsed, a space at each end of a block
    and at a line break. ``unseen`` is the text of elements that it does not show. ``seams`` are the places in ``text``
    where a node ends (int32). ``tables`` are ``None`` if there is no body, or nobody asked for them. ``depth`` is that
    of the elements, the root's is 1. ``has_references``: an element refers to others by their ids (``itemref``)."""

    text: str
    unseen: str
    seams: bytes
    links: list[Link]
    facts: list[Mark]
    tables: RawTables | None
    depth: int
    has_references: bool
    links_cut: bool
    link_texts_cut: bool
    metas_cut: bool
    facts_cut: bool

    def text_of(self, mark: Mark, max_chars: int | None = None) -> str:
        """Returns the text of an element, at most so many characters."""
        end = mark.end if max_chars is None else min(mark.end, mark.start + max_chars)
        return (self.unseen if mark.state & IS_UNSEEN else self.text)[mark.start : end]

    def spaced_text_of(self, mark: Mark, max_chars: int) -> str:
        """Returns the same with a space between all its elements: names and dates are in elements of their own."""
        text = self.text_of(mark, max_chars)
        if mark.state & IS_UNSEEN:
            return text
        places = array("i", self.seams)
        inner = places[bisect_left(places, mark.start + 1) : bisect_left(places, mark.start + len(text))]
        ends = [mark.start, *inner, mark.start + len(text)]
        return collapsed(" ".join(self.text[start:end] for start, end in pairwise(ends)))[:max_chars]
