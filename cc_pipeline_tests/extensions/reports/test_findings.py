"""Whose rows a report asks for, of a file with a few rows."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from cc_pipeline.extensions.reports.findings import _consent, _Queries, _target_scope


@pytest.fixture
def published() -> Iterator[duckdb.DuckDBPyConnection]:
    """Four captures of the target ``own``: of two domains, of none, and one that its condition rules out."""
    with duckdb.connect() as connection:
        capture = "'C' AS crawl, 'f' AS warc_filename, number AS warc_record_offset"
        connection.execute("CREATE TABLE rows AS SELECT unnest(range(6)) AS number")
        domain = "['a.example', 'b.example', NULL, 'a.example', 'a.example', 'c.example'][number + 1] AS domain"
        for table in ("captures", "page_metadata"):
            connection.execute(f"CREATE TABLE {table} AS SELECT {capture}, {domain} FROM rows")
        connection.execute(
            f"CREATE TABLE capture_targets AS SELECT {capture}, if(number < 4, 'own', 'other') AS target, "
            "CASE number WHEN 0 THEN 'yes' WHEN 3 THEN 'no' END AS condition_match FROM rows"
        )
        yield connection


def offsets(connection: duckdb.DuckDBPyConnection, rows: str) -> list[int]:
    return [number for (number,) in connection.execute(f"SELECT warc_record_offset FROM {rows} ORDER BY 1").fetchall()]


def test_a_target_is_its_captures_and_no_pages_that_its_condition_rules_out(
    published: duckdb.DuckDBPyConnection,
) -> None:
    scope, domains = _target_scope(published, "own")
    # captures that a person added may have no domain
    assert offsets(published, scope("captures")) == [0, 1, 2, 3]
    assert offsets(published, scope("page_metadata")) == [0, 1, 2]
    assert sorted(domains) == ["a.example", "b.example"]


def test_what_robots_were_asked_is_told_where_the_file_has_it(published: duckdb.DuckDBPyConnection) -> None:
    ask = _Queries(published, {})
    assert _consent(ask, ["a.example"]) == [], "no extension has written such a macro"
    published.execute(
        "CREATE TABLE site_policies AS FROM (VALUES ('www.a.example', 'a.example'), ('b.example', 'b.example'), "
        "('c.example', 'c.example')) rows(host, domain)"
    )
    published.execute(
        "CREATE MACRO consent_timeline(site := NULL) AS TABLE SELECT 'https' AS scheme, host, number AS last_seen "
        "FROM site_policies, (SELECT unnest([1, 2]) AS number) WHERE site IS NULL OR domain = site"
    )
    one, both = _consent(ask, ["a.example"]), _consent(ask, ["a.example", "b.example"])
    assert [(row["host"], row["last_seen"]) for row in one] == [("www.a.example", 2), ("www.a.example", 1)]
    assert [row["host"] for row in both] == ["b.example", "www.a.example"] * 2
    assert ask.totals["consent"] == 4
    assert _consent(ask, []) == []
