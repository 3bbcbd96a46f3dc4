"""Estimates the requests and bytes for reading a row group, from its footer alone."""

from __future__ import annotations

from collections.abc import Sequence

from cc_pipeline.index.parquet.chunk_locations import KEY, ColumnLocation, RowGroupLocation
from cc_pipeline.index.parquet.fetch import GAP, Piece, coalesce, run_end
from cc_pipeline.index.parquet.pages import may_repeat

#: Rows in a page as the index's writer cuts them.
_PAGE_ROWS = 20_000


def index_pieces(path: str, column: ColumnLocation, rows: int) -> list[Piece]:
    """Returns the parts of a column's page index that a lookup reads: page locations, and bounds if they matter."""
    needs_bounds = column.layout.name == KEY or may_repeat(column, rows)
    positions = (column.offset_index, column.column_index if needs_bounds else None)
    return [Piece(path, *position) for position in positions if position is not None]


def max_requests(place: RowGroupLocation, columns: Sequence[ColumnLocation]) -> int:
    """Returns the maximum requests: two for a large chunk with a page index (dictionary and pages), and for the others
    as many as there can be gaps between them."""
    path = place.file.path
    large = [column for column in columns if column.offset_index is not None and column.size > GAP]
    small_pieces = [Piece(path, column.offset, column.size) for column in columns if column not in large]
    indexes = [Piece(path, *column.offset_index) for column in columns if column.offset_index is not None]
    splits = sum(max(0, run_end(run) - run[0].offset - 1) // GAP + 1 for run in coalesce(small_pieces))
    return 2 * len(large) + splits + 1 + 2 * len(coalesce(indexes))


def likely_bytes(place: RowGroupLocation, columns: Sequence[ColumnLocation]) -> int:
    """Returns the likely bytes: two pages and the index of a column with a page index, else the whole column; with the
    gaps between them.

    The locations of the pages are not known yet, so the middle of each chunk is assumed.
    """
    path = place.file.path
    pieces = []
    for column in columns:
        size = column.size
        if column.offset_index is not None:
            size = min(size, size * 2 * _PAGE_ROWS // max(place.rows, 1))
        pieces.append(Piece(path, column.offset + (column.size - size) // 2, size))
    indexes = [piece for column in columns for piece in index_pieces(path, column, place.rows)]
    return sum(run_end(run) - run[0].offset for group in (pieces, indexes) for run in coalesce(group))
