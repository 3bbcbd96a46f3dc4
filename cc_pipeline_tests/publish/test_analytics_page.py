"""docs/analytics.md: every macro is explained, every query answers, and that over the Delta tables gives the rows that
count."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.lake.target_definitions import delete_definitions
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "analytics.md").read_text("utf-8")
SECTIONS = re.findall(r"^## (\d+\. .+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.xdist_group("questions")


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_the_query_answers(in_views: duckdb.DuckDBPyConnection, title: str, text: str) -> None:
    [query] = re.findall(r"^```sql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert in_views.execute(query).fetchall(), title


def test_the_documented_query_gives_the_rows_that_count(bucket: Bucket, tmp_path: Path) -> None:
    query = re.search(r"```sql\n(WITH newest AS .*?)```", PAGE, re.DOTALL)
    assert query is not None
    workspace = harvested(bucket[0], tmp_path / "home", subsets=("warc", "robotstxt"))
    extract(workspace, "example.org", "example-foo.com", "host:www.example.com")
    delete_definitions(workspace.lake, ["example-foo.com"])
    with duckdb.connect() as connection:
        for table in ("slices", "targets", "captures"):
            files = str([*workspace.lake.pin(table).files])
            connection.execute(f"CREATE VIEW {table} AS FROM read_parquet({files}, hive_partitioning = true)")
        rows = connection.execute(f"SELECT crawl, target, warc_record_offset FROM ({query[1]})").fetchall()
    counting = workspace.lake.read("captures", {"crawl": NEW}).to_pylist()
    assert sorted(rows) == sorted((row["crawl"], row["target"], row["warc_record_offset"]) for row in counting)
    assert {"example.org", "example.org~robotstxt"} < {row[1] for row in rows}
    assert not any(row[1].startswith("example-foo.com") for row in rows)
