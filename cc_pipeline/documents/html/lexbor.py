"""Data for the compiled parts, which read selectolax's nodes in place: nodes of known content, and Lexbor's numbers of
tags."""

from __future__ import annotations

import selectolax.lexbor
from selectolax.lexbor import LexborHTMLParser

_TEXT = "a text that is known, as long as no number in a struct is likely to be: " * 3
#: Lexbor's own tags have lower numbers.
NUMBERS = 256

#: selectolax's module, the address of a text node and its text, those of a template and of its content.
ReferenceNodes = tuple[str, int, bytes, int, int]


class Page:
    """A page of known content; ``reference_nodes`` is valid as long as the object exists."""

    def __init__(self) -> None:
        self._tree = LexborHTMLParser("<body>" + _TEXT + "<template>x</template>")
        body, template = self._tree.body, self._tree.css_first("template")
        if body is None or template is None or body.first_child is None:
            raise ImportError("unknown build of selectolax: it parses the reference page differently")
        content = template.template_fragments()[0]
        self.reference_nodes: ReferenceNodes = (
            selectolax.lexbor.__file__,
            body.first_child.mem_id,
            _TEXT.encode(),
            template.mem_id,
            content.mem_id,
        )

    def number(self, tag: str) -> int:
        """Returns Lexbor's number of a tag; numbers from ``NUMBERS`` on differ from page to page."""
        return self._tree.create_node(tag).tag_id
