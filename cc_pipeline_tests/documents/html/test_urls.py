"""Absolute URLs for links."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents.html.tree import parse_html
from cc_pipeline.documents.html.urls import (
    browser_resolver,
    domain_of,
    host_of,
    resolve_header,
    resolve_reference,
    shown_host,
)
from cc_pipeline.documents.page import Limits

BASE = "http://User@Example.com:8080/a/b/c.html?q=1#f"


_PIECES = (
    *"http:// https:// HTTP:// // / /a /.. /. /%2e /%2E%2e / ? # a.b EXAMPLE.com example.com 1.2 0x7".split(),
    *"xn--a :80 u@ ' | [ % %zz ; \\ .. ../ \u6f22 \xe9".split(),
    *" \t",
)


@given(
    st.sampled_from(
        (
            BASE,
            "https://example.com",
            "https://example.com./x",
            "http://1.2/",
            "http://u@e.org:80/a/b?c#d",
            "mailto:x",
            "file:///a/b",
            "x",
        )
    ),
    st.lists(st.lists(st.sampled_from(_PIECES), max_size=8).map("".join), max_size=6),
)
def test_links_that_need_no_parser_are_what_the_parser_says(base: str, values: list[str]) -> None:
    markup = "".join(f"<a href='{html.escape(value)}'>" for value in [*values, *values])
    resolve = browser_resolver(base)
    links = parse_html(markup, base, Limits()).links
    assert [(link.url, link.host) for link in links] == [resolve(link.href or "") for link in links]
    assert [link.href for link in links] == [value for value in [*values, *values] if value and value[0] != "#"]


@pytest.mark.parametrize(
    ("url", "host", "domain"),
    [
        ("http://www.Example.co.uk:80/x", "www.example.co.uk", "example.co.uk"),
        ("https://[2001:db8::1]:443/", "2001:db8::1", "2001:db8::1"),
        ("http://192.0.2.1/", "192.0.2.1", "192.0.2.1"),
        ("http://user:pw@host.example.com./", "host.example.com", "example.com"),
        ("http://user.github.io/", "user.github.io", "github.io"),
        ("http://localhost/", "localhost", "localhost"),
        ("http://a.b.nosuch.xx/", "a.b.nosuch.xx", "nosuch.xx"),
        ("http://A\ud800x./", "a\ud800x", "a\ud800x"),
    ],
)
def test_hosts_and_domains(url: str, host: str, domain: str) -> None:
    assert host_of(url) == host
    assert domain_of(host) == domain


@pytest.mark.parametrize(
    ("value", "url", "host"),
    [
        ("../d e.html", "http://example.com/a/d%20e.html", "example.com"),
        ("HTTP://Other.ORG", "http://other.org/", "other.org"),
        ("http://M\u00fcnchen.de/\u00e4?\u00f6", "http://xn--mnchen-3ya.de/%C3%A4?%C3%B6", "xn--mnchen-3ya.de"),
        ("http://xn--mnchen-3ya.de./", "http://xn--mnchen-3ya.de./", "xn--mnchen-3ya.de"),
        ("//fa\u00df.de\\x", "http://xn--fa-hia.de/x", "xn--fa-hia.de"),
        ("http://[2001:DB8::1]:80/", "http://[2001:db8::1]/", "2001:db8::1"),
        ("http://0x7f.1/", "http://127.0.0.1/", "127.0.0.1"),
        ("https:other.html", "https://other.html/", "other.html"),
        ("mailto:a@example.com", "mailto:a@example.com", None),
        ("http://a b/", None, None),
        ("http://[::", None, None),
        ("\ud800", None, None),
    ],
)  # fmt: skip
def test_what_a_browser_would_ask_for(value: str, url: str | None, host: str | None) -> None:
    assert browser_resolver("http://example.com/a/b/c.html")(value) == (url, host)
    assert resolve_reference("http://example.com/a/b/c.html", value) == (url or value)


@pytest.mark.parametrize(
    ("charset", "value", "url"),
    [
        ("windows-1251", "/\u0451?q=\u0451#\u0451", "http://example.com/%D1%91?q=%B8#%D1%91"),
        # a character that the charset lacks is a reference, whose "#" begins no fragment
        ("windows-1251", "?r=\u6f22&s=x#y", "http://example.com/?r=%26%2328450%3B&s=x#y"),
        ("windows-1251", " ?\u0451\n\t\u0451! ", "http://example.com/?%B8%B8!"),
        ("windows-1251", "#a?\u0451", "http://example.com/#a?%D1%91"),
        *(("windows-1251", f"{scheme}://a.b/?\u0451", f"{scheme}://a.b/?%B8") for scheme in ("https", "ftp", "file")),
        ("windows-1251", "mailto:a@b.example?subject=\u0451", "mailto:a@b.example?subject=%D1%91"),
        (
            "ISO-2022-JP",
            "?\u3042&\U0001f600\u3093#x",
            "http://example.com/?%1B$B$%22%1B(B&%26%23128512%3B%1B$B$s%1B(B#x",
        ),
        ("GBK", "?\u20ac\U0001f600", "http://example.com/?%80%26%23128512%3B"),
        ("UTF-16LE", "?\u0451", "http://example.com/?%D1%91"),
        ("IBM850", "?\u0451", "http://example.com/?%D1%91"),
    ],
)
def test_queries_are_escaped_in_the_page_s_charset_as_browsers_do(charset: str, value: str, url: str) -> None:
    assert browser_resolver("http://example.com/", charset)(value)[0] == url


@pytest.mark.parametrize(
    ("host", "shown"),
    [("xn--wgv71a.jp", "\u65e5\u672c.jp"), ("example.com", None), ("xn--a.example", None), ("xn--", None)],
)
def test_hosts_as_browsers_show_them(host: str, shown: str | None) -> None:
    assert shown_host(host) == shown


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_browser_s_url_never_raises(base: str, value: str) -> None:
    url, host = browser_resolver(base, "windows-1252")(value)
    assert host is None or (url is not None and host.isascii())


@pytest.mark.parametrize("charset", ["utf-8", "latin-1", "cp1251"])
@pytest.mark.parametrize(
    "value", ["/größe", "/ÿ\x80", "//Other.Example/é?q=ü#é", "http:/other.example/b", "HTTPS://OTHER.example/A"]
)
def test_addresses_in_headers_keep_their_bytes(value: str, charset: str) -> None:
    sent = value.encode(charset, "xmlcharrefreplace").decode("latin-1")
    escaped = "".join(f"%{ord(each):02X}" if each > "\x7f" else each for each in sent)
    assert resolve_header("https://a.example/x", sent) == browser_resolver("https://a.example/x")(escaped)[0]
