"""Absolute URLs for links."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.documents.html.urls import domain_of, host_of, resolver

BASE = "http://User@Example.com:8080/a/b/c.html?q=1#f"


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("d.html", "http://User@Example.com:8080/a/b/d.html"),
        ("./d.html", "http://User@Example.com:8080/a/b/d.html"),
        ("../d.html", "http://User@Example.com:8080/a/d.html"),
        ("../../../../d", "http://User@Example.com:8080/d"),
        ("/x/./y/../z", "http://User@Example.com:8080/x/z"),
        ("..", "http://User@Example.com:8080/a/"),
        ("?p=2", "http://User@Example.com:8080/a/b/c.html?p=2"),
        ("#top", "http://User@Example.com:8080/a/b/c.html?q=1#top"),
        ("", "http://User@Example.com:8080/a/b/c.html?q=1"),
        ("//other.org/x", "http://other.org/x"),
        ("\\\\other.org\\x", "http://other.org/x"),
        (" \n/a b\tc ", "http://User@Example.com:8080/a%20bc"),
        ("HTTPS://Other.org/a/../b", "https://Other.org/b"),
        ("http:same.html", "http://User@Example.com:8080/a/b/same.html"),
        ("https:other.html", None),
        ("mailto:a@example.com", "mailto:a@example.com"),
        ("javascript:void(0)", "javascript:void(0)"),
        ("a/b?x=/../y", "http://User@Example.com:8080/a/b/a/b?x=/../y"),
    ],
)
def test_resolution(value: str, url: str | None) -> None:
    assert resolver(BASE)(value)[0] == url


def test_a_page_without_a_usable_url_resolves_only_absolute_links() -> None:
    resolve = resolver("about:blank")
    assert resolve("x.html") == (None, None)
    assert resolve("http://example.com/")[1] == "example.com"


@settings(deadline=None)
@given(
    st.from_regex(r"https?://[a-z]{1,8}\.(com|org)(/[a-z]{1,6}){1,4}/?(\?[a-z=&]{1,6})?", fullmatch=True),
    st.from_regex(r"((\.\.?|[a-z]{1,4})/){0,4}[a-z]{1,4}(\?[a-z]{1,3})?(#[a-z]{1,3})?", fullmatch=True),
)
def test_agrees_with_the_standard_library_on_ordinary_urls(base: str, value: str) -> None:
    assert resolver(base)(value)[0] == urljoin(base, value)


@settings(deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_never_raises_and_hosts_agree(base: str, value: str) -> None:
    url, host = resolver(base)(value)
    if url is not None:
        assert host == host_of(url)
    if host is not None:
        assert domain_of(host)


@pytest.mark.parametrize(
    ("url", "host", "domain"),
    [
        ("http://www.Example.co.uk:80/x", "www.example.co.uk", "example.co.uk"),
        ("https://[2001:db8::1]:443/", "2001:db8::1", "2001:db8::1"),
        ("http://192.0.2.1/", "192.0.2.1", "192.0.2.1"),
        ("http://user:pw@host.example.com./", "host.example.com", "example.com"),
        ("http://user.github.io/", "user.github.io", "github.io"),
        ("http://localhost/", "localhost", "localhost"),
    ],
)
def test_hosts_and_domains(url: str, host: str, domain: str) -> None:
    assert host_of(url) == host
    assert domain_of(host) == domain
