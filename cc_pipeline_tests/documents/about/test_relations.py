"""Canonical URLs, languages, feeds and refreshes, of elements and headers."""

from __future__ import annotations

from typing import Any

import pytest

from cc_pipeline.documents.about.relations import header_links
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page

HOST = "https://www.example.com"


def row(head: str = "", headers: tuple[tuple[str, str], ...] = (), **more: Any) -> dict[str, Any]:
    return dict(parse_page(page(f"<html><head><title>t</title>{head}</head><body>x", headers=headers, **more)).metadata)


@pytest.mark.parametrize(
    ("head", "link", "url", "source"),
    [
        ('<link rel="canonical" href="/a">', None, "/a", "link"),
        ('<link rel="canonical" href="/a">', '</b>; rel="canonical"', "/a", "link"),
        ("", '</b>; rel="canonical"', "/b", "header"),
        ("", "<b,c>; rel=canonical; foo", "/dir/b,c", "header"),
        ("", '</x>; rel="preload"; as=style, </b>; rel="alternate canonical"', "/b", "header"),
        ("", '</b>; rel="canonical"; anchor="/other"', None, None),
        ("", "/b; rel=canonical", None, None),
        ("", "<>", None, None),
        *((f'<link rel="canonical"{href}>', None, None, None) for href in (' href=""', ' href="#x"', "")),
    ],
)
def test_canonical(head: str, link: str | None, url: str | None, source: str | None) -> None:
    found = row(head, (("Link", link),) if link else ())
    assert (found["canonical_url"], found["canonical_from"]) == (url and HOST + url, source)


def test_headers_are_not_relative_to_the_base_element() -> None:
    head = '<base href="/base/"><meta http-equiv="refresh" content="0; url=next">'
    found = row(head, (("Link", "<b>; rel=canonical"),))
    assert found["canonical_url"] == f"{HOST}/dir/b"
    assert found["refresh"]["url"] == f"{HOST}/base/next"


def test_link_headers() -> None:
    found = header_links((("Link", '<a>; rel="next prev"; title="a \\"b\\", c", <b>;REL=x;y'), ("link", "<c>; rel=z")))
    assert [(link.url, link.parameters) for link in found] == [
        ("a", {"rel": "next prev", "title": 'a "b", c'}),
        ("b", {"rel": "x", "y": ""}),
        ("c", {"rel": "z"}),
    ]
    assert len(header_links((("Link", "<a>; rel=x, " * 10_000),))) == 200


def test_other_languages() -> None:
    head = (
        '<link rel="alternate" hreflang="de-AT" href="/de"><link rel="alternate" hreflang="x-default" href="/">'
        '<link rel="alternate" hreflang="de-AT" href="/de"><link rel="stylesheet" hreflang="fr" href="/fr">'
        '<link rel="alternate" media="print" href="/print">'
    )
    found = row(head, (("Link", '</es>; rel="alternate"; hreflang="es"'),))
    assert [(each["hreflang"], each["url"], each["source"]) for each in found["alternates"]] == [
        ("de-at", f"{HOST}/de", "link"),
        ("x-default", f"{HOST}/", "link"),
        ("es", f"{HOST}/es", "header"),
    ]
    assert row()["alternates"] is None


def test_feeds() -> None:
    head = (
        '<link rel="alternate" type="application/rss+xml" title="News" href="/rss"><link rel=feed href=/feed>'
        '<link rel="alternate" type="application/atom+xml; charset=utf-8" href="/atom">'
        '<link rel="alternate" type="application/feed+json" href="/json" hreflang="de">'
        '<link rel="alternate" type="application/json" href="/wp"><link rel=alternate type=text/rss+xml href=/rss>'
    )
    found = row(head, (("Link", '</h>; rel="alternate"; type="application/atom+xml"; title="H"'),))
    assert [(each["type"], each["url"], each["title"], each["source"]) for each in found["feed_links"]] == [
        ("rss", f"{HOST}/rss", "News", "link"),
        (None, f"{HOST}/feed", None, "link"),
        ("atom", f"{HOST}/atom", None, "link"),
        ("json", f"{HOST}/json", None, "link"),
        ("atom", f"{HOST}/h", "H", "header"),
    ]
    assert found["alternates"] is None


@pytest.mark.parametrize(
    ("content", "seconds", "url"),
    [
        ("5; url=/next", 5.0, f"{HOST}/next"),
        ("0;URL='next?a=1'", 0.0, f"{HOST}/dir/next?a=1"),
        ('3.5, "/quoted" rest', 3.5, f"{HOST}/quoted"),
        (" 10 ", 10.0, None),
        ("0;url=", 0.0, None),
        ("1 /next", 1.0, f"{HOST}/next"),
        (".5;/next", 0.5, f"{HOST}/next"),
    ],
)
def test_refresh(content: str, seconds: float, url: str | None) -> None:
    assert row(
        f"<meta http-equiv='Refresh' content='{content}'>".replace("='0;URL='next?a=1''", "=\"0;URL='next?a=1'\"")
    )["refresh"] == {"seconds": seconds, "url": url, "source": "meta"}
    assert row("", (("Refresh", content),))["refresh"] == {"seconds": seconds, "url": url, "source": "header"}


@pytest.mark.parametrize("content", ["", "soon", "; url=/x", "-1; url=/x", "."])
def test_what_is_no_refresh(content: str) -> None:
    assert row(f'<meta http-equiv="refresh" content="{content}">')["refresh"] is None


def test_the_first_refresh_that_can_be_read_counts() -> None:
    contents = ("soon", "5; url=/first", "0; url=/second")
    tags = "".join(f'<meta http-equiv="refresh" content="{content}">' for content in contents)
    assert row(tags)["refresh"] == {"seconds": 5.0, "url": f"{HOST}/first", "source": "meta"}


def test_a_refresh_for_browsers_without_scripts_is_none() -> None:
    assert row('<noscript><meta http-equiv="refresh" content="0; url=/noscript"></noscript>')["refresh"] is None
