"""Whose a capture is, asked of many targets at once: each kind by its own dictionary, and the same as one by one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cc_pipeline.commoncrawl import matching as members
from cc_pipeline.commoncrawl.matching import MemberIndex
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
    return {TARGETS[number] for number in INDEX.of(url, host)}


@pytest.mark.parametrize(
    ("url", "theirs"),
    [
        ("http://example.com/", {"example.com", "rev:com.exam", "rev:com.example"}),
        # a name that only ends alike is nobody's, and a port is only that of those who name it
        ("http://notexample.com/", set()),
        (
            "http://example.com:8080/",
            {"example.com", "example.com:8080", "host:example.com:8080", "rev:com.exam", "rev:com.example"},
        ),
        (
            "http://b.a.example.com:8080/x",
            {"example.com", "a.example.com", "example.com:8080", "rev:com.exam", "rev:com.example"},
        ),
        ("https://www.example.com/", {"example.com", "host:www.example.com", "rev:com.exam", "rev:com.example"}),
        ("http://sub.www.example.com/", {"example.com", "rev:com.exam", "rev:com.example"}),
        ("http://1.2.3.4/", {"1.2.3.4", "host:1.2.3.4"}),
        # an address has no hosts under it
        ("http://9.1.2.3.4/", set()),
        ("http://moma.museum/", {"tld:museum"}),
        ("http://www.bbc.co.uk/", {"suffix:co.uk"}),
        ("http://other.org/", {"url:http://other.org/"}),
        ("http://other.org/x", set()),
        (
            "http://www.example.com/a/?a=1&b=2",
            {"example.com", "host:www.example.com", "url:http://example.com/A?b=2&a=1", "rev:com.exam"}
            | {"rev:com.example"},
        ),
        (
            "http://example.com/blog/2024/x",
            {"example.com", "prefix:http://example.com/blog/", "prefix:http://example.com/blog/2024"}
            | {"rev:com.exam", "rev:com.example/blog", "rev:com.example"},
        ),
        (
            "http://example.com/blog/x",
            {"example.com", "prefix:http://example.com/blog/", "rev:com.exam", "rev:com.example/blog"}
            | {"rev:com.example"},
        ),
        ("http://examiner.com/", {"rev:com.exam"}),
        ("mailto:someone@example.com", set()),
    ],
)
def test_a_capture_is_of_each_target_that_it_matches(url: str, theirs: set[str]) -> None:
    assert of(url) == theirs
    # asked again it is remembered, and says the same
    assert of(url) == theirs


def test_the_host_that_an_index_names_counts_for_the_one_in_the_address() -> None:
    assert of("http://irrelevant/", "WWW.Example.COM.") >= {"example.com", "rev:com.example"}
    assert of("http://example.com/", "moma.museum") >= {"tld:museum"}
    assert "example.com" not in of("http://example.com/", "moma.museum")


def test_each_target_is_named_once() -> None:
    found = INDEX.of("http://example.com:8080/blog/2024")
    assert len(found) == len(set(found))


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_REMEMBERED", 2)
    index = MemberIndex([parse_target("example.com")])
    for number in range(7):
        assert index.of(f"http://h{number}.example.com/") == [0]
        assert len(index._known) <= 2


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
)


@given(st.lists(_TARGET, min_size=1, max_size=8, unique=True), st.lists(_URL, min_size=1, max_size=4))
@example(["example.com:80"], ["http://example.com:80/", "https://example.com/"])
def test_it_says_what_each_target_says_by_itself(typed: list[str], urls: list[str]) -> None:
    targets = [parse_target(text) for text in typed]
    index = MemberIndex(targets)
    for url in urls:
        assert sorted(index.of(url)) == [number for number, one in enumerate(targets) if one.matches(url)], url
