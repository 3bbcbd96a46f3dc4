"""robots.txt after the text of RFC 9309, and the signals that stand beside its rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.duck import connect
from cc_pipeline.extensions.policies import policy_queries
from cc_pipeline.extensions.policies.fill import origin_of
from cc_pipeline.extensions.policies.robots import MAX_BYTES, MAX_PAIRS, normal_pattern, parse_robots
from cc_pipeline_tests.extensions.policies.asked import access, verdicts
from cc_pipeline_tests.extensions.policies.reported import ROBOTS

SITE = "https://example.org"


def may(body: str, agent: str, *paths: str) -> list[str]:
    return access(body.encode(), *((agent, SITE + path) for path in paths))


# section 2.2.1: groups
GROUPS = {
    "the token is compared without case": ("user-agent: EXAMPLEBOT\ndisallow: /a", "ExampleBot", {"/a": 0, "/b": 1}),
    "a version is no part of it": ("User-agent: ExampleBot/2.1 (x)\nDisallow: /a", "examplebot", {"/a": 0}),
    "a token is whole": ("User-agent: Example\nDisallow: /a", "ExampleBot", {"/a": 1}),
    "lines in a row share their rules": ("User-agent: a\nUser-agent: b\nDisallow: /x", "b", {"/x": 0}),
    "groups of one token are one": (
        "User-agent: a\nDisallow: /x\n\nUser-agent: b\nDisallow: /\n\nUser-agent: a\nDisallow: /y",
        "a",
        {"/x": 0, "/y": 0, "/z": 1},
    ),
    "an own group takes the place of the one for all": (
        "User-agent: *\nDisallow: /\nUser-agent: a\nDisallow: /x",
        "a",
        {"/x": 0, "/y": 1},
    ),
    "also one without a rule": ("User-agent: *\nDisallow: /\n\nUser-agent: a\nDisallow:", "a", {"/x": 1}),
    "others have the one for all": (
        "User-agent: a\nDisallow: /x\nUser-agent: *\nDisallow: /y",
        "b",
        {"/x": 1, "/y": 0},
    ),
    "no group, no rule": ("User-agent: a\nDisallow: /", "b", {"/x": 1}),
    "rules before any group are none": ("Disallow: /x\nUser-agent: *\nDisallow: /y", "a", {"/x": 1, "/y": 0}),
    # 2.2.4
    "other records end no group": (
        "User-agent: a\nSitemap: https://example.org/s.xml\nUser-agent: b\nDisallow: /x",
        "a",
        {"/x": 0},
    ),
    "a robot's name may have digits": ("User-agent: MJ12bot\nDisallow: /", "mj12bot", {"/": 0}),
}
# sections 2.2.2 and 2.2.3: matching
MATCHING = {
    "the longest rule counts": ("Allow: /p\nDisallow: /p/q", {"/p/a": 1, "/p/q/r": 0}),
    "of equally long ones, allow": ("Disallow: /p\nAllow: /p", {"/p": 1}),
    "from the first octet, with case": ("Disallow: /Foo", {"/foo": 1, "/Foo": 0, "/a/Foo": 1}),
    "an empty rule rules nothing": ("Disallow:", {"/": 1}),
    "robots.txt itself is free": ("Disallow: /", {"/robots.txt": 1, "/robots.txt?a": 0, "/": 0}),
    "a star is anything": ("Disallow: /a/*/c", {"/a/b/c": 0, "/a//c": 0, "/a/c": 1, "/a/b/b/cd?e": 0}),
    "a path may begin with it": ("Disallow: *.gif$", {"/x/y.gif": 0, "/y.gif?z": 1}),
    "a dollar is the end": ("Disallow: /a$", {"/a": 0, "/ab": 1, "/a?b": 1}),
    "elsewhere it is a character": ("Disallow: /a$b", {"/a$bc": 0, "/a": 1}),
    "both escaped are characters": ("Disallow: /a%2Ab%24", {"/a*b$": 0, "/axb": 1, "/a*b": 1}),
    "a comment ends a line": ("Disallow: /a # not /b", {"/a": 0, "/b": 1}),
    "LIKE's own signs are characters": (
        "Disallow: /a_b%5Cc\nDisallow: /100%",
        {"/axb%5Cc": 1, "/a_b\\c": 0, "/100%": 0},
    ),
    "the query counts": ("Disallow: /*?id=", {"/x?id=1": 0, "/x?a&id=1": 1}),
    "octets outside of ASCII are escaped": (
        "Disallow: /caf\u00e9",
        {"/caf%C3%A9": 0, "/caf%c3%a9/x": 0, "/caf\u00e9": 0},
    ),
    "escapes of the unreserved are taken away": ("Disallow: /%62%61%7A", {"/baz": 0, "/b%61z": 0}),
    "an escaped slash is none": ("Disallow: /a/b", {"/a%2Fb": 1, "/a%2fb": 1}),
    "but in a query": ("Disallow: /f?baz=https://foo.bar", {"/f?baz=https%3A%2F%2Ffoo.bar": 0}),
    "a forgotten colon": ("Disallow /a", {"/a": 0}),
}


@pytest.mark.parametrize("case", GROUPS)
def test_groups(case: str) -> None:
    body, agent, wanted = GROUPS[case]
    assert may(body, agent, *wanted) == [("disallow", "allow")[allowed] for allowed in wanted.values()]


@pytest.mark.parametrize("case", MATCHING)
def test_matching(case: str) -> None:
    rules, wanted = MATCHING[case]
    found = may(f"User-agent: *\n{rules}\n", "anybot", *wanted)
    assert found == [("disallow", "allow")[allowed] for allowed in wanted.values()]


SIGNALS = {
    "of the group for all": ("User-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /", "x", "/", "yes - no"),
    "before any group": ("Content-Signal: ai-input=no\nUser-agent: *\nAllow: /", "x", "/", "- no -"),
    "an own group has its own": (
        "User-agent: *\nContent-Signal: ai-train=no\nAllow: /\nUser-agent: a\nAllow: /",
        "a",
        "/",
        "- - -",
    ),
    "no goes before yes": (
        "User-agent: *\nContent-Signal: ai-train=yes\nContent-Usage: train-ai=n\n",
        "x",
        "/",
        "- - no",
    ),
    "of one label the last counts": ("User-agent: *\nContent-Usage: train-ai=n, train-ai=y", "x", "/", "- - yes"),
    "labels have a case": ("User-agent: *\nContent-Usage: Train-AI=n", "x", "/", "- - -"),
    "what is neither y nor n": ("User-agent: *\nContent-Usage: train-ai=maybe", "x", "/", "- - -"),
    "all": ("User-agent: *\nContent-Usage: all=n, search=y", "x", "/", "no no no"),
    "the longest path counts": (
        "User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: /ok/ train-ai=y\nAllow: /",
        "x",
        "/ok/1",
        "- - yes",
    ),
    "of one path, no": (
        "User-agent: *\nContent-Usage: /a train-ai=y\nContent-Usage: /a train-ai=n",
        "x",
        "/a",
        "- - no",
    ),
    "a rule says nothing of a use": ("User-agent: *\nDisallow: /", "x", "/", "- - -"),
}


@pytest.mark.parametrize("case", SIGNALS)
def test_signals(case: str) -> None:
    body, agent, path, wanted = SIGNALS[case]
    [found] = verdicts([body.encode()], [(0, SITE + path, agent)])
    words = {"allow": "yes", "disallow": "no", "unknown": "-"}
    assert " ".join(words[found[use]] for use in ("search", "ai-input", "train")) == wanted


def test_licences_and_delays_are_lines_too() -> None:
    lines = parse_robots(
        b"License: https://a.example/l.xml\nUser-agent: a\nUser-agent: b\nCrawl-delay: 5\nDisallow: /\n"
    )
    said = [(line.number, line.agents, line.signal, line.value) for line in lines]
    assert said == [
        (1, (), "license", "https://a.example/l.xml"),
        (0, ("a", "b"), "user-agent", None),
        (4, ("a", "b"), "crawl-delay", "5"),
        (5, ("a", "b"), "disallow", "/"),
    ]


def test_a_file_without_end_is_cut() -> None:
    body = b"".join(b"User-agent: bot%d\n" % number for number in range(2_000)) + b"Disallow: /x\n" * 2_000
    lines = parse_robots(body)
    assert [line.signal for line in lines] == ["cut"]
    assert sum(len(line.agents) for line in lines) < MAX_PAIRS


def test_bytes_behind_the_bound_are_not_read() -> None:
    rules = b"User-agent: a\nDisallow: /x\n"
    rest = b"Disallow: /y\n"
    within, beyond = (rules + b"#" * (MAX_BYTES - len(rules) - size) + b"\n" + rest for size in (len(rest) + 1, 1))
    assert [line.path for line in parse_robots(within)] == [None, "/x", "/y"]
    assert [line.path for line in parse_robots(beyond)] == [None, "/x"]


@given(st.binary(max_size=200))
def test_no_bytes_are_an_error(body: bytes) -> None:
    for line in parse_robots(body):
        for text in (line.path, line.value, *line.agents):
            assert text is None or text.encode()


_PIECES = st.sampled_from([*"/?%*$#aé\\'\" &=~", "%2f", "%3F", "%41", "%e3", "%2a", "%zz", "%4"])


@settings(max_examples=10)
@given(st.lists(st.lists(_PIECES, max_size=12), min_size=100, max_size=200))
def test_sql_and_patterns_have_one_normal_form(several: list[list[str]]) -> None:
    paths = ["/" + "".join(parts).partition("#")[0] for parts in several]
    with connect() as connection:
        query = f"SELECT {policy_queries.path_expression('u')} FROM (SELECT unnest(?) AS u)"
        found = connection.execute(query, [[SITE + path for path in paths]]).fetchall()
    wanted = [normal_pattern(path.replace("*", "%2A").replace("$", "%24") + "*")[:-1] for path in paths]
    assert [path for (path,) in found] == wanted


@pytest.mark.parametrize(
    "url",
    [
        "https://Example.ORG/a?b", "http://example.org", "http://u:p@example.org:8080/x", "https://example.org:443/",
        "http://example.org?x=http://y/", "http://[2001:db8::1]:99/", "http://example.org:/x", "nonsense", "",
        "http://example.org:99999999999/", "HTTPS://example.org#f",
    ],
)  # fmt: skip
def test_sql_and_the_fill_have_one_origin(url: str) -> None:
    with connect() as connection:
        [found] = connection.execute(
            f"SELECT {policy_queries.origin_columns('u')} FROM (SELECT ? AS u)", [url]
        ).fetchall()
    assert found == origin_of(url)


def test_files_that_others_reported_are_read() -> None:
    for each in ROBOTS:
        rules = (line for line in parse_robots(each.body) if line.signal in ("allow", "disallow"))
        found = tuple((agent, line.signal, line.value) for line in rules for agent in line.agents)
        assert found == each.rules, f"{each.report} {each.about}"
