"""The locations of a row group's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMN_NAMES
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.footers.decode import TRAILER_BYTES, ColumnChunk
from cc_pipeline.index.parquet.decoding import ColumnLayout
from cc_pipeline.progress import format_count

#: The column that every lookup searches.
KEY = "url_surtkey"
#: Row groups have up to two million rows; a much larger count is an error, since each value takes 8 to 12 bytes.
MAX_ROWS = 1 << 24
#: Names in a note, and letters of a name.
_SHOWN_NAMES, _SHOWN_LETTERS = 5, 60
#: ``PLAIN_DICTIONARY``. With no other encoding than this and those of levels (``RLE``, ``BIT_PACKED``), every data page
#: uses the dictionary.
_PLAIN_DICTIONARY = 2
_DICTIONARY_ONLY = {_PLAIN_DICTIONARY, 3, 4}


@dataclass(frozen=True, slots=True)
class ColumnLocation:
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
class IndexFile:
    """One index file. ``columns`` maps name to (physical type, repetition, meaning), for all flat ones that it has.

    ``unread`` are the names of the others: nested ones, lists, and those with a dot in their own name.
    """

    crawl: str
    subset: str
    path: str
    size: int
    etag: str | None
    footer_bytes: int
    columns: Mapping[str, tuple[str, str, str]]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowGroupLocation:
    """One row group of ``file`` and those of its columns whose place is known."""

    file: IndexFile
    number: int
    rows: int
    columns: Mapping[str, ColumnLocation]


def split_columns(
    columns: Mapping[str, tuple[str, str, str]],
) -> tuple[dict[str, tuple[str, str, str]], tuple[str, ...]]:
    """Returns the flat columns, which are read, and the names of the others; a dot marks a nested name."""
    flat = {name: column for name, column in columns.items() if column[1] != "repeated" and "." not in name}
    return flat, tuple(name for name in columns if name not in flat)


def unread_notes(files: Sequence[IndexFile], columns: Sequence[str] | None) -> tuple[str, ...]:
    """Returns a sentence on columns of ``files`` that an answer of ``columns`` (``None``: all) misses because of their
    form."""
    paths_by_column: dict[str, set[str]] = {}
    for file in files:
        for name in file.unread:
            if columns is None or name in columns or name.partition(".")[0] in columns:
                paths_by_column.setdefault(name, set()).add(file.path)
    if not paths_by_column:
        return ()
    listed_names = ", ".join(name[:_SHOWN_LETTERS] for name in list(paths_by_column)[:_SHOWN_NAMES])
    remainder_text = f" and {len(paths_by_column) - _SHOWN_NAMES} more" if len(paths_by_column) > _SHOWN_NAMES else ""
    count = len(set().union(*paths_by_column.values()))
    return (
        f"{len(paths_by_column)} columns of {format_count(count, 'index file')} are nested, lists, or have a dot in "
        f"their name, so they are not in this answer: {listed_names}{remainder_text}",
    )


def locate_column(file: IndexFile, chunk: ColumnChunk) -> ColumnLocation:
    """Returns the place of a column from a decoded footer, after checking it against the file's size. Raises
    ``DataFault`` for another one, and if it is in another file or encrypted."""
    name, offset, size = chunk.column, chunk.offset, chunk.size
    if chunk.is_unreadable:
        raise DataFault(DataKind.UNSUPPORTED, file.path, offset, f"column {name} is encrypted or in another file")
    end = file.size - file.footer_bytes - TRAILER_BYTES
    if not 4 <= offset <= offset + size <= end:
        raise DataFault(
            DataKind.MALFORMED, file.path, offset, f"column {name} claims {size} bytes outside the file's data"
        )
    physical, repetition, meaning = file.columns[name]
    layout = ColumnLayout(name, physical, repetition, chunk.codec)
    only = _PLAIN_DICTIONARY in chunk.encodings and chunk.encodings <= _DICTIONARY_ONLY
    return ColumnLocation(
        layout, meaning, offset, size, _inside(chunk.offset_index, end), _inside(chunk.column_index, end), only
    )


def check_row_group(file: IndexFile, number: int, rows: int, columns: Mapping[str, ColumnLocation]) -> RowGroupLocation:
    """Returns a row group with a plausible row count. Raises ``DataFault`` for an impossible one, or without the key
    column."""
    if not 0 <= rows <= MAX_ROWS:
        raise DataFault(DataKind.MALFORMED, file.path, None, f"row group {number} claims {rows} rows")
    if KEY not in columns:
        raise DataFault(
            DataKind.MALFORMED,
            file.path,
            None,
            f"the index file cannot be searched: its row group {number} has no column {KEY}",
        )
    return RowGroupLocation(file, number, rows, columns)


def requested_columns(columns: Sequence[str] | None, file: IndexFile) -> tuple[str, ...]:
    """Returns the columns to read of ``file``: the requested ones that it has, in the published order, unknown ones
    last."""
    order = [name for name in INDEX_COLUMN_NAMES if name in file.columns]
    order += [name for name in file.columns if name not in order]
    return tuple(order if columns is None else [name for name in order if name in columns or name == KEY])


def _inside(position: tuple[int, int] | None, end: int) -> tuple[int, int] | None:
    """Returns an index position if it is possible; page indexes are optional, so an impossible one is dropped."""
    if position is None:
        return None
    offset, length = position
    return position if offset >= 4 and 0 < length <= end - offset else None
