"""What has to go from a page before a tree is made of it.

A tree builder's time grows with the square of the attributes of a tag, of open elements, of options of a list, of the
names that it does not know; its memory with the tags. A page of a few hundred kilobytes can take minutes and gigabytes.
So markup is looked at once, tag by tag, and what goes beyond a bound is taken out. Pages within the bounds, nearly all,
stay as they are.

Open elements are counted from above: a page that is well nested is never cut below its bound, and one that leaves
elements open loses only tags whose end never came, with none of its text and links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from cc_pipeline import compiled
from cc_pipeline.documents.page import Limits

#: Bytes to take out, from and to, and whether a space takes their place so that no two words become one.
Cut = tuple[int, int, int]
Scanned = tuple[list[Cut], int, int]

_ATTRIBUTES, _NESTING, _ELEMENTS = 1, 2, 4
_FLAGS = {_ATTRIBUTES: "attributes_cut", _NESTING: "nesting_cut", _ELEMENTS: "elements_cut"}

_VOID = frozenset(
    b"area base basefont bgsound br col embed frame hr image img input link meta param source track wbr".split()
)
#: Elements that the next of their kind ends, and ``a``, of which one at most is open.
_FLAT = frozenset(b"a body dd dt head html li optgroup option p rp rt tbody td tfoot th thead tr".split())
_RAW = frozenset(b"iframe noembed noframes plaintext script style textarea title xmp".split())
#: Elements that the builder opens again in each block until their end tag comes.
_FORMATTING = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
_FOREIGN = frozenset((b"svg", b"math"))
#: Elements of which there is one; attributes of further tags go to it.
_MERGED = frozenset((b"body", b"html"))
_OPTIONS = frozenset((b"option", b"optgroup"))
#: Readings of a ruby that may be open. The next ends one within a ruby alone. Elsewhere they nest, and for each the
#: builder looks through all that are open for a ruby: 400 KB of them took 20 s.
_READINGS, _MOST_READINGS = frozenset((b"rt", b"rp")), 256
#: Formatting elements that may be open at a time, of which as many alike as the builder keeps, and as many as cost
#: nothing.
_MOST_FORMATTING, _SAME, _FREE_FORMATTING = 24, 3, 8
#: Each further name of a tag or an attribute counts as one element more for so many names before it. Builders keep
#: those they do not know in lists that they go through for each: 80,000 names of attributes in 1.8 MB took 10 s. This
#: ends a page at some 20,000.
_NAMES_A_TAG = 400

_WHITE = rb"\t\n\f\r "
_TAG = re.compile(
    rb"</?([a-zA-Z][^%(w)s/>]*+)((?:[%(w)s/]*+[^%(w)s/>][^%(w)s/>=]*+"
    rb"(?:[%(w)s]*+=[%(w)s]*+(?:\"[^\"]*+\"|'[^']*+'|[^%(w)s>\"'][^%(w)s>]*+|(?=>))|(?![%(w)s]*+=)))*+)[%(w)s/]*+>"
    % {b"w": _WHITE}
)
_ATTRIBUTE = re.compile(
    rb"[%(w)s/]*+([^%(w)s/>][^%(w)s/>=]*+)(?:[%(w)s]*+=[%(w)s]*+(?:\"[^\"]*+\"|'[^']*+'|[^%(w)s>\"'][^%(w)s>]*+|(?=>)))?+"
    % {b"w": _WHITE}
)
_COMMENT_END = re.compile(rb"--!?>")


class Bounded(NamedTuple):
    """Markup within its bounds, and what it costs those who look at all ancestors of each element: the open elements
    at each tag, summed."""

    markup: bytes
    work: int


def bounded(markup: bytes, limits: Limits, flags: set[str]) -> Bounded:
    """UTF-8 markup within the bounds on attributes, nesting and elements; the same object where it is already.
    What was reached is added to ``flags``."""
    cuts, kinds, work = scanned(markup, limits.attributes, limits.depth, limits.elements, limits.options)
    if not cuts:
        return Bounded(markup, work)
    flags.update(flag for kind, flag in _FLAGS.items() if kinds & kind)
    parts: list[bytes] = []
    at = 0
    for start, stop, spaced in cuts:
        parts.append(markup[at:start])
        if spaced:
            parts.append(b" ")
        at = stop
    parts.append(markup[at:])
    return Bounded(b"".join(parts), work)


class _Kept(NamedTuple):
    """A formatting element that is open: its name, and all of its tag."""

    name: bytes
    whole: bytes


class _Open:
    """What the tags so far have left open."""

    def __init__(self) -> None:
        self.depth = self.over = self.foreign = self.options = self.readings = 0
        self.names: dict[bytes, int] = {}
        self.formats: list[_Kept] = []
        self.merged = dict.fromkeys(_MERGED, 0)
        self.distinct: set[bytes] = set()

    def named(self, names: Iterable[bytes]) -> int:
        """What the names of tags and attributes among ``names`` count that were not there before."""
        counted = 0
        for name in names:
            if name not in self.distinct:
                counted += len(self.distinct) // _NAMES_A_TAG
                self.distinct.add(name)
        return counted

    def forget(self, name: bytes) -> None:
        for place in range(len(self.formats) - 1, -1, -1):
            if self.formats[place].name == name:
                del self.formats[place]
                return

    def note(self, name: bytes, whole: bytes) -> bool:
        """Whether a formatting element may begin; as the builder, no more than three alike are kept."""
        alike = [place for place, each in enumerate(self.formats) if each.whole == whole]
        if len(alike) >= _SAME:
            del self.formats[alike[0]]
        if len(self.formats) >= _MOST_FORMATTING:
            return False
        self.formats.append(_Kept(name, whole))
        return True


def scanned_plainly(markup: bytes, attributes: int, depth: int, elements: int, options: int) -> Scanned:
    """``scanned`` in Python, for builds without the compiled one: many times slower."""
    cuts: list[Cut] = []
    kinds = spent = work = 0
    state = _Open()
    length = len(markup)
    at = markup.find(b"<")
    while 0 <= at < length - 1:
        found = _TAG.match(markup, at) if markup[at + 1 : at + 2] == b"/" or markup[at + 1 : at + 2].isalpha() else None
        if found is None:
            following = _after_other(markup, at, state.foreign)
            if following is None:
                break
            if following > at + 1:
                spent += 1
                if spent > elements:
                    cuts.append((at, length, 0))
                    kinds |= _ELEMENTS
                    break
            at = markup.find(b"<", following)
            continue
        name, closing, stop = found.group(1).lower(), markup[at + 1] == ord("/"), found.end()
        room = attributes - state.merged.get(name, 0)
        places = list(_ATTRIBUTE.finditer(markup, found.start(2), stop))
        extra = places[room].start(1) if len(places) > room else None
        kept = min(len(places), room)
        if name in state.merged:
            state.merged[name] += kept
        work += state.depth
        spent += state.named((*(each.group(1).lower() for each in places[:kept]), name))
        spent += 1 + kept + (len(state.formats) if len(state.formats) > _FREE_FORMATTING else 0)
        if spent > elements:
            cuts.append((at, length, 0))
            kinds |= _ELEMENTS
            break
        whole = markup[found.start(1) : stop - 1].lower()
        kind = _verdict(
            state, name, whole, closing=closing, empty=markup[stop - 2] == ord("/"), depth=depth, options=options
        )
        if kind:
            kinds |= kind
            cuts.append((at, stop, int(kind == _ELEMENTS or name not in _FORMATTING)))
        elif extra is not None:
            kinds |= _ATTRIBUTES
            cuts.append((extra, stop - 1, 0))
        if name in _RAW and not closing and not state.foreign:
            stop = length if name == b"plaintext" else _raw_end(markup, stop, name)
        at = markup.find(b"<", stop)
    return cuts, kinds, work


def _verdict(state: _Open, name: bytes, whole: bytes, *, closing: bool, empty: bool, depth: int, options: int) -> int:
    """Takes one tag into account; the bound that it goes beyond, 0 for none."""
    nests = not (name in _VOID or name in _FLAT or (name in _RAW and not state.foreign))
    if name in _OPTIONS and not closing:
        state.options += 1
        if state.options > options:
            return _ELEMENTS
    if name in _READINGS:
        state.readings = max(0, state.readings + (-1 if closing else 1))
        if state.readings > _MOST_READINGS and not closing:
            return _NESTING
    elif name == b"ruby" and not closing:
        state.readings = 0
    if closing:
        if name in _FORMATTING:
            state.forget(name)
        if name in _FOREIGN and state.foreign:
            state.foreign -= 1
        if nests and state.names.get(name):
            state.names[name] -= 1
            if state.over:
                state.over -= 1
                return _NESTING
            state.depth -= 1
    elif nests and not (empty and (state.foreign or name in _FOREIGN)):
        wanted = state.note(name, whole) if name in _FORMATTING else True
        if state.over or state.depth >= depth:
            state.over += 1
            wanted = False
        elif wanted:
            state.depth += 1
        else:
            return _NESTING
        state.names[name] = state.names.get(name, 0) + 1
        if not wanted:
            return _NESTING
        state.foreign += name in _FOREIGN
    return 0


def _after_other(markup: bytes, at: int, foreign: int) -> int | None:
    """Where comments, declarations and ends without a name end; the next byte for a plain ``<``; ``None`` where a tag
    is not ended."""
    first, second = markup[at + 1 : at + 2], markup[at + 2 : at + 3]
    if first.isalpha() or (first == b"/" and second.isalpha()):
        return None
    if markup.startswith(b"<!--", at):
        found = _COMMENT_END.search(markup, at + 2)
        return found.end() if found else len(markup)
    if foreign and markup.startswith(b"<![CDATA[", at):
        end = markup.find(b"]]>", at + 9)
        return end + 3 if end >= 0 else len(markup)
    if first in (b"!", b"?") or (first == b"/" and second != b">"):
        end = markup.find(b">", at + 1)
        return end + 1 if end >= 0 else len(markup)
    return at + 1


def _raw_end(markup: bytes, start: int, name: bytes) -> int:
    found = re.compile(rb"</%s[%s/>]" % (name, _WHITE), re.IGNORECASE).search(markup, start)
    return found.start() if found else len(markup)


#: The places to cut, the bounds that were reached, and open elements summed over tags; for markup, attributes a tag,
#: open elements, tags and attributes a page, and options a page.
scanned: Callable[[bytes, int, int, int, int], Scanned] = (
    compiled("documents.html._bounds", "scanned") or scanned_plainly
)

#: Whether the compiled one is in use.
COMPILED = scanned is not scanned_plainly
