"""The footer walk: reads a file's metadata once and keeps only the values that lookups need.

A field of another type than in the format is skipped, as every reader does (writers used some numbers before the format
did). Field numbers are those of ``parquet.thrift`` of apache/parquet-format.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from cc_pipeline.index.footers.thrift import BINARY, BOOLEANS, INTEGERS, LIST, STOP, STRUCT, TRUE, CompactReader, fault

#: Columns of the two integer tables a walk returns. ``-1`` means absent everywhere but in ``flags``.
ROW_GROUP_FIELDS: Final = ("rows", "total_bytes", "compressed_bytes", "file_offset", "chunks", "first", "end")
CHUNK_FIELDS: Final = tuple(
    """
flags type codec encodings values uncompressed_bytes compressed_bytes data_page_offset dictionary_page_offset
offset_index_offset offset_index_length column_index_offset column_index_length bloom_filter_offset
bloom_filter_length null_count ordinal
""".split()
)
PRESENT: Final = 1
OTHER_FILE: Final = 2
ENCRYPTED: Final = 4
MIN_EXACT_KNOWN: Final = 8
MIN_EXACT: Final = 16
MAX_EXACT_KNOWN: Final = 32
MAX_EXACT: Final = 64

#: Order of the four statistics of a (row group, column) in ``FooterWalk.values``.
VALUE_FIELDS: Final = ("max", "min", "max_value", "min_value")

MAX_ROW_GROUPS: Final = 32767
LARGEST: Final = 2**63 - 1
_ENCODING_BITS: Final = 62
_LARGEST_ENUM: Final = 127

_FLAGS, _TYPE, _CODEC, _ENCODINGS, _VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY = range(9)
_NULLS, _ORDINAL = 15, 16
_META_INTEGERS: Final = {
    1: _TYPE,
    4: _CODEC,
    5: _VALUES,
    6: _UNCOMPRESSED,
    7: _COMPRESSED,
    9: _DATA,
    11: _DICTIONARY,
    14: 13,
    15: 14,
}
_CHUNK_INTEGERS: Final = {4: 9, 5: 10, 6: 11, 7: 12}


class FooterWalk(NamedTuple):
    """The result of one pass over a footer's metadata.

    ``schema`` is the span of the schema list in the metadata, ``orders`` one byte per leaf column (the field
    number of its ``ColumnOrder``, 0 when it has none; empty when the file declares no orders).
    ``row_groups`` and ``chunks`` are native int64 tables: row groups x ``ROW_GROUP_FIELDS`` and
    row groups x asked names x ``CHUNK_FIELDS``. ``values`` holds the bytes of four statistics for each
    (row group, name of the first ``stat_count``), ``None`` where absent. ``end`` is where the metadata ended.
    """

    version: int
    rows: int
    created_by: bytes | None
    schema: tuple[int, int]
    orders: bytes
    row_groups: bytes
    chunks: bytes
    values: list[bytes | None]
    end: int


class _Walk:
    def __init__(self, metadata: bytes, names: tuple[bytes, ...], stat_count: int, limit: int) -> None:
        self.reader = CompactReader(metadata)
        self.names = names
        self.stat_count = stat_count
        self.limit = limit
        self.row_groups = array("q")
        self.chunks = array("q")
        self.values: list[bytes | None] = []

    def file(self) -> FooterWalk:
        reader = self.reader
        version = rows = -1
        created_by: bytes | None = None
        schema: tuple[int, int] | None = None
        orders = b""
        seen_groups = False
        last = 0
        while True:
            position = reader.pos
            last, kind = reader.field(last)
            if kind == STOP:
                break
            if last == 1 and kind in INTEGERS:
                version = reader.zigzag()
            elif last == 2 and kind == LIST:
                if schema is not None:
                    fault(position, "the schema is there twice")
                first = reader.pos
                reader.column_list()
                reader.pos = first
                reader.skip(kind, 1)
                schema = (first, reader.pos)
            elif last == 3 and kind in INTEGERS:
                rows = reader.zigzag()
            elif last == 4 and kind == LIST:
                if seen_groups:
                    fault(position, "the row groups are there twice")
                seen_groups = True
                self._row_groups()
            elif last == 6 and kind == BINARY:
                created_by = reader.binary()
            elif last == 7 and kind == LIST:
                orders = self._orders()
            else:
                reader.skip(kind, 1)
        if schema is None:
            fault(reader.pos, "the metadata has no schema")
        if not seen_groups:
            fault(reader.pos, "the metadata has no list of row groups")
        if rows < 0:
            fault(reader.pos, "the metadata has no row count")
        return FooterWalk(
            version,
            rows,
            created_by,
            schema,
            orders,
            self.row_groups.tobytes(),
            self.chunks.tobytes(),
            self.values,
            reader.pos,
        )

    def _orders(self) -> bytes:
        reader = self.reader
        start = reader.pos
        count, kind = reader.column_list()
        if count and kind != STRUCT:
            fault(start, "column orders are no structures")
        orders = bytearray()
        for _ in range(count):
            first = 0
            last = 0
            while True:
                last, kind = reader.field(last)
                if kind == STOP:
                    break
                first = first or (last if 0 <= last <= 255 else 255)
                reader.skip(kind, 2)
            orders.append(first)
        return bytes(orders)

    def _row_groups(self) -> None:
        reader = self.reader
        start = reader.pos
        count, kind = reader.collection()
        if count and kind != STRUCT:
            fault(start, "row groups are no structures")
        if count > MAX_ROW_GROUPS:
            fault(start, "more row groups than the format can number")
        for _ in range(count):
            self._row_group()

    def _row_group(self) -> None:
        reader = self.reader
        start = reader.pos
        rows = total = compressed = offset = -1
        columns = (-1, 0, -1, -1)
        width = len(self.names)
        chunks = array("q", [-1]) * (width * len(CHUNK_FIELDS))
        for index in range(width):
            chunks[index * len(CHUNK_FIELDS)] = 0
        values: list[bytes | None] = [None] * (4 * self.stat_count)
        last = 0
        while True:
            position = reader.pos
            last, kind = reader.field(last)
            if kind == STOP:
                break
            if last == 1 and kind == LIST:
                if columns[0] >= 0:
                    fault(position, "a row group lists its columns twice")
                columns = self._columns(chunks, values)
            elif last == 2 and kind in INTEGERS:
                total = reader.zigzag()
            elif last == 3 and kind in INTEGERS:
                rows = reader.zigzag()
            elif last == 5 and kind in INTEGERS:
                offset = reader.zigzag()
            elif last == 6 and kind in INTEGERS:
                compressed = reader.zigzag()
            else:
                reader.skip(kind, 2)
        if columns[0] < 0:
            fault(start, "a row group has no columns")
        if rows < 0:
            fault(start, "a row group has no row count")
        if compressed < 0:
            compressed = columns[1]
        self.row_groups.extend((rows, max(total, -1), compressed, max(offset, -1), columns[0], columns[2], columns[3]))
        self.chunks.extend(chunks)
        self.values.extend(values)

    def _columns(self, chunks: array[int], values: list[bytes | None]) -> tuple[int, int, int, int]:
        """Fills ``chunks`` and ``values``; returns column count, sum of sizes, first and last byte of the data."""
        reader = self.reader
        start = reader.pos
        count, kind = reader.column_list()
        if count and kind != STRUCT:
            fault(start, "column chunks are no structures")
        total, first, end = 0, -1, -1
        for ordinal in range(count):
            position = reader.pos
            name, chunk, bounds = self._column()
            offset, size = chunk_start(chunk), chunk[_COMPRESSED]
            inside = offset >= 0 and size >= 0 and offset <= self.limit and size <= self.limit - offset
            if inside and not chunk[_FLAGS] & OTHER_FILE:
                first = offset if first < 0 else min(first, offset)
                end = max(end, offset + size)
            total = min(LARGEST, total + max(size, 0))
            column_number = self.names.index(name) if name and name in self.names else -1
            base = column_number * len(CHUNK_FIELDS)
            if column_number < 0 or chunks[base] & PRESENT:
                continue
            if not inside:
                fault(position, "a column chunk lies outside the file")
            _tidy(chunk)
            chunk[_ORDINAL] = ordinal
            for offset_field, length_field in ((9, 10), (11, 12), (13, 14)):
                self._keep_inside(chunk, offset_field, length_field)
            chunks[base : base + len(CHUNK_FIELDS)] = chunk
            if column_number < self.stat_count:
                values[4 * column_number : 4 * column_number + 4] = bounds
        return count, total, first, end

    def _keep_inside(self, chunk: array[int], offset_field: int, length_field: int) -> None:
        """Drops an index or filter at an impossible position (filters may have no length)."""
        offset, length = chunk[offset_field], chunk[length_field]
        known_length = max(length, 0)
        if offset < 0 or offset > self.limit or known_length > self.limit - offset:
            chunk[offset_field] = chunk[length_field] = -1
        elif length < 0:
            chunk[length_field] = -1

    def _column(self) -> tuple[bytes, array[int], list[bytes | None]]:
        reader = self.reader
        chunk = array("q", [-1]) * len(CHUNK_FIELDS)
        chunk[_FLAGS] = PRESENT
        bounds: list[bytes | None] = [None] * 4
        name = b""
        last = 0
        while True:
            last, kind = reader.field(last)
            if kind == STOP:
                return name, chunk, bounds
            if last == 1 and kind == BINARY:
                first, end = reader.span()
                if end > first:
                    chunk[_FLAGS] |= OTHER_FILE
            elif last == 3 and kind == STRUCT:
                name = self._column_metadata(chunk, bounds)
            elif last in _CHUNK_INTEGERS and kind in INTEGERS:
                chunk[_CHUNK_INTEGERS[last]] = reader.zigzag()
            else:
                if last in (8, 9):
                    chunk[_FLAGS] |= ENCRYPTED
                reader.skip(kind, 3)

    def _column_metadata(self, chunk: array[int], bounds: list[bytes | None]) -> bytes:
        reader = self.reader
        name = b""
        last = 0
        while True:
            last, kind = reader.field(last)
            if kind == STOP:
                return name
            if last in _META_INTEGERS and kind in INTEGERS:
                chunk[_META_INTEGERS[last]] = reader.zigzag()
            elif last == 2 and kind == LIST:
                chunk[_ENCODINGS] = self._encodings()
            elif last == 3 and kind == LIST:
                name = self._path()
            elif last == 12 and kind == STRUCT:
                self._statistics(chunk, bounds)
            else:
                reader.skip(kind, 4)

    def _encodings(self) -> int:
        """Reads the encodings as a set of bits."""
        reader = self.reader
        start = reader.pos
        count, kind = reader.collection()
        if count and kind not in INTEGERS:
            fault(start, "encodings are no numbers")
        bits = 0
        for _ in range(count):
            encoding = reader.zigzag()
            if 0 <= encoding <= _ENCODING_BITS:
                bits |= 1 << encoding
        return bits

    def _path(self) -> bytes:
        reader = self.reader
        start = reader.pos
        count, kind = reader.collection()
        if count and kind != BINARY:
            fault(start, "a column path is no list of names")
        return b".".join([reader.binary() for _ in range(count)])

    def _statistics(self, chunk: array[int], bounds: list[bytes | None]) -> None:
        reader = self.reader
        places = {1: 0, 2: 1, 5: 2, 6: 3}
        last = 0
        while True:
            last, kind = reader.field(last)
            if kind == STOP:
                return
            if last in places and kind == BINARY:
                bounds[places[last]] = reader.binary()
            elif last == 3 and kind in INTEGERS:
                chunk[_NULLS] = reader.zigzag()
            elif last in (7, 8) and kind in BOOLEANS:
                known_flag, exact = (MAX_EXACT_KNOWN, MAX_EXACT) if last == 7 else (MIN_EXACT_KNOWN, MIN_EXACT)
                chunk[_FLAGS] = (chunk[_FLAGS] | known_flag) & ~exact | (exact if kind == TRUE else 0)
            else:
                reader.skip(kind, 5)


def chunk_start(chunk: array[int]) -> int:
    """Returns the first byte of a column chunk: its dictionary page if there is one before the data pages."""
    data, dictionary = chunk[_DATA], chunk[_DICTIONARY]
    return dictionary if 0 < dictionary < data else data


def _tidy(chunk: array[int]) -> None:
    """Marks impossible numbers as absent: negative counts, types and codecs that no version of the format has."""
    for index in (_TYPE, _CODEC):
        if not 0 <= chunk[index] <= _LARGEST_ENUM:
            chunk[index] = -1
    for index in (_VALUES, _UNCOMPRESSED, _NULLS):
        chunk[index] = max(chunk[index], -1)


def walk(metadata: bytes, names: tuple[bytes, ...], stat_count: int, limit: int) -> FooterWalk:
    """Walks over the metadata of one Parquet file.

    ``names`` are the requested columns (nested ones joined by dots), the first ``stat_count`` of them with statistics.
    ``limit`` is the offset at which the file's footer starts: no data lies beyond it. Raises ``FooterFault``.
    """
    return _Walk(metadata, names, stat_count, limit).file()
