"""Two crawls with keys of either rule, of sites whose URLs escape bytes that are no UTF-8: a page of both is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.testing.mini_crawl import visits
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline_tests.world import Bucket, extract, publish, workspace_of

BEFORE, AFTER = "CC-MAIN-2024-22", "CC-MAIN-2025-13"
SITE = "example.com"
SPEC = MiniCrawlSpec(
    pages=40,
    sites=4,
    crawls=tuple(
        CrawlSpec(crawl, coverage=1, segments=1, files_per_segment=1, parts=1, row_group_rows=200, zipnum_lines=15)
        for crawl in (AFTER, BEFORE)
    ),
)


def path(index: int, style: int, drawn: int) -> str:
    """Windows-1251 in paths and queries, which other values stand beside."""
    return f"/tags/%C3%CE%CA-{index}.htm" if style % 2 else f"/list?tag=%E4%EE&%C3%A9={index}&id={index}"


@pytest.fixture(scope="module")
def escaped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    root = tmp_path_factory.mktemp("escaped") / "bucket"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(visits, "_path", path)
        yield root, ensure(root, SPEC)


def test_a_page_of_two_crawls_is_one(escaped: Bucket, tmp_path: Path) -> None:
    workspace = workspace_of(escaped[0], tmp_path, index="zipnum")
    for crawl in (BEFORE, AFTER):
        extract(workspace, SITE, crawl=crawl)
    publish(workspace)
    truth = {
        crawl: {surt_key(one.url) for one in escaped[1].captures_of(crawl, subset="warc", domain=SITE)}
        for crawl in (BEFORE, AFTER)
    }
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as published:
        for table in ("captures", "records", "page_metadata", "page_text", "page_links"):
            rows = published.execute(
                f"SELECT url, url_surtkey FROM {table} WHERE url LIKE '%\\%%' ESCAPE '\\'"
            ).fetchall()
            assert rows, table
            assert [url for url, key in rows if key != surt_key(url)] == []
        told = published.execute(
            f"SELECT change, url_surtkey FROM changes_between('{BEFORE}', '{AFTER}', '{SITE}')"
        ).fetchall()
        [(seen,)] = published.execute(f"SELECT sum(new_pages) FROM timeline('{SITE}')").fetchall()
    kinds: dict[str, set[str]] = {}
    for change, key in told:
        kinds.setdefault(change, set()).add(key)
    assert kinds.get("new", set()) <= truth[AFTER] - truth[BEFORE]
    assert kinds.get("gone", set()) <= truth[BEFORE] - truth[AFTER]
    both = kinds.get("same", set()) | kinds.get("changed", set())
    assert len([key for key in both if "%e4" in key or "%c3%ce" in key]) > 5
    assert seen <= len(truth[BEFORE] | truth[AFTER])
