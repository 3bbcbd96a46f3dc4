"""The main content of a page, before any of it is chosen: a table of its elements, and one of its blocks of text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int32]

#: Flags of a block: two line breaks before it or after it; its last character ends a sentence, a quote or a bracket; it
#: is kept as written.
AFTER_BREAKS, BEFORE_BREAKS, CLOSED, VERBATIM = 1, 2, 4, 8


class Elements(NamedTuple):
    """The elements in document order, ``body`` first, without those of skipped subtrees.

    ``parent`` is the row of the parent, -1 for the root; ``tag`` a number of ``TAGS``; ``first`` and ``last`` the range
    of its blocks: ``[first:last]`` (an inline element begins in the block that is open, which it shares).
    ``holder`` is the row of the nearest block-level element (a block's ``element``), ``kind`` the tag of the nearest
    element that classifies its text (p, li, td, h1 …), 0 for none. ``hints`` are bits of ``HINT`` by its class, id,
    itemprop and role, ``above`` those of it and its ancestors below the root; ``inside`` bits of ``IN`` of both.
    """

    parent: Column
    tag: Column
    first: Column
    last: Column
    holder: Column
    kind: Column
    hints: Column
    above: Column
    inside: Column
    depth: Column


class Blocks(NamedTuple):
    """The blocks in document order. ``element`` is the row of the element around it, ``start`` and ``chars`` locate its
    text, ``words`` are runs without white space. ``linked`` and ``strong`` count characters in links and
    in bold (with the space before), ``links`` links with text in it; ``commas``, ``ends`` (of sentences), ``signs``
    (``|``, ``©``, bullets, arrows), ``digits`` and ``uppers`` (A to Z) characters of that kind; ``images`` images in
    or right before it. ``kind`` is that of the element it began in, ``flags`` are ``AFTER_BREAKS`` and so on.
    """

    element: Column
    start: Column
    chars: Column
    words: Column
    linked: Column
    links: Column
    strong: Column
    commas: Column
    ends: Column
    signs: Column
    digits: Column
    uppers: Column
    images: Column
    kind: Column
    flags: Column


#: The raw form of ``Tables``: text, columns of elements and of blocks, paths, addresses, shadows, whether it was cut.
RawTables = tuple[str, bytes, bytes, bytes, bytes, bytes, bool]


class Tables(NamedTuple):
    """The tables of a page. ``text`` is that of all blocks, a line feed between any two. ``path`` is a number for the
    tags and classes from the root to an element, ``address`` its node's ``mem_id``; ``shadows`` are those of the
    templates that are shadow trees. ``cut``: a limit was reached."""

    text: str
    elements: Elements
    blocks: Blocks
    path: NDArray[np.uint64]
    address: NDArray[np.uint64]
    shadows: NDArray[np.uint64]
    cut: bool

    @classmethod
    def from_raw(cls, raw: RawTables) -> Tables:
        text, elements, blocks, paths, addresses, shadows, cut = raw
        return cls(
            text,
            Elements(*np.frombuffer(elements, np.int32).reshape(len(Elements._fields), -1)),
            Blocks(*np.frombuffer(blocks, np.int32).reshape(len(Blocks._fields), -1)),
            np.frombuffer(paths, np.uint64),
            np.frombuffer(addresses, np.uint64),
            np.frombuffer(shadows, np.uint64),
            cut,
        )

    def text_of(self, block: int) -> str:
        start = int(self.blocks.start[block])
        return self.text[start : start + int(self.blocks.chars[block])]
