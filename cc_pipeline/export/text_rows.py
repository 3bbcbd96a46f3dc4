"""Writes rows of a query as CSV, JSON lines and Parquet to a stream.

DuckDB formats each row as a line, and the lines are written here. Its own ``COPY … TO`` writes the same bytes, but in
DuckDB 2.0.0 it may hang if a row fails after others were written: once in some fifty tries, in text formats only.
Parquet is written by another DuckDB, because that of the query may not write.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO, Final

import duckdb
import pyarrow as pa

from cc_pipeline.duck import connect
from cc_pipeline.lake.quoting import quote_literal, quote_name

#: Rows that are formatted and written at a time. DuckDB's default of 2,048 would be 70 MB of pages, copied for each
#: step of formatting.
BATCH_ROWS: Final = 128
#: The same for rows that may have a megabyte each.
LARGE_ROWS: Final = 16
#: The same for Parquet, whose rows are not formatted.
_PARQUET_BATCH_ROWS: Final = 2_048
_ROWS: Final = "_rows_of_query"
#: Options of DuckDB for Parquet.
_PARQUET: Final = "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false"
#: Errors that are not about the query, by the beginning of their messages.
_KINDS: Final = {"Out of Memory Error: ": duckdb.OutOfMemoryException, "IO Error: ": duckdb.IOException}
#: Characters for which a CSV field needs quotes. DuckDB treats ``#`` as the beginning of a comment.
_QUOTED_FOR: Final = (",", '"', "\n", "\r", "#")
_PLAIN_KINDS: Final = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "UUID",
)  # fmt: skip


def write_text(
    connection: duckdb.DuckDBPyConnection, query: str, format: str, stream: BinaryIO, batch_rows: int = BATCH_ROWS
) -> int:
    """Writes the rows of ``query`` to ``stream`` as ``csv``, with a header, or as ``jsonl``, ``batch_rows`` at a time.
    Returns their number.

    Ctrl-C and an error of ``stream`` stop the query. Raises the errors of DuckDB and of ``stream``.
    """
    rows = f"SELECT * FROM ({query}\n)"  # this numbers further columns of one name
    columns = [(str(row[0]), str(row[1])) for row in connection.execute(f"DESCRIBE {rows}").fetchall()]
    names = [quote_name(name) for name, _ in columns]
    if format == "csv":
        stream.write(",".join(_field(name) for name, _ in columns).encode() + b"\n")
        # one call, because each `||` copies the row so far, which may contain a page
        line = f"concat_ws(',', {', '.join(map(_field_in_sql, names, (kind for _, kind in columns)))})"
    else:
        line = f"to_json(struct_pack({', '.join(f'{name} := {name}' for name in names)}))"
    lines = f"SELECT encode({line} || chr(10)) FROM {_ROWS} AS _({', '.join(names)})"
    return _write(connection, rows, lines, stream, batch_rows)


def _write(connection: duckdb.DuckDBPyConnection, rows: str, lines: str, stream: BinaryIO, batch_rows: int) -> int:
    written = 0
    failed: list[duckdb.Error] = []

    def run_query() -> None:
        cursor.register(_ROWS, _read_batches(connection, rows, batch_rows, failed))
        cursor.execute(lines)

    # a thread that waits for DuckDB ignores Ctrl-C, so the main thread waits for another thread
    with _lossless(connection), connection.cursor() as cursor, ThreadPoolExecutor(1) as reader:
        try:
            [(zone,)] = connection.execute("SELECT current_setting('TimeZone')").fetchall()
            cursor.execute(f"SET TimeZone = {quote_literal(zone)}")
            reader.submit(run_query).result()
            while rows_of_one := reader.submit(cursor.fetchmany, batch_rows).result():
                stream.writelines(line for (line,) in rows_of_one)
                written += len(rows_of_one)
        except BaseException as error:
            connection.interrupt()
            cursor.interrupt()
            if failed and isinstance(error, duckdb.Error):
                raise failed[0] from None
            raise
    return written


def write_parquet(connection: duckdb.DuckDBPyConnection, query: str, stream: BinaryIO) -> None:
    """Writes the rows of ``query`` to ``stream`` as Parquet.

    Ctrl-C and an error of ``stream`` stop the query. Raises the errors of DuckDB and of ``stream``.
    """
    reading, writing = os.pipe()
    failed: list[duckdb.Error] = []

    def copy() -> None:
        with open(writing, "wb"), connect() as writer:
            writer.register(_ROWS, _read_batches(connection, f"SELECT * FROM ({query}\n)", _PARQUET_BATCH_ROWS, failed))
            writer.execute(f"COPY (FROM {_ROWS}) TO '/dev/fd/{writing}' ({_PARQUET})")

    # the pipe is closed first: that ends the thread
    with _lossless(connection), ThreadPoolExecutor(1) as copier, open(reading, "rb") as pipe:
        copying = copier.submit(copy)
        try:
            shutil.copyfileobj(pipe, stream)
            copying.result()
        except BaseException as error:
            connection.interrupt()
            if failed and isinstance(error, duckdb.Error):
                raise failed[0] from None
            raise


def _read_batches(
    connection: duckdb.DuckDBPyConnection, rows: str, batch_rows: int, failed: list[duckdb.Error]
) -> pa.RecordBatchReader:
    """Returns the batches of a query. An error of them is added to ``failed``."""
    reader = connection.sql(rows).to_arrow_reader(batch_rows)
    return pa.RecordBatchReader.from_batches(reader.schema, _note_failure(reader, failed))


def _note_failure(batches: pa.RecordBatchReader, failed: list[duckdb.Error]) -> Iterator[pa.RecordBatch]:
    """Yields ``batches``, and adds their error to ``failed``: readers of Arrow see its message, but not its class."""
    try:
        yield from batches
    except (OSError, pa.ArrowException) as error:
        kind = next((kind for words, kind in _KINDS.items() if words in str(error)), duckdb.InvalidInputException)
        failed.append(kind(str(error)))
        raise


@contextmanager
def _lossless(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Inside the block, DuckDB exports Arrow batches with types that it can read back unchanged."""
    [(earlier_setting,)] = connection.execute("SELECT current_setting('arrow_lossless_conversion')").fetchall()
    connection.execute("SET arrow_lossless_conversion = true")
    try:
        yield
    finally:
        connection.execute(f"SET arrow_lossless_conversion = {earlier_setting}")


def _field(text: str) -> str:
    if text and not any(character in text for character in _QUOTED_FOR):
        return text
    return '"' + text.replace('"', '""') + '"'


def _field_in_sql(column: str, kind: str) -> str:
    text = f"CAST({column} AS VARCHAR)"
    if kind in _PLAIN_KINDS:
        return f"coalesce({text}, '')"
    needs_quotes = " OR ".join(f"contains({text}, {quote_literal(character)})" for character in _QUOTED_FOR)
    in_quotes = f"""'"' || replace({text}, '"', '""') || '"'"""
    return f"CASE WHEN {column} IS NULL THEN '' WHEN {text} = '' OR {needs_quotes} THEN {in_quotes} ELSE {text} END"
