"""The query for programs that read the Delta tables without ``cc.duckdb``."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from cc_pipeline.lake.target_definitions import change_subset_epoch, delete_definitions
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested

PAGE = Path(__file__).parents[2] / "docs" / "analytics.md"


def test_the_documented_query_gives_the_rows_that_count(bucket: Bucket, tmp_path: Path) -> None:
    query = re.search(r"```sql\n(WITH newest AS .*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert query is not None
    workspace = harvested(bucket[0], tmp_path / "home", subsets=("warc", "robotstxt"))
    extract(workspace, "example.org", "example-foo.com", "host:www.example.com")
    change_subset_epoch(workspace.lake, "example.org", "robotstxt")
    delete_definitions(workspace.lake, ["example-foo.com"])
    extract(workspace, "example.org")
    with duckdb.connect() as connection:
        for table in ("slices", "targets", "captures"):
            files = str([*workspace.lake.pin(table).files])
            connection.execute(f"CREATE VIEW {table} AS FROM read_parquet({files}, hive_partitioning = true)")
        rows = connection.execute(f"SELECT crawl, target, warc_record_offset FROM ({query[1]})").fetchall()
    counting = workspace.lake.read("captures", {"crawl": NEW}).to_pylist()
    assert sorted(rows) == sorted((row["crawl"], row["target"], row["warc_record_offset"]) for row in counting)
    assert {"example.org", "example.org~robotstxt"} < {row[1] for row in rows}
    assert not any(row[1].startswith("example-foo.com") for row in rows)
