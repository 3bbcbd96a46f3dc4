"""Where the columns of a row group lie, and pages fetched one by one decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMN_NAMES
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.footers.decode import TRAILER_BYTES, ColumnChunk
from cc_pipeline.index.footers.thrift import PHYSICAL_TYPES

_MAGIC = b"PAR1"
_REPETITIONS = {"required": 0, "optional": 1}
_FIXED = "FIXED_LEN_BYTE_ARRAY"
#: Codecs of ``CompressionCodec`` that pyarrow decodes (UNCOMPRESSED, SNAPPY, GZIP, BROTLI, LZ4, ZSTD, LZ4_RAW).
_KNOWN_CODECS = (0, 1, 2, 4, 5, 6, 7)

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
        raise DataFault(
            DataKind.UNSUPPORTED, source, offset, f"column {column.name} is {column.repetition}, no flat column"
        )
    if column.codec not in _KNOWN_CODECS:
        raise DataFault(
            DataKind.UNSUPPORTED, source, offset, f"column {column.name} has the unknown codec {column.codec}"
        )
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
        raise DataFault(
            DataKind.MALFORMED, source, offset, f"pages of column {column.name} cannot be decoded ({error})"
        ) from error
    if decoded != rows:
        raise DataFault(
            DataKind.MALFORMED, source, offset, f"pages of column {column.name} hold {decoded} of {rows} values"
        )


def _footer(column: ColumnLayout, size: int, rows: int, source: str, offset: int | None) -> bytes:
    physical, _, width = column.physical.partition("(")
    if physical not in PHYSICAL_TYPES:
        raise DataFault(
            DataKind.UNSUPPORTED, source, offset, f"column {column.name} has the unknown type {column.physical}"
        )
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


#: The column that every look-up goes by.
KEY = "url_surtkey"
#: Row groups have up to two million rows; a count far beyond is not believed.
MOST_ROWS = 1 << 28
#: Names of ``CompressionCodec`` in its order; the catalog has names, a footer for pyarrow needs numbers.
_CODEC_NAMES = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
#: With no other encoding than these, every data page uses the dictionary (the others are those of levels).
_DICTIONARY_ONLY = {"PLAIN_DICTIONARY", "RLE", "BIT_PACKED"}


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """One column chunk with its dictionary: ``offset``, ``size`` in bytes; index positions as (offset, length).

    ``dictionary_only`` is true where the writer says that every page uses the dictionary.
    """

    layout: ColumnLayout
    meaning: str
    offset: int
    size: int
    offset_index: tuple[int, int] | None
    column_index: tuple[int, int] | None
    dictionary_only: bool = False


@dataclass(frozen=True, slots=True)
class FilePlace:
    """One index file. ``columns`` maps name to (physical type, repetition, meaning), for all that it has."""

    crawl: str
    subset: str
    path: str
    size: int
    etag: str | None
    footer_bytes: int
    columns: Mapping[str, tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class RowGroupPlace:
    """One row group of ``file`` and those of its columns whose place is known."""

    file: FilePlace
    number: int
    rows: int
    columns: Mapping[str, ColumnPlace]


def described_columns(lines: list[str]) -> dict[str, tuple[str, str, str]]:
    """The catalog's ``name PHYSICAL repetition MEANING`` lines taken apart."""
    found: dict[str, tuple[str, str, str]] = {}
    for line in lines:
        name, physical, repetition, *meaning = line.split(" ", 3)
        found[name] = (physical, repetition, meaning[0] if meaning else "")
    return found


def column_place(file: FilePlace, chunk: ColumnChunk) -> ColumnPlace:
    """The place a decoded footer gives a column. Raises ``DataFault`` where it is not in this file or encrypted."""
    return checked_place(
        file,
        chunk.column,
        chunk.codec,
        (chunk.offset, chunk.size),
        chunk.offset_index,
        chunk.column_index,
        chunk.encodings,
        elsewhere=chunk.elsewhere or chunk.encrypted,
    )


def checked_place(
    file: FilePlace,
    name: str,
    codec: str,
    span: tuple[int, int],
    offset_index: tuple[int, int] | None,
    column_index: tuple[int, int] | None,
    encodings: Sequence[str] = (),
    *,
    elsewhere: bool = False,
) -> ColumnPlace:
    """A column's place from its chunk's offset and size, checked against the file's size."""
    offset, size = span
    if elsewhere:
        raise DataFault(DataKind.UNSUPPORTED, file.path, offset, f"column {name} is encrypted or in another file")
    if name not in file.columns or codec not in _CODEC_NAMES:
        raise DataFault(DataKind.UNSUPPORTED, file.path, offset, f"column {name} with codec {codec} cannot be read")
    end = file.size - file.footer_bytes - TRAILER_BYTES
    if not 4 <= offset <= offset + size <= end:
        raise DataFault(
            DataKind.MALFORMED, file.path, offset, f"column {name} claims {size} bytes outside the file's data"
        )
    physical, repetition, meaning = file.columns[name]
    layout = ColumnLayout(name, physical, repetition, _CODEC_NAMES.index(codec))
    only = "PLAIN_DICTIONARY" in encodings and _DICTIONARY_ONLY.issuperset(encodings)
    return ColumnPlace(layout, meaning, offset, size, _inside(offset_index, end), _inside(column_index, end), only)


def checked_row_group(file: FilePlace, number: int, rows: int, columns: Mapping[str, ColumnPlace]) -> RowGroupPlace:
    """A row group whose row count can be believed. Raises ``DataFault`` where it, or the key column, cannot."""
    if not 0 <= rows <= MOST_ROWS:
        raise DataFault(DataKind.MALFORMED, file.path, None, f"row group {number} claims {rows} rows")
    if KEY not in columns:
        raise DataFault(DataKind.MALFORMED, file.path, None, f"row group {number} has no column {KEY}")
    return RowGroupPlace(file, number, rows, columns)


def wanted_columns(columns: Sequence[str] | None, file: FilePlace) -> tuple[str, ...]:
    """The columns to read of ``file``: those asked for that it has, in the published order, unknown ones last."""
    order = [name for name in INDEX_COLUMN_NAMES if name in file.columns]
    order += [name for name in file.columns if name not in order]
    return tuple(order if columns is None else [name for name in order if name in columns or name == KEY])


def _inside(position: tuple[int, int] | None, end: int) -> tuple[int, int] | None:
    """An index position that can be: page indexes are optional, an impossible one is as good as none."""
    if position is None:
        return None
    offset, length = position
    return position if offset >= 4 and 0 < length <= end - offset else None
