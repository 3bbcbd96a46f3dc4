"""Whose a capture is, asked of many targets at once: each kind by its own dictionary, and the same as one by one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cc_pipeline.commoncrawl import matching as members
from cc_pipeline.commoncrawl.matching import MemberIndex, PrefixIndex, port_of
from cc_pipeline.commoncrawl.target_text import parse_target

TARGETS = [
    "example.com",
    "host:www.example.com",
    "a.example.com",
    "example.com:8080",
    "host:example.com:8080",
    "1.2.3.4",
    "host:1.2.3.4",
    "tld:museum",
    "suffix:co.uk",
    "url:http://example.com/A?b=2&a=1",
    "url:http://other.org/",
    "prefix:http://example.com/blog/",
    "prefix:http://example.com/blog/2024",
    "rev:com.exam",
    "rev:com.example/blog",
    "rev:com.example",
]
INDEX = MemberIndex([parse_target(text) for text in TARGETS])


def of(url: str, host: str | None = None) -> set[str]:
    return {TARGETS[number] for number in INDEX.find_members(url, host)}


def test_a_capture_is_of_each_target_that_it_matches() -> None:
    """A name that only ends alike is nobody's, and an address has no hosts under it."""
    assert of("http://sub.www.example.com:8080/blog/2024/x") == {
        "example.com", "example.com:8080", "rev:com.exam", "rev:com.example",
    }  # fmt: skip
    for url in ("http://notexample.com/", "http://9.1.2.3.4/", "http://other.org/x", "mailto:someone@example.com"):
        assert of(url) == set() == of(url), "asked again it is remembered"


@pytest.mark.parametrize(
    ("written", "port"),
    [("", 80), (":", 80), (":8080", 8080), (":00080", 80), (":000080", None), (":x", None), (":٣", None)],
)
def test_the_port_of_an_address(written: str, port: int | None) -> None:
    assert port_of(f"http://a.com{written}/") == port


def test_the_host_that_an_index_names_counts_for_the_one_in_the_address() -> None:
    assert of("http://irrelevant/", "WWW.Example.COM.") >= {"example.com", "rev:com.example"}
    assert of("http://example.com/", "moma.museum") >= {"tld:museum"}
    assert "example.com" not in of("http://example.com/", "moma.museum")


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_REMEMBERED", 2)
    index = MemberIndex([parse_target("example.com")])
    for number in range(7):
        assert index.find_members(f"http://h{number}.example.com/") == [0]
        assert len(index._ports_by_host) <= 2


_NAME = st.lists(st.sampled_from(["a", "www", "example", "co"]), min_size=1, max_size=3).map(".".join)
_HOST = st.builds(lambda name, top: f"{name}.{top}", _NAME, st.sampled_from(["com", "co.uk", "museum"])) | st.just(
    "1.2.3.4"
)
_PORT = st.sampled_from(["", ":80", ":8080"])
_PATH = st.sampled_from(["/", "/blog/", "/Blog//2024", "/blog/2024?b=1&a=2", "/(x)/y"])
_URL = st.builds(lambda host, port, path: f"http://{host}{port}{path}", _HOST, _PORT, _PATH)
_TARGET = st.one_of(
    st.sampled_from(TARGETS),
    st.builds(lambda host: f"host:{host}", _HOST),
    _URL.map(lambda url: f"url:{url}"),
    _URL.map(lambda url: f"prefix:{url}"),
    st.builds(lambda name: f"rev:com.{name}", _NAME),
    st.builds(lambda name, path: f"rev:com.{name}{path}"[:12], _NAME, _PATH),
    st.builds(
        lambda host, path, query: f"prefix:http://{host}{path}?{query}", _HOST, _PATH, st.sampled_from(["", "a=1"])
    ),
)


@given(st.lists(_TARGET, min_size=1, max_size=8, unique=True), st.lists(_URL, min_size=1, max_size=4))
@example(["example.com:80"], ["http://example.com:80/", "https://example.com/"])
@example(["rev:com.ab/", "rev:com.abcdefgh"], ["http://ab.com/"])
def test_it_says_what_each_target_says_by_itself(typed: list[str], urls: list[str]) -> None:
    targets = [parse_target(text) for text in typed]
    index = MemberIndex(targets)
    for url in urls:
        assert sorted(index.find_members(url)) == [number for number, one in enumerate(targets) if one.matches(url)], (
            url
        )


@given(
    st.lists(st.text("ab/?", max_size=6), min_size=1, max_size=30, unique=True),
    st.lists(st.text("ab/?", max_size=9), min_size=1, max_size=9),
)
def test_prefixes_are_found_as_by_looking_at_each(prefixes: list[str], texts: list[str]) -> None:
    index = PrefixIndex({prefix: [number] for number, prefix in enumerate(prefixes)})
    for text in [*texts, *(f"{prefix}a" for prefix in prefixes)]:
        found = index.find_numbers(text)
        assert sorted(found) == [number for number, prefix in enumerate(prefixes) if text.startswith(prefix)]
