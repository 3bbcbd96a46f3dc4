"""Lookups in crawls with keys of either rule, of URLs with every kind of escape, against all rows there are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cc_pipeline.commoncrawl.crawls import key_rule
from cc_pipeline.commoncrawl.paths import path_list_key
from cc_pipeline.commoncrawl.surt import KeyRule, surt_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.index.lookup import IndexSources, look_up
from cc_pipeline.testing.mini_crawl.indexes import write_columnar, write_zipnum
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec, gzip_member
from cc_pipeline.testing.mini_crawl.truth import Capture, MiniCrawlTruth
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.index.lookup_world import World, harvest_world

LAST_BEFORE, FIRST_AFTER = "CC-MAIN-2024-51", "CC-MAIN-2025-05"
#: Escapes by kind: an Arabic site of Windows-1256, one of KOI8-R, text that begins as UTF-8 and ends as something else.
TAILS = {
    "not UTF-8": "/tags/%C3%CE%CA%C7.htm",
    "not UTF-8, lower": "/tags/%c3%ce%ca%c7.htm",
    "not UTF-8, in a query": "/list?tag=%E4%EE%F8&a=%c3%a9&%E4=1",
    "escaped twice": "/tags/%25C3%25CE",
    "escaped three times": "/a/%2525E9",
    "UTF-8": "/caf%C3%A9",
    "UTF-8, lower": "/caf%c3%a9/",
    "UTF-8, escaped twice": "/caf%25C3%25A9",
    "half a character": "/caf%C3",
    "half a character, then more": "/caf%C3%BA%C3",
    "both": "/x/%E2%82%AC%E2%82",
    "no escape": "/a%zz%",
    "an escaped percent": "/100%25",
    "plain": "/Plain?b=2&a=1",
}
HOSTS = (
    "forum.example.com", "www.example.com", "www.www2.example.com", "www.www.com", "www1355.com", "a.www.example.com",
    "b\u00fccher.example.de", "xn--bcher-kva.example.de", "пример.example.org",
)  # fmt: skip


URLS = [f"http{'s' * (number % 2)}://{host}{tail}" for host in HOSTS for number, tail in enumerate(TAILS.values())]


def _captures(crawl: str) -> list[Capture]:
    template = Capture(
        crawl, "warc", "warc", "html", "example.com", "", "", datetime(2024, 12, 1, tzinfo=UTC), 200, None, "A" * 32,
        "text/html", "text/html", None, None, None, f"crawl-data/{crawl}/segments/1.2/warc/f.warc.gz", 0, 100, "1.2",
        None, "A" * 32, 9, None, None,
    )  # fmt: skip
    return [
        replace(template, url=url, url_surtkey=surt_key(url, key_rule(crawl)), warc_record_offset=100 * number)
        for number, url in enumerate(URLS)
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("keys")
    root = home / "bucket"
    specs = [CrawlSpec(id, parts=3, row_group_rows=9, zipnum_lines=6) for id in (LAST_BEFORE, FIRST_AFTER)]
    spec = MiniCrawlSpec(crawls=tuple(specs))
    captures = [capture for crawl in specs for capture in _captures(crawl.id)]
    for crawl in specs:
        own = [capture for capture in captures if capture.crawl == crawl.id]
        lists = {
            "cc-index-table": write_columnar(root, spec, crawl, own),
            "cc-index": write_zipnum(root, spec, crawl, own),
        }
        for name, keys in lists.items():
            file = root / path_list_key(crawl.id, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(gzip_member("".join(f"{key}\n" for key in keys).encode()))
    truth = MiniCrawlTruth(0, (LAST_BEFORE, FIRST_AFTER), tuple(captures))
    return harvest_world(root, home, truth, [LAST_BEFORE, FIRST_AFTER])


def _targets() -> list[Target]:
    """Pages, beginnings of pages that end anywhere in an escape, hosts, domains and reversed names."""
    texts = [f"{kind}:{url}" for url in URLS for kind in ("url", "prefix")]
    texts += [f"prefix:{url[:-length]}" for url in URLS[: 3 * len(TAILS)] for length in (3, 6)]
    for host in (*HOSTS, "example.com", "www.example.com"):
        name = host.encode("idna").decode()
        texts += [f"host:{name}", name, "rev:" + ".".join(reversed(name.split(".")))]
    return [*{target.slug: target for target in map(parse_target, texts)}.values()]


@pytest.mark.parametrize("via", ["zipnum", "parquet"])
@pytest.mark.parametrize("crawl", [LAST_BEFORE, pytest.param(FIRST_AFTER, marks=pytest.mark.matrix)])
def test_every_look_up_finds_the_captures_that_its_target_matches(world: World, crawl: str, via: str) -> None:
    targets = _targets()
    assert len(targets) > 200
    with Transport(str(world.root)) as transport:
        sources = IndexSources(transport, catalog=world.catalog, footers=world.home / "footers")
        answers = look_up(crawl, ["warc"], targets, sources, via=via).captures
        alone = {t.slug: look_up(crawl, ["warc"], [t], sources, via=via).captures[t.slug] for t in targets[::40]}
    for target in targets:
        expected = [100 * number for number, url in enumerate(URLS) if target.matches(url)]
        assert expected or target.kind != "url"
        for answer in (answers, alone):
            if target.slug in answer:
                assert sorted(answer[target.slug]["warc_record_offset"].to_pylist()) == expected, target.definition


def test_the_rule_is_that_of_the_index() -> None:
    assert [key_rule(crawl) for crawl in ("CC-MAIN-2013-20", LAST_BEFORE, FIRST_AFTER, "CC-MAIN-2026-34")] == [
        KeyRule.UNTIL_2024, KeyRule.UNTIL_2024, KeyRule.TODAY, KeyRule.TODAY,
    ]  # fmt: skip
    assert key_rule("CC-MAIN-2012", "zipnum") is KeyRule.UNTIL_2024
    # indexes that are built here, and rows of trees, have keys of today
    for crawl, index in (("CC-NEWS-2017-05", "parquet"), ("LOCAL-mine", "parquet"), ("CC-MAIN-2012", "btree")):
        assert key_rule(crawl, index) is KeyRule.TODAY
