"""Queries that a user wrote: DuckDB only reads for them, and only the files that it needs.

DuckDB's own locks allow writing to each file that may be read. A statement in parentheses can only be a query, and
none of its parts can write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import duckdb
from duckdb import StatementType

from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.quoting import quote_literal

#: Settings that may still be changed: they say how rows leave DuckDB.
_OPEN_SETTINGS: Final = ("TimeZone", "arrow_lossless_conversion")
#: Characters of a condition that an error shows.
_SHOWN: Final = 200
#: A PIVOT whose columns depend on the data is several statements to DuckDB.
_QUERIES: Final = (StatementType.SELECT, StatementType.MULTI)


def restrict_reads(connection: duckdb.DuckDBPyConnection, folders: Iterable[str]) -> None:
    """From now on ``connection`` reads only the files that it has open and those below ``folders``, loads no
    extension, changes no other setting, and sees no variables of this program."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET python_enable_replacements = false")
    for setting, values in (("allowed_directories", folders), ("allowed_configs", _OPEN_SETTINGS)):
        connection.execute(f"SET {setting} = [{', '.join(map(quote_literal, values))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def split_queries(connection: duckdb.DuckDBPyConnection, text: str) -> list[str]:
    """Returns each statement of ``text`` as a query in parentheses.

    Raises ``UserInputError`` if one of them is no query, and ``duckdb.Error`` for a mistake in its syntax.
    """
    statements = connection.extract_statements(text)
    if any(statement.type not in _QUERIES for statement in statements):
        raise UserInputError(
            "only queries are executed here (SELECT, FROM, WITH, PIVOT, SHOW TABLES, DESCRIBE, SUMMARIZE), and these "
            "are read-only; for other statements open cc.duckdb with duckdb"
        )
    # a line break, since a statement may end in a comment
    return [f"({strip_semicolon(statement.query)}\n)" for statement in statements]


def check_condition(connection: duckdb.DuckDBPyConnection, condition: str) -> None:
    """Raises ``UserInputError`` unless the text is one SQL condition without a query inside: then it reads nothing but
    its row, and writes nothing."""
    nodes, classes = _parse_condition(connection, condition)
    expected_nodes, _ = _parse_condition(connection, "true")
    if nodes != expected_nodes or "SUBQUERY" in classes:
        raise UserInputError(
            f"{condition!r} is not a condition on the columns of one row, such as fetch_status = 200 AND url LIKE "
            "'%/blog/%'; for other questions use sql"
        )


def _parse_condition(connection: duckdb.DuckDBPyConnection, condition: str) -> tuple[list[dict[str, Any]], set[str]]:
    """Returns DuckDB's trees of the queries that a query with the condition is, without their condition, and the
    classes of all expressions."""
    classes: set[str] = set()

    def note_class(node: dict[str, Any]) -> dict[str, Any]:
        classes.add(str(node.get("class")))
        return node

    query = f"SELECT 1 WHERE ({condition}\n)"
    try:
        [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
        tree = json.loads(text, object_hook=note_class)
    except duckdb.Error as error:
        raise UserInputError(f"{condition!r} is not a condition; DuckDB says: {error}") from None
    except RecursionError:
        raise UserInputError(f"{condition[:_SHOWN]}… has too many parts inside each other") from None
    if tree["error"]:
        raise UserInputError(f"{condition!r} is not a condition; DuckDB says: {tree['error_message']}")
    return [statement["node"] | {"where_clause": None} for statement in tree["statements"]], classes


def strip_semicolon(query: str) -> str:
    """Returns the text of one statement without its semicolons and the text after them."""
    while (last := _find_last_token(query)) is not None and query[last] == ";":
        query = query[:last]
    return query


def _find_last_token(text: str) -> int | None:
    """Returns the position of the last token of SQL that is no comment; ``None`` if there is none."""
    # offsets count bytes
    data = text.encode()
    starts = [start for start, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    return len(data[: starts[-1]].decode()) if starts else None
