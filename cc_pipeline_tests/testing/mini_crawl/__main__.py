"""Adds to a generated bucket what is published by host and a month of CC-NEWS, to try the pages about them:
``python -m cc_pipeline_tests.testing.mini_crawl BUCKET``."""

from __future__ import annotations

import sys
from pathlib import Path

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.extensions.host_facts.rank_text import parse_release
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import DEMO, MiniCrawlSpec
from cc_pipeline_tests.extensions.host_facts.graph import GraphSpec, write_graph
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, plain_hosts, write_keyed
from cc_pipeline_tests.testing.mini_crawl.news import NewsSpec, write_news


def write_more(bucket: Path, spec: MiniCrawlSpec = DEMO) -> None:
    """Makes the bucket of ``spec`` where it is not there yet, and adds to it."""
    truth, seed = ensure(bucket, spec), spec.seed
    release = parse_release("cc-main-2024-apr-may-jun")
    crawls = tuple(crawl for crawl in truth.crawls if crawl not in ARC_CRAWLS and truth.of(crawl))
    facts = KeyedSpec(crawls, seed)
    write_keyed(bucket, facts, truth.captures)
    hosts = dict.fromkeys(host for crawl in crawls for host in plain_hosts(facts, crawl))
    write_graph(bucket, GraphSpec(release, tuple(hosts), seed))
    news = write_news(bucket, NewsSpec(seed=seed)).truth
    for crawl in news.crawls:
        print(f"{crawl}: {len(news.captures)} captures of {len(news.domains())} domains, without an index")
    print(f"{release.name}: ranks of {len(hosts)} hosts; facts of the hosts in {', '.join(crawls)}")


if __name__ == "__main__":
    write_more(Path(sys.argv[1]))
