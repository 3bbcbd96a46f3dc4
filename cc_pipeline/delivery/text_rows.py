"""Rows of a query as CSV and JSON lines.

DuckDB makes each row a line, and the lines are written here. Its own ``COPY … TO`` writes the same bytes, but in DuckDB
2.0.0 it waits for itself for ever where a row fails after others were written: once in some fifty tries, in text
formats alone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Final

import duckdb

from cc_pipeline.lake.reading import quoted, quoted_name

#: Rows that are written at a time; DuckDB holds 2,048 of them in any case.
_AT_ONCE: Final = 128
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
    rows = f"(SELECT * FROM ({query}\n))"  # of columns of one name, all but the first get a number
    columns = [(str(row[0]), str(row[1])) for row in connection.execute(f"DESCRIBE {rows}").fetchall()]
    if format == "csv":
        stream.write(",".join(_field(name) for name, _ in columns).encode() + b"\n")
        # in one call: each `||` copies the row up to there, and a row may hold a page
        line = f"concat_ws(',', {', '.join(_field_in_sql(quoted_name(name), kind) for name, kind in columns)})"
    else:
        line = (
            f"to_json(struct_pack({', '.join(f'{quoted_name(name)} := {quoted_name(name)}' for name, _ in columns)}))"
        )
    return _write(connection, f"SELECT encode({line} || chr(10)) FROM {rows}", stream)


def _write(connection: duckdb.DuckDBPyConnection, lines: str, stream: BinaryIO) -> int:
    written = 0
    # a thread that waits for DuckDB hears no Ctrl-C, so the one that hears it waits for another
    with ThreadPoolExecutor(1) as reader:
        try:
            reader.submit(connection.execute, lines).result()
            while rows := reader.submit(connection.fetchmany, _AT_ONCE).result():
                stream.writelines(line for (line,) in rows)
                written += len(rows)
        except BaseException:
            connection.interrupt()
            raise
    return written


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
