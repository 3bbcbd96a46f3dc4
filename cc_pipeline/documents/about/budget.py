"""Bounds the cost of reading a page's facts: texts, nodes and steps, shared by all readers of a page."""

from __future__ import annotations

from cc_pipeline.documents.html.scan import Node, text_of
from cc_pipeline.documents.page import Limits

#: Facts of real pages have a tenth of these.
_NODES = 20_000
_STEPS = 200_000
_CHARS = 1024 * 1024
_VALUE_CHARS = 16 * 1024


class Reading:
    """The budget left for a page. ``cut`` is true once something was left out because of it.

    The text of an element costs as much as the element is long, and elements nest: without a common bound, a page of
    nested headings would cost the square of its size.
    """

    def __init__(self, limits: Limits) -> None:
        self.cut = False
        self._chars = min(_CHARS, limits.text_chars)
        self._value_chars = min(_VALUE_CHARS, limits.attribute_chars)
        self._nodes = _NODES
        self._steps = _STEPS

    def node(self) -> bool:
        """Whether another element may be read."""
        self._nodes -= 1
        self.cut |= self._nodes < 0
        return self._nodes >= 0

    def step(self) -> bool:
        """Whether another step from element to element may be taken."""
        self._steps -= 1
        self.cut |= self._steps < 0
        return self._steps >= 0

    def take(self, text: str, max_chars: int | None = None) -> str | None:
        """Returns the text up to the bound; ``None`` once the budget is spent."""
        if self._chars <= 0:
            self.cut = True
            return None
        bound = self._value_chars if max_chars is None else max_chars
        self.cut |= len(text) > bound
        excerpt = text[:bound]
        self._chars -= len(excerpt)
        return excerpt

    def text(self, node: Node, max_chars: int | None = None, *, is_spaced: bool = False) -> str | None:
        """Returns the text of an element as ``text_of`` does. The full text is charged to the budget."""
        if self._chars <= 0:
            self.cut = True
            return None
        text, size = text_of(node, is_spaced=is_spaced)
        self._chars -= size
        bound = self._value_chars if max_chars is None else max_chars
        self.cut |= len(text) > bound
        return text[:bound]
