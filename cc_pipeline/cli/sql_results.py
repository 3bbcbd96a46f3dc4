"""Runs SQL statements, and prints their results or writes them to a file.

DuckDB formats lines and writes Parquet, so ten million rows take seconds and little memory. Lists and structs are
JSON in CSV and tables, times are ISO 8601, bytes hexadecimal digits.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

import duckdb
from duckdb import ExpectedResultType, StatementType

from cc_pipeline.api.user_input import check_format
from cc_pipeline.cli.output import (
    console,
    format_by_name,
    guards_formulas,
    notice,
    show_truncated,
    whole_file,
    write_aligned,
)
from cc_pipeline.errors import EnvironmentFault, UserInputError, disk_is_full
from cc_pipeline.export.formulas import harmless_in_sql
from cc_pipeline.lake.published_file import find_last_token, strip_semicolon
from cc_pipeline.lake.quoting import quote_literal, quote_name

FORMATS: Final = ("table", "csv", "jsonl", "parquet")
#: Options of DuckDB for Parquet.
_PARQUET: Final = "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false"
#: Kinds of statements that return rows.
_ROW_STATEMENTS: Final = (
    StatementType.SELECT,
    StatementType.EXPLAIN,
    StatementType.PRAGMA,
    StatementType.CALL,
    StatementType.MULTI,
)
_TEXTS: Final = ("varchar", "enum")
_NESTED: Final = ("list", "array", "struct", "map", "union", "variant")
_TIMES: Final = {"timestamp with time zone": "Z", "timestamp": ""}
#: Maximum rows shown on a terminal. The other formats have all rows.
_MAX_SHOWN_ROWS: Final = 1_000
#: Maximum characters of a cell on a terminal.
_MAX_CELL_CHARS: Final = 1_000
_FETCH_ROWS: Final = 1_000
_PIPE_BLOCK: Final = 1 << 16
_RESULT_NAME: Final = "_answer"


def choose_format(output: str | None, out: Path | None, *, csv: bool = False, json: bool = False) -> str:
    """Returns the format: ``output`` or its short forms, else that of the suffix of ``out``, else ``table``.

    Raises ``UserInputError`` for conflicting or unknown formats, and for Parquet on a terminal.
    """
    format_names = {
        name for name, is_requested in ((output, output), ("csv", csv), ("jsonl", json)) if is_requested and name
    }
    if len(format_names) > 1:
        raise UserInputError(
            f"the options ask for several formats ({', '.join(sorted(format_names))}); choose one of "
            f"{', '.join(FORMATS)}"
        )
    format_name = check_format(format_names.pop() if format_names else format_by_name(out), FORMATS)
    if format_name == "table" and out is not None:
        raise UserInputError("--out takes --format csv, jsonl or parquet; a table is for the screen")
    if format_name == "parquet" and out is None and sys.stdout.isatty():
        raise UserInputError("a terminal cannot show Parquet; add --out FILE.parquet, or pipe the output to a program")
    return format_name


def run_statements(
    connection: duckdb.DuckDBPyConnection, text: str, output: str = "table", out: Path | None = None
) -> None:
    """Runs the statements of ``text`` in order, and writes every result to standard output or to ``out``.

    A file appears only when it is complete. Raises ``UserInputError`` if several results are to go into one file,
    ``EnvironmentFault`` if it cannot be written, and the error of DuckDB for a statement that it refuses.
    """
    connection.execute("SET TimeZone = 'UTC'")
    # names in a query must not refer to variables of this program
    connection.execute("SET python_enable_replacements = false")
    statements = connection.extract_statements(text)
    result_count = sum(_returns_rows(statement) for statement in statements)
    if result_count != 1 and (out is not None or output == "parquet"):
        raise UserInputError(
            f"{out or 'a Parquet file'} takes the result of one query, and these statements have {result_count} results"
        )
    shown_count = 0
    for statement in statements:
        result = connection.sql(statement)  # for a query only the names and types of its columns
        if result is None or not _returns_rows(statement):
            continue
        if shown_count and output in ("table", "csv"):
            sys.stdout.write("\n")
        shown_count += 1
        if statement.type == StatementType.SELECT:
            # Ctrl-C cannot stop a relation
            _write(connection, result, f"({strip_semicolon(statement.query)}\n)", output, out)
        elif statement.type == StatementType.EXPLAIN and output == "table":
            sys.stdout.writelines(f"{row[-1]}\n" for row in result.fetchall())
        else:
            connection.register(_RESULT_NAME, result)
            _write(connection, result, _RESULT_NAME, output, out)
            connection.unregister(_RESULT_NAME)
        sys.stdout.flush()


def is_complete(text: str) -> bool:
    """Whether ``text`` ends with a semicolon that is in no string or comment."""
    last = find_last_token(text)
    return last is not None and text[last] == ";"


def _returns_rows(statement: duckdb.Statement) -> bool:
    return statement.type in _ROW_STATEMENTS and ExpectedResultType.QUERY_RESULT in statement.expected_result_type


def _write_text(connection: duckdb.DuckDBPyConnection, query: str, output: str, stream: BinaryIO) -> None:
    # this loads pyarrow, which a table on a terminal does not need
    from cc_pipeline.export.text_rows import write_text

    write_text(connection, query, output, stream)


def _write(
    connection: duckdb.DuckDBPyConnection, result: duckdb.DuckDBPyRelation, rows: str, output: str, out: Path | None
) -> None:
    """Writes ``rows``, a name or a query in parentheses, whose columns are those of ``result``."""
    screen = output == "table" and console.is_terminal
    query = (
        f"SELECT {_readable_columns(result, output, cut=_MAX_CELL_CHARS if screen else None)} FROM {rows} AS "
        f"{_RESULT_NAME}"
    )
    if out is not None:
        with whole_file(out) as temporary_path:
            if output == "parquet":
                _copy(connection, query, temporary_path)
            else:
                with temporary_path.open("wb") as stream:
                    _write_text(connection, query, output, stream)
    elif output == "parquet":
        _copy_to_pipe(connection, query, sys.stdout)
    elif output != "table":
        sys.stdout.flush()
        _write_text(connection, query, output, sys.stdout.buffer)
    else:
        _show(connection.execute(query), result.columns, screen=screen)


def _readable_columns(result: duckdb.DuckDBPyRelation, output: str, cut: int | None) -> str:
    """Returns SQL for the columns of a result as ``output`` shows them. ``cut`` limits the length of texts."""
    columns = []
    for place, (name, kind) in enumerate(zip(result.columns, result.types, strict=True), start=1):
        value = f"#{place}"
        if output != "parquet":
            if kind.id == "blob":
                value = f"lower(hex({value}))"
            elif kind.id in _TIMES:
                zone = _TIMES[kind.id]
                value = f"replace(strftime({value}, '%Y-%m-%dT%H:%M:%S.%f{zone}'), '.000000{zone}', '{zone}')"
            elif kind.id in _NESTED and output != "jsonl":
                value = f"CAST(to_json({value}) AS VARCHAR)"
            elif kind.id in _TEXTS and output == "csv" and guards_formulas():
                value = harmless_in_sql(value)
            if cut is not None and kind.id in ("varchar", "blob", *_NESTED):
                value = f"left({value}, {cut})"
        columns.append(f"{value} AS {quote_name(name)}")
    return ", ".join(columns)


def _copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    try:
        connection.execute(f"COPY ({query}) TO {quote_literal(str(path))} ({_PARQUET})")
    except duckdb.IOException as error:
        if disk_is_full(error):
            raise EnvironmentFault(
                f"{path} cannot be written: the disk is full", "Free some space, then run the command again."
            ) from error
        raise


def _copy_to_pipe(connection: duckdb.DuckDBPyConnection, query: str, stream: TextIO) -> None:
    """Lets DuckDB write to a pipe, and copies the bytes to ``stream``. If DuckDB opened standard output by name, a file
    with earlier output would lose it."""
    reading, writing = os.pipe()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            connection.execute(f"COPY ({query}) TO '/dev/fd/{writing}' ({_PARQUET})")
        except BaseException as error:
            failed.append(error)
        finally:
            os.close(writing)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        stream.flush()
        while block := os.read(reading, _PIPE_BLOCK):
            stream.buffer.write(block)
        stream.flush()
    except BaseException:
        connection.interrupt()
        raise
    finally:
        os.close(reading)
        writer.join()
    if failed:
        raise failed[0]


def _show(rows: duckdb.DuckDBPyConnection, columns: Sequence[str], *, screen: bool) -> None:
    remaining_rows = _iterate_rows(rows)
    if not screen:
        write_aligned(columns, remaining_rows)
        return
    shown_rows = list(islice(remaining_rows, _MAX_SHOWN_ROWS))
    show_truncated(columns, shown_rows)
    if next(remaining_rows, None) is not None:
        notice(f"only the first {_MAX_SHOWN_ROWS:,} rows are shown; --csv or --out FILE.parquet writes all of them")


def _iterate_rows(rows: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while batch := rows.fetchmany(_FETCH_ROWS):
        yield from batch
