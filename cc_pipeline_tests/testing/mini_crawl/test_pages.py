"""The generated web: every kind of page, in charsets that can be read back, and keys as Common Crawl's."""

from __future__ import annotations

import gzip
import html
import re
from xml.etree import ElementTree

from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.testing.mini_crawl import DEMO, Capture
from cc_pipeline.testing.mini_crawl.archives import Servers
from cc_pipeline.testing.mini_crawl.bodies import INDEX_CHARSETS, LANGUAGES
from cc_pipeline.testing.mini_crawl.visits import CERTAIN_KINDS, plan_visits
from cc_pipeline_tests.testing.mini_crawl.conftest import ARC, NEW, OLD, Bucket

CODEC = {name: codec for codec, name in INDEX_CHARSETS.items()}


def body_of(bucket: Bucket, capture: Capture) -> bytes:
    data = (bucket.root / capture.warc_filename).read_bytes()
    start = capture.warc_record_offset
    member = gzip.decompress(data[start : start + capture.warc_record_length])
    end = member.index(b"\r\n\r\n", member.index(b"HTTP/1.")) + 4
    return member[end : end + capture.payload_length]


def test_the_smallest_preset_has_every_kind_and_status(bucket: Bucket) -> None:
    for crawl in (NEW, OLD):
        captures = bucket.truth.captures_of(crawl)
        assert {*CERTAIN_KINDS, "html", "robots"} == {capture.kind for capture in captures}
        assert {capture.fetch_status // 100 for capture in captures} == {2, 3, 4, 5}
        assert {capture.subset for capture in captures} == {"warc", "crawldiagnostics", "robotstxt"}
    assert {"html", "rss", "atom", "rdf", "robots", "pdf", "empty"} <= {c.kind for c in bucket.truth.captures_of(ARC)}


def test_duplicates_share_a_digest_and_empty_bodies_have_the_known_one(bucket: Bucket) -> None:
    captures = bucket.truth.captures_of(NEW, domain="example.com")
    duplicates = [capture for capture in captures if capture.kind == "duplicate"]
    assert len(duplicates) > 1 and len({capture.content_digest for capture in duplicates}) == 1
    empty = [capture for capture in captures if capture.kind == "empty"]
    assert {capture.content_digest for capture in empty} == {"3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"}
    revisits = [capture for capture in captures if capture.fetch_status == 304]
    assert revisits and all(capture.content_digest is None for capture in revisits)


def test_titles_can_be_read_back_in_the_charset_of_the_index(bucket: Bucket) -> None:
    charsets = set()
    for capture in bucket.truth.captures_of(NEW, subset="warc"):
        if capture.title and capture.content_charset:
            text = body_of(bucket, capture).decode(CODEC[capture.content_charset])
            found = re.search(r"<title>(.*?)</title>", text, re.DOTALL)
            assert found is not None and html.unescape(found[1]) == capture.title
            charsets.add(capture.content_charset)
    assert len(charsets) >= 2


def test_feeds_are_well_formed(bucket: Bucket) -> None:
    roots = set()
    for capture in bucket.truth.captures:
        if capture.kind in {"rss", "rdf", "atom"}:
            roots.add(ElementTree.fromstring(body_of(bucket, capture)).tag)
    assert roots == {
        "rss",
        "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}RDF",
        "{http://www.w3.org/2005/Atom}feed",
    }


def test_redirects_lead_to_absolute_urls(bucket: Bucket) -> None:
    targets = [capture.fetch_redirect for capture in bucket.truth.captures_of(NEW) if capture.fetch_redirect]
    assert targets and all(re.match(r"https?://", target) for target in targets)
    assert all(capture.fetch_redirect is None for capture in bucket.truth.captures_of(OLD))


def test_awkward_hosts_are_there() -> None:
    hosts = {visit.url.split("/")[2] for visit in plan_visits(DEMO, DEMO.crawl(NEW))}
    assert {"shop.example.com:8080", "192.0.2.17", "www.xn--mnchen-example-gsb.de", "kunst-example.museum"} <= hosts
    assert {"www.example.com", "example.com", "www.example-foo.com", "www.example.co.uk"} <= hosts


def test_keys_are_those_of_our_surt(bucket: Bucket) -> None:
    assert all(capture.url_surtkey == surt_key(capture.url) for capture in bucket.truth.captures)
    assert any(capture.url_surtkey.startswith("com,example,shop:8080)/") for capture in bucket.truth.captures)


def test_every_language_can_be_written_in_each_of_its_charsets() -> None:
    for language in LANGUAGES.values():
        for charset in language.charsets:
            assert charset in INDEX_CHARSETS
            for part in (*language.openings, *language.middles, *language.endings, language.stop):
                assert part.encode(charset, "xmlcharrefreplace")
                assert charset == "ascii" or part.encode(charset).decode(charset) == part


def test_answers_do_not_depend_on_the_order_of_questions() -> None:
    crawl = DEMO.crawl(NEW)
    visits = plan_visits(DEMO, crawl)[:60]
    forwards = [Servers(DEMO, crawl).answer(visit) for visit in visits]
    servers = Servers(DEMO, crawl)
    backwards = [servers.answer(visit) for visit in reversed(visits)]
    assert forwards == backwards[::-1]
