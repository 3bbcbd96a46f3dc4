"""A page as tables of its elements and blocks, from one pass over every node of its tree. Main content and Markdown are
built on them.

A block is a run of text without a boundary: no block-level element, no two line breaks. White space in it is collapsed,
a single ``<br>`` is a line feed, ``pre`` stays unchanged. Left out are programs and styles, hidden elements
(``hidden``, ``display:none``, ``aria-hidden``, a closed dialog), ``noscript``, forms' choices, drawings, and the
readings of ruby. A shadow tree that the page declares is read in its place.
"""

from __future__ import annotations

import numpy as np
from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline import compiled
from cc_pipeline.documents.html.lexbor import NUMBERS, Page
from cc_pipeline.documents.html.tables import Blocks, Elements, Raw, Walk
from cc_pipeline.documents.html.tags import CLASSES, HINT_WORDS, INSIDES, ROLE_WORDS, TAGS
from cc_pipeline.documents.html.walk_py import walked_plainly


def walk(root: LexborNode, *, chars: int, elements: int) -> Walk:
    """Returns the tables of all nodes below ``root``, a page's ``body``; at most so many ``chars`` and ``elements``."""
    raw = _compiled(root, chars, elements) if COMPILED else walked_plainly(root, chars, elements)
    text, element_columns, block_columns, paths, addresses, cut = raw
    of_elements = np.frombuffer(element_columns, np.int32).reshape(len(Elements._fields), -1)
    of_blocks = np.frombuffer(block_columns, np.int32).reshape(len(Blocks._fields), -1)
    return Walk(
        text,
        Elements(*of_elements),
        Blocks(*of_blocks),
        np.frombuffer(paths, np.uint64),
        np.frombuffer(addresses, np.uint64),
        cut,
    )


def _compiled(root: LexborNode, chars: int, elements: int) -> Raw:
    return _walked(root.mem_id, chars, elements)


#: The page on which both walks are compared on import: it has everything that needs Lexbor's own structs.
_SAMPLE = (
    "<body class='has-sidebar'><nav id=topMenu><a href=/>Home</a></nav><article><h1>A title of a page</h1><p>One, two."
    "<i class='a editsection'>no</i><br>Three<br><br>four \u6f22<ruby>\u6f22<rt>kan</rt></ruby></p><pre>  a\n\n b "
    "</pre><x-y><template shadowrootmode=open>shadow</template></x-y><p hidden>unseen"
    "<math><mi>x</mi><annotation>x</annotation></math></article><script>no</script>"
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
    try:
        _set_up(page.reference_nodes, bytes(numbers), names, CLASSES, INSIDES, HINT_WORDS, ROLE_WORDS)
    except ImportError:
        return False
    sample = LexborHTMLParser(_SAMPLE).body
    return sample is not None and _compiled(sample, 1_000, 1_000) == walked_plainly(sample, 1_000, 1_000)


_set_up, _walked = compiled("documents.html._walk", "set_up"), compiled("documents.html._walk", "walked")
#: Whether the compiled function is in use.
COMPILED = _check()
