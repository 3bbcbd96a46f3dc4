"""Decodes a footer into one row for each row group: its location and its keys.

This module checks all of a footer before any library reads it: Arrow crashes the process on some files.
Layout: ``README.md`` of apache/parquet-format (data, metadata, 4-byte length, ``PAR1``).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMNS, LATER_COLUMNS
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.footers.statistics import (
    ColumnStatistics,
    Kind,
    StatisticsColumn,
    StoredStatistics,
    no_statistics,
    read_statistics,
)
from cc_pipeline.index.footers.thrift import FooterFault, FooterSchema, parse_schema
from cc_pipeline.index.footers.walk import (
    CHUNK_FIELDS,
    ENCRYPTED,
    OTHER_FILE,
    PRESENT,
    ROW_GROUP_FIELDS,
    VALUE_FIELDS,
    FooterWalk,
    walk,
)

TRAILER_BYTES: Final = 8
SMALLEST_FILE: Final = 12
#: A footer beyond this is refused: real ones are 30 to 350 KB.
MAX_FOOTER_BYTES: Final = 16 * 2**20

DEFAULT_STAT_COLUMNS: Final = ("url_surtkey", "fetch_time", "url_host_registered_domain")
#: The columns that a lookup reads first: the key to find rows, then the pointer into the archive.
DEFAULT_LOOKUP_COLUMNS: Final = tuple(
    """
url_surtkey url url_host_name fetch_time fetch_status warc_filename warc_record_offset warc_record_length
""".split()
)

Cells: TypeAlias = npt.NDArray[np.int64]

_CODECS: Final = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_ENCODINGS: Final = {
    0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 4: "BIT_PACKED", 5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY", 8: "RLE_DICTIONARY", 9: "BYTE_STREAM_SPLIT",
}  # fmt: skip
#: The fields of a chunk that its statistics depend on: flags and ordinal.
_STATISTICS_FIELDS: Final = (CHUNK_FIELDS.index("flags"), CHUNK_FIELDS.index("ordinal"))
_PLACE: Final = re.compile(r"(?:^|/)crawl=([^/]+)/subset=([^/]+)/part-(\d{1,9})[^/]*$")
_COLUMN_TYPES: Final = {field.name: field.type for field in (*INDEX_COLUMNS, *LATER_COLUMNS)}


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of one row group. Offsets are from the start of the file, ``None`` where there is none.

    ``offset`` and ``size`` are the range to read (dictionary page included); ``values`` and ``size`` are the writer's
    claims. Index positions are ``(offset, length)``.
    """

    column: str
    physical: str
    codec: str
    encodings: tuple[str, ...]
    values: int
    offset: int
    size: int
    offset_index: tuple[int, int] | None
    column_index: tuple[int, int] | None
    null_count: int | None
    is_in_other_file: bool
    is_encrypted: bool


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: its number, its rows, and the columns asked for."""

    row_group: int
    rows: int
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
    stat_columns: tuple[str, ...]
    lookup_columns: tuple[str, ...]
    names: tuple[str, ...]
    walk: FooterWalk

    @property
    def row_groups(self) -> tuple[RowGroup, ...]:
        """Every row group as an object, for one file. Tables of many files come from ``catalog.from_footers``."""
        return tuple(self.select_groups(range(len(self.row_counts()))))

    def row_counts(self) -> list[int]:
        """Returns the number of rows of each row group."""
        return array("q", self.walk.row_groups)[ROW_GROUP_FIELDS.index("rows") :: len(ROW_GROUP_FIELDS)].tolist()

    def select_groups(self, numbers: Iterable[int]) -> Iterator[RowGroup]:
        """Yields some row groups as objects: creating all those of a long footer would take too long."""
        rows = self.row_counts()
        chunks = array("q", self.walk.chunks)
        statistics = [self.statistics(index) for index in range(len(self.stat_columns))]
        nulls = CHUNK_FIELDS.index("null_count")
        for number in numbers:
            group_chunks: dict[str, ColumnChunk] = {}
            group_statistics: dict[str, ColumnStatistics] = {}
            for index, name in enumerate(self.stat_columns):
                base = (number * len(self.names) + index) * len(CHUNK_FIELDS)
                group_statistics[name] = statistics[index].row_group_statistics(
                    number, _none_if_negative(chunks[base + nulls])
                )
            for index, name in enumerate(self.names):
                base = (number * len(self.names) + index) * len(CHUNK_FIELDS)
                if name in self.lookup_columns and chunks[base] & PRESENT:
                    group_chunks[name] = _chunk(name, self.schema, chunks[base : base + len(CHUNK_FIELDS)])
            yield RowGroup(number, rows[number], group_statistics, group_chunks)

    def statistics(self, index: int) -> StatisticsColumn:
        """Returns the statistics of ``stat_columns[index]`` in every row group."""
        return column_statistics([self], index)


def column_statistics(files: Sequence[FooterRows], index: int) -> StatisticsColumn:
    """Returns the statistics of ``stat_columns[index]`` in every row group of files decoded alike, file by file.

    Neighbouring files of the same schema and writer are interpreted in one go.
    """
    column = no_statistics(0)
    for _, similar_files in groupby(
        files, key=lambda file: (file.schema.digest, file.walk.orders, file.walk.created_by)
    ):
        column.extend(_run_statistics(list(similar_files), index))
    return column


def _run_statistics(files: Sequence[FooterRows], index: int) -> StatisticsColumn:
    first = files[0]
    name, orders = first.stat_columns[index], first.walk.orders
    # row groups x names x fields
    shape = (-1, len(first.names), len(CHUNK_FIELDS))
    cells = np.frombuffer(b"".join(file.walk.chunks for file in files), dtype=np.int64).reshape(shape)
    cells = cells[:, index, _STATISTICS_FIELDS]
    flags, ordinals = cells[:, 0], cells[:, 1]
    column = first.schema.column(name)
    if column is None or not len(flags):
        return no_statistics(len(flags))
    missing = bool(np.any((flags & (PRESENT | OTHER_FILE)) != PRESENT))
    uneven = bool(np.any(ordinals != ordinals[0]))
    if len(files) > 1 and (missing or uneven):
        # a flaw of one file must not cost the others their statistics
        combined = no_statistics(0)
        for file in files:
            combined.extend(_run_statistics([file], index))
        return combined
    if missing:
        return no_statistics(len(flags))
    order = 0 if uneven else _order(orders, int(ordinals[0]))
    values = list(chain.from_iterable(file.walk.values for file in files))
    width = len(VALUE_FIELDS)
    step = width * len(first.stat_columns)
    old_max, old_min, new_max, new_min = (values[width * index + field :: step] for field in range(width))
    stored = StoredStatistics(
        column.physical,
        column.meaning,
        order,
        first.walk.created_by,
        flags.tolist(),
        old_max,
        old_min,
        new_max,
        new_min,
    )
    return read_statistics(stat_kind(name), stored)


def _order(orders: bytes, ordinal: int) -> int:
    """Returns a column's declared order: -1 if the file declares none, 0 if it leaves out this column."""
    if not orders:
        return -1
    return orders[ordinal] if ordinal < len(orders) else 0


def stat_kind(column: str) -> Kind:
    """Returns the form of a column's bounds in the catalog: ``time``, ``integer`` or ``bytes`` (also for unknown
    columns)."""
    kind = _COLUMN_TYPES.get(column)
    if kind is not None and pa.types.is_timestamp(kind):
        return "time"
    return "integer" if kind is not None and pa.types.is_integer(kind) else "bytes"


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
    lookup_columns: Sequence[str] = DEFAULT_LOOKUP_COLUMNS,
) -> FooterRows:
    """Decodes the footer at the end of ``tail``, the last bytes of a file of ``file_size`` bytes.

    ``columns`` get statistics, ``lookup_columns`` get positions and sizes. Raises ``DataFault`` with the
    offset in the file for anything that breaks the format; never reads beyond what it was given.
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
    names = tuple(dict.fromkeys((*columns, *lookup_columns)))
    try:
        footer_walk = walk(metadata, tuple(name.encode() for name in names), len(columns), start)
        schema_start, schema_end = footer_walk.schema
        schema = _schema(metadata[schema_start:schema_end], schema_start)
    except FooterFault as fault:
        kind = DataKind.TOO_LARGE if fault.too_large else DataKind.MALFORMED
        raise DataFault(kind, path, start + fault.offset, fault.reason) from None
    _, subset, part = place(path)
    created_by = (footer_walk.created_by or b"").decode("utf-8", "backslashreplace")
    return FooterRows(
        path, subset, part, file_size, length, footer_walk.rows, created_by, schema, tuple(columns),
        tuple(lookup_columns), names, footer_walk,
    )  # fmt: skip


def place(path: str) -> tuple[str | None, str | None, int | None]:
    """Returns crawl, subset and part number from an index file's path, all ``None`` for any other path."""
    match = _PLACE.search(path)
    return (match[1], match[2], int(match[3])) if match else (None, None, None)


def codec_name(number: int) -> str:
    """Returns the name of a compression codec, ``UNKNOWN`` for numbers that no version of the format has."""
    return _CODECS[number] if 0 <= number < len(_CODECS) else "UNKNOWN"


def codec_number(name: str) -> int:
    """Returns the number of a codec in the format, -1 for ``UNKNOWN``."""
    return _CODECS.index(name) if name in _CODECS else -1


def encoding_names(bits: int) -> tuple[str, ...]:
    """Returns the names of the encodings in a set of bits."""
    return tuple(name for number, name in _ENCODINGS.items() if bits >= 0 and bits >> number & 1)


def _schema(elements: bytes, start: int) -> FooterSchema:
    try:
        return parse_schema(elements)
    except FooterFault as fault:
        raise FooterFault(start + fault.offset, *fault.args[1:]) from None


def _chunk(name: str, schema: FooterSchema, raw: array[int]) -> ColumnChunk:
    (flags, _, codec, encodings, values, _, size, data, dictionary, *positions, nulls, _) = raw
    column = schema.column(name)
    return ColumnChunk(
        name,
        "UNKNOWN" if column is None else column.physical,
        codec_name(codec),
        encoding_names(encodings),
        values,
        dictionary if 0 < dictionary < data else data,
        size,
        _pair(positions[0], positions[1]),
        _pair(positions[2], positions[3]),
        _none_if_negative(nulls),
        bool(flags & OTHER_FILE),
        bool(flags & ENCRYPTED),
    )


def _none_if_negative(value: int) -> int | None:
    return None if value < 0 else value


def _pair(offset: int, length: int) -> tuple[int, int] | None:
    return None if offset < 0 else (offset, length)
