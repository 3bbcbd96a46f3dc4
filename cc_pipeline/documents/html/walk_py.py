"""The walk over a page in plain Python: used if the compiled one is missing, and to test it."""

from __future__ import annotations

import re
from array import array

from selectolax.lexbor import LexborNode

from cc_pipeline.documents.html.tables import AFTER_BREAKS, BEFORE_BREAKS, CLOSED, VERBATIM, Blocks, Elements, Raw
from cc_pipeline.documents.html.tags import (
    BLOCK,
    BREAK,
    CLASSES,
    DIALOG,
    HINT_WORDS,
    IMAGE,
    INSIDES,
    KIND,
    LEAF,
    LINK,
    MATH,
    NUMBER,
    PRE,
    ROLE_WORDS,
    SCRIPT,
    SKIPPED,
    STRONG,
    TEMPLATE,
    VISIBLE,
)

# classes of characters
_COMMAS = frozenset(",;\u060c\u061b\u3001\uff0c\uff1b")
_ENDS = frozenset(".!?\u061f\u2026\u3002\uff01\uff1f\u0964")
_SIGNS = frozenset("|\u00a9\u2022\u203a\u00b7\u2192\u00bb")
_DIGITS = frozenset("0123456789")
_UPPERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CLOSING = frozenset(".!?\"')]:;\u2026\u3002\uff01\uff1f\u0964\u00bb\u201d\u2019")

#: Bytes of a value that are read for hints and paths, and of a word in it.
_VALUE, _LONGEST_WORD = 512, 24


class _Element:
    """A row of the table of elements while it is built, and the state that its children inherit."""

    __slots__ = ("address", "column", "link", "path", "state")

    def __init__(self, parent: int, parent_element: _Element | None) -> None:
        self.column = dict.fromkeys(Elements._fields, 0)
        self.column["parent"] = parent
        self.link, self.state, self.path, self.address = 0, 0, 14695981039346656037, 0
        if parent_element is not None:
            for name in ("holder", "kind", "inside", "above"):
                self.column[name] = parent_element.column[name]
            self.column["depth"] = parent_element.column["depth"] + 1
            self.link, self.state, self.path = parent_element.link, parent_element.state, parent_element.path


#: Classes of links to edit a section, which wikis put into its heading.
_EDITS = frozenset((b"mw-editsection", b"editsection"))

_NOTHING, _A_SPACE, _A_BREAK = range(3)


class _Plain:
    """The walk of ``_walk.c``, by pieces of text instead of characters."""

    def __init__(self, chars: int, elements: int) -> None:
        self.most_chars, self.most_elements = chars, elements
        self.elements: list[_Element] = []
        self.blocks: list[dict[str, int]] = []
        self.texts: list[str] = []
        self.chars = 0
        self.cut = False
        self.fresh()
        self.pending = _NOTHING

    def fresh(self) -> None:
        self.block = dict.fromkeys(Blocks._fields, 0)
        self.pieces: list[str] = []
        self.open = False
        self.last_text_counts = (0, 0, 0)

    def end_block(self) -> None:
        if not self.open:
            self.block["images"] = self.block["flags"] = 0
            return
        block, (chars, linked, strong) = self.block, self.last_text_counts
        text = "".join(self.pieces)[:chars]
        self.chars = block["start"] + chars
        if text:
            self.texts.append(text)
            block |= {"chars": chars, "linked": linked, "strong": strong}
            if text[-1] in _CLOSING and self.after_text:
                block["flags"] |= CLOSED
            self.blocks.append(block)
        elif self.blocks:
            self.chars -= 1
        self.fresh()
        self.pending = _NOTHING

    def put(self, element: _Element, piece: str) -> None:
        """Appends white space or a piece without any."""
        block = self.block
        if not self.open:
            if self.blocks:
                self.chars += 1
            self.open = True
            self.last_link = 0
            self.after_text = False
            block["element"], block["kind"] = element.column["holder"], element.column["kind"]
            block["start"] = self.chars
            if element.state & PRE:
                block["flags"] |= VERBATIM
        room = max(self.most_chars - self.chars, 0)
        if len(piece) > room:
            self.cut = True
            piece = piece[:room]
            if not piece:
                return
        self.pieces.append(piece)
        self.chars += len(piece)
        if element.link:
            block["linked"] += len(piece)
        if element.state & STRONG:
            block["strong"] += len(piece)
        if piece.isspace():
            self.after_text = False
            return
        block["words"] += not self.after_text
        self.after_text = True
        if not (piece.isalpha() and piece.islower()):
            for name, kind in (
                ("commas", _COMMAS), ("ends", _ENDS), ("signs", _SIGNS), ("digits", _DIGITS), ("uppers", _UPPERS)
            ):  # fmt: skip
                block[name] += sum(character in kind for character in piece)
        if element.link and element.link != self.last_link:
            block["links"] += 1
            self.last_link = element.link
        self.last_text_counts = (self.chars - block["start"], block["linked"], block["strong"])

    def read_text(self, element: _Element, text: str) -> None:
        verbatim = element.state & PRE
        for piece in _PIECE.findall(text):
            if self.cut:
                return
            space = piece.isspace()
            if verbatim:
                visible_text = piece.lstrip("\n") if space and not self.open else piece
                if visible_text:
                    self.put(element, visible_text)
            elif space:
                self.pending = self.pending or _A_SPACE
            else:
                if self.pending and self.open:
                    self.put(element, "\n" if self.pending == _A_BREAK else " ")
                self.pending = _NOTHING
                if not self.cut:
                    self.put(element, piece)

    def boundary(self, outer: _Element) -> None:
        if not outer.state & PRE:
            self.end_block()
        elif self.open and not (self.pieces and self.pieces[-1].endswith("\n")):
            self.put(outer, "\n")

    def line_break(self, outer: _Element) -> None:
        if outer.state & PRE:
            if self.open:
                self.put(outer, "\n")
        elif self.open and self.pending != _A_BREAK:
            self.pending = _A_BREAK
        elif self.open:
            self.block["flags"] |= BEFORE_BREAKS
            self.end_block()
            self.block["flags"] = AFTER_BREAKS

    def enter(self, node: LexborNode, parent: int, stack: list[tuple[LexborNode | None, int, bool]]) -> None:
        number = NUMBER.get(node.tag or "", 0)
        kind = CLASSES[number]
        outer = self.elements[parent] if parent >= 0 else None
        if outer is not None:
            if kind & BREAK:
                self.line_break(outer)
            self.block["images"] += bool(kind & IMAGE)
            if kind & SKIPPED:
                return
        attributes = {name: (value or "").encode()[:_VALUE] for name, value in node.attributes.items()}
        if outer is not None and kind & TEMPLATE:
            if "shadowrootmode" in attributes and not outer.state & MATH:
                for content in node.template_fragments()[:1]:
                    stack.append((content.first_child, parent, False))
            return
        if kind & SCRIPT and not attributes.get("type", b"").startswith(b"math/tex"):
            return
        hidden = _is_hidden(attributes) or (kind & DIALOG and "open" not in attributes)
        if hidden and not kind & VISIBLE:
            return
        if len(self.elements) >= self.most_elements:
            self.cut = True
            return
        if outer is not None and kind & BLOCK:
            self.boundary(outer)
        index = len(self.elements)
        element = _Element(parent, outer)
        column = element.column
        hints = _hints(attributes)
        column |= {"tag": number, "entry": self.chars, "first": len(self.blocks), "hints": hints}
        column["inside"] |= INSIDES[number]
        element.address = node.mem_id
        self.elements.append(element)
        if outer is not None:
            column["above"] |= hints
        if outer is None or kind & BLOCK:
            column["holder"] = index
        if kind & KIND:
            column["kind"] = number
        if kind & LINK and "href" in attributes:
            element.link = index
        element.state |= kind & (STRONG | PRE | MATH)
        name = bytes((number,)) if number else (node.tag or "").encode()
        for byte in name + b"\0" + attributes.get("class", b""):
            element.path = ((element.path ^ byte) * 1099511628211) & 0xFFFF_FFFF_FFFF_FFFF
        if kind & LEAF:
            column |= {"finish": index + 1, "last": len(self.blocks) + self.open}
        else:
            stack.append((node.first_child, index, True))

    def leave(self, index: int) -> None:
        column = self.elements[index].column
        if column["parent"] < 0:
            self.end_block()
        elif CLASSES[column["tag"]] & BLOCK:
            self.boundary(self.elements[column["parent"]])
        column |= {"finish": len(self.elements), "last": len(self.blocks) + self.open}


_PIECE = re.compile(r"\s+|\S+")
_WORD = re.compile(rb"[A-Za-z0-9]+")
_BEFORE_CAPITAL = re.compile(rb"(?<=[a-z0-9])(?=[A-Z])")


def _hints(attributes: dict[str, bytes]) -> int:
    hints = 0
    for name in ("class", "id", "itemprop"):
        for word in _WORD.findall(_BEFORE_CAPITAL.sub(b" ", attributes.get(name, b""))):
            hints |= _hint_of(word[:_LONGEST_WORD].lower(), HINT_WORDS)
    return hints | _hint_of(attributes.get("role", b""), ROLE_WORDS)


def _hint_of(word: bytes, hint_words: list[tuple[bytes, int, bool]]) -> int:
    hints = 0
    for hint_word, hint, is_exact in hint_words:
        if word == hint_word or (not is_exact and word.startswith(hint_word)):
            hints |= hint
    return hints


def _is_hidden(attributes: dict[str, bytes]) -> bool:
    return (
        ("hidden" in attributes and attributes["hidden"] != b"until-found")
        or attributes.get("aria-hidden") == b"true"
        or b"display:none" in attributes.get("style", b"").lower().replace(b" ", b"")
        or not _EDITS.isdisjoint(attributes.get("class", b"").split())
    )


def walked_plainly(root: LexborNode, chars: int, elements: int) -> Raw:
    """Returns the tables of all nodes below an element, as ``_walk.c`` does."""
    state = _Plain(chars, elements)
    stack: list[tuple[LexborNode | None, int, bool]] = []
    state.enter(root, -1, stack)
    while stack:
        node, element, ends_it = stack.pop()
        if node is None or state.cut:
            if ends_it:
                state.leave(element)
            continue
        stack.append((node.next, element, ends_it))
        if node.is_text_node:
            state.read_text(state.elements[element], node.text(deep=False))
        elif node.is_element_node:
            state.enter(node, element, stack)
    walked_elements = state.elements
    for row in walked_elements:  # it may share a block that stayed empty
        row.column["last"] = min(row.column["last"], len(state.blocks))
    return (
        "\n".join(state.texts),
        b"".join(array("i", _signed([row.column[name] for row in walked_elements])) for name in Elements._fields),
        b"".join(array("i", [block[name] for block in state.blocks]) for name in Blocks._fields),
        array("Q", [row.path for row in walked_elements]).tobytes(),
        array("Q", [row.address for row in walked_elements]).tobytes(),
        state.cut,
    )


def _signed(values: list[int]) -> list[int]:
    return [value - (1 << 32) if value >= 1 << 31 else value for value in values]
