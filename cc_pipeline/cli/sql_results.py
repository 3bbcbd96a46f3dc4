"""Runs queries in SQL, and prints their results or writes them to a file.

DuckDB formats lines and writes Parquet, so ten million rows take seconds and little memory. Lists and structs are
JSON in CSV and tables, times are ISO 8601, bytes hexadecimal digits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import duckdb

from cc_pipeline.cli.output import (
    console,
    notice,
    show_truncated,
    whole_file,
    write_aligned,
)
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.quoting import quote_name
from cc_pipeline.lake.user_queries import split_queries

_NESTED: Final = ("list", "array", "struct", "map", "union", "variant")
_TIMES: Final = {"timestamp with time zone": "Z", "timestamp": ""}
#: Maximum rows shown on a terminal. The other formats have all rows.
_MAX_SHOWN_ROWS: Final = 1_000
#: Maximum characters of a cell on a terminal.
_MAX_CELL_CHARS: Final = 1_000
_FETCH_ROWS: Final = 1_000
_RESULT_NAME: Final = "_answer"


def run_statements(
    connection: duckdb.DuckDBPyConnection, text: str, output: str = "table", out: Path | None = None
) -> None:
    """Runs the queries of ``text`` in order, and writes every result to standard output or to ``out``.

    A file appears only when it is complete. Raises ``UserInputError`` for a statement that is no query, and if several
    results are to go into one file, ``EnvironmentFault`` if it cannot be written, and the error of DuckDB for a query
    that it refuses.
    """
    queries = split_queries(connection, text)
    if len(queries) != 1 and (out is not None or output == "parquet"):
        raise UserInputError(
            f"{out or 'a Parquet file'} takes the result of one query, and these are {len(queries)} queries"
        )
    for number, query in enumerate(queries):
        result = connection.sql(f"FROM {query}")  # only the names and types of its columns
        if number and output in ("table", "csv"):
            sys.stdout.write("\n")
        _write(connection, result, query, output, out)
        sys.stdout.flush()


def _write(
    connection: duckdb.DuckDBPyConnection, result: duckdb.DuckDBPyRelation, rows: str, output: str, out: Path | None
) -> None:
    """Writes ``rows``, a query in parentheses, whose columns are those of ``result``."""
    screen = output == "table" and console.is_terminal
    columns = _readable_columns(result, output, cut=_MAX_CELL_CHARS if screen else None)
    query = f"SELECT {columns} FROM {rows} AS {_RESULT_NAME}"
    if out is not None:
        from cc_pipeline.export.table_files import keep_full_file  # loads Arrow, which a shown result does not need

        keep_full_file(connection, out, [rows])
        with whole_file(out) as temporary_path, temporary_path.open("wb") as stream:
            _write_stream(connection, query, output, stream)
    elif output != "table":
        sys.stdout.flush()
        _write_stream(connection, query, output, sys.stdout.buffer)
    else:
        # Ctrl-C cannot stop a relation
        _show(connection.execute(query), result.columns, screen=screen)


def _write_stream(connection: duckdb.DuckDBPyConnection, query: str, output: str, stream: BinaryIO) -> None:
    # this loads pyarrow, which a table on a terminal does not need
    from cc_pipeline.export.text_rows import write_parquet, write_text

    if output == "parquet":
        write_parquet(connection, query, stream)
    else:
        write_text(connection, query, "jsonl" if output == "json" else output, stream)


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
            elif kind.id in _NESTED and output != "json":
                value = f"CAST(to_json({value}) AS VARCHAR)"
            if cut is not None and kind.id in ("varchar", "blob", *_NESTED):
                value = f"left({value}, {cut})"
        columns.append(f"{value} AS {quote_name(name)}")
    return ", ".join(columns)


def _show(rows: duckdb.DuckDBPyConnection, columns: Sequence[str], *, screen: bool) -> None:
    remaining_rows = _iterate_rows(rows)
    if not screen:
        write_aligned(columns, remaining_rows)
        return
    shown_rows = list(islice(remaining_rows, _MAX_SHOWN_ROWS))
    show_truncated(columns, shown_rows)
    if next(remaining_rows, None) is not None:
        notice(f"only the first {_MAX_SHOWN_ROWS:,} rows are shown; --out FILE.parquet writes all of them")


def _iterate_rows(rows: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while batch := rows.fetchmany(_FETCH_ROWS):
        yield from batch
