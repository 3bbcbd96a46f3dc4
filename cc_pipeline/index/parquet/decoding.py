"""Decodes pages that were fetched one by one, within the bounds of ``page_walk``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.footers.thrift import PHYSICAL_TYPES
from cc_pipeline.index.parquet.page_walk import PageClaims, column_bound, walk_pages

_MAGIC = b"PAR1"
_REPETITIONS = {"required": 0, "optional": 1}
_FIXED = "FIXED_LEN_BYTE_ARRAY"
#: Codecs of ``CompressionCodec`` that pyarrow decodes (UNCOMPRESSED, SNAPPY, GZIP, BROTLI, LZ4, ZSTD, LZ4_RAW).
_KNOWN_CODECS = (0, 1, 2, 4, 5, 6, 7)

#: Values of a part of a column that is decoded in parts.
_BATCH_ROWS = 65_536
#: Bytes of dictionary values that are decoded at a time, counted as if each value were the longest.
_STEP_BYTES = 64 << 20

_INT32_TYPE, _INT64_TYPE, _BINARY_TYPE, _LIST_TYPE, _STRUCT_TYPE = 5, 6, 8, 9, 12


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The storage of one flat column: name, physical type, ``required`` or ``optional``, codec number."""

    name: str
    physical: str
    repetition: str
    codec: int


def decode_pages(
    column: ColumnLayout, pieces: Sequence[tuple[int, bytes]], rows: int, *, source: str
) -> pa.ChunkedArray:
    """Returns the ``rows`` values of whole data pages, in the physical type.

    ``pieces`` are one or more pages each, with their offsets in ``source``; a dictionary page may be the first. INT96
    comes as timestamps in milliseconds. The pages are walked and bounded before they are decoded. Raises ``DataFault``
    with the offset of a malformed page, and ``TOO_LARGE`` for values of more than ``column_bound`` bytes.
    """
    offset = _start(pieces)
    claims = _walked(column, pieces, rows, source)
    data = b"".join(piece for _, piece in pieces)
    batches: list[pa.Array] = []
    step = None
    if _is_large(claims) and claims.dictionary_end is not None and _is_text(column):
        batches = _decoded_numbers(column, data[: claims.dictionary_end], claims.numbered, source, offset)
        data, step = data[claims.dictionary_end :], max(1, _STEP_BYTES // max(claims.delta, 1))
    size = sum(values.nbytes for values in batches)
    remaining_rows = rows - sum(len(values) for values in batches)
    if remaining_rows or not batches:
        file = _as_file(column, data, remaining_rows, source, offset)
        step = step or _step(column, claims, source, offset)
        for values in _decoded(column, file, remaining_rows, min(step, max(remaining_rows, 1)), source, offset):
            size += values.nbytes
            _check_size(column, size, rows, source, offset)
            batches.append(values)
    return pa.chunked_array(batches) if batches else pa.chunked_array([], pa.binary())


def _decoded_numbers(column: ColumnLayout, pages: bytes, rows: int, source: str, offset: int | None) -> list[pa.Array]:
    """Returns the values of pages that all use the dictionary: first the numbers, which are small, then the entries."""
    file = _as_file(column, pages, rows, source, offset)
    batches = list(_decoded(column, file, rows, rows, source, offset, numbers=True))
    sizes = (pc.sum(pc.binary_length(batch.dictionary).take(batch.indices)).as_py() or 0 for batch in batches)
    _check_size(column, sum(sizes), rows, source, offset)
    return [batch.cast(pa.binary()) for batch in batches]


def decode_batches(column: ColumnLayout, pages: bytes, rows: int, *, source: str, offset: int) -> Iterator[pa.Array]:
    """Yields the same in parts of a few megabytes, for columns too large to decode at once; ``pages``, a whole chunk
    with its dictionary, is copied at once."""
    claims = _walked(column, [(offset, pages)], rows, source)
    file = _as_file(column, pages, rows, source, offset)
    step = min(_step(column, claims, source, offset), _BATCH_ROWS)
    size = 0
    for values in _decoded(column, file, rows, step, source, offset):
        size += values.nbytes
        _check_size(column, size, rows, source, offset)
        yield values


def _walked(column: ColumnLayout, pieces: Sequence[tuple[int, bytes]], rows: int, source: str) -> PageClaims:
    """Returns the claims of the pages. Raises ``DataFault`` if they are impossible, or the column is unsupported."""
    offset = _start(pieces)
    if column.repetition not in _REPETITIONS:
        raise DataFault(
            DataKind.UNSUPPORTED, source, offset, f"column {column.name} is {column.repetition}, no flat column"
        )
    if column.codec not in _KNOWN_CODECS:
        raise DataFault(
            DataKind.UNSUPPORTED, source, offset, f"column {column.name} has the unknown codec {column.codec}"
        )
    claims = walk_pages(pieces, source=source)
    if claims.values != rows:
        raise DataFault(
            DataKind.MALFORMED, source, offset, f"pages of column {column.name} hold {claims.values} of {rows} values"
        )
    _check_size(column, claims.plain, rows, source, offset)
    physical, _, width = column.physical.partition("(")
    if physical == _FIXED:
        _check_size(column, rows * int(width.rstrip(")") or 0), rows, source, offset)
    return claims


def _step(column: ColumnLayout, claims: PageClaims, source: str, offset: int | None) -> int:
    """Returns the number of values that may be decoded at a time."""
    longest = _longest_value(column, claims, source, offset) if _is_text(column) else 0
    return max(1, _STEP_BYTES // max(longest, 1))


def _is_text(column: ColumnLayout) -> bool:
    return column.physical == "BYTE_ARRAY"


def _is_large(claims: PageClaims) -> bool:
    """Whether the values could be too large if all of them were as long as the dictionary."""
    return claims.dictionary is not None and claims.dictionary.plain * claims.numbered > _STEP_BYTES


def _start(pieces: Sequence[tuple[int, bytes]]) -> int | None:
    return pieces[0][0] if pieces else None


def _check_size(column: ColumnLayout, size: int, rows: int, source: str, offset: int | None) -> None:
    if size > column_bound(rows):
        raise DataFault(
            DataKind.TOO_LARGE,
            source,
            offset,
            f"{rows} values of column {column.name} take more than {column_bound(rows)} bytes",
        )


def _longest_value(column: ColumnLayout, claims: PageClaims, source: str, offset: int | None) -> int:
    """Returns the maximum bytes of a value that its page stores as a number or a difference; 0 if it does not matter.

    Values that are stored directly take no more bytes than their pages.
    """
    dictionary = claims.dictionary
    if dictionary is None or not _is_large(claims):
        return claims.delta
    # the entries of a dictionary are stored like the values of a page of a required column
    details = _encode_struct((1, _INT32_TYPE, dictionary.entries), *((field, _INT32_TYPE, 0) for field in (2, 3, 4)))
    header = _encode_struct(
        (1, _INT32_TYPE, 0),
        (2, _INT32_TYPE, dictionary.plain),
        (3, _INT32_TYPE, len(dictionary.stored)),
        (5, _STRUCT_TYPE, details),
    )
    entries = ColumnLayout(column.name, column.physical, "required", column.codec)
    file = _as_file(entries, header + dictionary.stored, dictionary.entries, source, offset)
    batches = _decoded(entries, file, dictionary.entries, max(dictionary.entries, 1), source, offset)
    return max([claims.delta, *(pc.max(pc.binary_length(values)).as_py() or 0 for values in batches)])


def _as_file(column: ColumnLayout, pages: bytes, rows: int, source: str, offset: int | None) -> bytes:
    footer = _footer(column, len(pages), rows, source, offset)
    return b"".join((_MAGIC, pages, footer, len(footer).to_bytes(4, "little"), _MAGIC))


def _decoded(
    column: ColumnLayout,
    file_bytes: bytes,
    rows: int,
    batch: int,
    source: str,
    offset: int | None,
    *,
    numbers: bool = False,
) -> Iterator[pa.Array]:
    """Yields ``batch`` values at a time; ``numbers`` leaves values of the dictionary as their numbers."""
    decoded = 0
    try:
        file = pq.ParquetFile(
            pa.BufferReader(file_bytes),
            pre_buffer=False,
            read_dictionary=["c"] if numbers else None,
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
    root = _encode_struct((4, _BINARY_TYPE, b"r"), (5, _INT32_TYPE, 1))
    length = [(2, _INT32_TYPE, int(width.rstrip(")") or 0))] if physical == _FIXED else []
    repetition = _REPETITIONS[column.repetition]
    leaf = _encode_struct((1, _INT32_TYPE, number), *length, (3, _INT32_TYPE, repetition), (4, _BINARY_TYPE, b"c"))
    chunk = _encode_struct(
        (1, _INT32_TYPE, number),
        (2, _LIST_TYPE, (_INT32_TYPE, [0])),
        (3, _LIST_TYPE, (_BINARY_TYPE, [b"c"])),
        (4, _INT32_TYPE, column.codec),
        (5, _INT64_TYPE, rows),
        (6, _INT64_TYPE, size),
        (7, _INT64_TYPE, size),
        (9, _INT64_TYPE, len(_MAGIC)),
    )
    chunks = [_encode_struct((2, _INT64_TYPE, 0), (3, _STRUCT_TYPE, chunk))]
    group = _encode_struct((1, _LIST_TYPE, (_STRUCT_TYPE, chunks)), (2, _INT64_TYPE, size), (3, _INT64_TYPE, rows))
    return _encode_struct(
        (1, _INT32_TYPE, 1),
        (2, _LIST_TYPE, (_STRUCT_TYPE, [root, leaf])),
        (3, _INT64_TYPE, rows),
        (4, _LIST_TYPE, (_STRUCT_TYPE, [group])),
    )


def _encode_struct(*fields: tuple[int, int, Any]) -> bytes:
    """Returns a structure of fields (number, type, value) in Thrift's compact protocol."""
    out = bytearray()
    last = 0
    for number, kind, value in fields:
        out.append((number - last) << 4 | kind)
        out += _encode(kind, value)
        last = number
    return bytes(out) + b"\0"


def _encode(kind: int, value: Any) -> bytes:
    """Returns a value: a number that is not negative, bytes, a list (type and elements), or an encoded structure."""
    if kind in (_INT32_TYPE, _INT64_TYPE):
        return _encode_varint(value << 1)
    if kind == _BINARY_TYPE:
        return _encode_varint(len(value)) + bytes(value)
    if kind == _LIST_TYPE:
        element_kind, elements = value
        return bytes([len(elements) << 4 | element_kind]) + b"".join(_encode(element_kind, item) for item in elements)
    return bytes(value)


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
