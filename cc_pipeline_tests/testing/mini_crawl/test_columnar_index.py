"""The Parquet index: the rows are the truth, and the files are of their era's kind."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cc_pipeline.testing.mini_crawl import CrawlSpec, MiniCrawlSpec, generate
from cc_pipeline_tests.testing.mini_crawl.conftest import NEW, OLD, Bucket


@pytest.mark.parametrize("crawl", [NEW, OLD])
def test_the_rows_are_exactly_the_captures(bucket: Bucket, crawl: str) -> None:
    rows = list(bucket.index_rows(crawl))
    truth = {(c.subset, c.warc_filename, c.warc_record_offset): c for c in bucket.truth.captures_of(crawl)}
    assert len(rows) == len(truth)
    for row in rows:
        capture = truth.pop((row["subset"], row["warc_filename"], row["warc_record_offset"]))
        for name in set(row) & set(type(capture).__slots__) - {"fetch_time"}:
            assert row[name] == getattr(capture, name), name
        assert row["fetch_time"].replace(tzinfo=None) == capture.fetch_time.replace(tzinfo=None)
    assert not truth


def test_the_new_era_has_statistics_a_page_index_and_sorted_parts(bucket: Bucket) -> None:
    for path in bucket.index_files(NEW):
        metadata = pq.read_metadata(path)
        keys = pq.read_table(path, columns=["url_surtkey"])["url_surtkey"].combine_chunks()
        assert pc.all(pc.less_equal(keys[:-1], keys[1:]), min_count=0).as_py()
        for number in range(metadata.num_row_groups):
            column = metadata.row_group(number).column(0)
            assert column.statistics.has_min_max and column.compression == "GZIP"
            assert column.has_column_index and column.has_offset_index
    assert any(pq.read_metadata(path).num_row_groups > 1 for path in bucket.index_files(NEW, "warc"))


def test_the_2018_era_has_neither_and_its_row_groups_overlap(bucket: Bucket) -> None:
    for path in bucket.index_files(OLD):
        metadata = pq.read_metadata(path)
        for number in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                assert metadata.row_group(number).column(column).statistics is None
                assert not metadata.row_group(number).column(column).has_column_index
    for path in bucket.index_files(OLD, "warc"):
        file = pq.ParquetFile(path)
        groups = [
            file.read_row_group(number, columns=["url_surtkey"])["url_surtkey"].to_pylist()
            for number in range(file.num_row_groups)
        ]
        assert len(groups) > 1
        assert all(min(later) < max(earlier) for earlier, later in pairwise(groups))
        merged = [key for group in groups for key in group]
        assert merged[::2] == sorted(merged[::2]) and merged != sorted(merged)


def test_a_2026_crawl_has_a_record_id_and_columns_nobody_knows(tmp_path: Path) -> None:
    crawl = CrawlSpec("CC-MAIN-2026-30", record_ids=True, protocols=True, extra_columns=("content_novelty",))
    spec = MiniCrawlSpec(pages=30, sites=3, crawls=(crawl,))
    truth = generate(tmp_path / "bucket", spec)
    tables = [pq.ParquetFile(path).read() for path in (tmp_path / "bucket").rglob("*.parquet")]
    table = pa.concat_tables(tables)
    names = table.schema.names
    assert names[names.index("content_truncated") + 1] == "warc_record_id" and names[-1] == "content_novelty"
    ids = {value.hex() for value in table["warc_record_id"].to_pylist()}
    assert ids == {(capture.warc_record_id or "").replace("-", "") for capture in truth.captures}
    assert all(value[12] == "7" for value in ids)
    shards = sorted((tmp_path / "bucket").rglob("cdx-*.gz"))
    lines = [line for shard in shards for line in gzip.decompress(shard.read_bytes()).splitlines()]
    values = {row["url"]: row["content_novelty"] for row in table.to_pylist()}
    assert len(lines) == table.num_rows
    for line in lines:
        document = json.loads(line.split(b" ", 2)[2])
        assert document["content-novelty"] == values[document["url"]]
