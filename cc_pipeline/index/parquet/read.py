"""Reads the rows of some key ranges from row groups: the key column first, the others only where rows match.

``scan_columns`` goes over whole row groups instead, a batch of rows at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.key_ranges import KeyRange, RangeSet, range_set
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.parquet.decoding import decode_batches, decode_pages
from cc_pipeline.index.parquet.fetch import MOST_WHOLE, Cost, ManyReader, PageIndexes, Piece, fetch_pieces
from cc_pipeline.index.parquet.page_walk import is_numbered
from cc_pipeline.index.parquet.pages import (
    PageBounds,
    Pages,
    may_repeat,
    read_column_index,
    read_offset_index,
    single_values,
)
from cc_pipeline.index.parquet.places import KEY, MOST_ROWS, ColumnPlace, RowGroupPlace

#: Up to so many ranges, comparing whole columns is cheaper than looking at keys one by one.
_FEW = 24


def rows_in_ranges(keys: pa.Array, ranges: Sequence[KeyRange]) -> npt.NDArray[np.int64]:
    """Positions, ascending, of the binary ``keys`` that lie in one of ``ranges``; nulls lie in none."""
    merged = _near(keys, range_set(ranges))
    if not len(keys) or not merged:
        return np.empty(0, dtype=np.int64)
    if len(merged) <= len(keys) // _FEW and keys.null_count == 0 and _sorted(keys):
        spans = [(_lower(keys, each.start), _lower(keys, each.end)) for each in merged]
        return np.concatenate([np.arange(first, end, dtype=np.int64) for first, end in spans])
    if len(merged) <= _FEW:
        mask = np.zeros(len(keys), dtype=bool)
        for each in merged:
            mask |= _mask(keys, each)
        return np.flatnonzero(mask)
    starts = [each.start for each in merged]
    ends = [each.end for each in merged]
    found = []
    for position, key in enumerate(keys.to_pylist()):
        if key is not None:
            place = bisect_right(starts, key) - 1
            end = ends[place]
            if place >= 0 and (end is None or key < end):
                found.append(position)
    return np.asarray(found, dtype=np.int64)


def _near(keys: pa.Array, ranges: RangeSet) -> Sequence[KeyRange]:
    """Those of many ranges that can hold one of ``keys``."""
    if len(ranges) <= _FEW:
        return ranges
    bounds = pc.min_max(keys)
    return ranges.near(bounds["min"].as_py(), bounds["max"].as_py())


def _sorted(keys: pa.Array) -> bool:
    return bool(pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py()) if len(keys) > 1 else True


def _lower(keys: pa.Array, key: bytes | None) -> int:
    return len(keys) if key is None else bisect_left(keys, key, key=lambda scalar: scalar.as_py())


def _mask(keys: pa.Array, each: KeyRange) -> npt.NDArray[np.bool_]:
    inside = pc.greater_equal(keys, pa.scalar(each.start, pa.binary()))
    if each.end is not None:
        inside = pc.and_(inside, pc.less(keys, pa.scalar(each.end, pa.binary())))
    mask: npt.NDArray[np.bool_] = pc.fill_null(inside, False).to_numpy(zero_copy_only=False)
    return mask


Rows = npt.NDArray[np.int64]
Bytes = dict[Piece, bytes]

#: Dictionaries up to this many bytes are read along with the pages, needed or not.
_SMALL_DICTIONARY = 32 << 10


@dataclass(frozen=True, slots=True)
class Wanted:
    """A row group, the key ranges asked of it (``None``: all rows, also those without a key), and the columns to return
    (the key column is always read).

    ``key`` is the column that the ranges are about. ``keep`` decides about keys within them (a mask for an array of
    keys, which has nulls where all rows are asked for). ``bounds`` are what the file's footer says of its keys: a key
    outside them raises.
    """

    place: RowGroupPlace
    ranges: Sequence[KeyRange] | None
    columns: tuple[str, ...]
    key: str = KEY
    keep: Callable[[pa.Array], npt.NDArray[np.bool_]] | None = None
    bounds: tuple[bytes | None, bytes | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of one row group: their numbers in it, and one array a column in its physical type."""

    place: RowGroupPlace
    rows: Rows
    columns: dict[str, pa.Array]

    def filtered(self, chosen: npt.NDArray[np.bool_]) -> Found:
        """The same with the ``chosen`` rows alone."""
        mask = pa.array(chosen)
        columns = {name: values.filter(mask) for name, values in self.columns.items()}
        return Found(self.place, self.rows[chosen], columns)


@dataclass(frozen=True, slots=True)
class _Selection:
    """Pages of a chunk to read; ``pages`` is ``None`` where the whole chunk is one piece."""

    place: ColumnPlace
    pages: Pages | None
    chosen: tuple[int, ...]
    rows: int
    bounds: PageBounds | None = None

    def pieces(self, key: str) -> list[Piece]:
        """The chunk, or the chosen pages."""
        if self.pages is None:
            return [Piece(key, self.place.offset, self.place.size)]
        return [Piece(key, self.pages.offsets[page], self.pages.sizes[page]) for page in self.chosen]

    def dictionary(self, key: str) -> Piece | None:
        """The dictionary page in front of the pages, if there is one."""
        length = self.pages.offsets[0] - self.place.offset if self.pages is not None and self.chosen else 0
        return Piece(key, self.place.offset, length) if length else None


def read_rows(
    reader: ManyReader,
    wanted: Sequence[Wanted],
    indexes: PageIndexes,
    cost: Cost,
    held: Callable[[int, int], None] | None = None,
    window: int = MOST_ROWS,
) -> Iterator[Found]:
    """The rows of each row group whose key lies in its ranges, in the order of ``wanted``. Of one with more than
    ``window`` so many at a time, decoded as they are drawn: the same question has the same windows.

    Three rounds of concurrent requests, before the first window: page indexes, key pages, other pages; and one more
    where pages turn out to need a large dictionary that not every page needs. ``held`` is told how many rows and bytes
    were found so far, row group by row group and column by column, and may raise: a few bytes can stand for many rows.
    Raises ``DataFault`` or an environment fault: what was drawn until then is no answer.
    """
    etags = {each.place.file.path: each.place.file.etag for each in wanted}
    sizes = {each.place.file.path: each.place.file.size for each in wanted}

    def fetch(pieces: Iterable[Piece]) -> Bytes:
        return fetch_pieces(reader, pieces, etags, cost, sizes, whole_up_to=MOST_WHOLE)

    known = _page_indexes(wanted, indexes, fetch)
    key_parts = [_key_selection(each, known) for each in wanted]
    bytes_of = _fetch_pages(list(zip(wanted, key_parts, strict=True)), fetch)
    matched: list[tuple[Rows, pa.Array]] = []
    count = size = 0

    def take(rows: int, more: int) -> None:
        nonlocal count, size
        count, size = count + rows, size + more
        if held is not None:
            held(count, size)

    for each, key_part in zip(wanted, key_parts, strict=True):
        matched.append(_match(each, key_part, bytes_of))
        take(len(matched[-1][0]), matched[-1][0].nbytes + matched[-1][1].nbytes)
    parts: list[tuple[Wanted, _Selection | pa.DictionaryArray]] = []
    for each, (rows, _) in zip(wanted, matched, strict=True):
        parts += [(each, _row_selection(each.place, name, rows, known)) for name in _others(each) if len(rows)]
    bytes_of = _fetch_pages([(each, part) for each, part in parts if isinstance(part, _Selection)], fetch)
    remaining = iter(parts)
    for each, (rows, keys) in zip(wanted, matched, strict=True):
        columns = {name: next(remaining)[1] for name in _others(each) if len(rows)}
        whole: dict[str, pa.Array] = {}
        for start in range(0, max(len(rows), 1), window):
            some = rows[start : start + window]
            found = {each.key: keys.slice(start, window)}
            for name, part in columns.items():
                if not isinstance(part, _Selection):
                    found[name] = part.slice(start, window).dictionary_decode()
                elif part.pages is None:
                    # one piece, which is decoded once
                    if name not in whole:
                        whole[name] = _decode(each.place, part, bytes_of)
                    found[name] = whole[name].take(pa.array(some))
                else:
                    own = _of_rows(part, some)
                    found[name] = _decode(each.place, own, bytes_of).take(pa.array(_positions(own, some)))
                take(0, found[name].nbytes)
            yield Found(each.place, some, found)


def _others(wanted: Wanted) -> list[str]:
    return [name for name in wanted.columns if name != wanted.key and name in wanted.place.columns]


def _of_rows(part: _Selection, rows: Rows) -> _Selection:
    """Those of the chosen pages that hold ``rows``, which are in order."""
    assert part.pages is not None
    firsts = np.asarray([part.pages.first_rows[page] for page in part.chosen], dtype=np.int64)
    held = np.unique(np.searchsorted(firsts, rows, side="right") - 1)
    return replace(part, chosen=tuple(part.chosen[place] for place in held.tolist()))


def _fetch_pages(
    selections: Sequence[tuple[Wanted, _Selection | None]], fetch: Callable[[Iterable[Piece]], Bytes]
) -> Bytes:
    """All chosen pages, with the dictionaries that they need.

    A writer whose dictionary grew too large goes on without one, so the pages of a column need not use the dictionary
    in front of them: a large one is read only when they do, or at once where the writer says that all pages do.
    """
    first: list[Piece] = []
    waiting: list[tuple[Piece, list[Piece]]] = []
    for each, part in selections:
        if part is None:
            continue
        path = each.place.file.path
        pages, dictionary = part.pieces(path), part.dictionary(path)
        first += pages
        if dictionary is not None and dictionary.length > _SMALL_DICTIONARY and not part.place.dictionary_only:
            waiting.append((dictionary, pages))
        elif dictionary is not None:
            first.append(dictionary)
    found = fetch(first)
    needed = [
        dictionary
        for dictionary, pages in waiting
        if any(is_numbered(found[page], source=page.key, offset=page.offset) for page in pages)
    ]
    return found | fetch(needed)


def _page_indexes(wanted: Sequence[Wanted], indexes: PageIndexes, fetch: Callable[[Iterable[Piece]], Bytes]) -> Bytes:
    needed: set[Piece] = set()
    for each in wanted:
        path, key = each.place.file.path, each.place.columns[each.key]
        names = _others(each)
        if each.ranges is not None:
            if key.column_index is None or key.offset_index is None:
                continue
            needed.add(Piece(path, *key.column_index))
            names = [each.key, *names]
        for name in names:
            column = each.place.columns[name]
            if column.offset_index is not None:
                needed.add(Piece(path, *column.offset_index))
            if column.column_index is not None and may_repeat(column, each.place.rows):
                needed.add(Piece(path, *column.column_index))
    etags = {each.place.file.path: each.place.file.etag for each in wanted}
    known = indexes.known(needed, etags)
    fresh = fetch(needed - known.keys())
    indexes.keep(fresh, etags)
    return known | fresh


def _key_selection(wanted: Wanted, known: Bytes) -> _Selection | None:
    place = wanted.place
    column = place.columns[wanted.key]
    pages = _pages(place, column, known) if wanted.ranges is not None else None
    if wanted.ranges is None or pages is None or column.column_index is None:
        return _Selection(column, None, (), place.rows)
    path, position = place.file.path, column.column_index
    bounds = read_column_index(known[Piece(path, *position)], len(pages), path, position[0])
    chosen = tuple(page for page in range(len(pages)) if bounds.may_hold(page, wanted.ranges))
    return _Selection(column, pages, chosen, place.rows, bounds) if chosen else None


def _row_selection(place: RowGroupPlace, name: str, rows: Rows, known: Bytes) -> _Selection | pa.DictionaryArray:
    """The pages that hold ``rows``, or the values of these rows where the page index tells them."""
    column = place.columns[name]
    pages = _pages(place, column, known)
    if pages is None:
        return _Selection(column, None, (), place.rows)
    page_of = np.searchsorted(np.asarray(pages.first_rows, dtype=np.int64), rows, side="right") - 1
    chosen, position = np.unique(page_of, return_inverse=True)
    index = known.get(Piece(place.file.path, *column.column_index)) if column.column_index is not None else None
    if index is not None and may_repeat(column, place.rows):
        values = single_values(index, column, pages, place.file.path)
        said = [value for value in (values[page] for page in chosen) if value is not None]
        if len(said) == len(chosen):
            numbers = pa.array(position.astype(np.min_scalar_type(len(said))))
            return pa.DictionaryArray.from_arrays(numbers, pa.array(said, said[0].type))
    return _Selection(column, pages, tuple(chosen.tolist()), place.rows)


def _pages(place: RowGroupPlace, column: ColumnPlace, known: Bytes) -> Pages | None:
    position = column.offset_index
    data = known.get(Piece(place.file.path, *position)) if position is not None else None
    if position is None or data is None:
        return None
    end = column.offset + column.size
    return read_offset_index(data, place.rows, column.offset, end, place.file.path, position[0])


def _match(wanted: Wanted, part: _Selection | None, bytes_of: Bytes) -> tuple[Rows, pa.Array]:
    if part is None:
        return np.empty(0, dtype=np.int64), pa.array([], pa.binary())
    keys = _decode(wanted.place, part, bytes_of)
    if keys.type != pa.binary():
        raise DataFault(
            DataKind.UNSUPPORTED,
            wanted.place.file.path,
            part.place.offset,
            f"column {wanted.key} has type {keys.type}, not bytes",
        )
    _check_bounds(wanted.place, part, keys)
    _check_statistics(wanted, part, keys)
    here = np.arange(len(keys)) if wanted.ranges is None else rows_in_ranges(keys, wanted.ranges)
    if wanted.keep is not None and len(here):
        here = here[wanted.keep(keys.take(pa.array(here)))]
    return _numbers(part, here), keys.take(pa.array(here))


def _check_bounds(place: RowGroupPlace, part: _Selection, keys: pa.Array) -> None:
    """An index whose bounds are wrong where they can be checked is not believed where they cannot."""
    if part.pages is None or part.bounds is None:
        return
    start = 0
    for page in part.chosen:
        count = part.pages.row_count(page)
        found = pc.min_max(keys.slice(start, count))
        smallest, largest = found["min"].as_py(), found["max"].as_py()
        if smallest is not None and not part.bounds.allow(page, smallest, largest):
            raise DataFault(
                DataKind.MALFORMED,
                place.file.path,
                part.pages.offsets[page],
                f"page {page} has keys outside its bounds",
            )
        start += count


def _check_statistics(wanted: Wanted, part: _Selection, keys: pa.Array) -> None:
    """Row groups are passed over by what a footer says of them: where that can be seen to be wrong, nothing it says
    counts."""
    low, high = wanted.bounds
    if not len(keys) or (low is None and high is None):
        return
    found = pc.min_max(keys)
    smallest, largest = found["min"].as_py(), found["max"].as_py()
    if smallest is not None and ((low is not None and smallest < low) or (high is not None and largest > high)):
        raise DataFault(
            DataKind.MISMATCH,
            wanted.place.file.path,
            part.place.offset,
            f"row group {wanted.place.number} has keys outside the bounds that its footer gives",
        )


def _decode(place: RowGroupPlace, part: _Selection, bytes_of: Bytes) -> pa.Array:
    column, path = part.place, place.file.path
    dictionary = part.dictionary(path)
    pieces = [dictionary] if dictionary is not None and dictionary in bytes_of else []
    found = [(piece.offset, bytes_of[piece]) for piece in pieces + part.pieces(path)]
    rows = part.rows if part.pages is None else sum(part.pages.row_count(page) for page in part.chosen)
    values = decode_pages(column.layout, found, rows, source=path)
    return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)


def _numbers(part: _Selection, positions: Rows) -> Rows:
    """Row numbers in the row group of positions among the rows of the chosen pages."""
    if part.pages is None:
        return positions
    starts, firsts = _starts(part)
    page = np.searchsorted(starts, positions, side="right") - 1
    return positions - starts[page] + firsts[page]


def _positions(part: _Selection, rows: Rows) -> Rows:
    """The other way round."""
    if part.pages is None:
        return rows
    starts, firsts = _starts(part)
    page = np.searchsorted(firsts, rows, side="right") - 1
    return rows - firsts[page] + starts[page]


def _starts(part: _Selection) -> tuple[Rows, Rows]:
    assert part.pages is not None
    counts = np.asarray([part.pages.row_count(page) for page in part.chosen], dtype=np.int64)
    firsts = np.asarray([part.pages.first_rows[page] for page in part.chosen], dtype=np.int64)
    return np.cumsum(counts) - counts, firsts


#: Rows of a batch; a row of the four columns of a URL index takes about 250 bytes.
_SCANNED_ROWS = 16_384


def scan_columns(
    reader: ManyReader, place: RowGroupPlace, names: Sequence[str], cost: Cost
) -> Iterator[list[pa.Array]]:
    """Batches of the columns ``names`` of one row group, in their physical types.

    In memory are the compressed chunks (60 MB for a URL, its file, offset and length) and one batch. Raises
    ``DataFault`` for a column that is not there or cannot be decoded.
    """
    path = place.file.path
    missing = [name for name in names if name not in place.columns]
    if missing:
        raise DataFault(DataKind.MALFORMED, path, None, f"row group {place.number} has no column {missing[0]}")
    columns = []
    for name in names:
        column = place.columns[name]
        piece = Piece(path, column.offset, column.size)
        # one column after the other: decoding copies the bytes, and only one column has them here twice
        found = fetch_pieces(reader, [piece], {path: place.file.etag}, cost, {path: place.file.size})
        columns.append(
            decode_batches(column.layout, found.pop(piece), place.rows, _SCANNED_ROWS, source=path, offset=piece.offset)
        )
    for batches in zip(*columns, strict=True):
        if len({len(values) for values in batches}) != 1:
            raise DataFault(DataKind.MALFORMED, path, None, f"columns of row group {place.number} differ in length")
        yield list(batches)
