"""Keys of the 2012 index, both ways, against the published one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.key_ranges import btree_key, url_of_btree_key
from cc_pipeline_tests.corpus import CORPUS, needs_corpus


def block_keys(block: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(block) and (end := block.find(b"\0", at)) > at:
        yield block[at:end]
        at = end + 1 + 32


@needs_corpus
def test_all_real_keys_survive_the_way_to_a_url_and_back() -> None:
    folder = CORPUS / "pbtree_url_index"
    rows = gzip.decompress((folder / "umd_real_lookup/edu.umd.first.txt.gz").read_bytes()).splitlines()
    keys = [row.partition(b" {")[0] for row in rows]
    assert len(keys) == 20_000
    for name in ("block0", "block3"):
        keys += block_keys((folder / f"centic9_real_blocks/{name}.bin").read_bytes())
    assert len(keys) > 21_600
    assert [key for key in keys if btree_key(url_of_btree_key(key)) != key] == []


@needs_corpus
def test_the_keys_of_the_real_bucket_and_the_urls_its_arc_files_have() -> None:
    rows = json.loads(gzip.decompress((CORPUS / "realcrawl/expected.json.gz").read_bytes()))["CC-MAIN-2012"]
    assert len(rows) == 261
    assert [key for key, _, url, _ in rows if url_of_btree_key(key.encode()) != url] == []
    assert [url for key, _, url, _ in rows if btree_key(url) != key.encode()] == []


@needs_corpus
def test_published_pairs() -> None:
    for pair in json.loads((CORPUS / "pbtree_url_index/extracted_vectors/key_to_url.json").read_text()):
        # the source of the pairs resolves %27 on top
        assert url_of_btree_key(pair["key"].encode()).replace("%27", "'") == pair["url"]
    lines = (CORPUS / "pbtree_url_index/trivio/lib/sorted_urls").read_text().splitlines()
    assert [url for url in lines if url_of_btree_key(btree_key(url)) != url] == []


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://www.example.com/", "com.example.www/:http"),
        ("https://Example.COM", "com.example/:https"),
        ("http://München.de/", "de.xn--mnchen-3ya/:http"),
        ("http://example.com./", ".com.example/:http"),
        ("http://example.com?q", "com.example/?q:http"),
        ("http://example.com:8088/A?b=c:d", "com.example/A?b=c:d:8088:http"),
        ("http://167.86.200.110/x", "110.200.86.167/x:http"),
        ("http://1234:pass@www.example.com/x", "1234/x:pass@www.example.com:http"),
        ("http://example.com/wiki/1942:_x", "com.example/wiki/1942:_x:http"),
        ("http://example.com/view/page:12", "com.example/view/page:12:http"),
        ("http://example.com/mailto:joe@example.org", "com.example/mailto:joe@example.org:http"),
        ("http://1.2.3.4:8/a.css", "4.3.2.1/a.css:8:http"),
    ],
)
def test_forms(url: str, key: str) -> None:
    assert btree_key(url) == key.encode()
    back = url_of_btree_key(key.encode())
    assert back == url or btree_key(back) == key.encode()


@pytest.mark.parametrize(
    ("key", "url"),
    [
        (b"com.example/page:79:http", "http://example.com/page:79"),
        (b"com.example/page:80:http", "http://example.com:80/page"),
        (b"com.example/7.a:79:http", "http://example.com:79/7.a"),
        (b"4.3.2.1/page:79:http", "http://1.2.3.4:79/page"),
        (b"com.example/a:65535:http", "http://example.com:65535/a"),
        (b"com.example/a:65536:http", "http://example.com/a:65536"),
        (b"com.example/a:0:http", "http://example.com/a:0"),
        (b"4.3.2.1/a:1:http", "http://1.2.3.4:1/a"),
        (b"1234/:pass@www.example.com:http", "http://1234:pass@www.example.com/"),
        (b"1234/a:b@c?q:pass@www.example.com:http", "http://1234:pass@www.example.com/a:b@c?q"),
        (b"1234/x/y:pass@www.example.com:http", "http://1234:pass@www.example.com/x/y"),
    ],
)
def test_numbers_and_logins_at_the_end_of_a_key(key: bytes, url: str) -> None:
    assert url_of_btree_key(key) == url


def test_characters_that_no_text_has() -> None:
    for character, written in (
        ("\ud800", b"\xed\xa0\x80"),
        ("\udfff", b"\xed\xbf\xbf"),
        ("\udc80", b"\x80"),
        ("\udcff", b"\xff"),
    ):
        assert btree_key(f"http://example.com/{character}") == b"com.example/%s:http" % written


def test_what_a_url_cannot_be_without() -> None:
    assert btree_key("example.com/x") == b"com.example/x:http"
    assert btree_key("http://example.com/x#part") == b"com.example/x:http"
    assert btree_key("http://example.com/\0") == b"com.example/%00:http"
    assert btree_key("HTTP:/example.com/a") == btree_key("http:example.com/a") == b"com.example/a:http"
    assert url_of_btree_key(b"a") == "http://a"


HOST = st.lists(st.text(alphabet="abW1-_", min_size=1, max_size=4), min_size=1, max_size=3).map(".".join)


@given(
    st.sampled_from(["http", "https"]),
    st.sampled_from(["com", "org", "xn--p1ai"]),
    HOST,
    st.sampled_from(["", ":80", ":8080", ":65535"]),
    st.text(alphabet="abB/?=&:@.~%12", max_size=12),
)
def test_key_url_key(scheme: str, tld: str, host: str, port: str, tail: str) -> None:
    key = btree_key(f"{scheme}://{host}.{tld}{port}/{tail}")
    assert btree_key(url_of_btree_key(key)) == key
