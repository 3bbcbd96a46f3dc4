"""Queries of users read the tables, and nothing else; they write nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.published_file import open_for_queries
from cc_pipeline.lake.user_queries import restrict_reads, split_queries
from cc_pipeline.settings import load_settings


@pytest.fixture(name="tables")
def tables_(tmp_path: Path) -> Path:
    tables = tmp_path / "lake's" / "tables"
    tables.mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.sql("SELECT 1 AS n").write_parquet(str(tables / "a.parquet"))
    (tmp_path / "secret.csv").write_text("n\n2\n", "utf-8")
    return tables


@pytest.fixture(name="restricted")
def restricted_(tables: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        restrict_reads(connection, [f"{tables}/"])
        yield connection


@pytest.mark.parametrize(
    "query",
    [
        "FROM '{tables}/../../secret.csv'",
        "SELECT * FROM read_text('/etc/passwd')",
        "FROM glob('/etc/*')",
        "WITH a AS (COPY (SELECT 2 AS n) TO '{tables}/a.parquet' (USE_TMP_FILE false)) FROM a",
        "FROM query('WITH a AS (COPY (SELECT 2 AS n) TO ''{tables}/a.parquet'' (USE_TMP_FILE false)) FROM a')",
        "FROM enable_logging(storage = 'file', storage_path = '{tables}')",
        "FROM tables",  # a variable of this program
    ],
)
def test_a_query_reads_its_tables_alone_and_writes_nothing(
    restricted: duckdb.DuckDBPyConnection, tables: Path, query: str
) -> None:
    [wrapped] = split_queries(restricted, query.format(tables=str(tables).replace("'", "''")))
    with pytest.raises(duckdb.Error):
        restricted.execute(f"FROM {wrapped}").fetchall()
    assert [path.name for path in tables.iterdir()] == ["a.parquet"]
    file = str(tables / "a.parquet").replace("'", "''")
    assert restricted.execute(f"FROM '{file}'").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "statement",
    ["COPY (SELECT 1) TO 'a.csv'", "EXPLAIN ANALYZE COPY (SELECT 1) TO 'a.csv'", "SET threads = 1", "ATTACH 'a.duckdb'",
     "SELECT 1; CREATE TABLE a AS SELECT 1", "PRAGMA enable_profiling", "CALL enable_logging()", "LOAD httpfs"],
)  # fmt: skip
def test_statements_that_are_no_queries_are_refused(statement: str) -> None:
    with duckdb.connect() as connection, pytest.raises(UserInputError, match="only queries"):
        split_queries(connection, statement)


def test_queries_may_end_in_semicolons_and_comments() -> None:
    with duckdb.connect() as connection:
        queries = split_queries(connection, "SELECT ';ä' AS a; -- ;\n FROM range(3) ORDER BY 1 DESC -- last")
        rows = [connection.execute(f"FROM {query}").fetchall() for query in queries]
    assert rows == [[(";ä",)], [(2,), (1,), (0,)]]


def test_a_pivot_may_have_the_columns_that_its_rows_give(restricted: duckdb.DuckDBPyConnection) -> None:
    [query] = split_queries(restricted, "PIVOT (SELECT 'a' AS k, 1 AS n) ON k USING sum(n)")
    assert restricted.sql(f"FROM {query}").columns == ["a"]


def test_other_connections_of_the_process_stay_as_they_are(tmp_path: Path) -> None:
    settings = load_settings(home=str(tmp_path))
    duckdb.connect(str(settings.published_path)).close()
    with (
        duckdb.connect(str(settings.published_path), read_only=True) as connection,
        open_for_queries(settings) as restricted,
    ):
        connection.execute("SET threads = 1")
        assert connection.execute("SELECT count(*) FROM read_text('/etc/passwd')").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error, match="locked"):
            restricted.execute("SET threads = 1")
