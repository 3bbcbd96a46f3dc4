"""Adds a month of CC-NEWS to a generated bucket, to try the pages about it:
``python -m cc_pipeline_tests.testing.mini_crawl BUCKET``."""

from __future__ import annotations

import sys
from pathlib import Path

from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import DEMO, MiniCrawlSpec
from cc_pipeline_tests.testing.mini_crawl.news import NewsSpec, write_news


def write_more(bucket: Path, spec: MiniCrawlSpec = DEMO) -> None:
    """Makes the bucket of ``spec`` where it is not there yet, and adds to it."""
    ensure(bucket, spec)
    news = write_news(bucket, NewsSpec(seed=spec.seed)).truth
    for crawl in news.crawls:
        print(f"{crawl}: {len(news.captures)} captures of {len(news.domains())} domains, without an index")


if __name__ == "__main__":
    write_more(Path(sys.argv[1]))
