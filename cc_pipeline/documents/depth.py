"""Refuses documents nested so deeply that a parser would take minutes or run out of stack."""

from __future__ import annotations

import re

import numpy as np

from cc_pipeline.errors import DataFault

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]*)")
_CHUNK = 16 * 1024
#: Characters of the shortest start tag.
_SHORTEST = len("<b>")
_VOID = frozenset(
    {"area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "image", "img", "input", "link"}
    | {"meta", "param", "source", "track", "wbr"}
)
#: Elements whose end tag may be left out: a new one ends the old one, so a thousand of them nest one deep.
_ENDED_BY_THE_NEXT = frozenset(
    {"a", "body", "dd", "dt", "head", "html", "li", "nobr", "optgroup", "option", "p", "rp", "rt", "tbody", "td"}
    | {"tfoot", "th", "thead", "tr"}
)
_FLAT = _VOID | _ENDED_BY_THE_NEXT


def check_depth(text: str, limit: int, source: str, utf8: bytes | None = None) -> None:
    """Raises ``DataFault`` where elements may nest deeper than ``limit``. ``utf8`` is the text as UTF-8 where the
    caller has it, in which counting is cheaper.

    Start tags less end tags, counted chunk by chunk, bound the depth from above and cost next to nothing;
    only where that bound is over the limit are the tags looked at one by one.
    """
    if len(text) < _SHORTEST * limit:
        return
    tags = text.count("<") if utf8 is None else np.count_nonzero(np.frombuffer(utf8, np.uint8) == ord("<"))
    if tags > limit and _bound(text) > limit and _depth(text) > limit:
        raise DataFault(source, None, f"elements nested deeper than {limit}")


def _bound(text: str) -> int:
    depth = highest = 0
    for start in range(0, len(text), _CHUNK):
        ends = text.count("</", start, start + _CHUNK + 1)
        starts = text.count("<", start, start + _CHUNK) - ends
        highest = max(highest, depth + starts)
        depth = max(0, depth + starts - ends)
    return highest


def _depth(text: str) -> int:
    depth = deepest = 0
    for closing, name in _TAG.findall(text):
        if name.lower() in _FLAT:
            continue
        if closing:
            depth -= depth > 0
        else:
            depth += 1
            deepest = max(deepest, depth)
    return deepest
