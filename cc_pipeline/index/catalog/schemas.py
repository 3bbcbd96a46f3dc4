"""The catalog as Arrow schemas: the one table that is stored, and the four tables that people see in it.

One row of ``index_files`` for each file that a harvest asked for, whatever became of it; one of ``row_groups`` for each
row group; one of ``column_chunks`` for each (row group, look-up column); one of ``coverage`` for each subset. The
stored table has a row for each of the first two, with its column chunks in it, and one for each subset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.index.footers.decode import DEFAULT_STAT_COLUMNS, stat_kind

#: The column whose bounds prune look-ups.
KEY_COLUMN: Final = "url_surtkey"

#: Where the key column of a row group is: what a look-up reads first. Shown in ``row_groups``, stored among the chunks.
KEY_CHUNK_FIELDS: Final = tuple(
    """
key_chunk_offset key_chunk_bytes key_offset_index_offset key_offset_index_length key_column_index_offset
key_column_index_length
""".split()
)

#: The ``outcome`` of an index file that was harvested.
DECODED: Final = "decoded"

#: ``outcome`` is ``decoded`` or ``failed`` (then ``reason`` and ``fault_offset`` say why and where).
#: ``columns`` are the leaf columns in file order as ``name PHYSICAL repetition MEANING``.
INDEX_FILES_SCHEMA: Final = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("subset", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("part", pa.int32()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("fault_offset", pa.int64()),
        pa.field("file_size", pa.int64()),
        pa.field("etag", pa.string()),
        pa.field("footer_bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("row_groups", pa.int32()),
        pa.field("created_by", pa.string()),
        pa.field("schema_digest", pa.string()),
        pa.field("columns", pa.list_(pa.string())),
        pa.field("harvested_at", TIMESTAMP),
    ]
)

#: Offsets are in the file; ``chunk_offset`` and ``compressed_bytes`` are the range to read, dictionary included.
COLUMN_CHUNKS_SCHEMA: Final = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("row_group", pa.int32(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("codec", pa.string(), nullable=False),
        pa.field("encodings", pa.string(), nullable=False),
        pa.field("chunk_offset", pa.int64(), nullable=False),
        pa.field("compressed_bytes", pa.int64(), nullable=False),
        pa.field("uncompressed_bytes", pa.int64()),
        pa.field("offset_index_offset", pa.int64()),
        pa.field("offset_index_length", pa.int64()),
        pa.field("column_index_offset", pa.int64()),
        pa.field("column_index_length", pa.int64()),
        pa.field("bloom_filter_offset", pa.int64()),
        pa.field("bloom_filter_length", pa.int64()),
    ]
)

#: ``expected`` files are those of the path list; ``missing`` = expected - harvested - failed. ``reason`` says
#: why a crawl has no rows at all, or of which file they were imported.
COVERAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("subset", pa.string(), nullable=False),
        pa.field("expected", pa.int64(), nullable=False),
        pa.field("harvested", pa.int64(), nullable=False),
        pa.field("failed", pa.int64(), nullable=False),
        pa.field("missing", pa.int64(), nullable=False),
        pa.field("row_groups", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("without_statistics", pa.int64(), nullable=False),
        pa.field("reason", pa.string()),
    ]
)


def row_groups_schema(columns: Sequence[str] = DEFAULT_STAT_COLUMNS) -> pa.Schema:
    """The schema of ``row_groups`` for a choice of statistics columns.

    ``<column>_min`` and ``_max`` are bytes for strings (compared as bytes, maybe cut within a character),
    int64 or a timestamp; ``_source`` says where they came from; ``_truncated`` is true where a bound is known
    to be no value of the column, null where the writer did not say.
    """
    fields = [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("subset", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("part", pa.int32()),
        pa.field("row_group", pa.int32(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("total_bytes", pa.int64()),
        pa.field("compressed_bytes", pa.int64(), nullable=False),
        pa.field("data_offset", pa.int64()),
        pa.field("data_end", pa.int64()),
    ]
    for column in columns:
        kind = bound_type(column)
        fields += [
            pa.field(f"{column}_min", kind),
            pa.field(f"{column}_max", kind),
            pa.field(f"{column}_source", pa.string()),
            pa.field(f"{column}_min_truncated", pa.bool_()),
            pa.field(f"{column}_max_truncated", pa.bool_()),
            pa.field(f"{column}_nulls", pa.int64()),
        ]
    return pa.schema(fields)


def bound_type(column: str) -> pa.DataType:
    """The Arrow type of a column's bounds in the catalog."""
    return {"bytes": pa.binary(), "integer": pa.int64(), "time": TIMESTAMP}[stat_kind(column)]


ROW_GROUPS_SCHEMA: Final = row_groups_schema()

_BOUNDS_FROM: Final = ROW_GROUPS_SCHEMA.get_field_index("data_end") + 1
#: ``row_groups`` as people see it.
SHOWN_ROW_GROUPS_SCHEMA: Final = pa.schema(
    [
        *list(ROW_GROUPS_SCHEMA)[:_BOUNDS_FROM],
        *(pa.field(name, pa.int64()) for name in KEY_CHUNK_FIELDS),
        *list(ROW_GROUPS_SCHEMA)[_BOUNDS_FROM:],
    ]
)

#: The columns of an answer to a look-up, a part of ``ROW_GROUPS_SCHEMA``.
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
    """A field of a struct: what is in no row of its kind is null, and tables of the lake count time in microseconds."""
    return pa.field(field.name, pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) else field.type)


#: Rows of a row group of the catalog's files: small ones let DuckDB pass over most of a crawl for one domain.
CATALOG_ROW_GROUP: Final = 2_048

#: The table that is stored, and handed on. A row is of a subset (``coverage`` is set: the files that its path list
#: names, and the reason of ``COVERAGE_SCHEMA``), of an index file (``file``) or of a row group (``row_group``, with the
#: look-up columns in ``chunks``). Columns of the other kinds are null.
CATALOG_SCHEMA: Final = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("subset", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        pa.field("part", pa.int32()),
        pa.field("coverage", pa.struct([_stored(COVERAGE_SCHEMA.field(name)) for name in ("expected", "reason")])),
        pa.field("file", pa.struct([_stored(f) for f in INDEX_FILES_SCHEMA if f.name not in PLACE_FIELDS])),
        *(field.with_nullable(True) for field in ROW_GROUPS_SCHEMA if field.name not in PLACE_FIELDS),
        pa.field(
            "chunks",
            pa.list_(
                pa.struct([_stored(f) for f in COLUMN_CHUNKS_SCHEMA if f.name not in ("crawl", "path", "row_group")])
            ),
        ),
    ]
)
