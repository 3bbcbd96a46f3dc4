"""Rows of a query as CSV and JSON lines.

DuckDB makes each row a line, and the lines are written here. Its own ``COPY … TO`` writes the same bytes, but in DuckDB
2.0.0 it waits for itself for ever where a row fails after others were written: once in some fifty tries, in text
formats alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO, Final

import duckdb
import pyarrow as pa

from cc_pipeline.lake.reading import quoted, quoted_name

#: Rows that are made to lines and written at a time. DuckDB by itself takes 2,048, which are 70 MB of pages, and copies
#: them for each step of a line.
_AT_ONCE: Final = 128
_ROWS: Final = "_rows_of_text"
#: Errors that are not about the query, by the words they begin with.
_KINDS: Final = {"Out of Memory Error: ": duckdb.OutOfMemoryException, "IO Error: ": duckdb.IOException}
#: What a field of CSV has to be in quotes for. DuckDB takes ``#`` for the beginning of a comment.
_QUOTED_FOR: Final = (",", '"', "\n", "\r", "#")
_PLAIN_KINDS: Final = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "UUID",
)  # fmt: skip


def write_text(connection: duckdb.DuckDBPyConnection, query: str, format: str, stream: BinaryIO) -> int:
    """Writes the rows of ``query`` to ``stream`` as ``csv``, with a header, or as ``jsonl``, and returns how many.

    Ctrl-C and an error of ``stream`` end the query. Raises what DuckDB raises for it, and what ``stream`` raises.
    """
    rows = f"SELECT * FROM ({query}\n)"  # of columns of one name, all but the first get a number
    columns = [(str(row[0]), str(row[1])) for row in connection.execute(f"DESCRIBE {rows}").fetchall()]
    names = [quoted_name(name) for name, _ in columns]
    if format == "csv":
        stream.write(",".join(_field(name) for name, _ in columns).encode() + b"\n")
        # in one call: each `||` copies the row up to there, and a row may hold a page
        line = f"concat_ws(',', {', '.join(map(_field_in_sql, names, (kind for _, kind in columns)))})"
    else:
        line = f"to_json(struct_pack({', '.join(f'{name} := {name}' for name in names)}))"
    return _write(connection, rows, f"SELECT encode({line} || chr(10)) FROM {_ROWS} AS _({', '.join(names)})", stream)


def _write(connection: duckdb.DuckDBPyConnection, rows: str, lines: str, stream: BinaryIO) -> int:
    written = 0
    failed: list[duckdb.Error] = []

    def ask() -> None:
        found = connection.sql(rows).to_arrow_reader(_AT_ONCE)
        asked.register(_ROWS, pa.RecordBatchReader.from_batches(found.schema, _noting(found, failed)))
        asked.execute(lines)

    # a thread that waits for DuckDB hears no Ctrl-C, so the one that hears it waits for another
    with _lossless(connection), connection.cursor() as asked, ThreadPoolExecutor(1) as reader:
        try:
            [(zone,)] = connection.execute("SELECT current_setting('TimeZone')").fetchall()
            asked.execute(f"SET TimeZone = {quoted(zone)}")
            reader.submit(ask).result()
            while rows_of_one := reader.submit(asked.fetchmany, _AT_ONCE).result():
                stream.writelines(line for (line,) in rows_of_one)
                written += len(rows_of_one)
        except BaseException as error:
            connection.interrupt()
            asked.interrupt()
            if failed and isinstance(error, duckdb.Error):
                raise failed[0] from None
            raise
    return written


def _noting(batches: pa.RecordBatchReader, failed: list[duckdb.Error]) -> Iterator[pa.RecordBatch]:
    """``batches``; what ends them is in ``failed``: who reads Arrow is told DuckDB's words, and not their kind."""
    try:
        yield from batches
    except (OSError, pa.ArrowException) as error:
        kind = next((kind for words, kind in _KINDS.items() if words in str(error)), duckdb.InvalidInputException)
        failed.append(kind(str(error)))
        raise


@contextmanager
def _lossless(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Rows leave as Arrow batches in types that come back as they were."""
    [(before,)] = connection.execute("SELECT current_setting('arrow_lossless_conversion')").fetchall()
    connection.execute("SET arrow_lossless_conversion = true")
    try:
        yield
    finally:
        connection.execute(f"SET arrow_lossless_conversion = {before}")


def _field(text: str) -> str:
    if text and not any(character in text for character in _QUOTED_FOR):
        return text
    return '"' + text.replace('"', '""') + '"'


def _field_in_sql(column: str, kind: str) -> str:
    text = f"CAST({column} AS VARCHAR)"
    if kind in _PLAIN_KINDS:
        return f"coalesce({text}, '')"
    has = " OR ".join(f"contains({text}, {quoted(character)})" for character in _QUOTED_FOR)
    in_quotes = f"""'"' || replace({text}, '"', '""') || '"'"""
    return f"CASE WHEN {column} IS NULL THEN '' WHEN {text} = '' OR {has} THEN {in_quotes} ELSE {text} END"
