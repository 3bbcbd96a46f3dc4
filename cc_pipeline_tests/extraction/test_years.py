"""Crawls of several years through their ZipNum index as it was written then: the pages that are there come."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline_tests.world import Bucket, extract, workspace_of

YEARS = (
    "2026-34", "2024-51", "2019-47", "2015-48", "2015-40", "2015-11", "2015-06", "2014-52", "2014-49",
)  # fmt: skip
WITHOUT_STATUS = {"2015-11", "2015-06"}
SITE = "example.com"


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    root = tmp_path_factory.mktemp("years") / "bucket"
    crawls = tuple(
        CrawlSpec(f"CC-MAIN-{year}", segments=1, parts=1, zipnum_lines=15, record_ids=year == "2026-34")
        for year in YEARS
    )
    return root, ensure(root, MiniCrawlSpec(pages=60, sites=4, crawls=crawls))


@pytest.mark.matrix
@pytest.mark.parametrize("year", YEARS)
def test_the_pages_of_a_year_come(years: Bucket, tmp_path: Path, year: str) -> None:
    crawl = f"CC-MAIN-{year}"
    workspace = workspace_of(years[0], tmp_path, index="zipnum")
    located, fetched, parsed = extract(workspace, SITE, crawl=crawl)
    truth = {
        (c.warc_filename, c.warc_record_offset): c for c in years[1].captures_of(crawl, subset="warc", domain=SITE)
    }
    assert (located.notes, fetched.notes) == (("index: zipnum, as requested",), ())
    captures = workspace.lake.read("captures").to_pylist()
    assert {(row["warc_filename"], row["warc_record_offset"]) for row in captures} == truth.keys() != set()
    assert fetched.per_target[SITE]["fetched"] == parsed.rows == len(truth)
    for row in captures:
        capture = truth[row["warc_filename"], row["warc_record_offset"]]
        assert row["fetch_status"] == (None if year in WITHOUT_STATUS else capture.fetch_status)
        record_id = capture.warc_record_id
        assert row["warc_record_id"] == (None if record_id is None else uuid.UUID(record_id).bytes)
