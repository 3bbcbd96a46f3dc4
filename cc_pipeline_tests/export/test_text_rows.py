"""Rows as CSV and JSON lines: the bytes that DuckDB itself writes, an end for each query, and no memory for rows."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cc_pipeline.export.text_rows import write_text

LATE = "SELECT CASE WHEN i < 100000 THEN i ELSE error('late') END FROM range(100001) t(i)"
#: Of each kind of value one that is there and one that is not.
KINDS = """
    SELECT i::TINYINT AS a, i / 7 AS b, i::HUGEINT * 1e15::HUGEINT AS c, i % 2 = 0 AS d, DATE '2001-01-31' AS e,
    TIMESTAMP '2001-01-01 01:02:03.5' AS f, TIMESTAMPTZ '2001-01-01 01:02:03' AS g, [i, NULL] AS h,
    {'a': i, 'b': 'x"'} AS j, MAP {'k,': i} AS k, (i / 3)::DECIMAL(10, 2) AS l, to_seconds(i) AS m,
    '{"a": [1]}'::JSON AS n, TIME '12:00:01' AS o, '0101'::BIT AS p, 'nan'::DOUBLE AS q, '-inf'::FLOAT AS r, NULL AS s,
    nullif(i, 2) AS a, 'v'::ENUM ('u', 'v') AS "t,""!", '' AS u, uuid() IS NULL AS w FROM range(5) t(i)
"""
TEXTS = st.one_of(st.none(), st.text(st.sampled_from(list("a,\"\n\r'# \t\\é漢;|0\x00=")), max_size=5), st.text())


@pytest.fixture(name="duck")
def duck_() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def written(duck: duckdb.DuckDBPyConnection, query: str, format: str) -> bytes:
    stream = io.BytesIO()
    rows = write_text(duck, query, format, stream)
    assert duck.execute(f"SELECT count(*) FROM ({query})").fetchall() == [(rows,)]
    return stream.getvalue()


@pytest.mark.parametrize(("format", "options"), [("csv", "FORMAT csv, HEADER"), ("jsonl", "FORMAT json")])
@pytest.mark.parametrize("query", [KINDS, f"{KINDS} LIMIT 0", "SELECT NULL AS x", "SELECT 1 -- one"])
def test_bytes_are_those_of_duckdb(
    duck: duckdb.DuckDBPyConnection, tmp_path: Path, format: str, options: str, query: str
) -> None:
    duck.execute(f"COPY ({query}\n) TO '{tmp_path}/rows' ({options})")
    assert written(duck, f"{query}\n", format) == (tmp_path / "rows").read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
def test_texts_come_back(duck: duckdb.DuckDBPyConnection, texts: list[str | None]) -> None:
    duck.execute("CREATE OR REPLACE TABLE rows (place INTEGER, text VARCHAR)")
    duck.executemany("INSERT INTO rows VALUES (?, ?)", list(enumerate(texts)))
    as_csv, as_json = (written(duck, "FROM rows ORDER BY place", format) for format in ("csv", "jsonl"))
    back = csv.reader(io.StringIO(as_csv.decode(), newline=""))
    assert list(back)[1:] == [[str(place), text or ""] for place, text in enumerate(texts)]
    assert [json.loads(line)["text"] for line in as_json.splitlines()] == texts
    empty = [text for text in texts if not text]
    assert as_csv.count(b',""\n') >= sum(text == "" for text in empty), "an empty text is not a missing one"


def test_a_row_that_fails_late_ends_the_query() -> None:
    # COPY waits for itself for ever once in some fifty tries, with several threads
    with duckdb.connect(config={"threads": 4}) as duck:
        for _ in range(200):
            with pytest.raises(duckdb.InvalidInputException, match="late"):
                write_text(duck, LATE, "csv", io.BytesIO())


def test_a_stream_that_refuses_ends_the_query(duck: duckdb.DuckDBPyConnection) -> None:
    class Full(io.BytesIO):
        def writelines(self, lines: object) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_text(duck, "FROM range(1000000000000)", "jsonl", Full())
    assert duck.execute("SELECT 1").fetchall() == [(1,)]


def test_a_wide_row_is_not_copied_for_each_of_its_columns() -> None:
    # 84 MB of rows, of which DuckDB holds 2,048 at a time
    asked = ", ".join(
        ["repeat(chr(97 + (i % 26)::INTEGER), 20000) AS page", *(f"i AS c{number}" for number in range(60))]
    )
    program = (
        "import sys\nfrom cc_pipeline.export.text_rows import write_text\nfrom cc_pipeline.duck import connect\n"
        "from cc_pipeline_tests.peak import own_peak\n"
        "duck, before = connect(threads='1'), own_peak()\n"
        "with open('/dev/null', 'wb') as out:\n"
        "    print(write_text(duck, sys.argv[1], 'csv', out), (own_peak() - before) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"SELECT {asked} FROM range(4096) t(i)"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows, more_mb = map(int, done.stdout.split())
    assert rows == 4096
    assert more_mb < 500
