"""The walk over a page: each node is visited once. What a browser shows is decided here, for all texts of the page.

Not shown is what the HTML standard does not render (15.3.1): ``hidden``, ``template``, ``noscript``, a closed dialog
or popover, and what an inline style does not display or makes invisible. A declarative shadow tree is shown before its
host's children. As readers can open it, what is in a closed ``details`` is shown; so are a hidden ``html`` and
``body``, which a script shows. The document of 2012 also has the links and meta tags in a ``noscript``.

The main content has less than a browser shows: no choices, drawings, readings of ruby, links to edit, and no copies for
those who see (``aria-hidden``). Its blocks are runs of text without a boundary: no block-level element, no two line
breaks. White space in it is collapsed, a single ``<br>`` is a line feed, ``pre`` stays unchanged.
"""

from __future__ import annotations

from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline import compiled
from cc_pipeline.documents.html.lexbor import NUMBERS, Page
from cc_pipeline.documents.html.links import linking
from cc_pipeline.documents.html.marks import Mark, WalkedPage, WalkLimits, WalkOptions
from cc_pipeline.documents.html.tags import (
    BESIDE,
    FOREIGN_ROLES,
    HINT,
    HINT_WORDS,
    INSIDES,
    LINK_KEYS,
    ROLE_WORDS,
    ROLES,
    SRCSETS,
    SVG_LINK_KEYS,
    TAGS,
)
from cc_pipeline.documents.html.urls import browser_resolver
from cc_pipeline.documents.html.walk_py import walk_plainly
from cc_pipeline.documents.page import Link


def walk(root: LexborNode, limits: WalkLimits, options: WalkOptions) -> WalkedPage:
    """Visits all nodes from the root element of a page on. Raises nothing but what ``options.parse`` raises."""
    return (walk_compiled if COMPILED else walk_plainly)(root, limits, options)


def walk_compiled(root: LexborNode, limits: WalkLimits, options: WalkOptions) -> WalkedPage:
    return WalkedPage(*_walked(root.mem_id, *limits, *options))


#: The page on which both walks are compared on import: it has everything that needs Lexbor's own structs.
_SAMPLE = (
    "<html lang=en><title>T</title><base href=/x><meta name=a content='b'><body class='has-sidebar'><nav id=topMenu>"
    "<a href=/ rel=author>Home</a></nav><article><h1>A title of a page</h1><p>One, two.<i class='a editsection'>no</i>"
    "<br>Three<br><br>four \u6f22<ruby>\u6f22<rt>kan</rt></ruby></p><pre>  a\n\n b </pre><x-y><template "
    "shadowrootmode=open>shadow</template></x-y><p hidden>unseen<math><mi>x</mi><annotation>x</annotation></math>"
    "</article><svg><a xlink:href=s>y</a></svg><script type='application/ld+json'>{}</script><img srcset='i 2x'>"
)


def _check() -> bool:
    """Sets up the compiled walk. Returns whether it agrees with the plain one for the installed selectolax."""
    if _set_up is None:
        return False
    page = Page()
    numbers, names = bytearray(NUMBERS), []
    for number, tag in enumerate(TAGS[1:], 1):
        tag_id = page.number(tag)
        if tag_id < NUMBERS:
            numbers[tag_id] = number
        else:
            names.append((tag.encode(), number, True))
    tables = (
        bytes(numbers),
        ROLES,
        INSIDES,
        FOREIGN_ROLES,
        HINT["byline"],
        HINT["edit"],
        BESIDE,
        names,
        HINT_WORDS,
        ROLE_WORDS,
    )
    try:
        _set_up(page.reference_nodes, *tables, TAGS, LINK_KEYS, SVG_LINK_KEYS, SRCSETS, Mark, Link)
    except ImportError:
        return False
    sample = LexborHTMLParser(_SAMPLE, scripting=True)
    root: Any = sample.root
    resolve = browser_resolver("https://example.org")
    options = WalkOptions(True, False, dict, lambda _: None, lambda _: linking(resolve, None))
    arguments = WalkLimits(1_000, 1_000, 9, 9, 99, 9, 99), options
    return walk_compiled(root, *arguments) == walk_plainly(root, *arguments)


_set_up, _walked = compiled("documents.html._walk", "set_up"), compiled("documents.html._walk", "walked")
#: Whether the compiled function is in use.
COMPILED = _check()
