"""The catalog as Arrow schemas: the one table that is stored, and the three tables that users see.

``index_files`` has one row for each file that a harvest requested, whatever its outcome; ``row_groups`` one for each
row group; ``coverage`` one for each subset. The stored table has a row for each index file, row group and subset.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import CRAWL, SUBSET, TIMESTAMP
from cc_pipeline.columns import Column, schema_of
from cc_pipeline.index.footers.decode import DEFAULT_STAT_COLUMNS, stat_kind

#: The column whose bounds prune lookups.
KEY_COLUMN: Final = "url_surtkey"

#: The ``outcome`` of an index file that was harvested.
DECODED: Final = "decoded"

#: ``outcome`` is ``decoded`` or ``failed`` (then ``reason`` and ``fault_offset`` say why and where).
#: ``columns`` are the leaf columns in file order as ``name PHYSICAL repetition MEANING``.
INDEX_FILES_COLUMNS: Final = (
    CRAWL,
    SUBSET,
    Column("path", pa.string(), "Key of the Parquet file in the source", nullable=False),
    Column("part", pa.int32(), "Number of the file within its subset"),
    Column("outcome", pa.string(), "decoded or failed", nullable=False),
    Column("reason", pa.string(), "Why the footer could not be read or decoded"),
    Column("fault_offset", pa.int64(), "Byte of the file at which decoding failed"),
    Column("file_size", pa.int64(), "Bytes of the file"),
    Column("etag", pa.string(), "ETag as returned by the source"),
    Column("footer_bytes", pa.int64(), "Bytes of the footer"),
    Column("rows", pa.int64(), "Rows of the file, from its footer"),
    Column("row_groups", pa.int32(), "Row groups in the footer"),
    Column("created_by", pa.string(), "Program that wrote the file, as it names itself"),
    Column("schema_digest", pa.string(), "Digest of the columns; equal for files with the same columns"),
    Column("columns", pa.list_(pa.string()), "Leaf columns in order, with physical type, repetition and meaning"),
    Column("harvested_at", TIMESTAMP, "Time of the footer's fetch"),
)
INDEX_FILES_SCHEMA: Final = schema_of(INDEX_FILES_COLUMNS)

#: ``expected`` files are those of the path list; ``missing`` = expected - harvested - failed. ``reason`` says
#: why a crawl has no rows at all.
COVERAGE_COLUMNS: Final = (
    CRAWL,
    SUBSET,
    Column(
        "expected",
        pa.int64(),
        "Files of this subset in the path list: the sum of harvested, failed and missing",
        nullable=False,
    ),
    Column("harvested", pa.int64(), "Files whose footer was read", nullable=False),
    Column("failed", pa.int64(), "Files whose footer could not be read or decoded", nullable=False),
    Column("missing", pa.int64(), "Files that the source lacks, or that were not requested yet", nullable=False),
    Column("row_groups", pa.int64(), "Row groups of harvested files", nullable=False),
    Column("rows", pa.int64(), "Rows of harvested files", nullable=False),
    Column(
        "without_statistics",
        pa.int64(),
        "Row groups without key bounds; every lookup reads them until they are repaired",
        nullable=False,
    ),
    Column("reason", pa.string(), "Why there are no files of this subset"),
)
COVERAGE_SCHEMA: Final = schema_of(COVERAGE_COLUMNS)


_ROW_GROUPS: Final = (
    CRAWL,
    SUBSET,
    Column("path", pa.string(), "Key of the Parquet file in the source", nullable=False),
    Column("part", pa.int32(), "Number of the file within its subset"),
    Column("row_group", pa.int32(), "Number of the row group within the file", nullable=False),
    Column("rows", pa.int64(), "Rows in the row group", nullable=False),
    Column("total_bytes", pa.int64(), "Uncompressed bytes of the row group"),
    Column("compressed_bytes", pa.int64(), "Compressed bytes of the row group", nullable=False),
    Column("data_offset", pa.int64(), "Byte of the file at which its data begins"),
    Column("data_end", pa.int64(), "Byte of the file at which its data ends"),
)

_FROM_STATISTICS: Final = "Origin of the bounds: statistics or deprecated_statistics"
#: Descriptions of a column's bounds: its smallest and largest value, and their source.
_BOUND_NOTES: Final = {
    KEY_COLUMN: (
        "Lowest key of the row group; null: unknown, so the row group is never pruned",
        "Highest key of the row group; null: unknown",
        "Origin of the bounds: statistics, deprecated_statistics or repaired",
    ),
    "fetch_time": ("First fetch in the row group", "Last fetch in the row group", _FROM_STATISTICS),
    "url_host_registered_domain": (
        "Smallest domain of the row group, as bytes",
        "Largest domain of the row group, as bytes",
        _FROM_STATISTICS,
    ),
}


def _bounds(column: str) -> tuple[Column, ...]:
    kind = bound_type(column)
    smallest, largest, source = _BOUND_NOTES[column]
    return (
        Column(f"{column}_min", kind, smallest),
        Column(f"{column}_max", kind, largest),
        Column(f"{column}_source", pa.string(), source),
    )


def bound_type(column: str) -> pa.DataType:
    """Returns the Arrow type of a column's bounds in the catalog."""
    return {"bytes": pa.binary(), "time": TIMESTAMP}[stat_kind(column)]


_STATISTICS: Final = tuple(bound for column in DEFAULT_STAT_COLUMNS for bound in _bounds(column))
#: ``<column>_min`` and ``_max`` are bytes for strings (compared as bytes, maybe cut within a character) or a timestamp;
#: ``_source`` says where they came from.
ROW_GROUPS_COLUMNS: Final = (*_ROW_GROUPS, *_STATISTICS)
ROW_GROUPS_SCHEMA: Final = schema_of(ROW_GROUPS_COLUMNS)

#: The columns of an answer to a lookup, a part of ``ROW_GROUPS_SCHEMA``.
ANSWER_SCHEMA: Final = pa.schema(
    [
        ROW_GROUPS_SCHEMA.field(name)
        for name in (
            *("crawl", "subset", "path", "row_group", "rows", "compressed_bytes"),
            *(f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max", f"{KEY_COLUMN}_source"),
        )
    ]
)

#: Columns of ``index_files`` and ``row_groups`` that rows of both kinds have.
PLACE_FIELDS: Final = ("crawl", "subset", "path", "part")


def _stored(field: pa.Field) -> pa.Field:
    """Returns a field of a struct: nullable, for rows of other kinds, and with times in microseconds, as in the
    lake."""
    return pa.field(field.name, pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) else field.type)


#: Rows per row group of the catalog's files: with small ones DuckDB skips most of a crawl for one domain.
CATALOG_ROW_GROUP: Final = 2_048

#: The table that is stored. A row is of a subset (``coverage`` is set: the number of files in its path
#: list, and the reason of ``COVERAGE_SCHEMA``), of an index file (``file``) or of a row group (``row_group``). Columns
#: of the other kinds are null.
CATALOG_SCHEMA: Final = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("subset", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        pa.field("part", pa.int32()),
        pa.field("coverage", pa.struct([_stored(COVERAGE_SCHEMA.field(name)) for name in ("expected", "reason")])),
        pa.field("file", pa.struct([_stored(f) for f in INDEX_FILES_SCHEMA if f.name not in PLACE_FIELDS])),
        *(field.with_nullable(True) for field in ROW_GROUPS_SCHEMA if field.name not in PLACE_FIELDS),
    ]
)
