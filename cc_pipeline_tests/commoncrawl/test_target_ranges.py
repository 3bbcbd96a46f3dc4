"""No page of a target lies outside its ranges, and ``matches`` follows the naive rule."""

from __future__ import annotations

import gzip
import itertools
import json
import random

from hypothesis import example, given
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.domains import host_columns, registered_domain
from cc_pipeline.commoncrawl.key_ranges import KeyRange, btree_key, common_ranges, merge_ranges, prefix_range, range_set
from cc_pipeline.commoncrawl.surt import KeyRule, surt_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline_tests.corpus import CORPUS, needs_corpus

LABEL = st.sampled_from(["a", "b", "www", "www2", "wwwx", "ab", "a-b", "com", "example", "x1"])
DOMAIN = st.sampled_from(
    ["example.com", "a.example.com", "www.com", "www.example.com", "www2.a.org", "ab.co.uk", "a.b.x"]
)
PORT = st.sampled_from(["", "", ":80", ":443", ":8080", ":81"])
SCHEME = st.sampled_from(["http", "https"])
TAIL = st.sampled_from(["", "/", "/a", "/A/b?c=1&a", "?x", "/-x", "/:8080", "/a/../b/", "/x;y=(z)"])


@st.composite
def hosts_near(draw: st.DrawFn) -> tuple[str, str]:
    """A domain and a host in it, or deceptively like it."""
    domain = draw(DOMAIN)
    labels = draw(st.lists(LABEL, max_size=2))
    near = draw(
        st.sampled_from(
            [
                domain,
                f"x{domain}",
                domain.replace(".", "-x.", 1),
                domain.partition(".")[2],
                f"{domain}.org",
                domain.replace(".", "", 1),
            ]
        )
    )
    return domain, ".".join([*labels, near])


def in_ranges(target: Target, url: str) -> bool:
    """By either rule of keys."""
    return all(any(surt_key(url, rule).encode() in one for one in target.ranges_by(rule)) for rule in KeyRule)


def in_tree_prefixes(target: Target, url: str) -> bool:
    return btree_key(url).startswith(target.btree_prefixes())


@given(hosts_near(), SCHEME, PORT, TAIL, st.booleans())
def test_domains(pair: tuple[str, str], scheme: str, port: str, tail: str, suffix: bool) -> None:
    domain, host = pair
    target = parse_target(f"suffix:{domain}" if suffix else domain)
    url = f"{scheme}://{host}{port}{tail}"
    belongs = host == domain or host.endswith("." + domain)
    assert target.matches(url, host) == belongs
    assert target.matches(url) == belongs
    if belongs:
        assert in_ranges(target, url)
        assert in_tree_prefixes(target, url)


@given(hosts_near(), SCHEME, PORT, TAIL, st.sampled_from([80, 443, 8080]))
def test_ports(pair: tuple[str, str], scheme: str, port: str, tail: str, wanted: int) -> None:
    domain, host = pair
    url = f"{scheme}://{host}{port}{tail}"
    effective = int(port[1:]) if port else (443 if scheme == "https" else 80)
    for text, belongs in (
        (f"{domain}:{wanted}", host == domain or host.endswith("." + domain)),
        (f"host:{host}", True),
    ):
        target = parse_target(text)
        assert target.matches(url, host) == (belongs and (text.startswith("host:") or effective == wanted))
        if target.matches(url, host):
            assert in_ranges(target, url)
            assert in_tree_prefixes(target, url)


@given(hosts_near(), SCHEME, PORT, TAIL)
def test_hosts(pair: tuple[str, str], scheme: str, port: str, tail: str) -> None:
    wanted, host = pair
    target = parse_target(f"host:{wanted}")
    url = f"{scheme}://{host}{port}{tail}"
    assert target.matches(url, host) == (host == wanted)
    if host == wanted:
        assert in_ranges(target, url)
        assert in_tree_prefixes(target, url)


@given(hosts_near(), SCHEME, PORT, TAIL, st.integers(1, 20))
def test_reversed_prefixes(pair: tuple[str, str], scheme: str, port: str, tail: str, length: int) -> None:
    domain, host = pair
    prefix = ".".join(reversed(domain.split(".")))[:length]
    target = parse_target(f"rev:{prefix}")
    url = f"{scheme}://{host}{port}{tail}"
    belongs = ".".join(reversed(host.split("."))).startswith(prefix)
    assert target.matches(url, host) == belongs
    if belongs:
        assert in_ranges(target, url)
        assert in_tree_prefixes(target, url)


PIECE = st.sampled_from(
    ["/", "a", "B", ".", "..", "%41", "%2f", "%", "(", ")", "?", "&", "=", ";", ".aspx", "é", " ", "%E2", "%82", "%ac"]
)
SESSION = st.sampled_from(["", "(4hqa0555fwsecu455xqckv45)/", "(S(4hqa0555fwsecu455xqckv45))/", "x.aspx"])
PATH = st.tuples(st.lists(PIECE, max_size=6).map("".join), SESSION, st.lists(PIECE, max_size=4).map("".join)).map(
    "".join
)


@example("%E2", "%82%AC", "http", "")
@given(PATH, PATH, SCHEME, st.sampled_from(["", "www."]))
def test_url_prefixes(start: str, rest: str, scheme: str, www: str) -> None:
    target = parse_target(f"prefix:http://example.com/{start}")
    for tail in (start + rest, rest):
        url = f"{scheme}://{www}example.com/{tail}"
        if target.matches(url):
            assert in_ranges(target, url), (target.value, url)


@given(PATH, SCHEME)
def test_pages(path: str, scheme: str) -> None:
    url = f"{scheme}://www.example.com/{path}"
    target = parse_target(f"url:{url}")
    assert target.matches(url) and in_ranges(target, url)
    assert target.matches(target.value)
    assert in_tree_prefixes(target, target.value)


@needs_corpus
def test_every_domain_of_the_real_bucket_is_found_whole_in_all_its_indexes() -> None:
    expected = json.loads(gzip.decompress((CORPUS / "realcrawl/expected.json.gz").read_bytes()))
    pages = {row["url"] for crawl in ("CC-MAIN-2024-22", "CC-MAIN-2018-05") for row in expected[crawl]}
    pages |= {url for _, _, url, _ in expected["CC-MAIN-2012"]}
    hosts = {url: str(host_columns(url)["url_host_name"]) for url in pages}
    domains = {registered_domain(host) or host for host in hosts.values()}
    assert len(domains) > 100
    for domain in domains:
        target = parse_target(domain)
        wanted = {url for url, host in hosts.items() if host == domain or host.endswith("." + domain)}
        assert {url for url in pages if in_ranges(target, url) and target.matches(url, hosts[url])} == wanted
        assert {url for url in pages if in_tree_prefixes(target, url) and target.matches(url, hosts[url])} == wanted


RANGE = st.tuples(st.binary(max_size=2), st.binary(max_size=2) | st.none()).map(lambda pair: KeyRange(*pair))


@given(st.lists(RANGE, max_size=6), st.binary(max_size=3))
def test_merging_changes_no_membership(parts: list[KeyRange], key: bytes) -> None:
    merged = merge_ranges(parts)
    assert any(key in one for one in parts) == any(key in one for one in merged)
    assert all(one.end is None or one.start < one.end for one in merged)
    ends = [one.end for one in merged]
    assert all(end is not None and end < after.start for end, after in zip(ends, merged[1:], strict=False))


KEYS = [b"", *(bytes(key) for length in (1, 2) for key in itertools.product(b"\0ab\xff", repeat=length))]


def some_ranges(rng: random.Random) -> list[KeyRange]:
    return [KeyRange(rng.choice(KEYS), rng.choice([*KEYS, None])) for _ in range(rng.randrange(5))]


def test_a_set_of_ranges_answers_as_its_keys() -> None:
    rng = random.Random(7)
    for _ in range(200):
        parts, others = some_ranges(rng), some_ranges(rng)
        low, high = sorted(rng.sample(KEYS, 2))
        ranges = range_set(parts)
        assert range_set(ranges) is ranges and [*ranges] == [*merge_ranges(parts)]
        common = common_ranges(parts, range_set(others))
        for key in KEYS:
            in_both = [any(key in part for part in some) for some in (parts, others)]
            assert ranges.touches(key, key + b"\0") == in_both[0]
            assert any(key in each for each in common) == all(in_both)
        behind = [each for each in ranges if each.end is None or each.end > low]
        assert [*ranges.near(low, high)] == [each for each in behind if each.start <= high]
        assert [*ranges.near(low, None)] == behind
        assert [*ranges.near(None, high)] == [each for each in ranges if each.start <= high]
        assert ranges.meets(low, high) == any(each.start <= high for each in behind)
        assert ranges.touches(low, high) == any(each.start < high for each in behind)
        assert ranges.touches(low, None) == bool(behind)


@given(st.binary(max_size=4), st.binary(max_size=5))
def test_prefix_range_is_the_prefix(prefix: bytes, key: bytes) -> None:
    assert (key in prefix_range(prefix)) == key.startswith(prefix)
