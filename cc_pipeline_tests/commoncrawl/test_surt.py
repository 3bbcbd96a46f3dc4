"""Keys against real index rows, known rules, and hostile text."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.surt import surt_host, surt_key, unescape_fully
from cc_pipeline_tests.corpus import CORPUS, needs_corpus


def cdxj_pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, _, rest = line.partition(" ")
        brace = rest.find("{")
        if brace > 0:
            yield json.loads(rest[brace:])["url"], key


def recorded_answer_pairs() -> Iterator[tuple[str, str]]:
    for path in sorted((CORPUS / "cc_index" / "cdx_toolkit").rglob("*.jsonl")):
        for exchange in path.read_text().splitlines():
            for line in (json.loads(exchange).get("response_text") or "").splitlines():
                if line.startswith("{") and '"urlkey"' in line:
                    row = json.loads(line)
                    yield row["url"], row["urlkey"]


@needs_corpus
def test_every_real_pair_of_the_corpus() -> None:
    rows = json.loads((CORPUS / "url_surt_psl/extracted_vectors/cc_cdxj_url_to_surt.json").read_text())
    pairs = [(row["url"], row["surt"]) for row in rows]
    assert len(pairs) == 686
    pairs += cdxj_pairs((CORPUS / "cc_index/preciz/index_snippet").read_text())
    pairs += recorded_answer_pairs()
    old_lines = (CORPUS / "url_surt_psl/openwayback/test-cdx.txt").read_text().splitlines()
    pairs += [(line.split(" ")[2], line.split(" ")[0]) for line in old_lines]
    assert len(pairs) > 1800
    assert [(url, surt_key(url), key) for url, key in pairs if surt_key(url) != key] == []


@needs_corpus
@pytest.mark.parametrize("crawl", ["CC-MAIN-2024-22", "CC-MAIN-2018-05"])
def test_every_row_of_the_real_bucket(crawl: str) -> None:
    rows = json.loads(gzip.decompress((CORPUS / "realcrawl/expected.json.gz").read_bytes()))[crawl]
    assert [row["url"] for row in rows if surt_key(row["url"]) != row["url_surtkey"]] == []


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://www.Example.com/", "com,example)/"),
        ("https://example.com:443", "com,example)/"),
        ("https://example.com:80/", "com,example:80)/"),
        ("http://user:pw@www17.example.com:8080/A/", "com,example:8080)/a"),
        ("http://www.www.example.com/", "com,example,www)/"),
        ("http://www.com/", "com)/"),
        ("http://wwwx.com/", "com,wwwx)/"),
        ("http://192.168.1.2:8080/", "2,1,168,192:8080)/"),
        ("http://7...7/", "7,,7)/"),
        ("http://3279880203/blah", "11,0,127,195)/blah"),
        ("http://010.1.1.1/", "1,1,1,8)/"),
        ("http://[2001:db8::1]:8080/a", "2001:db8::1:8080)/a"),
        ("http://münchen.de/é?é", "de,xn--mnchen-3ya)/%c3%a9?%c3%a9"),
        ("http://m%C3%BCnchen.de/", "de,xn--mnchen-3ya)/"),
        ("http://example.com/a/?", "com,example)/a"),
        ("http://example.com?b&a=2&a=1&a", "com,example)/?a&a=1&a=2&b"),
        ("http://example.com/a?a=1&a-b=1&a%20b=1", "com,example)/a?a=1&a%20b=1&a-b=1"),
        ("http://example.com/a//b/./c/../d#frag", "com,example)/a/b/d"),
        ("http://example.com/a//../b", "com,example)/a/b"),
        ("http://example.com/../x", "com,example)/../x"),
        ("http://example.com/%2525%7e%zz", "com,example)/%25~%25zz"),
        ("http://example.com/x;jsessionid=0123456789abcdef0123456789ABCDEF", None),
        ("http://example.com/a?x=1&sid=0123456789abcdef0123456789abcdef&y=2", "com,example)/a?x=1&y=2"),
        ("http://example.com/a?y=2&PHPSESSID=0123456789abcdef0123456789abcdef", "com,example)/a?&y=2"),
        ("http://example.com/a?CFID=1&CFTOKEN=2&z", "com,example)/a?z"),
        ("http://example.com/(S(4hqa0555fwsecu455xqckv45))/p.aspx", "com,example)/p.aspx"),
        ("  http://example.com/a\tb\n", "com,example)/ab"),
        ("example.com/a", "com,example)/a"),
        ("dns:www.example.com", "dns:www.example.com"),
        ("mailto:foo@example.com", "mailto:foo@example.com"),
        ("warcinfo:x.warc.gz", "warcinfo:x.warc.gz"),
        ("http://example.com:port/", "com,example:port)/"),
        ("", "-"),
    ],
)
def test_rules(url: str, key: str | None) -> None:
    assert surt_key(url) == (key or "com,example)/x;jsessionid=0123456789abcdef0123456789abcdef")


def test_raw_bytes_and_their_text_give_one_key() -> None:
    assert surt_key(b"http://example.com/\xe9") == "com,example)/%e9"
    assert surt_key("http://example.com/\udce9") == "com,example)/%e9"
    assert surt_key("http://example.com/é".encode()) == surt_key("http://example.com/é")


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_never_raises_and_keys_are_clean_ascii(text: str | bytes) -> None:
    prefix: str | bytes = b"http://" if isinstance(text, bytes) else "http://"
    for url in (text, prefix + text):
        key = surt_key(url)
        assert key and key.isascii() and not set(key) & set(" \t\r\n")


PLAIN = st.text(alphabet="abcXYZ019-._~!$&'()*+,;=:@/?|", max_size=30)


@given(st.sampled_from(["a.com", "www.b.co.uk:81", "WWW2.c.org"]), PLAIN)
def test_both_ways_of_computing_agree(host: str, tail: str) -> None:
    # A tab is dropped, and having one sends the URL the long way round.
    assert surt_key(f"http://{host}/{tail}") == surt_key(f"http://{host}/\t{tail}")


@given(st.text(alphabet="%25aAfF", max_size=40))
def test_unescaping_ends_where_no_escape_is_left(text: str) -> None:
    by_hand, before = text, None
    while by_hand != before:
        before, at = by_hand, 0
        while (at := by_hand.find("%", at)) >= 0:
            pair = by_hand[at + 1 : at + 3]
            if len(pair) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in pair):
                by_hand = by_hand[:at] + chr(int(pair, 16)) + by_hand[at + 3 :]
            at += 1
    assert unescape_fully(text) == by_hand


def test_deep_nesting_costs_linear_work() -> None:
    # Resolved pass by pass this would take some 10^11 steps.
    assert surt_key("http://x.com/" + "%" + "25" * 300_000) == "com,x)/%25"


@pytest.mark.parametrize(("host", "key"), [("www.example.com", "com,example"), ("1.2.3.4", "4,3,2,1"), ("::1", "::1")])
def test_surt_host(host: str, key: str) -> None:
    assert surt_host(host) == key


def test_keys_agree_with_the_surt_package_where_it_is_installed() -> None:
    oracle = pytest.importorskip("surt")
    for url in ("http://a.com/?b=1&a", "http://www3.a.b.co.uk/x//y/../%7Ez/", "https://1.2.3.4:8443/A%20B"):
        assert surt_key(url) == oracle.surt(url)
