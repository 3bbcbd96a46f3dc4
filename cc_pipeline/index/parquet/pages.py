"""Reads the page index of a Parquet file: the locations, rows and keys of pages, and pages with a single value."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from cc_pipeline.commoncrawl.key_ranges import KeyRange, range_set
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.footers.thrift import CompactReader, FooterFault, Value
from cc_pipeline.index.parquet.chunk_locations import ColumnLocation

#: ``BoundaryOrder`` of pages whose bounds never fall.
_ASCENDING = 1


@dataclass(frozen=True, slots=True)
class Pages:
    """The data pages of one column chunk in order: ``offsets`` and ``sizes`` in the file, and each page's first row."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    first_rows: tuple[int, ...]
    rows: int

    def __len__(self) -> int:
        return len(self.offsets)

    def row_count(self, page: int) -> int:
        """Returns the number of rows of one page."""
        end = self.first_rows[page + 1] if page + 1 < len(self.first_rows) else self.rows
        return end - self.first_rows[page]


@dataclass(frozen=True, slots=True)
class PageBounds:
    """Bounds of the values of each page, perhaps wider than its values; ``None`` if not known."""

    low: tuple[bytes | None, ...]
    high: tuple[bytes | None, ...]
    empty: tuple[bool, ...]

    def may_hold(self, page: int, ranges: Sequence[KeyRange]) -> bool:
        """Whether a key of ``ranges`` can be in ``page``; pages with only nulls hold none."""
        if self.empty[page]:
            return False
        return range_set(ranges).meets(self.low[page], self.high[page])

    def allow(self, page: int, smallest: bytes, largest: bytes) -> bool:
        """Whether keys from ``smallest`` to ``largest`` lie within the bounds of ``page``."""
        low, high = self.low[page], self.high[page]
        return not self.empty[page] and (low is None or low <= smallest) and (high is None or largest <= high)


def read_offset_index(data: bytes, rows: int, first: int, end: int, source: str, index_offset: int) -> Pages:
    """Returns the pages of a chunk that lies in bytes ``first`` to ``end`` of the file and has ``rows`` rows.

    ``data`` was read at byte ``index_offset`` of ``source``. Raises ``DataFault`` for anything but ascending pages
    inside the chunk that start with row 0.
    """
    locations = _list(_struct(data, source, index_offset), 1, source, index_offset)
    offsets: list[int] = []
    sizes: list[int] = []
    first_rows: list[int] = []
    place = first
    for location in locations:
        if not isinstance(location, dict):
            raise DataFault(DataKind.MALFORMED, source, index_offset, "an offset index is not a list of page locations")
        offset, size, row = (location.get(number) for number in (1, 2, 3))
        if not (isinstance(offset, int) and isinstance(size, int) and isinstance(row, int)):
            raise DataFault(DataKind.MALFORMED, source, index_offset, "a page location lacks its offset, size or row")
        last_row = first_rows[-1] if first_rows else -1
        if offset < place or size <= 0 or offset + size > end or not last_row < row < rows or (not first_rows and row):
            raise DataFault(
                DataKind.MALFORMED,
                source,
                index_offset,
                f"page {len(offsets)} of an offset index does not follow the one before it",
            )
        offsets.append(offset)
        sizes.append(size)
        first_rows.append(row)
        place = offset + size
    if not offsets and rows:
        raise DataFault(DataKind.MALFORMED, source, index_offset, f"an offset index has no pages for {rows} rows")
    return Pages(tuple(offsets), tuple(sizes), tuple(first_rows), rows)


def read_column_index(data: bytes, pages: int, source: str, index_offset: int) -> PageBounds:
    """Returns the bounds of each of ``pages`` pages.

    Raises ``DataFault`` if the lists have another length, a page's bounds are reversed, or an index that claims to be
    ascending is not: matching pages would be skipped.
    """
    empty, low, high, _ = index_lists(data, pages, source, index_offset)
    ascending = _struct(data, source, index_offset).get(4) == _ASCENDING
    bounds = [tuple(value if isinstance(value, bytes) else None for value in side) for side in (low, high)]
    page_bounds = PageBounds(bounds[0], bounds[1], tuple(value is True for value in empty))
    previous_bounds: tuple[bytes, bytes] | None = None
    for page in range(pages):
        first, last = page_bounds.low[page], page_bounds.high[page]
        if page_bounds.empty[page] or first is None or last is None:
            continue
        if first > last or (ascending and previous_bounds is not None and (first, last) < previous_bounds):
            raise DataFault(
                DataKind.MALFORMED,
                source,
                index_offset,
                f"bounds of page {page} of a column index contradict the others",
            )
        previous_bounds = (first, last)
    return page_bounds


def index_lists(
    data: bytes, pages: int, source: str, index_offset: int
) -> tuple[list[Value], list[Value], list[Value], list[Value] | None]:
    """Returns the lists of a column index for ``pages`` pages: whether a page is all null, its lower and upper bounds
    in plain encoding, and its nulls (``None`` if not given). Raises ``DataFault`` for lists of other lengths."""
    fields = _struct(data, source, index_offset)
    empty, low, high = (_list(fields, number, source, index_offset) for number in (1, 2, 3))
    nulls = fields.get(5)
    if not len(empty) == len(low) == len(high) == pages:
        raise DataFault(
            DataKind.MALFORMED,
            source,
            index_offset,
            f"a column index has bounds of {len(low)} pages, but the offset index has {pages} pages",
        )
    return empty, low, high, nulls if isinstance(nulls, list) and len(nulls) == pages else None


def _struct(data: bytes, source: str, index_offset: int) -> dict[int, Value]:
    try:
        return CompactReader(data).struct()
    except FooterFault as error:
        raise DataFault(
            DataKind.MALFORMED, source, index_offset + error.offset, f"page index: {error.reason}"
        ) from error


def _list(fields: dict[int, Value], number: int, source: str, index_offset: int) -> list[Value]:
    elements = fields.get(number)
    if not isinstance(elements, list):
        raise DataFault(
            DataKind.MALFORMED,
            source,
            index_offset,
            f"the Parquet page index is damaged: its field {number} is missing or no list",
        )
    return elements


#: A chunk with fewer bits per row than this consists of repetitions; the column index is read only for such chunks.
REPEATING_BITS = 1

_TYPES: dict[str, tuple[pa.DataType, str | None]] = {
    "BOOLEAN": (pa.bool_(), "<?"),
    "INT32": (pa.int32(), "<i"),
    "INT64": (pa.int64(), "<q"),
    "BYTE_ARRAY": (pa.binary(), None),
}


def may_repeat(column: ColumnLocation, rows: int) -> bool:
    """Whether the column index is worth its bytes: pages with a single value are likely, of a type that it can give."""
    indexed = column.column_index is not None and column.offset_index is not None
    return indexed and column.layout.physical in _TYPES and column.size * 8 < rows * REPEATING_BITS


def single_values(data: bytes, column: ColumnLocation, pages: Pages, source: str) -> list[pa.Scalar | None]:
    """Returns for each page the value of all its rows (perhaps null); ``None`` if they differ or it is unknown.

    The counts of nulls must agree with the bounds. Raises ``DataFault`` with ``source`` for bytes that are no column
    index of these pages.
    """
    index_offset = column.column_index[0] if column.column_index is not None else 0
    empty, low, high, nulls = index_lists(data, len(pages), source, index_offset)
    return [
        _single(column, pages.row_count(page), empty[page] is True, (low[page], high[page]), nulls and nulls[page])
        for page in range(len(pages))
    ]


def _single(
    column: ColumnLocation, rows: int, empty: bool, bounds: tuple[object, object], nulls: object
) -> pa.Scalar | None:
    kind, layout = _TYPES[column.layout.physical]
    low, high = bounds
    required = column.layout.repetition == "required"
    if empty:
        return pa.scalar(None, kind) if nulls == rows and not (low or high or required) else None
    if not (nulls == 0 or required) or not isinstance(low, bytes) or low != high:
        return None
    if layout is None:
        return pa.scalar(low, kind)
    return pa.scalar(struct.unpack(layout, low)[0], kind) if len(low) == struct.calcsize(layout) else None
