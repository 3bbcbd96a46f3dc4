"""Pages that hold one value, as their column index says: nothing of them has to be read.

A bound above and a bound below that are the same bytes leave one value between them, whether the writer cut its
bounds or not. Format: ``PageIndex.md`` of apache/parquet-format.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from cc_pipeline.index.parquet_pages import Pages, index_lists
from cc_pipeline.index.parquet_places import ColumnPlace

#: A chunk of fewer bits than this a row is made of repetitions; only of such chunks the column index is looked at.
REPEATING_BITS = 1

_TYPES: dict[str, tuple[pa.DataType, str | None]] = {
    "BOOLEAN": (pa.bool_(), "<?"),
    "INT32": (pa.int32(), "<i"),
    "INT64": (pa.int64(), "<q"),
    "BYTE_ARRAY": (pa.binary(), None),
}


def may_repeat(column: ColumnPlace, rows: int) -> bool:
    """Whether the column index is worth its bytes: pages of one value are likely, and of a type it can tell."""
    indexed = column.column_index is not None and column.offset_index is not None
    return indexed and column.layout.physical in _TYPES and column.size * 8 < rows * REPEATING_BITS


def single_values(data: bytes, column: ColumnPlace, pages: Pages, source: str) -> list[pa.Scalar | None]:
    """For each page the value that all its rows have (perhaps null), ``None`` where they differ or nobody knows.

    The counts of nulls must agree with what is said of the values. Raises ``DataFault`` with ``source`` for bytes
    that are no column index of these pages.
    """
    at = column.column_index[0] if column.column_index is not None else 0
    empty, low, high, nulls = index_lists(data, len(pages), source, at)
    return [
        _single(column, pages.row_count(page), empty[page] is True, (low[page], high[page]), nulls and nulls[page])
        for page in range(len(pages))
    ]


def _single(
    column: ColumnPlace, rows: int, empty: bool, bounds: tuple[object, object], nulls: object
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
