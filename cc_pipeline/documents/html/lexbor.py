"""What the compiled parts need of selectolax to read its nodes where they lie: nodes whose content is known, and
Lexbor's numbers of tags."""

from __future__ import annotations

import selectolax.lexbor
from selectolax.lexbor import LexborHTMLParser

_TEXT = "a text that is known, as long as no number in a struct is likely to be: " * 3
#: Lexbor's own tags have numbers below this.
NUMBERS = 256

#: selectolax's module, the address of a text node and its text, those of a template and of its content.
Known = tuple[str, int, bytes, int, int]


class Page:
    """A page that is known; ``known`` is good as long as it is kept."""

    def __init__(self) -> None:
        self._tree = LexborHTMLParser("<body>" + _TEXT + "<template>x</template>")
        body, template = self._tree.body, self._tree.css_first("template")
        if body is None or template is None or body.first_child is None:
            raise ImportError("selectolax reads a page in another way than before")
        content = template.template_fragments()[0]
        self.known: Known = (
            selectolax.lexbor.__file__,
            body.first_child.mem_id,
            _TEXT.encode(),
            template.mem_id,
            content.mem_id,
        )

    def number(self, tag: str) -> int:
        """Lexbor's number of a tag; those of ``NUMBERS`` and above are not the same in every page."""
        return self._tree.create_node(tag).tag_id
