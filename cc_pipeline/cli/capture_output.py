"""Writes captures to a file or a pipe: as a table for a person, as JSON lines, CSV or Parquet for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any

import pyarrow as pa

from cc_pipeline.advice import option
from cc_pipeline.cli.output import as_text, json_line, notice, whole_file, write_csv, write_rows
from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES
from cc_pipeline.errors import UserInputError
from cc_pipeline.progress import format_count

#: Columns of a table for a person. The other formats have all columns. ``--columns`` overrides both.
TABLE_COLUMNS = ("fetch_time", "fetch_status", "content_mime_type", "url")
#: Maximum rows of a table. The other formats have all rows.
_MAX_TABLE_ROWS = 1_000
#: Rows that are converted to Python objects at a time, to bound memory.
_BATCH_ROWS = 5_000

Write = Callable[[pa.Table], None]


def choose_columns(text: str | None, output: str) -> tuple[str, ...]:
    """Parses a comma-separated list of column names. Raises ``UserInputError`` that suggests similar names."""
    if text is None:
        return TABLE_COLUMNS if output == "table" else tuple(NAMED_CAPTURES.names)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserInputError("--columns is empty; name columns, as in --columns url,fetch_time")
    for name in names:
        if name not in NAMED_CAPTURES.names:
            similar = get_close_matches(name, NAMED_CAPTURES.names, 3, 0.4)
            hint = f"did you mean {', '.join(similar)}?" if similar else f"there are {', '.join(NAMED_CAPTURES.names)}"
            raise UserInputError(f"--columns: lookups have no column {name!r}; {hint}")
    return names


@contextmanager
def capture_writer(output: str, columns: Sequence[str], out: Path | None) -> Iterator[Write]:
    """Yields a function that writes ``columns`` of tables of ``NAMED_CAPTURES``. The output is complete when the block
    ends.

    A file is written under a temporary name and renamed at the end, so a failed lookup leaves no file. Raises
    ``EnvironmentFault`` if the disk refuses, ``UserInputError`` if no row would replace an existing file.
    """
    if out is None:
        with _open_writer(output, columns, None) as write:
            yield write
        return
    row_count = 0
    with whole_file(out) as temporary_path:
        with _open_writer(output, columns, temporary_path) as write:

            def count(table: pa.Table) -> None:
                nonlocal row_count
                row_count += table.num_rows
                write(table)

            yield count
        if not row_count:
            from cc_pipeline.export.files import refuse_empty

            refuse_empty(out)


@contextmanager
def _open_writer(output: str, columns: Sequence[str], path: Path | None) -> Iterator[Write]:
    """Opens a writer of a format, to a file or to standard output."""
    if output == "parquet":
        with _open_parquet(columns, path) as write:
            yield write
    elif output == "table":
        with _open_table(columns) as write:
            yield write
    else:
        with open(path, "w", encoding="utf-8", newline="") if path else nullcontext(sys.stdout) as stream:
            if output == "json":
                yield lambda table: stream.writelines(json_line(row) for row in _rows(table, columns))
            else:
                write_csv(stream, [columns])
                yield lambda table: write_csv(
                    stream, ([row[name] for name in columns] for row in _rows(table, columns))
                )


@contextmanager
def _open_table(columns: Sequence[str]) -> Iterator[Write]:
    """Shows the first rows when the block ends."""
    table_rows: list[list[str]] = []
    row_count = 0

    def keep(table: pa.Table) -> None:
        nonlocal row_count
        row_count += table.num_rows
        part = table.slice(0, max(0, _MAX_TABLE_ROWS - len(table_rows)))
        table_rows.extend([as_text(row[name]) for name in columns] for row in _rows(part, columns))

    yield keep
    write_rows("", columns, table_rows, "table")
    if row_count > len(table_rows):
        hidden = format_count(row_count - len(table_rows), "more capture", "are")
        notice(f"{hidden} not shown; {option(format='json')} shows all of them")


@contextmanager
def _open_parquet(columns: Sequence[str], path: Path | None) -> Iterator[Write]:
    """Writes to a file. A pipe has no positions, so it gets a copy of a temporary file at the end."""
    import pyarrow.parquet as pq

    schema = pa.schema([NAMED_CAPTURES.field(name) for name in columns])
    with TemporaryFile() as spool:
        with pq.ParquetWriter(path or spool, schema, compression="zstd") as writer:
            yield lambda table: writer.write_table(table.select(columns).cast(schema))
        if path is None:
            spool.seek(0)
            copyfileobj(spool, sys.stdout.buffer)


def _rows(table: pa.Table, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    for batch in table.select(columns).to_batches(max_chunksize=_BATCH_ROWS):
        for row in batch.to_pylist():
            if row.get("extra_columns") is not None:
                row["extra_columns"] = dict(row["extra_columns"])
            yield row
