"""Exports published tables, queries and files as Parquet, JSON lines, CSV, or one DuckDB file with the rows.

DuckDB streams the rows: they have no order, and memory stays flat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.duck import READ_BY, STORED_AS
from cc_pipeline.errors import EnvironmentFault, UserInputError, disk_is_full
from cc_pipeline.export.files import (
    ExportedTable,
    files_in,
    refuse_empty,
    whole_file,
    whole_folder,
    write_export_documents,
)
from cc_pipeline.export.format import RowsRequest, Written
from cc_pipeline.export.formulas import harmless_in_sql
from cc_pipeline.export.text_rows import BATCH_ROWS, LARGE_ROWS, write_text
from cc_pipeline.extension import extensions
from cc_pipeline.lake.quoting import is_one_of, quote_literal, quote_name
from cc_pipeline.lake.snapshot import MacroSpec, make_macros
from cc_pipeline.lake.user_queries import strip_semicolon
from cc_pipeline.publish.macros import MACROS

SUFFIX: Final = {"parquet": ".parquet", "jsonl": ".jsonl", "csv": ".csv", "duckdb": ".duckdb"}
#: Memory limit of DuckDB; it spills more to a folder beside the output.
MEMORY: Final = "2GB"
#: Memory limit for rows of usual size: DuckDB fills its memory with written data. A million pages of 12 kB then take
#: 454 MB as Parquet.
_USUAL_MEMORY: Final = "400MB"
#: The same for a DuckDB file, which needs further memory.
_USUAL_MEMORY_OF_DUCKDB: Final = "250MB"
#: Rows per row group of a DuckDB file, which stays in memory until it is written. The default of 122,880 would be a
#: gigabyte of pages.
_GROUP_ROWS_OF_DUCKDB: Final = 8_192
#: Rows per row group of a Parquet file. A row may have a complete page: DuckDB's default would be gigabytes, and 20,480
#: rows per thread did not fit into one.
_GROUP_ROWS: Final = 2_048
_GROUP_BYTES: Final = "16MB"
#: Tables of the core with rows of targets, the most requested first.
TARGET_TABLES: Final = (
    "page_text", "page_metadata", "page_links", "feed_items", "captures", "records", "capture_targets", "targets",
    "lookups", "fetches",
)  # fmt: skip
_PLACE = ", ".join(CAPTURE)


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of rows: its name, its query, its published table, if any, and whether its rows are a stream that
    costs much to read again."""

    name: str
    sql: str
    table: str | None = None
    is_streamed: bool = False


def select_tables(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str], targets: Sequence[str], crawls: Sequence[str]
) -> list[Selection]:
    """Selects published tables, or only their rows of ``targets`` (slugs) and ``crawls``.

    Without ``names``, selects all tables; with targets or crawls, all tables about targets. Raises ``UserInputError``
    for a name that is not published, and for a table without rows of targets.
    """
    columns_by_table = dict(_published(connection))
    for name in names:
        if name not in columns_by_table:
            names = ", ".join((*sorted(columns_by_table), "page_html"))
            raise UserInputError(f"{name!r} is not published; there are: {names}")
    default_names = _list_target_tables(columns_by_table) if (targets or crawls) else sorted(columns_by_table)
    return [
        Selection(name, _select_rows(name, columns_by_table[name], targets, crawls), name)
        for name in (dict.fromkeys(names) or default_names)
    ]


def has_rows(connection: duckdb.DuckDBPyConnection, queries: Iterable[str]) -> bool:
    """Whether any of the queries has a row. Raises ``UserInputError`` for a query that DuckDB refuses."""
    try:
        return any(connection.execute(f"FROM ({query}\n) LIMIT 1").fetchone() for query in queries)
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None


def keep_full_file(connection: duckdb.DuckDBPyConnection, out: Path, queries: Iterable[str]) -> None:
    """Raises ``UserInputError`` if something is at ``out``, and no query has a row to replace it with."""
    if out.exists() and not has_rows(connection, queries):
        refuse_empty(out)


def _list_target_tables(columns_by_table: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the published tables with rows of single targets: those of the core, then those of extensions."""
    added = [view.name for extension in extensions() for view in extension.views()]
    extension_tables = [
        name
        for name in added
        if name in columns_by_table
        and ("target" in columns_by_table[name] or set(CAPTURE) <= {*columns_by_table[name]})
    ]
    return [*(name for name in TARGET_TABLES if name in columns_by_table), *extension_tables]


def _macros_for(tables: Collection[str | None]) -> list[Sequence[MacroSpec]]:
    """Returns the macros for published ``tables``: those of the core if all tables of targets are there, then those of
    each extension whose views are all there."""
    if not set(TARGET_TABLES) <= {*tables}:
        return []
    added = [extension.macros() for extension in extensions() if {view.name for view in extension.views()} <= {*tables}]
    return [MACROS, *added]


def select_query(connection: duckdb.DuckDBPyConnection, sql: str) -> Selection:
    """Selects the rows of one query. Raises ``UserInputError`` for several statements, and for one without rows."""
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise UserInputError(f"the query has {len(statements)} statements; give one")
        # the text after it must not become part of a comment at its end
        query = f"{strip_semicolon(statements[0].query).strip()}\n"
        connection.execute(f"DESCRIBE {query}")
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None
    return Selection("query", query)


def bound_memory(connection: duckdb.DuckDBPyConnection, scratch: Path) -> None:
    """Limits the memory of DuckDB to ``MEMORY``, with spill files in ``scratch``. Names in a query cannot refer to
    variables of this program."""
    connection.execute("SET python_enable_replacements = false")
    connection.execute(f"SET temp_directory = {quote_literal(str(scratch))}")
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    # keeping an order needs memory, and rows have none
    connection.execute("SET preserve_insertion_order = false")
    # each row is read once
    connection.execute("SET enable_external_file_cache = false")
    # prefetching a million pages from disk saves no time and takes 80 MB; from S3 it saves a request per page
    [(far,)] = connection.execute("SELECT count(*) FROM duckdb_views() WHERE contains(sql, '://')").fetchall()
    connection.execute(f"SET disable_parquet_prefetching = {not far}")


def write_table(
    connection: duckdb.DuckDBPyConnection, selection: Selection, format: str, path: Path, *, guarded: bool = False
) -> ExportedTable:
    """Writes the rows of ``selection`` to ``path``; a ``guarded`` CSV has no formulas. Raises ``UserInputError`` for a
    query that DuckDB refuses, ``EnvironmentFault`` if it cannot write."""
    columns = describe_columns(connection, selection.sql)
    sql = f"SELECT {_columns_as(columns, format, guarded)} FROM ({selection.sql})"
    if format != "parquet":
        # each thread would have a part of each column in memory
        connection.execute(f"SET threads = 1; SET memory_limit = '{MEMORY}'; SET streaming_buffer_size = '1MB'")
        batch_rows = LARGE_ROWS if selection.is_streamed else BATCH_ROWS
        with _translate_errors(path), path.open("wb") as stream:
            row_count = write_text(connection, sql, format, stream, batch_rows)
        return _describe_exported(connection, selection, columns, row_count)
    kv = quote_literal(f"{selection.name} of cc_pipeline; see the README")
    options = (
        f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_GROUP_ROWS}, "
        f"ROW_GROUP_SIZE_BYTES '{_GROUP_BYTES}', KV_METADATA {{description: {kv}}}"
    )
    [(rows,)] = _run_slim(connection, f"COPY ({sql}) TO {quote_literal(str(path))} ({options})", path)
    return _describe_exported(connection, selection, columns, int(rows))


def write_duckdb(
    connection: duckdb.DuckDBPyConnection,
    selections: Sequence[Selection],
    path: Path,
    metadata: Sequence[tuple[str, str]],
    macros: Sequence[Sequence[MacroSpec]] = (),
) -> list[ExportedTable]:
    """Writes each selection as a table of one new DuckDB file with comments, ``metadata`` as the table ``about``, and
    the groups of ``macros``, which may read tables of the file only. All groups but the first are optional.

    Raises as :func:`write_table` does.
    """
    path.unlink(missing_ok=True)
    options = f"READ_WRITE, STORAGE_VERSION '{STORED_AS}', ROW_GROUP_SIZE {_GROUP_ROWS_OF_DUCKDB}"
    connection.execute(f"ATTACH {quote_literal(str(path))} AS handed ({options})")
    exported_tables: list[ExportedTable] = []
    try:
        for selection in selections:
            columns = describe_columns(connection, selection.sql)
            name = quote_name(selection.name)
            statement = f"CREATE TABLE handed.main.{name} AS {selection.sql}"
            _run_slim(connection, statement, path, _USUAL_MEMORY_OF_DUCKDB)
            [(rows,)] = _run(connection, f"SELECT count(*) FROM handed.main.{name}", path)
            _carry_comments(connection, selection, name)
            exported_tables.append(_describe_exported(connection, selection, columns, int(rows), f"handed.main.{name}"))
        connection.execute("CREATE TABLE handed.main.about (what VARCHAR, is_so VARCHAR)")
        if metadata:
            connection.executemany("INSERT INTO handed.main.about VALUES (?, ?)", [list(row) for row in metadata])
        comment = f"Where the rows of this file came from. {READ_BY}"
        connection.execute(f"COMMENT ON TABLE handed.main.about IS {quote_literal(comment)}")
        if macros:
            _make_macros(connection, macros)
        connection.execute("CHECKPOINT handed")
    finally:
        connection.execute("DETACH handed")
    return exported_tables


def write_duckdb_file(request: RowsRequest) -> Written:
    """Writes the selections as tables of one DuckDB file, with macros if it has all tables of targets, which these
    read. Raises as :func:`write_table` does."""
    with whole_file(request.out) as path:
        macros = _macros_for([selection.table for selection in request.selections])
        metadata = request.provenance.as_rows()
        exported_tables = write_duckdb(request.connection, request.selections, path, metadata, macros)
    return written_tables(
        exported_tables,
        write_export_documents(request.out, request.description, request.provenance, exported_tables, [request.out]),
    )


def write_table_files(request: RowsRequest) -> Written:
    """Writes one selection to a file, or several into a folder, one file each; a name without a suffix is a folder.
    Raises as :func:`write_table` does."""
    out, format = request.out, request.format

    def write(selection: Selection, path: Path) -> ExportedTable:
        return write_table(request.connection, selection, format, path, guarded=request.guards_formulas)

    if len(request.selections) == 1 and not (out.is_dir() or not out.suffix):
        with whole_file(out) as path:
            exported_tables = [write(request.selections[0], path)]
        return written_tables(
            exported_tables,
            write_export_documents(out, request.description, request.provenance, exported_tables, [out]),
        )
    with whole_folder(out) as folder:
        paths = [folder / f"{selection.name}{SUFFIX[format]}" for selection in request.selections]
        exported_tables = [write(selection, path) for selection, path in zip(request.selections, paths, strict=True)]
        write_export_documents(folder, request.description, request.provenance, exported_tables, paths)
    return written_tables(exported_tables, files_in(out))


def written_tables(exported_tables: Sequence[ExportedTable], files: tuple[Path, ...]) -> Written:
    """Returns the result of an export of tables: each with its rows and columns."""
    return Written(
        files,
        ("name", "rows", "columns"),
        tuple((table.name, table.rows, len(table.columns)) for table in exported_tables),
    )


def _make_macros(connection: duckdb.DuckDBPyConnection, macros: Sequence[Sequence[MacroSpec]]) -> None:
    """Creates macros. They read tables of ``main``, and ``lake.captures`` for captures by target."""
    [(earlier_database,)] = connection.execute("SELECT current_database()").fetchall()
    connection.execute("USE handed")
    try:
        connection.execute("CREATE SCHEMA lake")
        joined = f"JOIN (SELECT DISTINCT {_PLACE}, target FROM main.capture_targets) USING ({_PLACE})"
        connection.execute(f"CREATE VIEW lake.captures AS SELECT * FROM main.captures {joined}")
        core, *added = macros
        make_macros(connection, core)
        for group in added:
            with suppress(duckdb.Error):
                make_macros(connection, group)
    finally:
        connection.execute(f"USE {quote_name(earlier_database)}")


def _published(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, list[str]]]:
    return [
        (str(name), list(columns))
        for name, columns in connection.execute(
            "SELECT table_name, list(column_name) FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal "
            "AND database_name = current_database() GROUP BY ALL"
        ).fetchall()
    ]


def _select_rows(name: str, columns: Sequence[str], targets: Sequence[str], crawls: Sequence[str]) -> str:
    conditions: list[str] = []
    if crawls and "crawl" in columns:
        conditions.append(is_one_of("crawl", crawls))
    sql = f"SELECT * FROM main.{name}"
    if targets and "target" in columns:
        conditions.append(is_one_of("target", targets))
    elif targets and name == "targets":
        conditions.append(is_one_of("slug", targets))
    elif targets and set(CAPTURE) <= set(columns):
        # the conditions of these targets may exclude pages of other targets
        condition_filter = " AND condition_match IS DISTINCT FROM 'no'" if "condition_match" in columns else ""
        of_targets = is_one_of("target", targets)
        target_captures = f"SELECT {_PLACE} FROM main.capture_targets WHERE {of_targets}{condition_filter}"
        sql += f" SEMI JOIN ({target_captures}) USING ({_PLACE})"
    elif targets:
        raise UserInputError(
            f"rows of the table {name} belong to no single target, so targets cannot select them; leave out the "
            "targets, or that table"
        )
    return sql + (f" WHERE {' AND '.join(conditions)}" if conditions else "")


def _columns_as(columns: Sequence[tuple[str, str]], format: str, guarded: bool) -> str:
    """Returns SQL for columns in a format: times in ISO 8601 in text formats, lists and structs as JSON in CSV."""
    if format not in ("jsonl", "csv"):
        return "*"
    expressions = []
    for name, kind in columns:
        column = quote_name(name)
        if kind.startswith("TIMESTAMP") and not kind.endswith("]"):
            zoned, zone = (f"({column} AT TIME ZONE 'UTC')", "Z") if "TIME ZONE" in kind else (column, "")
            exact = f"strftime({zoned}, '%Y-%m-%dT%H:%M:%S.%f{zone}')"
            column = f"replace({exact}, '.000000{zone}', '{zone}') AS {column}"
        elif kind == "BLOB":
            column = f"lower(hex({column})) AS {column}"
        elif format == "csv" and (kind.endswith("]") or kind.startswith(("STRUCT", "MAP"))):
            column = f"to_json({column}) AS {column}"
        elif format == "csv" and guarded and kind.startswith(("VARCHAR", "ENUM")):
            column = f"{harmless_in_sql(column)} AS {column}"
        expressions.append(column)
    return ", ".join(expressions)


def _describe_exported(
    connection: duckdb.DuckDBPyConnection,
    selection: Selection,
    columns: Sequence[tuple[str, str]],
    rows: int,
    table: str | None = None,
) -> ExportedTable:
    crawls: dict[str, int] = {}
    if any(name == "crawl" for name, _ in columns) and (table or not selection.is_streamed):
        count_query = (
            f"SELECT crawl, count(*) FROM {table or f'({selection.sql})'} WHERE crawl IS NOT NULL GROUP BY ALL"
        )
        crawls = {str(crawl): int(count) for crawl, count in connection.execute(count_query).fetchall()}
    return ExportedTable(selection.name, rows, crawls, tuple(columns))


def _carry_comments(connection: duckdb.DuckDBPyConnection, selection: Selection, name: str) -> None:
    if selection.table is None:
        return
    table_filter = (
        f"schema_name = 'main' AND database_name = current_database() AND {{}} = {quote_literal(selection.table)}"
    )
    for source, column in (("duckdb_views()", "view_name"), ("duckdb_tables()", "table_name")):
        for (comment,) in connection.execute(
            f"SELECT comment FROM {source} WHERE {table_filter.format(column)}"
        ).fetchall():
            if comment:
                connection.execute(f"COMMENT ON TABLE handed.main.{name} IS {quote_literal(comment)}")
    comments_query = (
        "SELECT column_name, comment FROM duckdb_columns() "
        f"WHERE comment IS NOT NULL AND {table_filter.format('table_name')}"
    )
    for column, comment in connection.execute(comments_query).fetchall():
        connection.execute(f"COMMENT ON COLUMN handed.main.{name}.{quote_name(column)} IS {quote_literal(comment)}")


def describe_columns(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[str, str]]:
    """Returns name and DuckDB type of each column of a query. Raises ``UserInputError`` if DuckDB refuses it."""
    try:
        return [(str(row[0]), str(row[1])) for row in connection.execute(f"DESCRIBE {sql}").fetchall()]
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None


def _run(connection: duckdb.DuckDBPyConnection, sql: str, path: Path) -> list[tuple[Any, ...]]:
    with _translate_errors(path):
        return connection.execute(sql).fetchall()


def _run_slim(
    connection: duckdb.DuckDBPyConnection, sql: str, path: Path, usual: str = _USUAL_MEMORY
) -> list[tuple[Any, ...]]:
    """Runs a statement that writes rows with the memory for usual rows, and again with ``MEMORY`` if that fails."""
    connection.execute(f"SET threads = 1; SET memory_limit = '{usual}'")  # each thread has a row group in memory
    with _translate_errors(path):
        try:
            return connection.execute(sql).fetchall()
        except duckdb.OutOfMemoryException:
            connection.execute(f"SET memory_limit = '{MEMORY}'")
            return connection.execute(sql).fetchall()


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise EnvironmentFault(
            f"{path.name} was not written: its rows need more memory than {MEMORY}: {error}",
            "Export fewer rows at once: name targets or crawls, or select rows with a query.",
        ) from error
    except (duckdb.IOException, OSError) as error:
        advice = (
            "Free some space, then export again."
            if disk_is_full(error)
            else "Check that this path can be written, and the files of the lake read (cc-pipeline doctor)."
        )
        raise EnvironmentFault(f"{path.name} was not written: {error}", advice) from error
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None
