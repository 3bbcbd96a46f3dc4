"""Decodes a footer: the file's columns, and the location and keys of each row group.

This module checks all of a footer before any library reads it: Arrow crashes the process on some files.
Layout: ``README.md`` of apache/parquet-format (data, metadata, 4-byte length, ``PAR1``). Field numbers are those of its
``parquet.thrift``. A field of another type than in the format is skipped, as every reader does (writers used some
numbers before the format did).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMNS, LATER_COLUMNS
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.footers.statistics import ColumnStatistics, Kind, read_statistics
from cc_pipeline.index.footers.thrift import (
    CompactReader,
    FooterFault,
    FooterSchema,
    Value,
    decode_text,
    fault,
    read_number,
    read_schema,
)

TRAILER_BYTES: Final = 8
SMALLEST_FILE: Final = 12
#: A footer beyond this is refused: real ones are 30 to 350 KB.
MAX_FOOTER_BYTES: Final = 4 * 2**20

DEFAULT_STAT_COLUMNS: Final = ("url_surtkey", "fetch_time", "url_host_registered_domain")
#: The largest number of a column of the catalog.
_LARGEST: Final = 2**63 - 1
_PLACE: Final = re.compile(r"(?:^|/)crawl=([^/]+)/subset=([^/]+)/part-(\d{1,9})[^/]*$")
_TIME_COLUMNS: Final = frozenset(
    column.name for column in (*INDEX_COLUMNS, *LATER_COLUMNS) if pa.types.is_timestamp(column.type)
)


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of one row group. Offsets are from the start of the file, ``None`` where there is none.

    ``offset`` and ``size`` are the range to read (dictionary page included). Index positions are ``(offset, length)``.
    ``codec`` and ``encodings`` are numbers of the format. ``is_unreadable``: it is encrypted, or in another file.
    """

    column: str
    codec: int
    encodings: frozenset[int]
    offset: int
    size: int
    offset_index: tuple[int, int] | None
    column_index: tuple[int, int] | None
    is_unreadable: bool


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: its number, rows and bytes, the range of its data, and the columns asked for. ``None``: not
    said."""

    row_group: int
    rows: int
    total_bytes: int | None
    compressed_bytes: int
    data_offset: int | None
    data_end: int | None
    statistics: dict[str, ColumnStatistics]
    chunks: dict[str, ColumnChunk]


@dataclass(frozen=True, slots=True)
class FooterRows:
    """A decoded footer. ``subset`` and ``part`` are ``None`` for a path that does not say them."""

    path: str
    subset: str | None
    part: int | None
    file_size: int
    footer_bytes: int
    rows: int
    created_by: str
    schema: FooterSchema
    row_groups: tuple[RowGroup, ...]


def stat_kind(column: str) -> Kind:
    """Returns the form of a column's bounds in the catalog: ``time`` or ``bytes`` (also for unknown columns)."""
    return "time" if column in _TIME_COLUMNS else "bytes"


def footer_length(tail: bytes, file_size: int, path: str) -> int:
    """Returns the length of the metadata before the last 8 bytes. Raises ``DataFault`` if it does not fit the file."""
    if file_size < SMALLEST_FILE:
        raise DataFault(DataKind.TRUNCATED, path, None, f"a file of {file_size} bytes is too short to be Parquet")
    if len(tail) < TRAILER_BYTES:
        raise DataFault(DataKind.TRUNCATED, path, file_size - len(tail), "the end of the file is missing")
    if tail[-4:] == b"PARE":
        raise DataFault(DataKind.UNSUPPORTED, path, file_size - 4, "the footer is encrypted")
    if tail[-4:] != b"PAR1":
        raise DataFault(
            DataKind.MALFORMED, path, file_size - 4, f"the file does not end as Parquet does: {bytes(tail[-4:])!r}"
        )
    length = int.from_bytes(tail[-8:-4], "little")
    if length > file_size - SMALLEST_FILE:
        raise DataFault(
            DataKind.MALFORMED,
            path,
            file_size - TRAILER_BYTES,
            f"a footer of {length} bytes does not fit a file of {file_size}",
        )
    if length > MAX_FOOTER_BYTES:
        raise DataFault(
            DataKind.TOO_LARGE,
            path,
            file_size - TRAILER_BYTES,
            f"a footer of {length} bytes is above {MAX_FOOTER_BYTES}",
        )
    return length


def decode_footer(
    tail: bytes,
    file_size: int,
    path: str,
    columns: Sequence[str] = DEFAULT_STAT_COLUMNS,
    lookup_columns: Sequence[str] | None = None,
) -> FooterRows:
    """Decodes the footer at the end of ``tail``, the last bytes of a file of ``file_size`` bytes.

    ``columns`` get statistics, ``lookup_columns`` (``None``: all) get positions and sizes. Raises ``DataFault`` with
    the offset in the file for anything that breaks the format; never reads beyond what it was given.
    """
    length = footer_length(tail, file_size, path)
    if length + TRAILER_BYTES > len(tail):
        raise DataFault(
            DataKind.TRUNCATED,
            path,
            file_size - len(tail),
            f"{len(tail)} bytes were read of a footer of {length + TRAILER_BYTES}",
        )
    start = file_size - TRAILER_BYTES - length
    metadata = bytes(tail[len(tail) - TRAILER_BYTES - length : len(tail) - TRAILER_BYTES])
    try:
        fields = CompactReader(metadata).struct()
        schema = read_schema(fields.get(2))
        rows = read_number(fields.get(3))
        groups = fields.get(4)
        if not isinstance(groups, list):
            fault(0, "the metadata has no list of row groups")
        if rows < 0:
            fault(0, "the metadata has no row count")
        reader = _GroupReader(fields, schema, columns, lookup_columns, start)
        row_groups = tuple(reader.read(number, group) for number, group in enumerate(groups))
    except FooterFault as refused:
        kind = DataKind.TOO_LARGE if refused.too_large else DataKind.MALFORMED
        raise DataFault(kind, path, start + refused.offset, refused.reason) from None
    _, subset, part = place(path)
    return FooterRows(path, subset, part, file_size, length, rows, decode_text(fields.get(6)), schema, row_groups)


class _GroupReader:
    """Reads the row groups of a footer's metadata, whose ``fields`` are given; all data lies before ``limit``."""

    def __init__(
        self,
        fields: Mapping[int, Value],
        schema: FooterSchema,
        columns: Sequence[str],
        lookup_columns: Sequence[str] | None,
        limit: int,
    ) -> None:
        created_by = fields.get(6)
        self._created_by = created_by if isinstance(created_by, bytes) else None
        orders = fields.get(7)
        order_fields = [next(iter(_fields(order)), 0) for order in orders] if isinstance(orders, list) else []
        self._orders = dict(zip(schema.names, order_fields, strict=False))
        self._schema_columns = {name: schema.column(name) for name in columns}
        self._lookup_columns = frozenset(schema.names if lookup_columns is None else lookup_columns)
        self._limit = limit

    def read(self, number: int, group: Value) -> RowGroup:
        """Returns a row group. Raises ``FooterFault`` if it is impossible, or a requested column lies outside the
        file."""
        fields = _fields(group)
        stored_columns, rows = fields.get(1), read_number(fields.get(3))
        if not isinstance(stored_columns, list):
            fault(0, "a row group has no columns")
        if rows < 0:
            fault(0, "a row group has no row count")
        statistics = dict.fromkeys(self._schema_columns, ColumnStatistics())
        chunks: dict[str, ColumnChunk] = {}
        seen: set[str] = set()
        sizes = 0
        starts, ends = [], []
        for column in map(_fields, stored_columns):
            metadata = _fields(column.get(3))
            name, offset, size = _path(metadata), _chunk_start(metadata), read_number(metadata.get(7))
            is_in_other_file = decode_text(column.get(1)) != ""
            is_inside = 0 <= offset <= offset + size <= self._limit
            sizes += max(size, 0)
            if is_inside and not is_in_other_file:
                starts.append(offset)
                ends.append(offset + size)
            is_requested = name in self._lookup_columns or name in self._schema_columns
            if not is_requested or name in seen:
                continue
            seen.add(name)
            if not is_inside:
                fault(0, "a column chunk lies outside the file")
            if name in self._lookup_columns:
                is_unreadable = is_in_other_file or 8 in column or 9 in column
                chunks[name] = _build_chunk(name, column, metadata, (offset, size), is_unreadable)
            schema_column = self._schema_columns.get(name)
            if schema_column is not None and not is_in_other_file:
                statistics[name] = read_statistics(
                    stat_kind(name), schema_column, _fields(metadata.get(12)), self._orders.get(name), self._created_by
                )
        total, compressed = read_number(fields.get(2)), read_number(fields.get(6))
        return RowGroup(
            number,
            rows,
            None if total < 0 else total,
            min(sizes, _LARGEST) if compressed < 0 else compressed,
            min(starts, default=None),
            max(ends, default=None),
            statistics,
            chunks,
        )


def _fields(value: Value) -> dict[int, Value]:
    return value if isinstance(value, dict) else {}


def _path(metadata: Mapping[int, Value]) -> str:
    """Returns the name of a column, nested ones joined by dots; empty if its chunk does not say it."""
    parts = metadata.get(3)
    return ".".join(map(decode_text, parts)) if isinstance(parts, list) else ""


def _chunk_start(metadata: Mapping[int, Value]) -> int:
    """Returns the first byte of a column chunk: its dictionary page if there is one before the data pages."""
    data, dictionary = read_number(metadata.get(9)), read_number(metadata.get(11))
    return dictionary if 0 < dictionary < data else data


def _build_chunk(
    name: str,
    column: Mapping[int, Value],
    metadata: Mapping[int, Value],
    position: tuple[int, int],
    is_unreadable: bool,
) -> ColumnChunk:
    encodings = metadata.get(2)
    return ColumnChunk(
        name,
        read_number(metadata.get(4)),
        frozenset(map(read_number, encodings)) if isinstance(encodings, list) else frozenset(),
        *position,
        _index_position(column, 4),
        _index_position(column, 6),
        is_unreadable,
    )


def _index_position(column: Mapping[int, Value], number: int) -> tuple[int, int] | None:
    offset, length = read_number(column.get(number)), read_number(column.get(number + 1))
    return None if offset < 0 or length < 0 else (offset, length)


def place(path: str) -> tuple[str | None, str | None, int | None]:
    """Returns crawl, subset and part number from an index file's path, all ``None`` for any other path."""
    match = _PLACE.search(path)
    return (match[1], match[2], int(match[3])) if match else (None, None, None)
