"""A generator of small, faithful Common Crawl buckets, for the demo, the tests and the benchmarks."""

from cc_pipeline.testing.mini_crawl.generate import ensure, generate, truth_path
from cc_pipeline.testing.mini_crawl.spec import DEMO, PRESETS, TEST, CrawlSpec, MiniCrawlSpec, spec_for
from cc_pipeline.testing.mini_crawl.truth import Capture, MiniCrawlTruth

__all__ = [
    "DEMO",
    "PRESETS",
    "TEST",
    "Capture",
    "CrawlSpec",
    "MiniCrawlSpec",
    "MiniCrawlTruth",
    "ensure",
    "generate",
    "spec_for",
    "truth_path",
]
