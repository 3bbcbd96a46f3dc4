"""Keys against real index rows, known rules, and hostile text."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.surt import (
    KeyRule,
    _sorted_parameters,
    find_partial_character,
    surt_key,
    unescape_fully,
)
from cc_pipeline.publish import sql
from cc_pipeline_tests.corpus import CORPUS, needs_corpus

_DOUBLED_ESCAPE = re.compile(r"%25([89a-f][0-9a-f])")


def todays_key(key: str) -> str:
    """The same as the SQL, in Python."""
    if "%25" not in key or not _DOUBLED_ESCAPE.search(key):
        return key
    path, mark, query = _DOUBLED_ESCAPE.sub(r"%\1", key).partition("?")
    return f"{path}{mark}{_sorted_parameters(query)}"


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
        ("http://www.www.example.com/", "com,example)/"),
        ("http://www.WWW2.www.com:8080/%e4", "com:8080)/%e4"),
        ("http://m%FCnchen.de/", "de,m%fcnchen)/"),
        ("http://www.com/", "com)/"),
        ("http://wwwx.com/", "com,wwwx)/"),
        ("http://192.168.1.2:8080/", "2,1,168,192:8080)/"),
        ("http://7...7/", "7,,7)/"),
        ("http://3279880203/blah", "11,0,127,195)/blah"),
        ("http://010.1.1.1/", "1,1,1,8)/"),
        ("http://1.2/", "2,0,0,1)/"),
        ("http://1.256/", "256,1)/"),
        ("http://a.com:0/", "com,a)/"),
        ("http://a.com:000080/", "com,a:000080)/"),
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
        ("http://example.com/a?jsessionid=0123456789abcdef0123456789abcdef&y=2", "com,example)/a?y=2"),
        ("http://example.com/a?ASPSESSIONIDabcdefgh=abcdefghijklmnopqrstuvwx", "com,example)/a"),
        ("http://example.com/%25252525254~", "com,example)/%254~"),
        ("http://example.com/a?CFID=1&CFTOKEN=2&z", "com,example)/a?z"),
        ("http://example.com/(S(4hqa0555fwsecu455xqckv45))/p.aspx", "com,example)/p.aspx"),
        ("  http://exam\rple.com/a\tb\nc\n", "com,example)/abc"),
        ("example.com/a", "com,example)/a"),
        ("//~example.com/a", "com,~example)/a"),
        ("http:///~example.com/a", "com,~example)/a"),
        ("dns:www.example.com", "dns:www.example.com"),
        ("mailto:foo@example.com", "mailto:foo@example.com"),
        ("mailto:é%41#b", "mailto:%c3%a9%41#b"),
        ("warcinfo:x.warc.gz", "warcinfo:x.warc.gz"),
        ("http://example.com:port/", "com,example:port)/"),
        ("", "-"),
    ],
)
def test_rules(url: str, key: str | None) -> None:
    assert surt_key(url) == (key or "com,example)/x;jsessionid=0123456789abcdef0123456789abcdef")


#: URLs, their keys before CC-MAIN-2025-05 and since, as the key maker of Common Crawl of each time makes them (those of
#: the first three are told in ia-web-commons#6, iipc/webarchive-commons#102 and internetarchive/surt#19).
OF_BOTH_RULES = (
    (
        "http://www.aluroba.com/tags/%C3%CE%CA%C7%D1%E5%C7.htm",
        "com,aluroba)/tags/%25c3%25ce%25ca%25c7%25d1%25e5%25c7.htm",
        "com,aluroba)/tags/%c3%ce%ca%c7%d1%e5%c7.htm",
    ),
    (
        "https://1kr.ua/newslist.html?tag=%E4%EE%F8%EA%EE%EB%FC%ED%EE%E5",
        "ua,1kr)/newslist.html?tag=%25e4%25ee%25f8%25ea%25ee%25eb%25fc%25ed%25ee%25e5",
        "ua,1kr)/newslist.html?tag=%e4%ee%f8%ea%ee%eb%fc%ed%ee%e5",
    ),
    (
        "http://onlinestreet.de/strassen/in-M%FCnchen.html",
        "de,onlinestreet)/strassen/in-m%25fcnchen.html",
        "de,onlinestreet)/strassen/in-m%fcnchen.html",
    ),
    (
        "http://onlinestreet.de/strassen/in-M%C3%BCnchen.html",
        "de,onlinestreet)/strassen/in-m%c3%bcnchen.html",
        "de,onlinestreet)/strassen/in-m%c3%bcnchen.html",
    ),
    ("http://example.com/%e3%81%82%82%a0", "com,example)/%e3%81%82%2582%25a0", "com,example)/%e3%81%82%82%a0"),
    ("http://example.com/%E2%82", "com,example)/%25e2%2582", "com,example)/%e2%82"),
    ("http://example.com/%E2%82x%E2%82%AC", "com,example)/%25e2%2582x%e2%82%ac", "com,example)/%e2%82x%e2%82%ac"),
    ("http://example.com/%25C3%25A9%25E9", "com,example)/%c3%a9%25e9", "com,example)/%c3%a9%e9"),
    ("http://example.com/%2525e9%25252f", "com,example)/%25e9", "com,example)/%e9"),
    ("http://example.com/%C3%25A9", "com,example)/%c3%a9", "com,example)/%c3%a9"),
    (
        "http://example.com/%ED%A0%80%F4%90%80%80%C0%80",
        "com,example)/%25ed%25a0%2580%25f4%2590%2580%2580%25c0%2580",
        "com,example)/%ed%a0%80%f4%90%80%80%c0%80",
    ),
    (
        "http://example.com/%F0%9F%98%80%F0%9F%98",
        "com,example)/%f0%9f%98%80%25f0%259f%2598",
        "com,example)/%f0%9f%98%80%f0%9f%98",
    ),
    ("http://example.com/é%E9", "com,example)/%c3%a9%25e9", "com,example)/%c3%a9%e9"),
    ("http://example.com/a%zz%4%e", "com,example)/a%25zz%254%25e", "com,example)/a%25zz%254%25e"),
    (
        "http://example.com/?%c3%a9=1&%e4=2&%zz=3",
        "com,example)/?%25e4=2&%25zz=3&%c3%a9=1",
        "com,example)/?%25zz=3&%c3%a9=1&%e4=2",
    ),
    ("http://example.com/s?b=%E4%26%3D&a=%e4", "com,example)/s?=&a=%25e4&b=%25e4", "com,example)/s?=&a=%e4&b=%e4"),
    ("http://m%FCnchen.de/%FC", "de,m%25fcnchen)/%25fc", "de,m%fcnchen)/%fc"),
    ("http://www.m%C3%BCnchen.de/%FC", "de,xn--mnchen-3ya)/%25fc", "de,xn--mnchen-3ya)/%fc"),
    ("http://www.www2.www.example.com/%E4/", "com,example)/%25e4", "com,example)/%e4"),
    ("http://www1355544.com/", "com)/", "com)/"),
    ("http://www.www.com/a", "com)/a", "com)/a"),
    ("http://www.wwww.www2.com/", "com,www2,wwww)/", "com,www2,wwww)/"),
)


@pytest.mark.parametrize(("url", "before", "today"), OF_BOTH_RULES)
def test_keys_of_both_rules(url: str, before: str, today: str) -> None:
    assert (surt_key(url, KeyRule.UNTIL_2024), surt_key(url)) == (before, today)
    assert todays_key(before) == todays_key(today) == today


ESCAPED = st.lists(
    st.sampled_from(
        "%C3 %A9 %c3%a9 %E4 %25 %25C3 %25E4 %E2 %82 %AC %F0%9F%98%80 %F0%9F %ED%A0 é a B / & = %3D %26 %zz 4 ..".split()
    ),
    max_size=9,
).map("".join)


@given(ESCAPED, ESCAPED)
def test_keys_of_both_rules_have_one_form(path: str, query: str) -> None:
    url = f"http://example.com/{path}?{query}"
    assert {todays_key(surt_key(url, rule)) for rule in KeyRule} == {surt_key(url)}


def test_the_form_in_sql_is_that_in_python() -> None:
    rng = random.Random(5)
    pieces = ["%C3", "%c3%a9", "%E4", "%25", "%25C3", "%E2", "%82", "a", "B", "/", "&", "=", "%3D", "%26", "%zz", "?"]
    urls = ["http://example.com/" + "".join(rng.choices(pieces, k=rng.randrange(14))) for _ in range(3_000)]
    urls += [url for url, _, _ in OF_BOTH_RULES]
    keys = [surt_key(url, rule) for url in urls for rule in KeyRule]
    with duckdb.connect() as database:
        rows = database.execute(f"SELECT {sql.todays_key('key')} FROM (SELECT unnest(?) AS key)", [keys]).fetchall()
    assert (
        [key for (key,) in rows]
        == [todays_key(key) for key in keys]
        == [surt_key(url) for url in urls for _ in KeyRule]
    )


@given(st.binary(max_size=6))
def test_a_begun_character_is_what_more_bytes_can_complete(data: bytes) -> None:
    path = "/" + "".join(f"%{byte:02x}" for byte in data)
    begun = len(find_partial_character(path)) // 3
    rest = b"\x80\xbf"
    tails = (bytes([one]) + rest * more for one in range(0x80, 0xC0) for more in (0, 1))
    completes = 0
    for tail in tails:
        for length in range(1, 4):
            for start in range(max(0, len(data) - 3), len(data)):
                try:
                    whole = (data[start:] + tail[:length]).decode("utf-8")
                except UnicodeDecodeError:
                    continue
                if len(whole) == 1:
                    completes = max(completes, len(data) - start)
    assert begun == completes


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
