"""Reads the rows of some key ranges from row groups: the key column first, the others only where rows match."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.key_ranges import KeyRange, range_set
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.parquet.chunk_locations import KEY, MAX_ROWS, ColumnLocation, RowGroupLocation
from cc_pipeline.index.parquet.decoding import decode_pages
from cc_pipeline.index.parquet.fetch import MAX_WHOLE_OBJECT, Cost, PageIndexes, Piece, fetch_pieces
from cc_pipeline.index.parquet.page_walk import is_numbered
from cc_pipeline.index.parquet.pages import (
    PageBounds,
    Pages,
    may_repeat,
    read_column_index,
    read_offset_index,
    single_values,
)
from cc_pipeline.transport.client import Transport

#: Up to so many ranges, comparing whole columns is cheaper than comparing keys one by one.
_MAX_COMPARED_RANGES = 24


def rows_in_ranges(keys: pa.Array, ranges: Sequence[KeyRange]) -> npt.NDArray[np.int64]:
    """Returns the positions, ascending, of the binary ``keys`` that lie in one of ``ranges``; nulls lie in none."""
    merged: Sequence[KeyRange]
    merged = requested_ranges = range_set(ranges)
    if len(requested_ranges) > _MAX_COMPARED_RANGES:
        bounds = pc.min_max(keys)
        merged = requested_ranges.near(bounds["min"].as_py(), bounds["max"].as_py())
    if not len(keys) or not merged:
        return np.empty(0, dtype=np.int64)
    has_many_keys = len(merged) <= len(keys) // _MAX_COMPARED_RANGES and keys.null_count == 0
    if has_many_keys and pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        find = partial(bisect_left, keys, key=lambda scalar: scalar.as_py())
        spans = [(find(near.start), len(keys) if near.end is None else find(near.end)) for near in merged]
        return np.concatenate([np.arange(first, end, dtype=np.int64) for first, end in spans])
    if len(merged) <= _MAX_COMPARED_RANGES:
        mask = np.zeros(len(keys), dtype=bool)
        for key_range in merged:
            inside = pc.greater_equal(keys, pa.scalar(key_range.start, pa.binary()))
            if key_range.end is not None:
                inside = pc.and_(inside, pc.less(keys, pa.scalar(key_range.end, pa.binary())))
            mask |= pc.fill_null(inside, False).to_numpy(zero_copy_only=False)
        return np.flatnonzero(mask)
    starts = [key_range.start for key_range in merged]
    ends = [key_range.end for key_range in merged]
    positions = []
    for position, key in enumerate(keys.to_pylist()):
        if key is not None:
            place = bisect_right(starts, key) - 1
            end = ends[place]
            if place >= 0 and (end is None or key < end):
                positions.append(position)
    return np.asarray(positions, dtype=np.int64)


Rows = npt.NDArray[np.int64]
Bytes = dict[Piece, bytes]

#: Dictionaries up to this many bytes are read together with the pages, needed or not.
_SMALL_DICTIONARY = 32 << 10


@dataclass(frozen=True, slots=True)
class RowGroupQuery:
    """A query of one row group: its key ranges, and the columns to return (the key column is always read)."""

    place: RowGroupLocation
    ranges: Sequence[KeyRange]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowGroupRows:
    """Rows of one row group: their numbers in it, and one array per column in its physical type."""

    place: RowGroupLocation
    rows: Rows
    columns: dict[str, pa.Array]


@dataclass(frozen=True, slots=True)
class _Selection:
    """The pages of a chunk to read; ``pages`` is ``None`` if the whole chunk is one piece."""

    place: ColumnLocation
    pages: Pages | None
    page_numbers: tuple[int, ...]
    rows: int
    bounds: PageBounds | None = None

    def pieces(self, key: str) -> list[Piece]:
        """Returns the pieces to read: the chunk, or the selected pages."""
        if self.pages is None:
            return [Piece(key, self.place.offset, self.place.size)]
        return [Piece(key, self.pages.offsets[page], self.pages.sizes[page]) for page in self.page_numbers]

    def dictionary(self, key: str) -> Piece | None:
        """Returns the dictionary page before the pages, if there is one."""
        length = self.pages.offsets[0] - self.place.offset if self.pages is not None and self.page_numbers else 0
        return Piece(key, self.place.offset, length) if length else None


def read_rows(
    reader: Transport,
    queries: Sequence[RowGroupQuery],
    indexes: PageIndexes,
    cost: Cost,
    window: int = MAX_ROWS,
) -> Iterator[RowGroupRows]:
    """Yields the rows of each row group whose key lies in its ranges, in the order of ``queries``. A row group with
    more than ``window`` rows comes in windows of that size, decoded as they are drawn; the windows of equal
    queries are equal.

    Before the first window there are three rounds of concurrent requests: page indexes, key pages, other pages. A
    fourth round follows if pages need a large dictionary that not every page needs. Raises ``DataFault`` or an
    environment fault; rows that were yielded before are then no complete result.
    """
    etags = {query.place.file.path: query.place.file.etag for query in queries}
    sizes = {query.place.file.path: query.place.file.size for query in queries}

    def fetch(pieces: Iterable[Piece]) -> Bytes:
        return fetch_pieces(reader, pieces, etags, cost, sizes, max_object_bytes=MAX_WHOLE_OBJECT)

    page_indexes = _page_indexes(queries, indexes, fetch)
    key_parts = [_key_selection(query, page_indexes) for query in queries]
    bytes_of = _fetch_pages(list(zip(queries, key_parts, strict=True)), fetch)
    matched = [_match(query, key_part, bytes_of) for query, key_part in zip(queries, key_parts, strict=True)]
    parts = [
        {name: _row_selection(query.place, name, rows, page_indexes) for name in _other_columns(query) if len(rows)}
        for query, (rows, _) in zip(queries, matched, strict=True)
    ]
    selections = [
        (query, part)
        for query, columns in zip(queries, parts, strict=True)
        for part in columns.values()
        if isinstance(part, _Selection)
    ]
    bytes_of = _fetch_pages(selections, fetch)
    for query, (rows, keys), columns in zip(queries, matched, parts, strict=True):
        yield from _read_windows(query, rows, keys, columns, bytes_of, window)


def _read_windows(
    query: RowGroupQuery,
    rows: Rows,
    keys: pa.Array,
    columns: Mapping[str, _Selection | pa.DictionaryArray],
    bytes_of: Bytes,
    window: int,
) -> Iterator[RowGroupRows]:
    """Yields the ``rows`` of a row group with its columns, in windows."""
    decoded_columns: dict[str, pa.Array] = {}
    for start in range(0, max(len(rows), 1), window):
        window_rows = rows[start : start + window]
        arrays = {KEY: keys.slice(start, window)}
        for name, part in columns.items():
            if not isinstance(part, _Selection):
                arrays[name] = part.slice(start, window).dictionary_decode()
            elif part.pages is None:
                # one piece, which is decoded once
                if name not in decoded_columns:
                    decoded_columns[name] = _decode(query.place, part, bytes_of)
                arrays[name] = decoded_columns[name].take(pa.array(window_rows))
            else:
                selected_pages = _select_pages(part, window_rows)
                arrays[name] = _decode(query.place, selected_pages, bytes_of).take(
                    pa.array(_positions(selected_pages, window_rows))
                )
        yield RowGroupRows(query.place, window_rows, arrays)


def _other_columns(query: RowGroupQuery) -> list[str]:
    return [name for name in query.columns if name != KEY and name in query.place.columns]


def _select_pages(part: _Selection, rows: Rows) -> _Selection:
    """Returns the selected pages that hold ``rows``, which are in order."""
    assert part.pages is not None
    firsts = np.asarray([part.pages.first_rows[page] for page in part.page_numbers], dtype=np.int64)
    page_positions = np.unique(np.searchsorted(firsts, rows, side="right") - 1)
    return replace(part, page_numbers=tuple(part.page_numbers[place] for place in page_positions.tolist()))


def _fetch_pages(
    selections: Sequence[tuple[RowGroupQuery, _Selection | None]], fetch: Callable[[Iterable[Piece]], Bytes]
) -> Bytes:
    """Fetches all selected pages, with the dictionaries that they need.

    A writer stops using a dictionary that has grown too large, so the pages of a column may not need the dictionary
    before them. A large one is read only if they do, or at once if the writer says that all pages do.
    """
    first: list[Piece] = []
    waiting: list[tuple[Piece, list[Piece]]] = []
    for query, part in selections:
        if part is None:
            continue
        path = query.place.file.path
        pages, dictionary = part.pieces(path), part.dictionary(path)
        first += pages
        if dictionary is not None and dictionary.length > _SMALL_DICTIONARY and not part.place.dictionary_only:
            waiting.append((dictionary, pages))
        elif dictionary is not None:
            first.append(dictionary)
    page_data = fetch(first)
    needed = [
        dictionary
        for dictionary, pages in waiting
        if any(is_numbered(page_data[page], source=page.key, offset=page.offset) for page in pages)
    ]
    return page_data | fetch(needed)


def _page_indexes(
    queries: Sequence[RowGroupQuery], indexes: PageIndexes, fetch: Callable[[Iterable[Piece]], Bytes]
) -> Bytes:
    needed: set[Piece] = set()
    for query in queries:
        path, key = query.place.file.path, query.place.columns[KEY]
        if key.column_index is None or key.offset_index is None:
            continue
        needed.add(Piece(path, *key.column_index))
        for name in [KEY, *_other_columns(query)]:
            column = query.place.columns[name]
            if column.offset_index is not None:
                needed.add(Piece(path, *column.offset_index))
            if column.column_index is not None and may_repeat(column, query.place.rows):
                needed.add(Piece(path, *column.column_index))
    etags = {query.place.file.path: query.place.file.etag for query in queries}
    cached = indexes.cached_pieces(needed, etags)
    fresh = fetch(needed - cached.keys())
    indexes.keep(fresh, etags)
    return cached | fresh


def _key_selection(query: RowGroupQuery, page_indexes: Bytes) -> _Selection | None:
    place = query.place
    column = place.columns[KEY]
    pages = _pages(place, column, page_indexes)
    if pages is None or column.column_index is None:
        return _Selection(column, None, (), place.rows)
    path, position = place.file.path, column.column_index
    bounds = read_column_index(page_indexes[Piece(path, *position)], len(pages), path, position[0])
    page_numbers = tuple(page for page in range(len(pages)) if bounds.may_hold(page, query.ranges))
    return _Selection(column, pages, page_numbers, place.rows, bounds) if page_numbers else None


def _row_selection(
    place: RowGroupLocation, name: str, rows: Rows, page_indexes: Bytes
) -> _Selection | pa.DictionaryArray:
    """Returns the pages that hold ``rows``, or the values of these rows if the page index has them."""
    column = place.columns[name]
    pages = _pages(place, column, page_indexes)
    if pages is None:
        return _Selection(column, None, (), place.rows)
    page_of = np.searchsorted(np.asarray(pages.first_rows, dtype=np.int64), rows, side="right") - 1
    page_numbers, position = np.unique(page_of, return_inverse=True)
    index = page_indexes.get(Piece(place.file.path, *column.column_index)) if column.column_index is not None else None
    if index is not None and may_repeat(column, place.rows):
        values = single_values(index, column, pages, place.file.path)
        page_values = [value for value in (values[page] for page in page_numbers) if value is not None]
        if len(page_values) == len(page_numbers):
            numbers = pa.array(position.astype(np.min_scalar_type(len(page_values))))
            return pa.DictionaryArray.from_arrays(numbers, pa.array(page_values, page_values[0].type))
    return _Selection(column, pages, tuple(page_numbers.tolist()), place.rows)


def _pages(place: RowGroupLocation, column: ColumnLocation, page_indexes: Bytes) -> Pages | None:
    position = column.offset_index
    data = page_indexes.get(Piece(place.file.path, *position)) if position is not None else None
    if position is None or data is None:
        return None
    end = column.offset + column.size
    return read_offset_index(data, place.rows, column.offset, end, place.file.path, position[0])


def _match(query: RowGroupQuery, part: _Selection | None, bytes_of: Bytes) -> tuple[Rows, pa.Array]:
    if part is None:
        return np.empty(0, dtype=np.int64), pa.array([], pa.binary())
    keys = _decode(query.place, part, bytes_of)
    if keys.type != pa.binary():
        raise DataFault(
            DataKind.UNSUPPORTED,
            query.place.file.path,
            part.place.offset,
            f"column {KEY} has type {keys.type}, not bytes",
        )
    _check_bounds(query.place, part, keys)
    positions = rows_in_ranges(keys, query.ranges)
    return _numbers(part, positions), keys.take(pa.array(positions))


def _check_bounds(place: RowGroupLocation, part: _Selection, keys: pa.Array) -> None:
    """Raises ``DataFault`` if a page has keys outside its bounds: then its page index is unreliable."""
    if part.pages is None or part.bounds is None:
        return
    start = 0
    for page in part.page_numbers:
        count = part.pages.row_count(page)
        extremes = pc.min_max(keys.slice(start, count))
        smallest, largest = extremes["min"].as_py(), extremes["max"].as_py()
        if smallest is not None and not part.bounds.allow(page, smallest, largest):
            raise DataFault(
                DataKind.MALFORMED,
                place.file.path,
                part.pages.offsets[page],
                f"page {page} has keys outside the bounds in its column index",
            )
        start += count


def _decode(place: RowGroupLocation, part: _Selection, bytes_of: Bytes) -> pa.Array:
    column, path = part.place, place.file.path
    dictionary = part.dictionary(path)
    pieces = [dictionary] if dictionary is not None and dictionary in bytes_of else []
    pieces_with_data = [(piece.offset, bytes_of[piece]) for piece in pieces + part.pieces(path)]
    rows = part.rows if part.pages is None else sum(part.pages.row_count(page) for page in part.page_numbers)
    values = decode_pages(column.layout, pieces_with_data, rows, source=path)
    return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)


def _numbers(part: _Selection, positions: Rows) -> Rows:
    """Converts positions among the rows of the selected pages into row numbers of the row group."""
    if part.pages is None:
        return positions
    starts, firsts = _starts(part)
    page = np.searchsorted(starts, positions, side="right") - 1
    return positions - starts[page] + firsts[page]


def _positions(part: _Selection, rows: Rows) -> Rows:
    """Converts row numbers of the row group into positions among the rows of the selected pages."""
    if part.pages is None:
        return rows
    starts, firsts = _starts(part)
    page = np.searchsorted(firsts, rows, side="right") - 1
    return rows - firsts[page] + starts[page]


def _starts(part: _Selection) -> tuple[Rows, Rows]:
    assert part.pages is not None
    counts = np.asarray([part.pages.row_count(page) for page in part.page_numbers], dtype=np.int64)
    firsts = np.asarray([part.pages.first_rows[page] for page in part.page_numbers], dtype=np.int64)
    return np.cumsum(counts) - counts, firsts
