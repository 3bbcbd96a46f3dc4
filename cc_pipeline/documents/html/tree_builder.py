"""A page's tree, built in pieces so that its depth can be read from the builder itself.

Tokens alone do not show which elements are open: the tokenizer's state depends on foreign content, selects, templates
and on ignored end tags. So markup is fed piece by piece to Lexbor's own parser, into the document of a selectolax
tree. Between pieces its stack of open elements is read. A page that exceeds the limit is built again from the markup
before that point, and from the rest without tags.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import NamedTuple

import selectolax.lexbor
from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.html.bounds import bounded, without_tags
from cc_pipeline.documents.page import Limits

#: Formatting elements that may be open at no cost. Beyond that each counts as an element in each block that reopens it.
_FREE_FORMATTING = 24
#: Bytes of the shortest tag, and of the smallest and the largest piece.
_TAG_BYTES, _MIN_PIECE, _MAX_PIECE = 3, 96, 1 << 18
_TAG_START = re.compile(rb"<(?=[a-zA-Z/!?])")
#: The content of a tree before its page is fed. A document keeps its mode when it is emptied, and the builder sets the
#: mode only if a page has no document type, or an old one.
_STANDARD = "<!DOCTYPE html>"
_SAMPLE = b"<b><i><div><div><div>x"
_WORD = ctypes.sizeof(ctypes.c_void_p)
#: Words at the beginning of Lexbor's struct of a tree builder that are searched.
_WORDS = 8


class Built(NamedTuple):
    """A tree, its markup, and the open elements at each tag, summed (0 for a small page)."""

    tree: LexborHTMLParser
    markup: bytes
    work: int


class _Parser:
    """One of Lexbor's parsers, with readable stacks. :meth:`close` frees it."""

    def __init__(self, lexbor: ctypes.CDLL) -> None:
        self._lexbor = lexbor
        self._address = lexbor.lxb_html_parser_create()
        if not self._address or lexbor.lxb_html_parser_init(self._address):
            raise MemoryError("no memory for a parser")
        self.builder: int = lexbor.lxb_html_parser_tree_noi(self._address)
        self._marker = lexbor.lxb_html_tree_active_formatting_marker()

    def begin(self, tree: LexborHTMLParser) -> None:
        """Empties the tree. Its nodes become invalid."""
        document = _document(self._lexbor, tree)
        self._lexbor.lxb_html_document_clean(document)
        self._check(self._lexbor.lxb_html_parse_chunk_prepare(self._address, document))

    def feed(self, data: bytes) -> None:
        self._check(self._lexbor.lxb_html_parse_chunk_process(self._address, data, len(data)))

    def count_open(self) -> int:
        """Returns the number of open elements."""
        return _word(_word(self.builder + _OPEN_AT) + 2 * _WORD)

    def count_formatting(self) -> int:
        """Returns the number of formatting elements that the next block reopens: those after the last marker."""
        formats = _word(self.builder + _FORMATS_AT)
        length = _word(formats + 2 * _WORD)
        if length <= _FREE_FORMATTING:
            return length
        items = (ctypes.c_size_t * length).from_address(_word(formats))
        return next((distance for distance in range(length) if items[length - 1 - distance] == self._marker), length)

    def end(self) -> None:
        self._check(self._lexbor.lxb_html_parse_chunk_end(self._address))

    def close(self) -> None:
        self._lexbor.lxb_html_parser_destroy(self._address)

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"the page cannot be parsed: Lexbor's status {status}")


def _document(lexbor: ctypes.CDLL, tree: LexborHTMLParser) -> int:
    root = tree.root
    if root is None:
        raise RuntimeError("a tree has no root")
    return int(lexbor.lxb_dom_node_parent_noi(root.mem_id))


def _open_library() -> ctypes.CDLL:
    """Opens the Lexbor inside selectolax's module. Raises ``AttributeError`` if that does not export its functions."""
    lexbor = ctypes.CDLL(selectolax.lexbor.__file__)
    pointer, status = ctypes.c_void_p, ctypes.c_uint
    signatures = {
        "lxb_dom_node_parent_noi": (pointer, [pointer]),
        "lxb_html_parser_create": (pointer, []),
        "lxb_html_parser_init": (status, [pointer]),
        "lxb_html_parser_tree_noi": (pointer, [pointer]),
        "lxb_html_tree_active_formatting_marker": (pointer, []),
        "lxb_html_document_clean": (None, [pointer]),
        "lxb_html_document_parse": (status, [pointer, ctypes.c_char_p, ctypes.c_size_t]),
        "lxb_html_parse_chunk_prepare": (status, [pointer, pointer]),
        "lxb_html_parse_chunk_process": (status, [pointer, ctypes.c_char_p, ctypes.c_size_t]),
        "lxb_html_parse_chunk_end": (status, [pointer]),
        "lxb_html_parser_destroy": (pointer, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lexbor, name)
        function.restype, function.argtypes = result, arguments
    return lexbor


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


def _find_stacks(lexbor: ctypes.CDLL) -> tuple[int, int]:
    """Returns the offsets of the stacks of open elements and of formatting elements in a tree builder. They have no
    accessor, so they are searched while a known page is open: an array is its items, its capacity and its length."""
    tree, parser = LexborHTMLParser(""), _Parser(lexbor)
    document = _document(lexbor, tree)
    parser.begin(tree)
    parser.feed(_SAMPLE)
    offsets: list[int] = []
    root = tree.root
    for place in range(_WORD, _WORDS * _WORD, _WORD):
        stack = _word(parser.builder + place)
        if stack in (0, document):
            continue
        expected = 2 if offsets else 7
        if _word(stack + 2 * _WORD) != expected:
            raise ImportError("unknown build of selectolax: open elements")
        if not offsets and (root is None or _word(_word(stack)) != root.mem_id):
            raise ImportError("unknown build of selectolax: the root of open elements")
        offsets.append(place)
        if len(offsets) == 2:
            break
    parser.end()
    parser.close()
    return offsets[0], offsets[1]


try:
    _library = _open_library()
    _OPEN_AT, _FORMATS_AT = _find_stacks(_library)
    _lexbor: ctypes.CDLL | None = _library
except (AttributeError, OSError, ImportError):
    _lexbor = None

#: Whether Lexbor's stacks can be read. If not, only :mod:`.bounds` keeps a page within its limits.
READABLE = _lexbor is not None


def build_tree(markup: bytes, limits: Limits, flags: set[str], *, is_small: bool = False) -> Built:
    """Builds the tree of UTF-8 markup with at most about twice ``limits.depth`` open elements. Returns it with its
    markup: the same object if the page is within its limits. Adds the limits that were reached to ``flags``. A small
    page (``Bounded.is_small``) is built at once. What is in a ``noscript`` is text, as in
    browsers."""
    if _lexbor is None or is_small or len(markup) <= _TAG_BYTES * limits.depth:
        return Built(LexborHTMLParser(markup, scripting=True), markup, 0)
    tree = LexborHTMLParser(_STANDARD, scripting=True)
    end, reached, work = _feed(_lexbor, tree, markup, limits, None)
    if reached is None:
        return Built(tree, markup, work)
    flags.add(reached)
    kept_markup = markup[:end]
    if reached == "nesting_cut":
        # Tag by tag after the part within the limits, to keep all of it.
        end, _, _ = _feed(_lexbor, tree, markup, limits, end)
        kept_markup = markup[:end] + without_tags(markup[end:])
    # The cut may be within a value: its words would be attributes.
    kept_markup = bounded(kept_markup, limits, flags).markup
    return Built(LexborHTMLParser(kept_markup, scripting=True), kept_markup, work)


def build_again(tree: LexborHTMLParser | None, markup: bytes) -> LexborHTMLParser:
    """Builds the tree of small markup in the place of another small tree, whose nodes become invalid."""
    if _lexbor is None or tree is None:
        return LexborHTMLParser(markup, scripting=True)
    document = _document(_lexbor, tree)
    _lexbor.lxb_html_document_clean(document)
    if status := _lexbor.lxb_html_document_parse(document, markup, len(markup)):
        raise RuntimeError(f"the page cannot be parsed: Lexbor's status {status}")
    return tree


def build_shallow_tree(
    markup: bytes, limits: Limits, flags: set[str], measure: Callable[[LexborHTMLParser], int]
) -> tuple[LexborHTMLParser, bytes]:
    """Builds the tree of as much of the markup as is no deeper than twice ``limits.depth`` by ``measure``, and of the
    rest without tags. Returns it with its markup.

    For markup that :func:`build_tree` let through. An element that left the stack of open elements may still be an
    ancestor of later nodes, so a tree may be deeper than its stack: only the tree shows it."""
    tags = [tag.start() for tag in _TAG_START.finditer(markup)]
    # Without any tag a page has the three elements that the builder adds.
    kept_markup, shallow, deep = without_tags(markup), 0, len(tags)
    cut = {"nesting_cut"}
    while deep - shallow > 1:
        middle = (shallow + deep) // 2
        tried = markup[: tags[middle]] + without_tags(markup[tags[middle] :])
        reached = {"nesting_cut"}
        tried = bounded(tried, limits, reached).markup
        if measure(LexborHTMLParser(tried, scripting=True)) <= 2 * limits.depth:
            shallow, kept_markup, cut = middle, tried, reached
        else:
            deep = middle
    flags |= cut
    return LexborHTMLParser(kept_markup, scripting=True), kept_markup


def _feed(
    lexbor: ctypes.CDLL, tree: LexborHTMLParser, markup: bytes, limits: Limits, sure: int | None
) -> tuple[int, str | None, int]:
    """Builds the tree until a limit is reached. Returns the bytes within it, the flag of the limit (``None`` at the end
    of the page), and open elements summed over tags. If ``sure`` bytes are known to be within the limit, the rest is
    fed tag by tag."""
    max_open = 2 * limits.depth
    parser = _Parser(lexbor)
    position = opened = formats = reopened = work = 0
    reached = None
    try:
        parser.begin(tree)
        while position < len(markup):
            single = sure is not None or formats > _FREE_FORMATTING
            end = sure if sure and position < sure else _piece_end(markup, position, max_open - opened, single=single)
            piece = markup[position:end]
            parser.feed(piece)
            opened, formats, tags = parser.count_open(), parser.count_formatting(), piece.count(b"<")
            work += opened * tags
            if sure is None and formats > _FREE_FORMATTING:
                reopened += formats * tags
            if opened > max_open or reopened > limits.elements:
                reached = "nesting_cut" if opened > max_open else "elements_cut"
                break
            position = end
        parser.end()
    finally:
        parser.close()
    return position, reached, work


def _piece_end(markup: bytes, position: int, room: int, *, single: bool) -> int:
    """Returns the end of a piece that opens at most ``room`` elements: before a tag, so that no reference or line end
    is split."""
    if single:
        following = markup.find(b"<", position + 1)
        return following if following >= 0 else len(markup)
    size = max(_TAG_BYTES * room, _MIN_PIECE)
    # most bytes of a page open nothing
    while size < _MAX_PIECE and markup.count(b"<", position, position + 2 * size) <= room:
        size *= 2
    end = position + size
    return end if end >= len(markup) else max(markup.rfind(b"<", position + 1, end), 0) or end
