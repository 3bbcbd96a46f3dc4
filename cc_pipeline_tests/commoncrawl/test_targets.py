"""What people type, what it means, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.commoncrawl.slice_slugs import (
    defined_slug,
    divided,
    is_named_captures,
    named_captures_slug,
    part_count,
    part_from,
    part_slugs,
    subset_of,
    whole_slug,
    with_subset,
)
from cc_pipeline.commoncrawl.surt import KeyRule, surt_key
from cc_pipeline.commoncrawl.target import GIVEN_KIND, WHERE_SLUG, Target
from cc_pipeline.commoncrawl.target_text import (
    content_lines,
    parse_slug,
    parse_target,
    parse_target_lines,
    text_of_key,
    to_run,
)
from cc_pipeline.errors import UserInputError
from cc_pipeline.export.provenance import name_of


def ranges(text: str) -> list[tuple[bytes, bytes | None]]:
    return [(one.start, one.end) for one in parse_target(text).ranges]


@pytest.mark.parametrize(
    ("typed", "kind", "value", "slug"),
    [
        ("example.com", "domain", "example.com", "example.com"),
        ("domain:example.com", "domain", "example.com", "example.com"),
        ("http://example.com", "domain", "example.com", "example.com"),
        ("https://www.example.com/", "domain", "www.example.com", "www.example.com"),
        ("*.example.com", "domain", "example.com", "example.com"),
        (".example.com", "domain", "example.com", "example.com"),
        ("example.com/*", "domain", "example.com", "example.com"),
        ("münchen.de", "domain", "xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
        ("XN--MNCHEN-3ya.de", "domain", "xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
        ("straße.de", "domain", "xn--strae-oqa.de", "xn--strae-oqa.de"),
        ("example。com", "domain", "example.com", "example.com"),
        ("github.io", "domain", "github.io", "github.io"),
        ("example.com:8080", "domain", "example.com:8080", "example.com_8080"),
        ("1.2.3.4", "domain", "1.2.3.4", "1.2.3.4"),
        ("1.2.3.4:8080", "domain", "1.2.3.4:8080", "1.2.3.4_8080"),
        ("2001:DB8:0::1", "domain", "[2001:db8::1]", "domain_2001-db8-1_6d7f50c594a3bd48"),
        ("[abcd::1]:81", "domain", "[abcd::1]:81", None),
        ("a_b.example.com", "domain", "a_b.example.com", "domain_a-b.example.com_114906e5b0f693e5"),
        ("host:WWW.example.com", "host", "www.example.com", "host_www.example.com"),
        ("HOST:a.com", "host", "a.com", "host_a.com"),
        ("host:localhost:8080", "host", "localhost:8080", "host_localhost_8080"),
        ("tld:.museum", "tld", "museum", "tld_museum"),
        ("tld:*.museum", "tld", "museum", "tld_museum"),
        ("suffix:*.gov.uk", "suffix", "gov.uk", "suffix_gov.uk"),
        ("tld:рф", "tld", "xn--p1ai", "tld_xn--p1ai"),
        ("suffix:gov.uk", "suffix", "gov.uk", "suffix_gov.uk"),
        ("rev:com.nytimes.blogs", "rev", "com.nytimes.blogs", "rev_com.nytimes.blogs"),
        ("rev:uk.co.", "rev", "uk.co.", "rev_uk.co_a3c405bcbdc399db"),
        ("rev:org.wikipedia.en/wiki/A", "rev", "org.wikipedia.en/wiki/A", None),
        ("url:HTTPS://www.Example.com/A?b=1#x", "url", "https://www.example.com/A?b=1", None),
        ("url:example.com", "url", "http://example.com/", None),
        ("prefix:example.com/blog/*", "prefix", "http://example.com/blog/", None),
        ("prefix:https://example.com/a%2", "prefix", "https://example.com/a", None),
        ("set:Press = bbc.co.uk, host:www.nytimes.com", "set", "press", "set-press"),
    ],
)
def test_what_is_meant(typed: str, kind: str, value: str, slug: str | None) -> None:
    target = parse_target(typed)
    assert (target.kind, target.value) == (kind, value)
    assert slug is None or target.slug == slug
    assert parse_target(target.definition) == target
    assert target.describe()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "empty"),
        ("co.uk", "suffix:co.uk"),
        ("com", "tld:com"),
        ("localhost:8080", "host:localhost"),
        ("../x", "empty part between dots"),
        ("a..b.com", "empty part between dots"),
        ("a|b", "'|'"),
        ("a b.com", "a space"),
        ("a\x7fb.com", "a control character"),
        ("a\\b.com", "'\\\\'"),
        ("%65xample.com", "'%'"),
        ("x" * 300 + ".com", "at most 253"),
        ("x" * 64 + ".com", "longer than 63"),
        ("https://www.example.com/x", "url:https://www.example.com/x"),
        ("example.com/x", "prefix:http://example.com/x"),
        ("joe@example.com", "user name"),
        ("http:example.com", "http://"),
        ("https:example.com", "http://"),
        ("ftp://example.com/", "http://"),
        ("mailto:joe@example.com", "unknown kind 'mailto'"),
        ("foo:bar.com", "kinds are domain"),
        ("example.com:99999", "1 to 65535"),
        ("example.com:80x", "1 to 65535"),
        ("1.2.3.256", "four numbers"),
        ("suffix:1.2.3.4", "IP address"),
        ("tld:co.uk", "suffix:co.uk"),
        ("tld:1.2.3.4", "write it as in tld:org"),
        ("tld:80", "neither a host name nor"),
        ("tld:2001:db8::1", "write it as in tld:org"),
        ("url:", "nothing after url:"),
        ("url:ftp://example.com/", "http://"),
        ("url:http://u:p@example.com/", "user name"),
        ("url:http:///x", "empty"),
        ("url:example.com/" + "x" * (8193 - len("example.com/")), "8192"),
        ("rev:com nytimes", "reversed host"),
        ("rev:,", "nothing after rev:"),
        ("rev:com.example./x", "reversed host"),
        ("set:x", "no members"),
        ("set:a.b = example.com", "cannot name a set"),
        ("set:x = rev:a.b, set:y", "no members"),
        ("set:x = co.uk", "suffix:co.uk"),
    ],
)
def test_what_is_refused_and_why(typed: str, said: str) -> None:
    with pytest.raises(UserInputError) as refused:
        parse_target(typed)
    assert said in str(refused.value)


def test_ranges_are_exact_bytes() -> None:
    assert ranges("example.com") == [(b"com,example)", b"com,example-"), (b"com,example:", b"com,example;")]
    assert ranges("example.com:8080") == [
        (b"com,example,", b"com,example-"),
        (b"com,example:8080)", b"com,example:8080*"),
    ]
    assert ranges("1.2.3.4") == [(b"4,3,2,1)", b"4,3,2,1*"), (b"4,3,2,1:", b"4,3,2,1;")]
    assert ranges("host:www.example.com") == [(b"com,example)", b"com,example*"), (b"com,example:", b"com,example;")]
    assert ranges("url:http://www.example.com/A/") == [(b"com,example)/a", b"com,example)/a\0")]
    assert ranges("prefix:http://example.com/b/") == [
        (b"com,example)/b", b"com,example)/b\0"),
        (b"com,example)/b/", b"com,example)/b0"),
        (b"com,example)/b?", b"com,example)/b@"),
    ]
    assert ranges("set:s = a.com, host:a.com, x.a.com") == ranges("a.com")
    assert ranges("rev:com.example/wiki") == ranges("host:example.com")


def test_a_domain_that_begins_with_www_also_has_the_keys_one_label_up() -> None:
    target = parse_target("www.com")
    assert target.matches("http://www.com/a", "www.com") and b"com)/a" in target.ranges[0]
    assert not target.matches("http://example.com/", "example.com")


def test_btree_prefixes_are_exact() -> None:
    assert parse_target("example.com").btree_prefixes() == (b"com.example.", b"com.example/")
    assert parse_target("example.com").btree_ranges() == (KeyRange(b"com.example.", b"com.example0"),)
    assert parse_target("host:www.example.com").btree_prefixes() == (b"com.example.www/",)
    assert parse_target("1.2.3.4").btree_prefixes() == (b"4.3.2.1/",)
    assert parse_target("host:[2001:db8::1]").btree_prefixes() == (b"[2001/",), "as the tree has it"
    assert parse_target("tld:museum").btree_prefixes() == (b"museum.", b"museum/")
    assert parse_target("rev:org.wikipedia.en/wiki/1942").btree_prefixes() == (b"org.wikipedia.en/wiki/1942",)
    assert parse_target("url:http://example.com/").btree_prefixes() == (b"com.example/:", b"com.example.www/:")
    assert parse_target("url:http://example.com/A").btree_prefixes()[0] == b"com.example/A:"
    assert parse_target("url:http://1.2.3.4/b~?c").btree_prefixes() == (b"4.3.2.1/b~?c:", b"4.3.2.1/b~/?c:")
    assert b"com.example/b?c:" in parse_target("url:http://example.com/b/?c").btree_prefixes()
    for label, hosts in (
        ("www", {b"com.example.www", b"com.example"}),
        ("www2", {b"com.example.www2", b"com.example"}),
        ("wwwx", {b"com.example.wwwx", b"com.example.wwwx.www"}),
        ("abc2", {b"com.example.abc2", b"com.example.abc2.www"}),
    ):
        prefixes = parse_target(f"url:http://{label}.example.com/").btree_prefixes()
        assert {prefix.partition(b"/")[0] for prefix in prefixes} == hosts
    assert parse_target("rev:com.a, com.b").btree_prefixes() == (b"com.a", b"com.b")
    assert parse_target("prefix:http://a.com/b?").btree_ranges() == parse_target("prefix:http://a.com/b").btree_ranges()


def test_named_captures_are_all_that_were_added() -> None:
    target = parse_target("captures:mine")
    assert target.matches("http://example.com/") and target.btree_prefixes() == (b"",)


def test_slugs_of_parts_and_subsets_are_written_so() -> None:
    assert (part_slugs("set-a", 1), part_slugs("set-a", 16)[3]) == (["set-a"], "set-a~16-0003")
    assert with_subset("a.com", "robotstxt") == "a.com~robotstxt"


def test_the_subsets_of_a_condition_count_for_those_of_a_run() -> None:
    assert parse_target("example.com where subset=robotstxt").subsets(["warc"]) == ("robotstxt",)
    assert parse_target("example.com where status=200").subsets(["warc"]) == ("warc",)
    assert parse_target("example.com").subsets(["warc"]) == ("warc",)


def test_a_set_has_the_ranges_of_its_members_by_either_rule() -> None:
    page, other = parse_target("url:http://example.com/%E4"), parse_target("set:s = url:http://example.com/%E4")
    assert len({other.ranges_by(rule) for rule in KeyRule}) == 2
    assert all(other.ranges_by(rule) == page.ranges_by(rule) for rule in KeyRule)


def test_what_was_asked_of_a_target_makes_it_no_other_one() -> None:
    target, fresh = parse_target("set:s = a.com"), parse_target("set:s = a.com")
    assert target.matches("http://a.com/") and target.version and target.ranges
    assert (target, repr(target)) == (fresh, repr(fresh))


def test_ports() -> None:
    target = parse_target("example.com:8080")
    assert target.matches("http://example.com:8080/", "example.com")
    assert not target.matches("http://example.com/", "example.com")
    web = parse_target("host:example.com:443")
    assert web.matches("https://example.com/x", "example.com")
    assert web.matches("http://example.com:443/x", "example.com")
    assert not web.matches("http://example.com/x", "example.com")


def test_hosts_of_any_year_are_recognised() -> None:
    target = parse_target("münchen.de")
    for host in ("münchen.de", "M%C3%BCnchen.de", "WWW.xn--mnchen-3ya.DE."):
        assert target.matches("http://irrelevant/", host), host
    assert target.matches("http://www.m%c3%bcnchen.de:81/x")


def test_prefix_targets_compare_resolved_urls() -> None:
    target = parse_target("prefix:https://www.example.com/blog/")
    for url in (
        *("http://example.com/blog/", "http://example.com/Blog//x", "https://example.com/a/../blog/?x"),
        *("http://example.com/blog/.", "http://example.com/blog/x/.."),
    ):
        assert target.matches(url), url
    for url in ("http://example.com/blog", "http://example.com/blogger/", "http://example.com:81/blog/x", "mailto:x"):
        assert not target.matches(url), url
    query = parse_target("prefix:http://example.com/i.php?id=1")
    assert query.matches("http://example.com/i.php?id=12&a=1") and not query.matches("http://example.com/i.php?a&id=1")


def test_url_targets_mean_the_page_not_its_spelling() -> None:
    assert parse_target("url:example.com/" + "x" * (8192 - len("example.com/")))
    target = parse_target("url:https://www.example.com/A?b=2&a=1")
    assert target.matches("http://example.com/a/?a=1&b=2")
    assert not target.matches("http://example.com:81/a/?a=1&b=2")


def test_rev_targets_are_plain_string_prefixes_as_in_the_2012_tool() -> None:
    target = parse_target("rev:com.nytimes")
    assert target.matches("http://www.nytimes.com/", "www.nytimes.com")
    assert target.matches("http://nytimesx.com/", "nytimesx.com")
    path = parse_target("rev:org.wikipedia.en/wiki/1942")
    assert path.matches("http://en.wikipedia.org/wiki/1942:_x") and not path.matches(
        "http://en.wikipedia.org/Wiki/1942"
    )
    both = parse_target("rev:com.a, com.b")
    assert both.matches("http://b.com/") and both.definition == "rev:com.a, com.b"


def test_set_members_and_their_commas() -> None:
    target = parse_target("set:x = url:http://a.com/b,c,url:http://d.com/, e.com,f.com g.com,, e.com")
    assert [member.definition for member in target.members] == [
        "url:http://a.com/b,c",
        "url:http://d.com/",
        "e.com",
        "f.com",
        "g.com",
    ]
    assert parse_target(target.definition) == target


def test_a_set_of_a_file_is_its_lines(tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("# sites\nb.com\n\nhost:a.com # one\nb.com\n", "utf-8")
    target = parse_target("set:Press = @list.txt where status=200", tmp_path)
    assert (target.value, target.slug.partition("__")[0]) == ("press", "set-press")
    assert target.definition == "set:Press = @list.txt where status=200"
    assert target.written == "set:Press = b.com, host:a.com where status=200"
    with pytest.raises(UserInputError, match="write the members out"):
        parse_target("set:press = @list.txt")
    with pytest.raises(UserInputError, match=r"set:x.* cannot be read: .*none\.txt"):
        parse_target("set:x = @none.txt", tmp_path)
    for content, said in (
        (b"# nothing\n", "lists no targets"),
        (b"a.com\n\xff\n", "line 2 is not UTF-8"),
        (b"a.com\nset:y = b.com\na.com where status=200\nc|d\n", "line 2: .*a set.*line 3: .*a condition.*line 4: "),
        (b"captures:mine\n", "line 1: .*captures"),
    ):
        listed.write_bytes(content)
        with pytest.raises(UserInputError, match=said):
            parse_target("set:press = @list.txt", tmp_path)


def test_a_set_keeps_its_slug_when_its_members_change() -> None:
    one, other = parse_target("set:x = a.com"), parse_target("set:x = a.com, b.com")
    assert one.slug == other.slug and one.version != other.version
    assert parse_target("example.com").version == "af561a024b17", "with another one all is located again"


def test_watch_list() -> None:
    text = (
        "\ufeff# sites\n\nexample.com\r\n  www.bbc.co.uk   # news\nurl:http://a.com/#top\nexample.com\nset:n = c.com\n"
    )
    assert [target.slug for target in parse_target_lines(text)][:2] == ["example.com", "www.bbc.co.uk"]
    assert len(parse_target_lines(text)) == 4
    with pytest.raises(UserInputError, match=r"line 2: .*'\|'.*line 4: .*set 'n'"):
        parse_target_lines("set:n = c.com\na|b\nok.com\nset:n = d.com\n")


TEXT = st.text(max_size=40) | st.text(alphabet="aB.-_:/ |%ü0*[]=,@#?", max_size=25)
KINDS = st.sampled_from(["", "host:", "url:", "prefix:", "tld:", "suffix:", "rev:", "set:x = ", "domain:"])


@given(KINDS, TEXT)
@example("", "http://[::1")
@example("url:", "http://[::1")
@example("set:x = ", ",")
@example("prefix:", "a.com/x%2*%**")
@example("url:", "a.com/x\u2003#f")
def test_any_text_is_either_a_safe_target_or_refused(kind: str, text: str) -> None:
    try:
        target = parse_target(kind + text)
    except UserInputError:
        return
    assert set(target.slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert 0 < len(target.slug) <= 120 and ".." not in target.slug and target.slug[0] not in ".-_"
    assert parse_target(target.definition) == target
    assert target.ranges == tuple(sorted(target.ranges, key=lambda one: one.start)) and target.ranges
    assert all(prefix for prefix in target.btree_prefixes())
    target.matches("http://example.com/", "example.com")


LABEL = st.text(alphabet="ab-_1", min_size=1, max_size=4) | st.sampled_from(
    ("where", "host", "set", "captures", "_where", "a__where", "robotstxt", "16-0003", "a~b")
)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
PLAIN_TARGETS = st.one_of(
    NAME.map(lambda name: f"{name}.com"),
    st.tuples(NAME, st.integers(1, 9)).map(lambda pair: f"{pair[0]}.com:{pair[1]}"),
    st.tuples(st.sampled_from(["host", "suffix", "domain"]), NAME, st.sampled_from([".com", ""])).map(
        lambda three: f"{three[0]}:{three[1]}{three[2]}"
    ),
    st.tuples(st.sampled_from(["url", "prefix"]), NAME, NAME).map(
        lambda three: f"{three[0]}:{three[1]}.com/{three[2]}"
    ),
    NAME.map(lambda name: f"rev:com.{name}"),
    NAME.map(lambda name: f"rev:{name}, com.a"),
    LABEL.map(lambda name: f"tld:{name}"),
    LABEL.map(lambda name: f"set:{name} = a.com"),
    LABEL.map(lambda name: f"captures:{name}"),
)
CONDITIONS = st.sampled_from(("", " where status=200", " where status=404", " where path='/ where ~robotstxt'"))
TYPED = st.tuples(PLAIN_TARGETS, CONDITIONS).map("".join)


def read_or_none(text: str) -> Target | None:
    try:
        return parse_target(text)
    except UserInputError:
        return None


@given(TYPED, TYPED)
@example("host:a.com", "host_a.com")
@example("a.com:8080", "a.com_8080.com")
@example("set:a = a.com", "set-a.com")
@example("host:where.com where status=200", "host:where.example.org where status=200")
@example("host:where._x.com where status=200", "host:where.com where status=200")
@example("rev:where.com where status=200", "rev:where.org where status=200")
@example("tld:where where status=200", "suffix:where.com where status=200")
@example("set:a__where = a.com where status=200", "set:a = a.com where status=200")
def test_two_targets_share_a_slug_only_if_they_are_one(one_text: str, other_text: str) -> None:
    one, other = read_or_none(one_text), read_or_none(other_text)
    if one is not None and other is not None:
        assert (one.slug == other.slug) == (one.definition == other.definition)


@given(PLAIN_TARGETS, CONDITIONS, st.sampled_from((1, 16)), st.sampled_from(SUBSETS))
@example("host:where.com", " where status=200", 16, "robotstxt")
@example("host:where.com", "", 1, "warc")
@example("captures:a__where", " where status=200", 1, "robotstxt")
def test_the_slug_of_a_slice_has_the_target_the_part_and_the_subset(
    text: str, condition: str, parts: int, subset: str
) -> None:
    plain, target = read_or_none(text), read_or_none(text + condition)
    if plain is None or target is None:
        return
    assert target.slug.partition(WHERE_SLUG)[0] == plain.slug
    assert (WHERE_SLUG in target.slug) == bool(target.where)
    assert plain.where_too("status=200").where_too("status=404").slug.count(WHERE_SLUG) == 1
    assert is_named_captures(target.slug) == (target.kind == GIVEN_KIND)
    slugs = [with_subset(slug, subset) for slug in part_slugs(target.slug, parts)]
    assert len({*slugs}) == parts
    for slug in slugs:
        assert whole_slug(slug) == target.slug
        assert subset_of(slug) == subset
    assert [defined_slug(slug) for slug in slugs] == part_slugs(target.slug, parts)
    assert named_captures_slug(with_subset(target.slug, subset)) == with_subset(plain.slug, subset)


@pytest.mark.parametrize(
    ("members", "before", "parts"),
    [
        *((64, None, 1), (65, None, 16), (1_600, None, 16), (1_601, None, 128), (102_401, None, 8_192)),
        *((30, 16, 1), (31, 16, 16), (4_096, 16, 16), (4_097, 16, 128)),
    ],
)
def test_a_set_is_divided_anew_only_when_its_parts_are_much_too_full_or_nearly_empty(
    members: int, before: int | None, parts: int
) -> None:
    assert part_count(members, before) == parts


def test_members_that_can_share_captures_are_in_one_part() -> None:
    families = [
        [f"a{number}.com", f"www.a{number}.com", f"host:x.y.a{number}.com", f"url:http://a{number}.com:81/p"]
        for number in range(40)
    ]
    alone = ["1.2.3.4", "tld:museum", "suffix:gov.uk", "rev:com.b", "b.com:8080", "host:www.b.com", "prefix:b.com/p"]
    target = parse_target("set:big = " + ", ".join([*itertools.chain(*families), *alone]) + " where status=200")
    assert divided(target, 1) == [target]
    parts = divided(target, 16)
    assert [part.slug for part in parts] == part_slugs(target.slug, 16)
    assert {part.where for part in parts} == {"status=200"}
    part_of = {member.written: number for number, part in enumerate(parts) for member in part.members}
    assert part_of.keys() == {member.written for member in target.members} and len(set(part_of.values())) > 8
    for family in [*families, alone[-2:]]:
        assert len({part_of[parse_target(text).written] for text in family}) == 1, family
    assert [part_from(part.slug, part.written) for part in parts] == parts
    assert divided(target, 16) == parts and part_of["a7.com"] == 7, "as in any other process"


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("set-a.com", "set-a.com"),
        ("set:a", "set:a = example.com, example.org"),
        ("set:a = b.com", "set:a = b.com"),
        ("set:a where status=200", "set:a where status=200"),
    ],
)
def test_a_domain_that_begins_like_the_slug_of_a_set_is_none(typed: str, run: str) -> None:
    assert to_run(parse_slug(typed), typed) == run
    target = read_or_none(typed)
    assert target is None or name_of(target) == ("set:a" if target.kind == "set" else typed)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a.org where path='/a #b'", "a.org where path='/a #b'"),
        ("a.org where path='/a #b' # why", "a.org where path='/a #b'"),
        ("a.org where path='it''s #1' and url!=\"#\" #", "a.org where path='it''s #1' and url!=\"#\""),
        ("a.org # it's mine where path='/a #b'", "a.org"),
        ("url:http://a.org/it's # its site's", "url:http://a.org/it's"),
        ("a.org where status=200 # it's why", "a.org where status=200"),
        ("# where path='#'", ""),
        ("url:http://a.org/#b", "url:http://a.org/#b"),
    ],
)
def test_a_comment_begins_outside_quotes(line: str, said: str) -> None:
    assert [text for _, text in content_lines(line)] == ([said] if said else [])


@pytest.mark.parametrize("typed", ["2001:db8::1", "host:[2001:0DB8:0:0:0:0:0:1]", "[2001:db8:0::1]:8080"])
def test_an_address_is_one_however_it_is_written(typed: str) -> None:
    target = parse_target(typed)
    port = ":8080" if typed.endswith("8080") else ""
    for written in ("2001:db8::1", "2001:db8:0:0:0:0:0:1", "2001:0db8:0000:0000:0000:0000:0000:0001", "2001:DB8::1"):
        url = f"http://[{written}]{port}/a"
        assert target.matches(url), url
        assert target.matches(url, f"[{written}]"), url
        assert any(surt_key(url).encode() in keys for keys in target.ranges), url
    assert not target.matches(f"http://[2001:db8::11]{port}/a")


def test_an_address_that_stands_for_another_one_has_its_dots_too() -> None:
    target = parse_target("host:[::ffff:102:304]")
    for url in ("http://[::ffff:1.2.3.4]/", "http://[::FFFF:102:304]/", "http://[0:0:0:0:0:ffff:102:304]/"):
        assert any(surt_key(url).encode() in keys for keys in target.ranges), url


def test_a_name_is_what_browsers_ask_today_and_a_row_what_was_crawled() -> None:
    """Two sites may be meant by an old international name: IDNA 2003, which crawlers and keys go by, has ``ss`` for
    ``ß``, and browsers (UTS 46) have a name of its own."""
    today, then = parse_target("straße.de"), parse_target("strasse.de")
    assert (today.value, then.value) == ("xn--strae-oqa.de", "strasse.de")
    for url, new, old in (
        ("http://xn--strae-oqa.de/", True, False),
        ("http://straße.de/", False, True),
        ("http://strasse.de/", False, True),
    ):
        assert (today.matches(url), then.matches(url)) == (new, old), url
        key = surt_key(url).encode()
        assert [any(key in keys for keys in target.ranges) for target in (today, then)] == [new, old], url


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ("example.com", "example.com"),
        ("host:a.example.com", "host:a.example.com"),
        ("tld:de", "tld:de"),
        ("url:http://example.com/a", "…"),
        ("set:a = example.com, example.org", "…"),
        ("captures:abc", "…"),
        ("example.com where status=200", "…"),
    ],
)
def test_advice_names_a_key_as_a_command_takes_it(definition: str, text: str) -> None:
    key = parse_target(definition).slug
    assert text_of_key(key) == text
    assert text == "…" or parse_target(text).slug == key
