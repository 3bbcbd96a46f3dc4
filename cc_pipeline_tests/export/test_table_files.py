"""Rows as files of each format, and which queries give rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.export.table_files import bound_memory, select_query, write_table

VALUES = (
    "SELECT 'a, \"b\"\nc' AS text, [1, 2] AS list, {'x': 7} AS struct, 'ab'::BLOB AS bytes, "
    "TIMESTAMPTZ '2020-01-01 00:00:00.25+00' AS at, TIMESTAMPTZ '2020-01-01 02:00:00+02' AS whole, "
    "TIMESTAMP '2020-01-01 12:00:00' AS clock, NULL::INT[] AS none"
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        bound_memory(opened, tmp_path)
        yield opened


def test_every_format_has_the_same_values(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    for format in ("parquet", "jsonl", "csv"):
        handed = write_table(connection, select_query(connection, VALUES), format, tmp_path / format)
        assert (handed.rows, len(handed.columns)) == (1, 8)
    plain = {"text": 'a, "b"\nc', "list": [1, 2], "struct": {"x": 7}, "bytes": "6162", "none": None,
             "at": "2020-01-01T00:00:00.250000Z", "whole": "2020-01-01T00:00:00Z",
             "clock": "2020-01-01T12:00:00"}  # fmt: skip
    assert json.loads((tmp_path / "jsonl").read_text("utf-8")) == plain
    with (tmp_path / "csv").open(newline="") as stream:
        [row] = csv.DictReader(stream)
    assert {name: json.loads(row[name]) for name in ("list", "struct")} == {"list": [1, 2], "struct": {"x": 7}}
    texts = ("text", "bytes", "at", "whole", "clock")
    assert {name: row[name] for name in texts} == {name: plain[name] for name in texts}
    assert row["none"] == ""
    [row] = pq.read_table(tmp_path / "parquet").to_pylist()
    when = {"at": datetime(2020, 1, 1, 0, 0, 0, 250_000, UTC), "whole": datetime(2020, 1, 1, tzinfo=UTC)}
    assert row == plain | when | {"bytes": b"ab", "clock": datetime(2020, 1, 1, 12)}  # noqa: DTZ001  # a clock has none


@pytest.mark.parametrize("sql", ["SELECT 7 AS a -- why", "SELECT 7 AS a; -- why", "SELECT 7 AS a /* ; */ ;"])
def test_a_query_may_end_as_people_end_one(connection: duckdb.DuckDBPyConnection, tmp_path: Path, sql: str) -> None:
    write_table(connection, select_query(connection, sql), "csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "a\n7\n"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT 1; SELECT 2", "has 2 statements"),
        ("SELECT nothing FROM page_text", "does not exist"),
        ("DROP TABLE x", "DuckDB says"),
        ("FROM connection", "does not exist"),
    ],
)
def test_what_gives_no_rows_is_refused(connection: duckdb.DuckDBPyConnection, sql: str, said: str) -> None:
    with pytest.raises(UserInputError, match=said):
        select_query(connection, sql)


@pytest.mark.parametrize(("place", "ahead"), [("/lake", False), ("s3://lake", True)])
def test_files_are_read_ahead_where_that_saves_requests(tmp_path: Path, place: str, ahead: bool) -> None:
    with duckdb.connect() as opened:
        # the text of a view is looked at, not what it reads
        opened.execute(f"CREATE VIEW pages AS SELECT '{place}/part.parquet' AS path")
        bound_memory(opened, tmp_path)
        [(without,)] = opened.execute("SELECT current_setting('disable_parquet_prefetching')").fetchall()
    assert without is not ahead
