"""Frozen rows of policies: robots.txt that change, in the larger mini crawl."""

from __future__ import annotations

from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.oracles.additions import Addition, Run
from cc_pipeline_tests.world import NEW, OLD


def fill(run: Run, truth: MiniCrawlTruth) -> None:
    """Policies of all domains in two crawls."""
    for crawl in (NEW, OLD):
        found = [domain for domain in truth.domains() if truth.captures_of(crawl, domain=domain)]
        run("policies", *found, "--crawl", crawl, "--yes", "--format", "csv")


ADDITION = Addition(fill=fill)
