"""The generated web: every kind of page, and keys as Common Crawl's."""

from __future__ import annotations

from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.testing.mini_crawl import DEMO
from cc_pipeline.testing.mini_crawl.visits import CERTAIN_KINDS, plan_visits
from cc_pipeline_tests.testing.mini_crawl.conftest import ARC, NEW, OLD, Bucket


def test_the_smallest_preset_has_every_kind_and_status(bucket: Bucket) -> None:
    for crawl in (NEW, OLD):
        captures = bucket.truth.captures_of(crawl)
        assert {*CERTAIN_KINDS, "html", "robots"} == {capture.kind for capture in captures}
        assert {capture.fetch_status // 100 for capture in captures} == {2, 3, 4, 5}
        assert {capture.subset for capture in captures} == {"warc", "crawldiagnostics", "robotstxt"}
    assert {"html", "rss", "atom", "rdf", "robots", "pdf", "empty"} <= {c.kind for c in bucket.truth.captures_of(ARC)}


def test_awkward_hosts_are_there() -> None:
    hosts = {visit.url.split("/")[2] for visit in plan_visits(DEMO, DEMO.crawl(NEW))}
    assert {"shop.example.com:8080", "192.0.2.17", "www.xn--mnchen-example-gsb.de", "kunst-example.museum"} <= hosts
    assert {"www.example.com", "example.com", "www.example-foo.com", "www.example.co.uk"} <= hosts


def test_keys_are_those_of_our_surt(bucket: Bucket) -> None:
    assert all(capture.url_surtkey == surt_key(capture.url) for capture in bucket.truth.captures)
    assert any(capture.url_surtkey.startswith("com,example,shop:8080)/") for capture in bucket.truth.captures)
