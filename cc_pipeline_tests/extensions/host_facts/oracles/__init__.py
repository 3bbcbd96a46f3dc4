"""Frozen rows of data by host: two data sets keyed by host, and ranks, in the larger mini crawl."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cc_pipeline.extensions.host_facts.rank_text import parse_release
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.extensions.host_facts.graph import GraphSpec, write_graph
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, plain_hosts, write_keyed
from cc_pipeline_tests.oracles.additions import Addition, Run
from cc_pipeline_tests.world import NEW, OLD

_RELEASE: Final = "cc-main-2024-apr-may-jun"


def write_sources(bucket: Path, truth: MiniCrawlTruth) -> None:
    """Data keyed by host of two crawls, and a web graph with their hosts."""
    facts = KeyedSpec((NEW, OLD))
    write_keyed(bucket, facts, truth.captures)
    hosts = dict.fromkeys(host for crawl in facts.crawls for host in plain_hosts(facts, crawl))
    write_graph(bucket, GraphSpec(parse_release(_RELEASE), tuple(hosts)))


def fill(run: Run, truth: MiniCrawlTruth) -> None:
    """Ranks, and the data of some domains."""
    run("facts", "ranks", _RELEASE, "--yes")
    run("facts", "show", *truth.domains()[:5], "--crawl", NEW, "--keep", "--format", "csv")


ADDITION = Addition(write_sources=write_sources, fill=fill)
