"""Published tables, queries and files as Parquet, JSON lines, CSV, or one DuckDB file with the rows inside.

DuckDB writes them in a stream: rows are in no order, and memory stays flat however many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

import duckdb

from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.duck import READ_BY, STORED_AS
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.export.files import Handed, files_in, whole_file, whole_folder, write_papers
from cc_pipeline.export.format import RowsRequest, Written
from cc_pipeline.export.formulas import harmless_in_sql
from cc_pipeline.export.text_rows import write_text
from cc_pipeline.extension import collect
from cc_pipeline.lake.reading import quoted, quoted_name, unended
from cc_pipeline.lake.snapshot import MacroSpec, make_macros
from cc_pipeline.publish.macros import MACROS

SUFFIX: Final = {"parquet": ".parquet", "jsonl": ".jsonl", "csv": ".csv", "duckdb": ".duckdb"}
#: What DuckDB may hold; it puts more into a folder beside the output.
MEMORY: Final = "2GB"
#: What files of tables are written in, where rows are of usual size: DuckDB fills what it may hold with what it wrote.
#: So a million pages of 12 kB take 454 MB as Parquet.
_USUAL_MEMORY: Final = "400MB"
#: The same for a file of DuckDB, which has more beside it.
_USUAL_MEMORY_OF_DUCKDB: Final = "250MB"
#: Rows of a row group in a file of DuckDB, which is held whole until it is written. Its usual 122,880 would be a
#: gigabyte of pages.
_GROUP_ROWS_OF_DUCKDB: Final = 8_192
#: A row may hold a whole page: a row group of DuckDB's usual size would be gigabytes, and 20,480 rows in each thread
#: did not fit into one.
_GROUP_ROWS: Final = 2_048
_GROUP_BYTES: Final = "16MB"
#: Tables of the core with a target's rows, in the order in which people ask for them.
OF_TARGETS: Final = (
    "page_text", "page_metadata", "page_links", "feed_items", "captures", "records", "capture_targets", "targets",
    "lookups", "fetches",
)  # fmt: skip
_PLACE = ", ".join(CAPTURE)


@dataclass(frozen=True, slots=True)
class Selection:
    """One thing to hand on: its name, the query that gives its rows, and the published table behind it, if any."""

    name: str
    sql: str
    table: str | None = None


def select_tables(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str], targets: Sequence[str], crawls: Sequence[str]
) -> list[Selection]:
    """Published tables, or what they have of ``targets`` (slugs) and ``crawls``; of neither, all of it.

    No ``names``: with targets or crawls all tables about them, else all there are. Raises ``UserInputError`` for a
    name that is not published, and for a table that has nothing to do with targets.
    """
    there = dict(_published(connection))
    for name in names:
        if name not in there:
            raise UserInputError(f"{name!r} is not published; there are: {', '.join(sorted(there))}")
    chosen = _about_targets(there) if (targets or crawls) else sorted(there)
    return [
        Selection(name, _rows_of(name, there[name], targets, crawls), name) for name in (dict.fromkeys(names) or chosen)
    ]


def _about_targets(there: Mapping[str, Sequence[str]]) -> list[str]:
    """The published tables that have rows of single targets: the core's, then those of extensions."""
    added = [view.name for views in collect("views").values() for view in views]
    about = [name for name in added if name in there and ("target" in there[name] or set(CAPTURE) <= {*there[name]})]
    return [*(name for name in OF_TARGETS if name in there), *about]


def _macros_for(tables: Collection[str | None]) -> list[Sequence[MacroSpec]]:
    """The macros that go along with published ``tables``: those of the core where all tables of targets are there, and
    then those of each extension all of whose views are."""
    if not set(OF_TARGETS) <= {*tables}:
        return []
    views = collect("views")
    added = [
        macros
        for name, macros in collect("macros").items()
        if name in views and {view.name for view in views[name]} <= {*tables}
    ]
    return [MACROS, *added]


def select_query(connection: duckdb.DuckDBPyConnection, sql: str, name: str = "query") -> Selection:
    """One query. Raises ``UserInputError`` for several statements, and for one that gives no rows."""
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise UserInputError(f"--query has {len(statements)} statements; give one")
        # what is put around it must not end up in a comment at its end
        query = f"{unended(statements[0].query).strip()}\n"
        connection.execute(f"DESCRIBE {query}")
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None
    return Selection(name, query)


def bound_memory(connection: duckdb.DuckDBPyConnection, scratch: Path) -> None:
    """Lets DuckDB hold no more than ``MEMORY``, and put the rest into ``scratch``; no name in a query means a variable
    of this program."""
    connection.execute("SET python_enable_replacements = false")
    connection.execute(f"SET temp_directory = {quoted(str(scratch))}")
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    # to keep an order DuckDB has to hold back what comes too early, and rows have none
    connection.execute("SET preserve_insertion_order = false")
    # each row is read once
    connection.execute("SET enable_external_file_cache = false")
    # what is read ahead of a million pages on a disk saves no time and takes 80 MB; of S3 it saves a request a page
    [(far,)] = connection.execute("SELECT count(*) FROM duckdb_views() WHERE contains(sql, '://')").fetchall()
    connection.execute(f"SET disable_parquet_prefetching = {not far}")


def write_table(
    connection: duckdb.DuckDBPyConnection, selection: Selection, format: str, path: Path, *, guarded: bool = False
) -> Handed:
    """Writes the rows of ``selection`` to ``path``; of a ``guarded`` CSV no text is a formula. Raises
    ``UserInputError`` for a query that DuckDB refuses, ``EnvironmentFault`` where it cannot write."""
    columns = _described(connection, selection.sql)
    sql = f"SELECT {_columns_as(columns, format, guarded)} FROM ({selection.sql})"
    if format != "parquet":
        # each thread would hold a piece of each column
        connection.execute(f"SET threads = 1; SET memory_limit = '{MEMORY}'; SET streaming_buffer_size = '1MB'")
        with _explained(path), path.open("wb") as stream:
            return _handed(connection, selection, columns, write_text(connection, sql, format, stream))
    kv = quoted(f"{selection.name} of cc_pipeline; see the README")
    options = (
        f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_GROUP_ROWS}, "
        f"ROW_GROUP_SIZE_BYTES '{_GROUP_BYTES}', KV_METADATA {{description: {kv}}}"
    )
    [(rows,)] = _run_slim(connection, f"COPY ({sql}) TO {quoted(str(path))} ({options})", path)
    return _handed(connection, selection, columns, int(rows))


def write_duckdb(
    connection: duckdb.DuckDBPyConnection,
    selections: Sequence[Selection],
    path: Path,
    about: Sequence[tuple[str, str]],
    macros: Sequence[Sequence[MacroSpec]] = (),
) -> list[Handed]:
    """Writes each selection as a table of one new DuckDB file, comments included, ``about`` as the table ``about``, and
    groups of ``macros``, which are to find all they read in it: one after the first that cannot be made is left out.

    Raises as :func:`write_table` does.
    """
    path.unlink(missing_ok=True)
    options = f"READ_WRITE, STORAGE_VERSION '{STORED_AS}', ROW_GROUP_SIZE {_GROUP_ROWS_OF_DUCKDB}"
    connection.execute(f"ATTACH {quoted(str(path))} AS handed ({options})")
    handed: list[Handed] = []
    try:
        for one in selections:
            columns = _described(connection, one.sql)
            name = quoted_name(one.name)
            made = f"CREATE TABLE handed.main.{name} AS {one.sql}"
            _run_slim(connection, made, path, _USUAL_MEMORY_OF_DUCKDB)
            [(rows,)] = _run(connection, f"SELECT count(*) FROM handed.main.{name}", path)
            _carry_comments(connection, one, name)
            handed.append(_handed(connection, one, columns, int(rows), f"handed.main.{name}"))
        connection.execute("CREATE TABLE handed.main.about (what VARCHAR, is_so VARCHAR)")
        if about:
            connection.executemany("INSERT INTO handed.main.about VALUES (?, ?)", [list(row) for row in about])
        comment = f"Where the rows of this file came from. {READ_BY}"
        connection.execute(f"COMMENT ON TABLE handed.main.about IS {quoted(comment)}")
        if macros:
            _make_macros(connection, macros)
        connection.execute("CHECKPOINT handed")
    finally:
        connection.execute("DETACH handed")
    return handed


def write_duckdb_file(request: RowsRequest) -> Written:
    """Writes the selections as tables of one DuckDB file. Macros read several tables: they go along where all tables
    of targets do. Raises as :func:`write_table` does."""
    with whole_file(request.out) as path:
        macros = _macros_for([each.table for each in request.selections])
        about = request.provenance.as_rows()
        handed = write_duckdb(request.connection, request.selections, path, about, macros)
    return written_tables(handed, write_papers(request.out, request.about, request.provenance, handed, [request.out]))


def write_table_files(request: RowsRequest) -> Written:
    """Writes one selection to a file, or several into a folder, a file each; a name without a suffix is a folder.
    Raises as :func:`write_table` does."""
    out, format = request.out, request.format

    def write(selection: Selection, path: Path) -> Handed:
        return write_table(request.connection, selection, format, path, guarded=request.guards_formulas)

    if len(request.selections) == 1 and not (out.is_dir() or not out.suffix):
        with whole_file(out) as path:
            handed = [write(request.selections[0], path)]
        return written_tables(handed, write_papers(out, request.about, request.provenance, handed, [out]))
    with whole_folder(out) as folder:
        paths = [folder / f"{selection.name}{SUFFIX[format]}" for selection in request.selections]
        handed = [write(selection, path) for selection, path in zip(request.selections, paths, strict=True)]
        write_papers(folder, request.about, request.provenance, handed, paths)
    return written_tables(handed, files_in(out))


def written_tables(handed: Sequence[Handed], files: tuple[Path, ...]) -> Written:
    """What was written of tables: each with its rows and columns."""
    return Written(
        files, ("name", "rows", "columns"), tuple((each.name, each.rows, len(each.columns)) for each in handed)
    )


def _make_macros(connection: duckdb.DuckDBPyConnection, macros: Sequence[Sequence[MacroSpec]]) -> None:
    """Macros name tables as ``main.…``, and ``lake.captures`` where they ask for captures by target."""
    [(before,)] = connection.execute("SELECT current_database()").fetchall()
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
        connection.execute(f"USE {quoted_name(before)}")


def published_at(connection: duckdb.DuckDBPyConnection) -> datetime | None:
    """When the file was published; ``None`` for files, which show no tables."""
    try:
        [(at,)] = connection.execute("SELECT max(published_at) FROM main.publication").fetchall()
    except duckdb.Error:
        return None
    return cast("datetime | None", at)


def _published(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, list[str]]]:
    return [
        (str(name), list(columns))
        for name, columns in connection.execute(
            "SELECT table_name, list(column_name) FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal "
            "AND database_name = current_database() GROUP BY ALL"
        ).fetchall()
    ]


def _rows_of(name: str, columns: Sequence[str], targets: Sequence[str], crawls: Sequence[str]) -> str:
    conditions: list[str] = []
    if crawls and "crawl" in columns:
        conditions.append(f"crawl IN ({', '.join(map(quoted, crawls))})")
    wanted = ", ".join(map(quoted, targets))
    shown = "*"
    if "served_by" in columns:
        # as in what a provenance says of sources: where a folder lies concerns nobody else
        folder = "'folder ' || parse_filename(served_by)"
        shown = f"* REPLACE (if(starts_with(served_by, '/'), {folder}, served_by) AS served_by)"
    sql = f"SELECT {shown} FROM main.{name}"
    if targets and "target" in columns:
        conditions.append(f"target IN ({wanted})")
    elif targets and name == "targets":
        conditions.append(f"slug IN ({wanted})")
    elif targets and set(CAPTURE) <= set(columns):
        # a page that another target shows may be ruled out by these targets' conditions
        but = " AND meant IS DISTINCT FROM 'no'" if "meant" in columns else ""
        own = f"SELECT {_PLACE} FROM main.capture_targets WHERE target IN ({wanted}){but}"
        sql += f" SEMI JOIN ({own}) USING ({_PLACE})"
    elif targets:
        raise UserInputError(f"{name} has no rows of single targets; leave the targets out, or the table")
    return sql + (f" WHERE {' AND '.join(conditions)}" if conditions else "")


def _columns_as(columns: Sequence[tuple[str, str]], format: str, guarded: bool) -> str:
    """Columns as a format can show them: times in ISO 8601 in text formats, lists and structs as JSON in CSV."""
    if format not in ("jsonl", "csv"):
        return "*"
    shown = []
    for name, kind in columns:
        column = quoted_name(name)
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
        shown.append(column)
    return ", ".join(shown)


def _handed(
    connection: duckdb.DuckDBPyConnection,
    selection: Selection,
    columns: Sequence[tuple[str, str]],
    rows: int,
    table: str | None = None,
) -> Handed:
    crawls: dict[str, int] = {}
    if any(name == "crawl" for name, _ in columns):
        counted = f"SELECT crawl, count(*) FROM {table or f'({selection.sql})'} WHERE crawl IS NOT NULL GROUP BY ALL"
        crawls = {str(crawl): int(count) for crawl, count in connection.execute(counted).fetchall()}
    return Handed(selection.name, rows, crawls, tuple(columns))


def _carry_comments(connection: duckdb.DuckDBPyConnection, selection: Selection, name: str) -> None:
    if selection.table is None:
        return
    own = f"schema_name = 'main' AND database_name = current_database() AND {{}} = {quoted(selection.table)}"
    for source, column in (("duckdb_views()", "view_name"), ("duckdb_tables()", "table_name")):
        for (comment,) in connection.execute(f"SELECT comment FROM {source} WHERE {own.format(column)}").fetchall():
            if comment:
                connection.execute(f"COMMENT ON TABLE handed.main.{name} IS {quoted(comment)}")
    noted = (
        f"SELECT column_name, comment FROM duckdb_columns() WHERE comment IS NOT NULL AND {own.format('table_name')}"
    )
    for column, comment in connection.execute(noted).fetchall():
        connection.execute(f"COMMENT ON COLUMN handed.main.{name}.{quoted_name(column)} IS {quoted(comment)}")


def _described(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[str, str]]:
    try:
        return [(str(row[0]), str(row[1])) for row in connection.execute(f"DESCRIBE {sql}").fetchall()]
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None


def _run(connection: duckdb.DuckDBPyConnection, sql: str, path: Path) -> list[tuple[Any, ...]]:
    with _explained(path):
        return connection.execute(sql).fetchall()


def _run_slim(
    connection: duckdb.DuckDBPyConnection, sql: str, path: Path, usual: str = _USUAL_MEMORY
) -> list[tuple[Any, ...]]:
    """Runs what writes rows in the memory that usual rows need, and again in ``MEMORY`` where these are larger."""
    connection.execute(f"SET threads = 1; SET memory_limit = '{usual}'")  # each thread holds a row group
    with _explained(path):
        try:
            return connection.execute(sql).fetchall()
        except duckdb.OutOfMemoryException:
            connection.execute(f"SET memory_limit = '{MEMORY}'")
            return connection.execute(sql).fetchall()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (duckdb.IOException, duckdb.OutOfMemoryException, OSError) as error:
        raise EnvironmentFault(
            f"{path.name} cannot be written: {error}", "Check the disk's free space and the lake, then export again."
        ) from error
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None
