"""Reads rows of a file of captures: Parquet, CSV, JSON lines or CDXJ lines, detected by its first bytes. Columns may
have the names of the index table of Athena, of CDX servers and clients, and of data sets made from crawls."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.advice import option
from cc_pipeline.errors import UserInputError
from cc_pipeline.progress import format_count

#: Columns of a capture and their names elsewhere, the most common first. Names are compared in lower case.
COLUMN_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "warc_filename": ("filename", "file_path", "warc_file", "file"),
    "warc_record_offset": ("offset", "warc_offset", "record_offset"),
    "warc_record_length": ("length", "warc_length", "record_length"),
    "url": ("original", "warc_target_uri", "target_uri", "uri"),
    "fetch_time": ("timestamp", "date", "warc_date", "crawl_date", "time"),
    "crawl": ("dump", "crawl_id", "collection"),
    "content_digest": ("digest",),
    "fetch_status": ("status", "statuscode", "status_code"),
    "content_mime_type": ("mime", "mimetype"),
    "content_mime_detected": ("mime-detected", "mime_detected"),
    "content_charset": ("charset",),
    "content_languages": ("languages",),
    "content_truncated": ("truncated",),
    "fetch_redirect": ("redirect",),
}
_CHUNK_ROWS: Final = 4_096
_PARQUET, _GZIP = b"PAR1", b"\x1f\x8b"
_CDXJ: Final = re.compile(r"(\S+) (\d{14}) (\{.*)", re.DOTALL)
#: Maximum characters of a CSV field: data sets have complete pages in one.
_MAX_FIELD_CHARS: Final = 1 << 27
_MAX_SHOWN_COLUMNS: Final = 30
#: Maximum number of rejected rows that are kept to be shown.
_MAX_KEPT_REASONS: Final = 20

#: Values of some rows: the number of the first (from 1), the number of rows, and the values of each column.
Chunk: TypeAlias = tuple[int, int, dict[str, Sequence[Any]]]


@dataclass(slots=True)
class RejectedRows:
    """Rejected rows: their ``count``, and number and reason of each of the first."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, row: int, reason: str) -> None:
        """Adds a rejected row."""
        self.count += 1
        if len(self.first) < _MAX_KEPT_REASONS:
            self.first.append((row, reason))


def read_chunks(path: Path, column_names: Mapping[str, str], wrong: RejectedRows) -> Iterator[Chunk]:
    """Yields the rows of a file, some thousand at a time, by columns of a capture. ``column_names`` maps columns of a
    capture to those of the file, if these have other names than :data:`COLUMN_ALIASES`.

    Lines that cannot be read are added to ``wrong``, and their values are ``None``. Raises ``UserInputError`` for a
    file that cannot be read, has another format, or has no locations.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
            if head == _PARQUET:
                yield from _read_parquet(path, column_names)
                return
            file.seek(0)
            with _unpacked(file, head) as text:
                yield from _read_text(text, str(path), column_names, wrong)
    except (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserInputError(f"{path} cannot be read: {reason}") from error


def match_columns(file_columns: Iterable[str], column_names: Mapping[str, str], file_name: str) -> dict[str, str]:
    """Returns the file's column for each column of a capture. Raises ``UserInputError``."""
    columns = list(file_columns)
    by_lower = {name.lower(): name for name in reversed(columns)}
    matched: dict[str, str] = {}
    for column, aliases in COLUMN_ALIASES.items():
        if column in column_names:
            if column_names[column] not in columns:
                raise UserInputError(
                    f"{file_name} has no column {column_names[column]!r}; it has "
                    f"{', '.join(columns[:_MAX_SHOWN_COLUMNS])}"
                )
            matched[column] = column_names[column]
        elif name := next((by_lower[alias] for alias in (column, *aliases) if alias in by_lower), None):
            matched[column] = name
    if not {"warc_filename", "warc_record_offset"} <= matched.keys():
        raise UserInputError(
            f"{file_name} needs two columns with archive file and offset; its columns are "
            f"{', '.join(columns[:_MAX_SHOWN_COLUMNS])}. Name them: "
            f"{option(column=['warc_filename=NAME', 'warc_record_offset=NAME'])}"
        )
    return matched


def _read_parquet(path: Path, column_names: Mapping[str, str]) -> Iterator[Chunk]:
    file = pq.ParquetFile(path)
    columns = match_columns(file.schema_arrow.names, column_names, str(path))
    number = 1
    # rows of a data set may contain pages: only these columns are read
    for batch in file.iter_batches(_CHUNK_ROWS, columns=list(columns.values())):
        # of several columns with one name, the first is used, as in other files
        places = {name: batch.schema.names.index(file_column) for name, file_column in columns.items()}
        yield number, batch.num_rows, {name: _list_values(batch.column(place)) for name, place in places.items()}
        number += batch.num_rows


def _list_values(values: pa.Array) -> list[Any]:
    try:
        return list(values.to_pylist())
    except (OverflowError, ValueError):
        # Python cannot represent a time: as text, only its row is rejected
        return list(values.cast(pa.string()).to_pylist())


@contextmanager
def _unpacked(file: BinaryIO, head: bytes) -> Iterator[io.TextIOBase]:
    data: Any = gzip.GzipFile(fileobj=file) if head.startswith(_GZIP) else file
    with io.TextIOWrapper(data, encoding="utf-8-sig", newline="") as text:
        yield text


def _read_text(
    text: Iterable[str], file_name: str, column_names: Mapping[str, str], wrong: RejectedRows
) -> Iterator[Chunk]:
    lines = iter(text)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise UserInputError(f"{file_name} has no rows")
    all_lines = _prepend_line(first, lines)
    if first.lstrip().startswith("{") or _CDXJ.match(first):
        yield from _read_lines(all_lines, file_name, column_names, wrong)
        return
    csv.field_size_limit(_MAX_FIELD_CHARS)
    rows = csv.reader(all_lines, delimiter="\t" if first.count("\t") > first.count(",") else ",")
    header = next(rows)
    columns = match_columns(header, column_names, file_name)
    places = {name: header.index(file_column) for name, file_column in columns.items()}
    number = 1
    while chunk := list(islice(rows, _CHUNK_ROWS)):
        for place, row in enumerate(chunk):
            if len(row) != len(header):
                wrong.add(
                    number + place,
                    f"the row has {format_count(len(row), 'column')}, and the first line has {len(header)}",
                )
                chunk[place] = [""] * len(header)
        yield number, len(chunk), {name: [row[position] for row in chunk] for name, position in places.items()}
        number += len(chunk)


def _prepend_line(first: str, following_lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from following_lines


def _read_lines(
    lines: Iterator[str], file_name: str, column_names: Mapping[str, str], wrong: RejectedRows
) -> Iterator[Chunk]:
    number, columns = 1, None
    while chunk := list(islice(lines, _CHUNK_ROWS)):
        rows = [_object(line, number + place, wrong) for place, line in enumerate(chunk)]
        # lines may have different fields, so those of the first chunk are combined
        columns = columns or match_columns(dict.fromkeys(name for row in rows for name in row), column_names, file_name)
        yield number, len(rows), {name: [row.get(field_name) for row in rows] for name, field_name in columns.items()}
        number += len(rows)


def _object(line: str, number: int, wrong: RejectedRows) -> dict[str, Any]:
    cdxj = _CDXJ.match(line)
    try:
        document = json.loads(cdxj[3] if cdxj else line) if line.strip() else {}
    except (ValueError, RecursionError) as error:
        document = error
    if not isinstance(document, dict):
        wrong.add(number, "the line is no JSON object")
        return {}
    return document | {"timestamp": cdxj[2]} if cdxj else document
