"""Reads some columns of whole row groups, a batch of rows at a time: for going over a crawl, not for look-ups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from cc_pipeline.errors import DataFault
from cc_pipeline.index.parquet_assemble import decode_batches
from cc_pipeline.index.parquet_fetch import Cost, ManyReader, Piece, fetch_pieces
from cc_pipeline.index.parquet_places import RowGroupPlace

#: Rows of a batch; a row of the four columns of a URL index takes about 250 bytes.
BATCH_ROWS = 16_384


def scan_columns(
    reader: ManyReader, place: RowGroupPlace, names: Sequence[str], cost: Cost, batch: int = BATCH_ROWS
) -> Iterator[list[pa.Array]]:
    """Batches of the columns ``names`` of one row group, in their physical types.

    In memory are the compressed chunks (60 MB for a URL, its file, offset and length) and one batch. Raises
    ``DataFault`` for a column that is not there or cannot be decoded.
    """
    path = place.file.path
    missing = [name for name in names if name not in place.columns]
    if missing:
        raise DataFault(path, None, f"row group {place.number} has no column {missing[0]}")
    columns = []
    for name in names:
        column = place.columns[name]
        piece = Piece(path, column.offset, column.size)
        # one column after the other: decoding copies the bytes, and only one column has them here twice
        found = fetch_pieces(reader, [piece], {path: place.file.etag}, cost)
        columns.append(
            decode_batches(column.layout, found.pop(piece), place.rows, batch, source=path, offset=piece.offset)
        )
    for batches in zip(*columns, strict=True):
        if len({len(values) for values in batches}) != 1:
            raise DataFault(path, None, f"columns of row group {place.number} differ in length")
        yield list(batches)
