"""The walk over a page in plain Python: used if the compiled one is missing, and to test it."""

from __future__ import annotations

import re
from array import array
from typing import NamedTuple

from selectolax.lexbor import LexborNode

from cc_pipeline.documents.html.marks import Linking, Mark, WalkedPage, WalkLimits, WalkOptions
from cc_pipeline.documents.html.tables import AFTER_BREAKS, BEFORE_BREAKS, CLOSED, VERBATIM, Blocks, Elements, RawTables
from cc_pipeline.documents.html.tags import (
    BESIDE,
    BLOCK,
    BODY,
    BREAK,
    BYLINE,
    DIALOG,
    DRAWING,
    FACT,
    FOREIGN,
    FOREIGN_ROLES,
    HINT,
    HINT_WORDS,
    HOST,
    IMAGE,
    INPUT,
    INSIDES,
    INTEGRATION,
    IS_FOREIGN,
    IS_INERT,
    IS_UNSEEN,
    KIND,
    LEAF,
    LINK,
    LINK_KEYS,
    LINKED,
    MAIN,
    META,
    NOSCRIPT,
    NUMBER,
    PRE,
    RAW,
    ROLE_WORDS,
    ROLES,
    ROOT,
    SCRIPT,
    SKIPPED,
    SRCSETS,
    STRONG,
    SVG_LINK_KEYS,
    TAGS,
    TEMPLATE,
    UNSEEN,
)
from cc_pipeline.documents.page import Link

# classes of characters
_COMMAS = frozenset(",;\u060c\u061b\u3001\uff0c\uff1b")
_ENDS = frozenset(".!?\u061f\u2026\u3002\uff01\uff1f\u0964")
_SIGNS = frozenset("|\u00a9\u2022\u203a\u00b7\u2192\u00bb")
_DIGITS = frozenset("0123456789")
_UPPERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CLOSING = frozenset(".!?\"')]:;\u2026\u3002\uff01\uff1f\u0964\u00bb\u201d\u2019")

#: Bytes of a value that are read for hints and paths, and of a word in it.
_VALUE, _LONGEST_WORD = 512, 24
#: Elements whose names are around a mark, with its own.
_AROUND = 8
#: Further states: shown but no content; inside of a drawing or formula.
_IS_ASIDE, _IS_DRAWN = 16, 32
#: The type of JSON-LD is at least so long.
_JSON_LD_TYPE = 19


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


_NOTHING, _A_SPACE, _A_BREAK = range(3)


class _Tables:
    """The tables of the main content, made by pieces of text instead of characters."""

    def __init__(self, chars: int, elements: int) -> None:
        self.most_chars, self.most_elements = chars, elements
        self.elements: list[_Element] = []
        self.blocks: list[dict[str, int]] = []
        self.texts: list[str] = []
        self.chars = 0
        self.cut = False
        self.shadows = array("Q")
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

    def add_element(self, node: LexborNode, number: int, roles: int, found: _Attributes, parent: int) -> int:
        """Returns the row of an element; -1 if the table is full."""
        index = len(self.elements)
        if index >= self.most_elements:
            self.cut = True
            return -1
        element = _Element(parent, self.elements[parent] if parent >= 0 else None)
        column = element.column
        blocks = len(self.blocks)
        column |= {"tag": number, "first": blocks, "last": blocks + self.open, "hints": found.hints}
        column["inside"] |= INSIDES[number]
        element.address = node.mem_id
        self.elements.append(element)
        if parent >= 0:
            column["above"] |= found.hints
        if parent < 0 or roles & BLOCK:
            column["holder"] = index
        if roles & KIND:
            column["kind"] = number
        if roles & LINK and found.linked:
            element.link = index
        element.state |= roles & (STRONG | PRE)
        name = bytes((number,)) if number else (node.tag or "").encode()
        for byte in name + b"\0" + found.classes:
            element.path = ((element.path ^ byte) * 1099511628211) & 0xFFFF_FFFF_FFFF_FFFF
        return index

    def leave(self, index: int, roles: int) -> None:
        column = self.elements[index].column
        if column["parent"] < 0:
            self.end_block()
        elif roles & BLOCK:
            self.boundary(self.elements[column["parent"]])
        column["last"] = len(self.blocks) + self.open

    def raw(self) -> RawTables | None:
        if not self.elements:
            return None
        for row in self.elements:  # it may share a block that stayed empty
            row.column["last"] = min(row.column["last"], len(self.blocks))
        return (
            "\n".join(self.texts),
            b"".join(array("i", _signed([row.column[name] for row in self.elements])) for name in Elements._fields),
            b"".join(array("i", [block[name] for block in self.blocks]) for name in Blocks._fields),
            array("Q", [row.path for row in self.elements]).tobytes(),
            array("Q", [row.address for row in self.elements]).tobytes(),
            self.shadows.tobytes(),
            self.cut,
        )


_PIECE = re.compile(r"\s+|\S+")
_WORD = re.compile(rb"[A-Za-z0-9]+")
_BEFORE_CAPITAL = re.compile(rb"(?<=[a-z0-9])(?=[A-Z])")


def _hints(attributes: dict[str, bytes]) -> int:
    hints = _hints_of(attributes.get("class", b"")) | _hints_of(attributes.get("id", b""))
    hints |= _hints_of(attributes.get("itemprop", b"")) & ~BYLINE
    return hints | _hint_of(attributes.get("role", b""), ROLE_WORDS)


def _hints_of(value: bytes) -> int:
    hints = 0
    for word in _WORD.findall(_BEFORE_CAPITAL.sub(b" ", value)):
        hints |= _hint_of(word[:_LONGEST_WORD].lower(), HINT_WORDS)
    return hints


def _without_beside(hints: int) -> int:
    """Removes the hint of what is beside the text if an element is named for an author."""
    return hints & ~BESIDE if hints & BYLINE else hints


def _hint_of(word: bytes, hint_words: list[tuple[bytes, int, bool]]) -> int:
    hints = 0
    for hint_word, hint, is_exact in hint_words:
        if word == hint_word or (not is_exact and word.startswith(hint_word)):
            hints |= hint
    return hints


def _style_hides(style: bytes) -> bool | None:
    """Whether an inline style hides an element; ``None`` if it says nothing of it."""
    display, hidden = None, False
    for declaration in style.split(b";"):
        said = b"".join(declaration.split()).lower()[:23]
        name, _, value = said.partition(b":")
        if name == b"display":
            display = value.startswith(b"none") and value[4:5] in (b"", b"!")
        elif name == b"visibility":
            hidden = value.startswith((b"hidden", b"collapse"))
    return True if hidden else display


class _Attributes:
    """What the walk asks of an element's attributes."""

    def __init__(self, node: LexborNode) -> None:
        given = {name: (value or "").encode()[:_VALUE] for name, value in node.attributes.items()}
        self.classes, kind = given.get("class", b""), given.get("type", b"")
        self.hints = _hints(given)
        self.hides = _style_hides(given.get("style", b""))
        self.hidden = given.get("hidden", b"until-found").lower() != b"until-found" or "popover" in given
        names = self.classes.lower().split() if _hints_of(self.classes) & HINT["edit"] else []
        self.aside = not {b"mw-editsection", b"editsection"}.isdisjoint(names)
        self.copy = given.get("aria-hidden") == b"true"
        self.linked, self.open, self.id = "href" in given, "open" in given, "id" in given
        self.shadow = given.get("shadowrootmode", b"").lower() in (b"open", b"closed")
        self.mathematics, self.image = kind.startswith(b"math/tex"), kind.lower() == b"image"
        self.data, self.references = len(kind) >= _JSON_LD_TYPE, "itemref" in given
        self.fact = "itemprop" in given or "itemscope" in given or b"author" in given.get("rel", b"").lower().split()


class _Places(NamedTuple):
    """The places of an element among the links and the facts, -1 for none."""

    link: int = -1
    fact: int = -1


class _Frame(NamedTuple):
    """An open element, and what its children inherit: as in ``_walk.c``."""

    node: LexborNode | None
    element: int = -1
    fact: int = -1
    mark: _Places = _Places()
    roles: int = 0
    hints: int = 0
    state: int = 0
    own_state: int = 0
    is_element: bool = False


class _Text:
    """A text with white space collapsed; after white space and at an end of a block a space is pending."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.joints: set[int] = set()
        self.chars = 0
        self.pending = False

    def append(self, text: str) -> None:
        words = text.split()
        if words:
            spaced = (self.pending or text[0].isspace()) and self.chars > 0
            if spaced:
                self.joints.add(self.chars)
            part = " " * spaced + " ".join(words)
            self.parts.append(part)
            self.chars += len(part)
            self.pending = text[-1].isspace()
        else:
            self.pending = self.pending or bool(text)


class _Walk:
    """The walk of ``_walk.c``."""

    def __init__(self, limits: WalkLimits, options: WalkOptions) -> None:
        self.limits, self.options = limits, options
        self.texts = _Text(), _Text()
        self.tables = _Tables(limits.chars, limits.elements)
        self.seams = array("i")
        self.links: list[tuple[str, dict[str, str], int, int, int]] = []
        self.facts: list[Mark] = []
        self.references = False
        self.room = {LINKED: limits.links, META: limits.metas, FACT: limits.facts}
        self.cut: set[int] = set()
        self.frames: list[_Frame] = []
        self.hosts: set[int] = set()
        self.depth = 0

    def walk(self, root: LexborNode) -> WalkedPage:
        self.frames.append(_Frame(root))
        while self.frames:
            frame = self.frames[-1]
            if frame.node is None:
                self.leave(self.frames.pop())
                continue
            self.frames[-1] = frame._replace(node=frame.node.next)
            if frame.node.is_text_node:
                self.read_text(frame, frame.node.text(deep=False))
            elif frame.node.is_element_node:
                self.depth = max(self.depth, len(self.frames))
                self.enter(frame.node, frame)
        shown, unseen = texts = "".join(self.texts[0].parts), "".join(self.texts[1].parts)
        links, links_cut, texts_cut = self.make_links(self.options.link(self.facts), texts)
        cut = links_cut or LINKED in self.cut, texts_cut, META in self.cut, FACT in self.cut
        marks = self.seams.tobytes(), links, self.facts
        return WalkedPage(shown, unseen, *marks, self.tables.raw(), self.depth, self.references, *cut)

    def make_links(self, linking: Linking, texts: tuple[str, str]) -> tuple[list[Link], bool, bool]:
        """Returns the links, whether there are more than the limit, and whether one has more text than the limit."""
        links: list[Link] = []
        room, texts_cut = self.limits.chars, False
        for tag, attributes, start, end, state in self.links:
            for key in (SVG_LINK_KEYS if state & IS_FOREIGN else LINK_KEYS)[tag]:
                href = attributes.get(key)
                if href is None:
                    continue
                if key in SRCSETS:
                    for image in linking.split_srcset(href, self.limits.links - len(links)):
                        links.append(_make_link(linking, tag, key, image, {}, ""))
                    continue
                if not href or href[0] == "#":
                    continue
                if len(links) >= self.limits.links:
                    return links, True, texts_cut
                # links can nest through other elements, and each has the text of all elements inside it
                length = end - start if tag == "a" else 0
                taken = 0 if room < 0 else min(length, self.limits.attribute_chars)
                texts_cut |= taken < length
                room -= length
                others = {name: value for name, value in attributes.items() if name != key}
                text = texts[state & IS_UNSEEN][start : start + taken]
                links.append(_make_link(linking, tag, key, href, others, text))
                if state & IS_FOREIGN:
                    break  # its old name does not count beside the new one
        return links, False, texts_cut

    def is_content(self, frame: _Frame) -> bool:
        return frame.element >= 0 and not frame.state & (IS_UNSEEN | _IS_ASIDE) and not self.tables.cut

    def enter(self, node: LexborNode, outer: _Frame) -> None:
        tables = self.tables
        number = NUMBER.get((node.tag or "").lower(), 0)
        roles = ROLES[number] & (FOREIGN_ROLES if outer.state & IS_FOREIGN else -1)
        if roles & DRAWING and not outer.state & IS_FOREIGN:
            roles = 0
        around = tables.elements[outer.element] if self.is_content(outer) else None
        if around and roles & BREAK:
            tables.line_break(around)
        if around and roles & IMAGE:
            tables.block["images"] += 1
        found = _Attributes(node)
        self.references = self.references or found.references
        if roles & TEMPLATE:
            self.enter_shadow_tree(node, found, outer)
            return
        state = outer.state
        if (found.hidden or (roles & DIALOG and not found.open)) if found.hides is None else found.hides:
            state |= 0 if roles & ROOT else IS_UNSEEN
        is_copy = found.copy and not roles & MAIN
        if roles & SKIPPED or found.aside or is_copy or (roles & SCRIPT and not found.mathematics):
            state |= _IS_ASIDE
        if roles & (BLOCK | BREAK):
            self.texts[state & IS_UNSEEN].pending = True
        is_body = roles & BODY and self.options.with_tables and not tables.elements and not state & IS_INERT
        element, is_element = outer.element, False
        if is_body or (around and not state & (IS_UNSEEN | _IS_ASIDE)):
            if around and not is_body and roles & BLOCK:
                tables.boundary(around)
            index = tables.add_element(node, number, roles, found, -1 if is_body else outer.element)
            if index >= 0:
                element, is_element = index, not roles & LEAF
        mark = self.mark(node, number, roles, found, outer, state)
        fact = mark.fact if mark.fact >= 0 else outer.fact
        child = None if roles & RAW else node.child
        inner = state & (~IS_FOREIGN if roles & INTEGRATION else -1)
        inner |= IS_UNSEEN if roles & UNSEEN else 0
        inner |= _IS_ASIDE if roles & LEAF else 0
        inner |= IS_FOREIGN | _IS_DRAWN if roles & FOREIGN else 0
        if roles & NOSCRIPT and not state & IS_INERT:
            inner |= IS_INERT
            child = self.child_of_noscript(child)
        self.frames.append(_Frame(child, element, fact, mark, roles, found.hints, inner, state, is_element))

    def enter_shadow_tree(self, node: LexborNode, found: _Attributes, outer: _Frame) -> None:
        parent = node.parent
        host = parent.mem_id if parent is not None else 0
        is_host = outer.roles & HOST or (parent is not None and "-" in (parent.tag or "") and parent.is_element_node)
        if found.shadow and host not in self.hosts and not outer.state & (_IS_DRAWN | IS_INERT) and is_host:
            self.hosts.add(host)
            self.tables.shadows.append(node.mem_id)
            content = node.template_fragments()[0].first_child
            self.frames.append(
                _Frame(content, outer.element, outer.fact, _Places(), 0, found.hints, outer.state, outer.state)
            )

    def child_of_noscript(self, child: LexborNode | None) -> LexborNode | None:
        if child is None or not child.is_text_node or "<" not in (text := child.text(deep=False)):
            return child
        return self.options.parse(text.encode("utf-8", "replace"))

    def mark(self, node: LexborNode, number: int, roles: int, found: _Attributes, outer: _Frame, state: int) -> _Places:
        is_fact = not state & IS_INERT and (
            roles & FACT or found.fact or found.hints & BYLINE or (roles & SCRIPT and found.data)
            or (self.options.with_ids and found.id)
        )  # fmt: skip
        is_link = roles & LINKED and (not roles & INPUT or found.image)
        if not (is_fact or is_link or roles & META):
            return _Places()
        state = state & (IS_UNSEEN | IS_INERT) | outer.state & IS_FOREIGN
        attributes = self.attributes_of(node)
        keys = (SVG_LINK_KEYS if state & IS_FOREIGN else LINK_KEYS).get(TAGS[number], ())
        is_link = is_link and any(attributes.get(key, "#")[:1] not in ("", "#") for key in keys) and self.takes(LINKED)
        is_fact = self.takes(META) if roles & META else is_fact and self.takes(FACT)
        start, link, fact = self.texts[state & IS_UNSEEN].chars, -1, -1
        if is_link:
            link = len(self.links)
            self.links.append((TAGS[number], attributes, start, start, state))
        if is_fact:
            fact = len(self.facts)
            raw = (node.text(deep=True) or "") if roles & RAW else ""
            around = _without_beside(found.hints)
            for frame in self.frames[:-_AROUND:-1]:
                if frame.roles & ROOT:
                    break
                around |= _without_beside(frame.hints)
            self.facts.append(Mark(TAGS[number], attributes, start, start, outer.fact, state, found.hints, around, raw))
        return _Places(link, fact)

    def takes(self, kind: int) -> bool:
        if self.room[kind] <= 0:
            self.cut.add(kind)
            return False
        self.room[kind] -= 1
        return True

    def attributes_of(self, node: LexborNode) -> dict[str, str]:
        attributes = {name: value or "" for name, value in node.attributes.items()}
        chars = sum(map(len, attributes.values()))
        if len(attributes) > self.limits.attributes or chars > self.limits.attribute_chars:
            return self.options.bound(attributes)
        return attributes

    def read_text(self, frame: _Frame, text: str) -> None:
        if not text:
            return
        if not frame.state & IS_UNSEEN:
            self.seams.append(self.texts[0].chars)
        self.texts[frame.state & IS_UNSEEN].append(text)
        if self.is_content(frame):
            self.tables.read_text(self.tables.elements[frame.element], text)

    def leave(self, frame: _Frame) -> None:
        if frame.is_element:
            self.tables.leave(frame.element, frame.roles)
        text = self.texts[frame.own_state & IS_UNSEEN]
        if frame.mark.link >= 0:
            tag, attributes, start, _, state = self.links[frame.mark.link]
            # the space before a text is not its own
            self.links[frame.mark.link] = (tag, attributes, start + (start in text.joints), text.chars, state)
        if frame.mark.fact >= 0:
            mark = self.facts[frame.mark.fact]
            self.facts[frame.mark.fact] = mark._replace(start=mark.start + (mark.start in text.joints), end=text.chars)
        if frame.roles & (BLOCK | BREAK):
            text.pending = True


def _make_link(linking: Linking, tag: str, key: str, href: str, attributes: dict[str, str], text: str) -> Link:
    url, host, domain, display_host = linking.places.get(href) or linking.place(href)
    rel = attributes.get("rel")
    return Link(tag, href, url, text, rel, attributes, host, domain, linking.item_index, key, display_host)


def walk_plainly(root: LexborNode, limits: WalkLimits, options: WalkOptions) -> WalkedPage:
    """Does the same as ``_walk.c``."""
    return _Walk(limits, options).walk(root)


def _signed(values: list[int]) -> list[int]:
    return [value - (1 << 32) if value >= 1 << 31 else value for value in values]
