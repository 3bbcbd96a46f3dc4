"""The features of each block of a page, in numbers: the block itself, its neighbours, its ancestors, and its position.
The trees of ``model.py`` decide by them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cc_pipeline.documents.html.tables import CLOSED, Tables
from cc_pipeline.documents.html.tags import BESIDE, BYLINE, HINT, INSIDE_BIT, NUMBER, OTHERS

FeatureTable = NDArray[np.float32]
_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Numbers = NDArray[Any]

#: Characters outside links from which a block counts as prose; the second if no block has as many.
_PROSE, _PROSE_LESS = 60, 25


def _hints(names: str) -> int:
    return sum(HINT[name] for name in names.split())


_SIDE_HINTS = _hints("sidebar related ad newsletter share cookie modal pager account search")
_COMMENT = HINT["comment"]
#: Hints that mark an element as no content, whatever its text.
FURNITURE = _SIDE_HINTS | _COMMENT
_GOOD = _hints("content article main")


def mark_tags(names: str) -> NDArray[np.bool_]:
    """Returns an array by the numbers of tags: whether the tag is one of ``names``."""
    marks = np.zeros(max(NUMBER.values()) + 1, np.bool_)
    marks[[NUMBER[name] for name in names.split()]] = True
    return marks


_HEADINGS, _UNITS = mark_tags("h1 h2 h3 h4 h5 h6"), mark_tags("ul ol dl table menu")
_CONTENT_TAGS, _FURNITURE_TAGS = mark_tags("main article"), mark_tags("nav aside footer")
_KINDS = np.array([NUMBER[tag] for tag in "p h1 h2 h3 h4 li td th pre blockquote dt dd figcaption".split()])
_ANCESTOR_HINTS = np.array([bit for bit in HINT.values() if bit not in (BYLINE, OTHERS, BESIDE)])
_INSIDE = np.array([bit for name, bit in INSIDE_BIT.items() if name not in ("math", "link", "code")])
_OWN_HINTS = np.array([FURNITURE | _hints("nav footer header teaser tool meta user"), _GOOD])
_ANCESTORS = 4
#: Prose, links, size, number and closed blocks of an element, by their columns in the features of elements.
_OF_NEAR = [1, 2, 0, 4, 5]
_WINDOWS = np.array([2, 5, 12])
#: The tables for ``_model.c``: by tag whether it is a heading, a unit, named for content, for furniture.
NUMBERS = (
    (np.stack((_HEADINGS, _UNITS, _CONTENT_TAGS, _FURNITURE_TAGS), 1) @ (1, 2, 4, 8)).astype(np.uint8),
    _KINDS.astype(np.uint8),
    _ANCESTOR_HINTS.astype(np.uint32),
    _INSIDE.astype(np.uint32),
    _OWN_HINTS.astype(np.uint32),
    _SIDE_HINTS,
    _COMMENT,
)
_NEIGHBOUR_OFFSETS = (-3, -2, -1, 1, 2, 3)


def _parted(numerator: _Numbers, denominator: _Numbers) -> _Floats:
    return numerator / np.maximum(denominator, 1)


def _log(values: _Numbers) -> _Floats:
    return np.log1p(np.maximum(values, 0))


def _sums(values: _Numbers) -> _Floats:
    """Returns prefix sums: ``sums[last] - sums[first]`` is the sum of a range."""
    return np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))


def units_of(tables: Tables) -> _Ints:
    """Returns for each block the row of the nearest list, table or definition list around it, -1 for none."""
    return nearest(tables, _UNITS[tables.elements.tag])[tables.blocks.element]


def covered(first: NDArray[Any], last: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Returns for each of ``count`` blocks whether it is in any of the ranges."""
    steps = np.bincount(first, minlength=count + 1) - np.bincount(last, minlength=count + 1)
    return np.asarray(np.cumsum(steps)[:count] > 0)


def nearest(tables: Tables, matches: NDArray[np.bool_]) -> _Ints:
    """Returns for each element the row of itself or the nearest element around it that matches; -1 for none."""
    rows = np.append(np.where(matches, np.arange(len(matches)), tables.elements.parent), -1)
    # each step doubles how far an element has looked; the row -1 is the last one, and its own
    while not np.array_equal(rows, further := rows[rows]):
        rows = further
    return rows[:-1]


def holders(tables: Tables) -> _Ints:
    """Returns for each block the elements around it that are their own holders: a row the inmost ones, the next row
    those around them; filled up with the root."""
    element = tables.elements
    outer = element.holder[np.maximum(element.parent, 0)].astype(np.int64)
    outer[0] = 0
    chain = [tables.blocks.element.astype(np.int64)]
    for _ in range(_ANCESTORS):
        chain.append(outer.take(chain[-1]))
    return np.stack(chain)


def take_neighbours(values: FeatureTable) -> list[FeatureTable]:
    """Returns for each block the values of its six neighbours, three before to three after it; -1 for none."""
    count, reach = len(values), max(_NEIGHBOUR_OFFSETS)
    padded = np.full((count + 2 * reach, *values.shape[1:]), -1, np.float32)
    padded[reach : reach + count] = values
    return [padded[reach + distance : reach + distance + count] for distance in _NEIGHBOUR_OFFSETS]


def windows(count: int, reaches: _Ints) -> tuple[_Ints, _Ints]:
    """Returns for each block and reach the first and the end of the blocks within that distance."""
    index = np.arange(count)[:, None]
    return np.maximum(index - reaches, 0), np.minimum(index + reaches + 1, count)


def features(tables: Tables, title: str = "") -> FeatureTable:
    """Returns one row of features a block. The order of the columns is defined here, and the model depends on it."""
    block, element = tables.blocks, tables.elements
    count = len(block.chars)
    chars, linked = block.chars.astype(np.float64), block.linked.astype(np.float64)
    unlinked = chars - linked
    share = _parted(linked, chars)
    heading = _HEADINGS[block.kind]
    marks = block.commas + block.ends
    first, last = element.first, element.last
    is_holder = element.holder == np.arange(len(element.tag))

    is_possible = (share < 0.5) & ~heading
    prose = is_possible & (
        (unlinked >= _PROSE) | ((unlinked >= _PROSE_LESS) & (marks >= 2) & (block.words * 8 < unlinked))
    )
    if not prose.any():
        prose = is_possible & (unlinked >= _PROSE_LESS)
    read = _sums(unlinked * prose)
    prose_inside = read[last] - read[first]
    spared = ((element.hints & _GOOD) != 0) | (prose_inside > 0.6 * max(read[-1], 1))
    is_furniture = is_holder & (((element.hints & _COMMENT) != 0) | (((element.hints & _SIDE_HINTS) != 0) & ~spared))
    is_furniture &= (prose_inside < 0.9 * read[-1]) & (np.arange(len(is_furniture)) > 0)
    out = covered(first[is_furniture], last[is_furniture], count)
    spans = map(slice, block.start.tolist(), (block.start + block.chars).tolist())
    texts = list(map(tables.text.__getitem__, spans))
    times = Counter(texts)
    repeated = np.fromiter(map(times.__getitem__, texts), np.int64, count)
    titled = (chars > 8) & np.fromiter(map(title.strip().startswith, texts), np.bool_, count)
    prose &= ~out & ~titled
    value = unlinked * prose
    closed = (block.flags & CLOSED) != 0
    sums = np.zeros((5, count + 1))
    np.cumsum([value, chars, linked, closed, prose], 1, out=sums[:, 1:])
    read, size, links = sums[:3]
    total = max(read[-1], 1.0)
    index = np.arange(count)

    columns: list[_Numbers] = [
        _log(chars), _log(unlinked), share, block.links, _parted(block.commas, chars), _parted(block.ends, chars),
        marks, _parted(block.digits, chars), _parted(block.uppers, chars), _parted(chars, block.words), block.signs,
        _parted(block.strong, chars), block.images, block.flags, closed, repeated, titled, out, prose,
        block.kind[:, None] == _KINDS, heading,
        element.tag[block.element], element.depth[block.element],
        index / count, size[:-1] / size[-1], read[:-1] / total, _log(index), _log(count - index),
    ]  # fmt: skip

    ancestor_hints, inside = element.above[block.element], element.inside[block.element]
    columns += [(ancestor_hints[:, None] & _ANCESTOR_HINTS) != 0, (inside[:, None] & _INSIDE) != 0]

    # the elements around a block
    e_read, e_size, e_links, e_closed, e_prose = sums.take(last, 1) - sums.take(first, 1)
    e_count = (last - first).astype(np.float64)
    chain = holders(tables)
    element_columns = side_by_side(
        [
            _log(e_size), e_read / total, _parted(e_links, e_size), _parted(e_read, e_size), _log(e_count),
            _parted(e_closed, e_count), _parted(e_prose, e_count), element.tag,
            (element.hints[:, None] & _OWN_HINTS) != 0,
        ]
    )  # fmt: skip
    columns.append(element_columns.take(chain.T, 0).reshape(count, -1))
    columns += [index - first[chain[2]], last[chain[2]] - index, _parted(index - first[chain[2]], e_count[chain[2]])]

    # the list or table around it, the nearest elements marked as content and as furniture
    is_content = _CONTENT_TAGS[element.tag] | ((element.hints & _GOOD) != 0)
    is_aside = _FURNITURE_TAGS[element.tag] | ((element.hints & FURNITURE) != 0)
    nearest_rows = [
        nearest(tables, matches) for matches in (_UNITS[element.tag], is_content & is_holder, is_aside & is_holder)
    ]
    near = np.stack(nearest_rows, 1).take(block.element, 0)
    deeper = element.depth[block.element][:, None] - element.depth[near]
    seen = np.concatenate((element_columns.take(near, 0).take(_OF_NEAR, 2), deeper[:, :, None]), 2)
    columns.append(np.where((near < 0)[:, :, None], -1, seen).reshape(count, -1))

    # blocks of the same tags and classes
    _, group = np.unique(tables.path[block.element], return_inverse=True)
    in_group = np.bincount(group)
    for weights in (value, chars, linked, closed, prose):
        group_sums = np.bincount(group, weights)
        columns.append(group_sums[group] / total if weights is value else _parted(group_sums[group], in_group[group]))
    columns.append(_log(in_group[group]))

    # the element with most of the prose
    points = np.where(prose, 1 + block.commas + np.minimum(unlinked / 100, 3), 0)
    score = np.zeros(len(element.tag))
    for part, holder in zip((1.0, 1.0, 0.5, 0.33), chain, strict=False):
        score += np.bincount(holder, part * points, len(score))
    top = int(np.argmax(score * (1 - _parted(e_links, e_size))))
    outer = int(element.holder[max(element.parent[top], 0)])
    places = [top, outer, *(_smallest(e_read, is_holder, total * part) for part in (0.5, 0.7, 0.9, 0.98))]
    begins, ends, row_index = first[places], last[places], index[:, None]
    distance = np.maximum(begins - row_index, 0) + np.minimum(ends - 1 - row_index, 0)
    lies = [distance == 0, distance, _parted(row_index - begins, ends - begins)]
    columns.append(np.stack(lies, 2).reshape(count, -1))
    span = np.flatnonzero(prose)
    opens, closes = (span[0], span[-1]) if len(span) else (0, count - 1)
    columns += [index - opens, index - closes]

    # neighbours
    likeness = side_by_side([_log(chars), share, closed, prose, heading, _log(unlinked)])
    neighbours = take_neighbours(likeness)
    ancestry = np.stack((*chain[:3], tables.path[block.element].view(np.int64)), 1)
    is_same = np.ones((count + 1, ancestry.shape[1]), np.bool_)
    is_same[1:count] = ancestry[1:] == ancestry[:-1]
    columns += [*neighbours[:3], is_same[:count], neighbours[3], is_same[1:], *neighbours[4:]]
    low, high = windows(count, _WINDOWS)
    high_sums, since, sums_here = sums[:3].take(high, 1), sums[:3].take(low, 1), sums[:3, :-1, None]
    nearby, next_sums, previous_sums = high_sums - since, high_sums - sums_here, sums_here - since
    reached = [
        _parted(nearby[0], nearby[1]), _parted(nearby[2], nearby[1]), _log(nearby[1]),
        _parted(next_sums[0], next_sums[1]), _parted(previous_sums[0], previous_sums[1]),
    ]  # fmt: skip
    columns.append(np.stack(reached, 2).reshape(count, -1))
    before = np.maximum.accumulate(np.where(prose, index, -1))
    after = np.minimum.accumulate(np.where(prose, index, count)[::-1])[::-1]
    columns += [_log(index - before), _log(after - index)]

    # from heading to heading
    starts: _Ints = np.maximum.accumulate(np.where(heading, index, 0))
    stops = np.concatenate((np.minimum.accumulate(np.where(heading, index, count)[::-1])[::-1][1:], [count]))
    section = size[stops] - size[starts]
    columns += [
        _log(section), _parted(links[stops] - links[starts], section), _parted(read[stops] - read[starts], section),
        block.kind[starts], _log(stops - starts), index - starts, share[starts], (read[stops] - read[starts]) / total,
    ]  # fmt: skip

    # the page
    paragraphs = (value * (block.kind == NUMBER["p"])).sum() / total
    page_columns = [
        np.log1p(count),
        np.log1p(size[-1]),
        np.log(total),
        links[-1] / size[-1],
        total / size[-1],
        paragraphs,
    ]
    columns.append(np.broadcast_to(page_columns, (count, len(page_columns))))
    return side_by_side(columns)


def side_by_side(columns: list[_Numbers]) -> FeatureTable:
    """Joins columns and tables of columns into one table."""
    parts = [column.reshape(len(column), -1) for column in columns]
    return np.concatenate(parts, 1, dtype=np.float32, casting="unsafe")


def _smallest(prose_inside: _Floats, is_holder: NDArray[np.bool_], minimum: float) -> int:
    """Returns the last element in document order with at least so much prose: the inmost one, if that is over half."""
    rows = np.flatnonzero(is_holder & (prose_inside >= minimum))
    return int(rows[-1]) if len(rows) else 0
