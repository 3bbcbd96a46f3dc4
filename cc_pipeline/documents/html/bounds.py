"""Removes markup beyond the limits before a tree is built.

A tree builder's time grows with the square of the attributes of a tag, of open elements, of options of a list, of
unknown names; its memory with the tags. A page of a few hundred kilobytes can take minutes and gigabytes. So markup is
scanned once, tag by tag, and everything beyond a limit is removed. Pages within the limits, nearly all, stay unchanged.

The count of open elements is an upper bound: a well-nested page is never cut below its limit, and a page that leaves
elements open loses only tags without an end tag, and none of its text and links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from cc_pipeline import compiled
from cc_pipeline.documents.page import Limits

#: Bytes to remove, from and to, and their replacement: 0 nothing, 1 a space so that no two words become one, 2 the same
#: bytes without tags.
Cut = tuple[int, int, int]
#: Cuts, limits that were reached, open elements summed over tags, and tags (-1 if the parser's state is uncertain).
Scanned = tuple[list[Cut], int, int, int]

_ATTRIBUTES, _NESTING, _ELEMENTS = 1, 2, 4
_FLAGS = {_ATTRIBUTES: "attributes_cut", _NESTING: "nesting_cut", _ELEMENTS: "elements_cut"}

_VOID = frozenset(
    b"area base basefont bgsound br col embed frame hr image img input link meta param source track wbr".split()
)
#: Elements that the next of their kind ends, and ``a``: at most one is open.
_FLAT = frozenset(b"a body dd dt head html li optgroup option p rp rt tbody td tfoot th thead tr".split())
_RAW = frozenset(b"iframe noembed noframes noscript plaintext script style textarea title xmp".split())
#: Elements that the builder opens again in each block until their end tag comes.
_FORMATTING = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
_FOREIGN = frozenset((b"svg", b"math"))
#: Elements that exist once; attributes of further tags are added to them.
_MERGED = frozenset((b"body", b"html"))
_OPTIONS = frozenset((b"option", b"optgroup"))
#: Tags that end foreign content, or may.
_BREAKOUT = frozenset(
    b"b big blockquote body br center code dd div dl dt em embed font h1 h2 h3 h4 h5 h6 head hr i img li listing menu "
    b"meta nobr ol p pre ruby s small span strike strong sub sup table tt u ul var".split()
)
#: Foreign elements with HTML inside.
_INTEGRATION = frozenset(b"annotation-xml desc foreignobject mi mn mo ms mtext title".split())
_COLUMNS = frozenset((b"col", b"colgroup"))
#: Tags whose absence changes how the parser reads what follows.
_SWITCHES = frozenset((b"math", b"select", b"svg", b"template"))
#: Foreign elements whose names are kept; bytes that may be scanned again while the parser's state is uncertain.
_MAX_FOREIGN, _MAX_RESCANNED_BYTES = 64, 1 << 26
#: Readings of a ruby that may be open. Only within a ruby the next reading ends the previous one. Elsewhere they nest,
#: and for each the builder searches all open elements for a ruby: 400 KB of them took 20 s.
_READINGS, _MAX_READINGS = frozenset((b"rt", b"rp")), 256
#: Formatting elements that may be open at a time, the number of equal ones that the builder keeps, and the number
#: without a cost.
_MAX_FORMATTING, _MAX_ALIKE, _FREE_FORMATTING = 24, 3, 8
#: A new name of a tag or an attribute costs one element for every 400 names before it. Builders search a list of
#: unknown names for each new one: 80,000 names of attributes in 1.8 MB took 10 s. This limits a page to some 20,000.
_NAMES_A_TAG = 400
#: A page with at most so many tags takes a builder some hundredths of a second.
_FEW_TAGS = 4_096

_WHITE = rb"\t\n\f\r "
_TAG = re.compile(
    rb"</?([a-zA-Z][^%(w)s/>]*+)((?:[%(w)s/]*+[^%(w)s/>][^%(w)s/>=]*+"
    rb"(?:[%(w)s]*+=[%(w)s]*+(?:\"[^\"]*+\"|'[^']*+'|[^%(w)s>\"'][^%(w)s>]*+|(?=>))|(?![%(w)s]*+=)))*+)[%(w)s/]*+>"
    % {b"w": _WHITE}
)
_ATTRIBUTE = re.compile(
    rb"([^%(w)s/>][^%(w)s/>=]*+)(?:[%(w)s]*+=[%(w)s]*+(?:\"[^\"]*+\"|'[^']*+'|[^%(w)s>\"'][^%(w)s>]*+|(?=>)))?+"
    % {b"w": _WHITE}
)
_COMMENT_END = re.compile(rb"-->")
#: The dashes of the beginning do not count here.
_COMMENT_BANG = re.compile(rb"--!>")
_SCRIPT = re.compile(rb"</script(?=[%(w)s/>])|<script(?=[%(w)s/>])|<!(?=--)|-->" % {b"w": _WHITE}, re.IGNORECASE)
#: A tag or a declaration, up to its end if it has one.
_MARKUP = re.compile(rb"<[a-zA-Z/!?][^>]*+>?")
#: Ends a tag inside any value.
_TAG_ENDED = b"\"'>\"'>"


class Bounded(NamedTuple):
    """Markup within its limits, and the cost of visiting all ancestors of each element: the open elements at each tag,
    summed. ``is_small``: it has so few tags that its tree is cheap at any depth."""

    markup: bytes
    work: int
    is_small: bool = False


def bounded(markup: bytes, limits: Limits, flags: set[str]) -> Bounded:
    """Returns UTF-8 markup within the limits on attributes, nesting and elements; the same object if nothing is cut.
    Adds the limits that were reached to ``flags``."""
    cuts, kinds, work, tags = scanned(markup, limits.attributes, limits.depth, limits.elements, limits.options)
    if not cuts:
        return Bounded(markup, work, is_small=0 <= tags <= _FEW_TAGS)
    flags.update(flag for kind, flag in _FLAGS.items() if kinds & kind)
    parts: list[bytes] = []
    position = 0
    for start, stop, spaced in cuts:
        parts.append(markup[position:start])
        if spaced == 1:
            parts.append(b" ")
        elif spaced:
            parts += (_TAG_ENDED, without_tags(markup[start:stop]))
        position = stop
    parts.append(markup[position:])
    return Bounded(b"".join(parts), work)


def without_tags(markup: bytes) -> bytes:
    """Returns markup with a space for each tag and declaration, in whatever state a parser would read it."""
    return _MARKUP.sub(b" ", markup)


class _FormattingElement(NamedTuple):
    """An open formatting element: its name, and its complete tag."""

    name: bytes
    tag: bytes


class _Open:
    """The elements that the tags so far have left open."""

    def __init__(self) -> None:
        self.depth = self.excess_depth = self.options = self.readings = self.rescanned_bytes = 0
        self.foreign: list[bytes] = []
        self.is_uncertain = self.in_select = self.templates = False
        self.names: dict[bytes, int] = {}
        self.formats: list[_FormattingElement] = []
        self.merged = dict.fromkeys(_MERGED, 0)
        self.distinct: set[bytes] = set()

    def count_new_names(self, names: Iterable[bytes]) -> int:
        """Returns the cost of the new names of tags and attributes among ``names``."""
        cost = 0
        for name in names:
            if name not in self.distinct:
                cost += len(self.distinct) // _NAMES_A_TAG
                self.distinct.add(name)
        return cost

    def makes_uncertain(self, name: bytes, *, closing: bool, empty: bool) -> bool:
        """Applies a tag. Returns whether the parser's state is uncertain from here on."""
        if self.foreign:
            return self._leaves_foreign(name, closing=closing, empty=empty)
        if name == b"select":
            self.in_select = not closing
        if closing:
            return False
        if name == b"template":
            self.templates = True
        if name == b"frameset" or (name in _COLUMNS and self.templates):
            return True
        if self.in_select and (name in _RAW or name in _FOREIGN or name == b"template"):
            return name != b"script"
        if name in _FOREIGN and not empty:
            self.foreign.append(name)
        return False

    def _leaves_foreign(self, name: bytes, *, closing: bool, empty: bool) -> bool:
        """Applies a tag of foreign content. Returns whether the parser may leave that content, or read HTML in it."""
        if closing:
            if name in (b"p", b"br") or name not in self.foreign:
                return True
            while self.foreign.pop() != name:
                pass
            return False
        if name in _BREAKOUT or self.foreign[-1] in _INTEGRATION or len(self.foreign) == _MAX_FOREIGN:
            return True
        if not empty:
            self.foreign.append(name)
        return False

    def forget(self, name: bytes) -> None:
        for place in range(len(self.formats) - 1, -1, -1):
            if self.formats[place].name == name:
                del self.formats[place]
                return

    def note(self, name: bytes, tag: bytes) -> bool:
        """Adds a formatting element unless there are too many. Returns whether it was added. Like the builder, keeps at
        most three equal ones."""
        duplicates = [place for place, element in enumerate(self.formats) if element.tag == tag]
        if len(duplicates) >= _MAX_ALIKE:
            del self.formats[duplicates[0]]
        if len(self.formats) >= _MAX_FORMATTING:
            return False
        self.formats.append(_FormattingElement(name, tag))
        return True


def scanned_plainly(markup: bytes, attributes: int, depth: int, elements: int, options: int) -> Scanned:
    """Does the same as ``scanned`` in Python, for builds without the compiled function: many times slower."""
    cuts: list[Cut] = []
    kinds = spent = work = tags = 0
    state = _Open()
    length = len(markup)
    position = markup.find(b"<")
    while 0 <= position < length - 1:
        tag_match = (
            _TAG.match(markup, position)
            if markup[position + 1 : position + 2] == b"/" or markup[position + 1 : position + 2].isalpha()
            else None
        )
        if tag_match is None:
            following = _find_markup_end(markup, position, state)
            if following is None:
                break
            if following > position + 1 or (state.is_uncertain and _is_markup(markup, position)):
                spent += 1
                if spent > elements:
                    cuts.append((position, length, 0))
                    kinds |= _ELEMENTS
                    break
            if state.rescanned_bytes > _MAX_RESCANNED_BYTES:
                cuts.append((position, length, 2))
                kinds |= _ELEMENTS
                break
            position = markup.find(b"<", position + 1 if state.is_uncertain else following)
            continue
        name, closing, stop = tag_match.group(1).lower(), markup[position + 1] == ord("/"), tag_match.end()
        room = attributes - state.merged.get(name, 0)
        places = list(_ATTRIBUTE.finditer(markup, tag_match.start(2), stop))
        extra = places[room].start(1) if len(places) > room else None
        attribute_count = min(len(places), room)
        if name in state.merged:
            state.merged[name] += attribute_count
        work += state.depth
        tags += 1
        spent += state.count_new_names((*(attribute.group(1).lower() for attribute in places[:attribute_count]), name))
        spent += 1 + attribute_count + (len(state.formats) if len(state.formats) > _FREE_FORMATTING else 0)
        if spent > elements:
            cuts.append((position, length, 0))
            kinds |= _ELEMENTS
            break
        # A slash ends an element only outside of a value.
        empty = markup[stop - 2] == ord("/") and not (places and places[-1].end() == stop - 1)
        if state.is_uncertain:
            option = name in _OPTIONS and not closing
            if kind := _check_uncertain_tag(
                state, stop - position, options, option=option, has_extra_attributes=extra is not None
            ):
                cuts.append((position, length, 2))
                kinds |= kind
                break
            position = markup.find(b"<", position + 1)
            continue
        state.is_uncertain = state.makes_uncertain(name, closing=closing, empty=empty)
        tag = markup[tag_match.start(1) : stop - 1].lower()
        kind = 0
        if not state.is_uncertain:
            kind = _verdict(state, name, tag, closing=closing, empty=empty, depth=depth, options=options)
        if kind:
            kinds |= kind
            cuts.append((position, stop, int(kind == _ELEMENTS or name not in _FORMATTING)))
            state.is_uncertain = bool(state.foreign) or state.in_select or name in _SWITCHES
        elif extra is not None:
            kinds |= _ATTRIBUTES
            cuts.append((extra, stop - 1 - empty, 0))
        if not kind and name in _RAW and not closing and not state.foreign and not state.is_uncertain:
            stop = length if name == b"plaintext" else _raw_end(markup, stop, name)
        position = markup.find(b"<", stop)
    return cuts, kinds, work, -1 if state.is_uncertain else tags


def _is_markup(markup: bytes, position: int) -> bool:
    """Whether a ``<`` begins markup."""
    first, second = markup[position + 1 : position + 2], markup[position + 2 : position + 3]
    return first.isalpha() or first in (b"!", b"?") or (first == b"/" and second != b">")


def _check_uncertain_tag(state: _Open, size: int, options: int, *, option: bool, has_extra_attributes: bool) -> int:
    """Applies a possible tag while the state is uncertain. Returns the limit that it exceeds, 0 for none."""
    state.rescanned_bytes += size
    state.options += option
    if (option and state.options > options) or state.rescanned_bytes > _MAX_RESCANNED_BYTES:
        return _ELEMENTS
    return _ATTRIBUTES if has_extra_attributes else 0


def _verdict(state: _Open, name: bytes, tag: bytes, *, closing: bool, empty: bool, depth: int, options: int) -> int:
    """Applies one tag. Returns the limit that it exceeds, 0 for none."""
    nests = not (name in _VOID or name in _FLAT or (name in _RAW and not state.foreign))
    if name in _OPTIONS and not closing:
        state.options += 1
        if state.options > options:
            return _ELEMENTS
    if name in _READINGS:
        state.readings = max(0, state.readings + (-1 if closing else 1))
        if state.readings > _MAX_READINGS and not closing:
            return _NESTING
    elif name == b"ruby" and not closing:
        state.readings = 0
    if closing:
        if name in _FORMATTING:
            state.forget(name)
        if nests and state.names.get(name):
            state.names[name] -= 1
            if state.excess_depth:
                state.excess_depth -= 1
                return _NESTING
            state.depth -= 1
    elif nests and not (empty and (state.foreign or name in _FOREIGN)):
        is_kept = state.note(name, tag) if name in _FORMATTING else True
        if state.excess_depth or state.depth >= depth:
            state.excess_depth += 1
            is_kept = False
        elif is_kept:
            state.depth += 1
        else:
            return _NESTING
        state.names[name] = state.names.get(name, 0) + 1
        if not is_kept:
            return _NESTING
    return 0


def _find_markup_end(markup: bytes, position: int, state: _Open) -> int | None:
    """Returns the end of a comment, a declaration or an end tag without a name; the next position for a plain ``<``;
    ``None`` for an unfinished tag."""
    first, second = markup[position + 1 : position + 2], markup[position + 2 : position + 3]
    if first.isalpha() or (first == b"/" and second.isalpha()):
        if not state.is_uncertain:
            return None
        state.rescanned_bytes += len(markup) - position
        return position + 1
    if markup.startswith(b"<!--", position):
        ends = (_COMMENT_END.search(markup, position + 2), _COMMENT_BANG.search(markup, position + 4))
        return min((end_match.end() for end_match in ends if end_match), default=len(markup))
    if state.foreign and markup.startswith(b"<![CDATA[", position):
        end = markup.find(b"]]>", position + 9)
        return end + 3 if end >= 0 else len(markup)
    if first in (b"!", b"?") or (first == b"/" and second != b">"):
        end = markup.find(b">", position + 1)
        return end + 1 if end >= 0 else len(markup)
    return position + 1


def _raw_end(markup: bytes, start: int, name: bytes) -> int:
    if name == b"script":
        return _script_end(markup, start)
    end_tag = re.compile(rb"</%s[%s/>]" % (name, _WHITE), re.IGNORECASE).search(markup, start)
    return end_tag.start() if end_tag else len(markup)


def _script_end(markup: bytes, start: int) -> int:
    """Returns the end of a script's text: in a script's own comments, an end tag after a nested start tag is hidden."""
    escaped = 0
    for match in _SCRIPT.finditer(markup, start):
        token = match.group().lower()
        if token == b"-->":
            escaped = 0
        elif token == b"<!":
            escaped = escaped or 1
        elif token == b"<script":
            escaped = escaped and 2
        elif escaped < 2:
            return match.start()
        else:
            escaped = 1
    return len(markup)


#: Scans markup. Arguments: markup, attributes a tag, open elements, tags and attributes a page, and options a page.
scanned: Callable[[bytes, int, int, int, int], Scanned] = (
    compiled("documents.html._bounds", "scanned") or scanned_plainly
)

#: Whether the compiled function is in use.
COMPILED = scanned is not scanned_plainly
