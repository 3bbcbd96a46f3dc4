"""Decodes pages of a Parquet file that were fetched one by one.

A remote column chunk, or some pages of it, is wrapped as a Parquet file of one column and one row group in
memory, with a footer written here, and handed to pyarrow. So pages are decoded without the file's own footer,
and no statistic or key of an unknown writer reaches the decoder. Format: ``parquet.thrift`` of
apache/parquet-format; thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.errors import DataFault
from cc_pipeline.index.footer_schema import PHYSICAL_TYPES

_MAGIC = b"PAR1"
_REPETITIONS = {"required": 0, "optional": 1}
_FIXED = "FIXED_LEN_BYTE_ARRAY"
#: Codecs of ``CompressionCodec`` that pyarrow decodes (UNCOMPRESSED, SNAPPY, GZIP, BROTLI, LZ4, ZSTD, LZ4_RAW).
_CODECS = (0, 1, 2, 4, 5, 6, 7)

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """How one flat column is stored: name, physical type, ``required`` or ``optional``, codec number."""

    name: str
    physical: str
    repetition: str
    codec: int


def decode_pages(column: ColumnLayout, pages: bytes, rows: int, *, source: str, offset: int | None) -> pa.ChunkedArray:
    """The ``rows`` values of data pages that lie one behind the other in ``pages``, in the physical type.

    A dictionary page may lie in front of them: pyarrow knows it by its header. INT96 comes as timestamps in
    milliseconds. Raises ``DataFault`` with ``source`` and ``offset`` for bytes that are no such pages.
    """
    batches = list(decode_batches(column, pages, rows, max(rows, 1), source=source, offset=offset))
    return pa.chunked_array(batches) if batches else pa.chunked_array([], pa.binary())


def decode_batches(
    column: ColumnLayout, pages: bytes, rows: int, batch: int, *, source: str, offset: int | None
) -> Iterator[pa.Array]:
    """The same, ``batch`` values at a time, for columns too large to be held decoded; ``pages`` is copied at once."""
    if column.repetition not in _REPETITIONS:
        raise DataFault(source, offset, f"column {column.name} is {column.repetition}, no flat column")
    if column.codec not in _CODECS:
        raise DataFault(source, offset, f"column {column.name} has the unknown codec {column.codec}")
    footer = _footer(column, len(pages), rows, source, offset)
    whole = b"".join((_MAGIC, pages, footer, len(footer).to_bytes(4, "little"), _MAGIC))
    return _decoded(column, whole, rows, batch, source, offset)


def _decoded(
    column: ColumnLayout, whole: bytes, rows: int, batch: int, source: str, offset: int | None
) -> Iterator[pa.Array]:
    decoded = 0
    try:
        file = pq.ParquetFile(
            pa.BufferReader(whole),
            pre_buffer=False,
            coerce_int96_timestamp_unit="ms",
            page_checksum_verification=True,
        )
        for values in file.iter_batches(batch, use_threads=False):
            decoded += values.num_rows
            yield values.column(0)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataFault(source, offset, f"pages of column {column.name} cannot be decoded ({error})") from error
    if decoded != rows:
        raise DataFault(source, offset, f"pages of column {column.name} hold {decoded} of {rows} values")


def _footer(column: ColumnLayout, size: int, rows: int, source: str, offset: int | None) -> bytes:
    physical, _, width = column.physical.partition("(")
    if physical not in PHYSICAL_TYPES:
        raise DataFault(source, offset, f"column {column.name} has the unknown type {column.physical}")
    number = PHYSICAL_TYPES.index(physical)
    root = _struct((4, _BINARY, _string(b"r")), (5, _I32, _zigzag(1)))
    length = [(2, _I32, _zigzag(int(width.rstrip(")") or 0)))] if physical == _FIXED else []
    repetition = _zigzag(_REPETITIONS[column.repetition])
    leaf = _struct((1, _I32, _zigzag(number)), *length, (3, _I32, repetition), (4, _BINARY, _string(b"c")))
    chunk = _struct(
        (1, _I32, _zigzag(number)),
        (2, _LIST, _list(_I32, [_zigzag(0)])),
        (3, _LIST, _list(_BINARY, [_string(b"c")])),
        (4, _I32, _zigzag(column.codec)),
        (5, _I64, _zigzag(rows)),
        (6, _I64, _zigzag(size)),
        (7, _I64, _zigzag(size)),
        (9, _I64, _zigzag(len(_MAGIC))),
    )
    group = _struct(
        (1, _LIST, _list(_STRUCT, [_struct((2, _I64, _zigzag(0)), (3, _STRUCT, chunk))])),
        (2, _I64, _zigzag(size)),
        (3, _I64, _zigzag(rows)),
    )
    return _struct(
        (1, _I32, _zigzag(1)),
        (2, _LIST, _list(_STRUCT, [root, leaf])),
        (3, _I64, _zigzag(rows)),
        (4, _LIST, _list(_STRUCT, [group])),
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1)


def _string(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _list(kind: int, elements: Sequence[bytes]) -> bytes:
    return bytes([len(elements) << 4 | kind]) + b"".join(elements)


def _struct(*fields: tuple[int, int, bytes]) -> bytes:
    out = bytearray()
    last = 0
    for number, kind, content in fields:
        out.append((number - last) << 4 | kind)
        out += content
        last = number
    return bytes(out) + b"\0"
