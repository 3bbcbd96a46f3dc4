"""Adds to a generated bucket what is published by host, to try the page about it:
``python -m cc_pipeline_tests.extensions.host_facts BUCKET``."""

from __future__ import annotations

import sys
from pathlib import Path

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.extensions.host_facts.rank_text import parse_release
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import DEMO, MiniCrawlSpec
from cc_pipeline_tests.extensions.host_facts.graph import GraphSpec, write_graph
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, plain_hosts, write_keyed


def write_hosts(bucket: Path, spec: MiniCrawlSpec = DEMO) -> None:
    """Makes the bucket of ``spec`` where it is not there yet, and adds to it."""
    truth, seed = ensure(bucket, spec), spec.seed
    release = parse_release("cc-main-2024-apr-may-jun")
    crawls = tuple(crawl for crawl in truth.crawls if crawl not in ARC_CRAWLS and truth.captures_of(crawl))
    facts = KeyedSpec(crawls, seed)
    write_keyed(bucket, facts, truth.captures)
    hosts = dict.fromkeys(host for crawl in crawls for host in plain_hosts(facts, crawl))
    write_graph(bucket, GraphSpec(release, tuple(hosts), seed))
    print(f"{release.name}: ranks of {len(hosts)} hosts; facts of the hosts in {', '.join(crawls)}")


if __name__ == "__main__":
    write_hosts(Path(sys.argv[1]))
